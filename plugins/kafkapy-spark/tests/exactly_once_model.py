"""A model of the exactly-once sink, small enough to be run through very many schedules.

Kafka is a dictionary of transactional ids: InitProducerId fences, EndTxn is refused for another epoch, transactions
time out, ids that were not used for long are forgotten, answers get lost. Spark repeats batches under their number in
other partitions, tries tasks and stages again, runs some twice, forgets some that go on, and dies at any step. People
restore a checkpoint from a backup, move it, and start the query again. Processes are generators: each `yield` is a
place to stop, or to die. Transactional ids of tasks come from the sink's own TaskIds.

What is left out of the protocol, one thing at a time, shows what it is for: see VARIANTS.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from kafkapy_spark.task_ids import TaskIds

from kafkapy.clients.producer.transactional_requests import PreparedTxnState

T = TypeVar("T")
Row = int
Process = Generator[None, None, Any]

PROPOSED: Final = "proposed"
VARIANTS: Final = {
    PROPOSED: "what two_phase_commit does",
    "no second phase": "each task commits its own transaction",
    "no decision": "the driver commits the tasks' transactions without having written that it will",
    "blind abort": "abort() takes back without looking for a decision",
    "fixed ids": "transactional ids are those of the partitions",
    "numbered ids": "transactional ids are those of a few drivers in turn, partitions and attempts of a try of a stage",
    "known is skipped": "a batch is skipped by its number alone",
    "known is counted": "a batch is skipped by its number and that of its rows",
    "known is written": "with ignoreSinkState=true, a batch is written whatever its rows are",
    "forgotten is lost": "a transaction whose id has expired counts as aborted",
    "forgotten is committed": "a transaction whose id has expired counts as committed",
    "open is enough": "a batch is decided if its transactions are open, however soon they end",
    "decisions take long": "a decision may take as long as any transaction",
    "others are not asked": "a sink decides on a query that another sink has decided on",
}
BATCHES: Final = 4
LOST: Final = 0.06
CRASH: Final = 0.03
EXPIRES: Final = 0.01
PAUSES: Final = 0.03
RESTORED: Final = 0.04
MOVED: Final = 0.04
SLOTS: Final = 4
TIMEOUT: Final = 400
"""Steps that a transaction may last."""
DECISION: Final = 100
"""Steps that a decision may take."""
NEVER: Final = 10**9
"""Steps that a transaction may last that only a client ends (KIP-939)."""


class FencedError(Exception):
    """Another producer has the id, or the transaction was ended otherwise."""


class ForgottenError(FencedError):
    """Nobody knows the id, or it has begun anew since it was known."""


class LostAnswerError(Exception):
    """The request was carried out, or not."""


class CrashError(Exception):
    """The driver has died."""


class FailedError(Exception):
    """Spark gives the batch up; the query is started again."""


class RefusedError(Exception):
    """Somebody has to choose: the batch has a number that was decided with other rows."""


class MovedError(Exception):
    """Somebody has to choose: another sink has decided on the query."""


class Handle(NamedTuple):
    """A task's open transaction."""

    name: str
    producer: int
    epoch: int
    rows: tuple[Row, ...] = ()


class Decision(NamedTuple):
    """The control record."""

    sink: str
    batch: int
    handles: tuple[Handle, ...]

    @property
    def rows(self) -> list[Row]:
        """All that was decided on."""
        return sorted(row for handle in self.handles for row in handle.rows)


class Plan(NamedTuple):
    """What a driver's beginning has found."""

    sink: str
    driver: Handle
    decision: Decision | None
    lost: tuple[Handle, ...] = ()


@dataclass
class Transaction:
    """A transactional id."""

    producer: int
    epoch: int = 0
    state: str = "empty"
    begun: int = 0
    timeout: int = TIMEOUT
    rows: list[Row] = field(default_factory=list)
    decision: Decision | None = None


class Kafka:
    """The broker: what readers of committed records see is in `committed`."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.now = 0
        self.transactions: dict[str, Transaction] = {}
        self.producers = 0
        self.committed: list[Row] = []
        self.markers: dict[tuple[int, int], bool] = {}
        """Producer and epoch of transactions that have ended, and whether they were committed."""
        self.decisions: dict[str, Decision] = {}
        self.timed_out: set[tuple[int, int]] = set()
        """Producer and epoch of transactions whose time was over."""
        self.late = False
        """Whether anything was decided on transactions that had ended."""

    def _answered(self, request: Callable[[], T]) -> T:
        luck = self.chance.random()
        if luck < LOST / 2:
            raise LostAnswerError
        answer = request()
        if luck < LOST:
            raise LostAnswerError
        return answer

    def passes(self, steps: int) -> None:
        """Time, in which transactions time out."""
        self.now += steps
        for found in self.transactions.values():
            if found.state == "open" and self.now - found.begun > found.timeout:
                self.timed_out.add((found.producer, found.epoch))
                self._end(found, commit=False)
                found.epoch += 1

    def expire(self) -> None:
        """Forgets an id that has no open transaction."""
        name = self.chance.choice(list(self.transactions))
        if self.transactions[name].state != "open":
            del self.transactions[name]

    def _end(self, found: Transaction, *, commit: bool) -> None:
        self.markers[found.producer, found.epoch] = commit
        if commit:
            self.committed += found.rows
            if found.decision is not None:
                self.decisions[found.decision.sink] = found.decision
                self.late |= any(self.markers.get(each[1:3]) is False for each in found.decision.handles)
        found.state, found.rows, found.decision = "committed" if commit else "aborted", [], None

    def initialize(self, name: str, timeout: int = TIMEOUT) -> Handle:
        """InitProducerId."""

        def request() -> Handle:
            found = self.transactions.get(name)
            if found is None:
                self.producers += 1
                found = self.transactions[name] = Transaction(self.producers)
            if found.state == "open":
                self._end(found, commit=False)
            found.epoch, found.state, found.timeout = found.epoch + 1, "empty", timeout
            return Handle(name, found.producer, found.epoch)

        return self._answered(request)

    def produce(self, handle: Handle, rows: Iterable[Row] = (), decision: Decision | None = None) -> None:
        """Records, or the control record, within a transaction."""

        def request() -> None:
            found = self._of(handle)
            if found.state != "open":
                found.state, found.begun = "open", self.now
            found.rows.extend(rows)
            found.decision = decision or found.decision

        self._answered(request)

    def end(self, handle: Handle, *, commit: bool) -> None:
        """EndTxn. Asked again, it says the same."""

        def request() -> None:
            found = self._of(handle)
            if found.state == "open":
                self._end(found, commit=commit)
            elif found.state != ("committed" if commit else "aborted") and (commit or found.state != "empty"):
                raise FencedError

        self._answered(request)

    def left(self, handle: Handle) -> int:
        """DescribeTransactions: how long a transaction will last, -1 if it is not open."""

        def request() -> int:
            found = self.transactions.get(handle.name)
            if found is None or (found.producer, found.epoch, found.state) != (*handle[1:3], "open"):
                return -1
            return found.begun + found.timeout - self.now

        return self._answered(request)

    def find_open(self, prefix: str) -> list[Handle]:
        """ListTransactions and DescribeTransactions: the tasks' transactions of a sink that are open."""
        return self._answered(
            lambda: [
                Handle(name, found.producer, found.epoch)
                for name, found in self.transactions.items()
                if found.state == "open" and name.startswith(prefix) and not name.endswith("-driver")
            ]
        )

    def current(self, name: str) -> tuple[int, int] | None:
        """DescribeTransactions: producer and epoch of an id."""

        def request() -> tuple[int, int] | None:
            found = self.transactions.get(name)
            return None if found is None else (found.producer, found.epoch)

        return self._answered(request)

    def _of(self, handle: Handle) -> Transaction:
        found = self.transactions.get(handle.name)
        if found is None or found.producer != handle.producer:
            raise ForgottenError
        if found.epoch != handle.epoch:
            raise FencedError
        return found


def again(request: Callable[[], T]) -> T:
    """Until there is an answer."""
    for _ in range(6):
        try:
            return request()
        except LostAnswerError:
            pass
    raise LostAnswerError


class Model:
    """One schedule: a query that is started again until all of its batches are done."""

    def __init__(self, seed: int, variant: str = PROPOSED, two_phase_chance: float = 0) -> None:
        """two_phase_chance: that the broker of a task's coordinator lets its transaction last for ever (KIP-939)."""
        self.two_phase_chance = two_phase_chance
        self.losses = 0
        """Transactions that were decided on and not committed: their rows had to be written again."""
        self.chance = random.Random(seed)
        self.kafka = Kafka(self.chance)
        self.variant = variant
        self.sink = "a"
        self.ignores = False
        """Whether somebody has chosen ignoreSinkState=true."""
        self.taken = False
        """Whether a transaction that was decided on was ended by anything but its time."""
        self.forgotten: list[Process] = []
        self.idle: list[TaskIds] = []
        self.drivers = 0
        self.written = 0
        self.expected: set[Row] = set()
        self.possible: set[Row] = set()
        """Rows of a batch that was planned, and forgotten with its checkpoint before it was known to be done."""
        self.done = 0
        self.planned: dict[int, list[Row]] = {}
        """The checkpoint: batches that are done, and the rows of those that were planned."""
        self.backup = 0
        """Batches that were done when it was copied. There are backups in half of the schedules."""
        self.events = {name: self.chance.random() < 0.5 for name in ("restored", "moved", "expires", "pauses")}

    @property
    def two_phases(self) -> bool:
        """Whether tasks leave their transactions open."""
        return self.variant != "no second phase"

    @property
    def decides(self) -> bool:
        """Whether there is a control record."""
        return self.variant not in ("no second phase", "no decision")

    def happens(self, event: str, likely: float) -> bool:
        """Whether it does now, in schedules in which it may."""
        return self.events[event] and self.chance.random() < likely

    def step(self) -> None:
        """A place for the driver to die, for time to pass, and for what was forgotten to go on."""
        self.kafka.passes(self.chance.randint(TIMEOUT // 4, TIMEOUT) if self.happens("pauses", PAUSES) else 1)
        if self.kafka.transactions and self.happens("expires", EXPIRES):
            self.kafka.expire()
        if self.chance.random() < CRASH:
            raise CrashError
        if self.forgotten and self.chance.random() < 0.25:
            self.go_on(self.chance.choice(self.forgotten))

    def go_on(self, process: Process) -> None:
        """One step of a process that nobody waits for."""
        self.forgotten.remove(process)
        try:
            next(process)
        except (StopIteration, FencedError, LostAnswerError, CrashError, RefusedError, MovedError):
            return
        self.forgotten.append(process)

    # --- the protocol -----------------------------------------------------------------------------------------------

    def begin(self) -> Plan:
        """The driver's first step."""
        self.drivers += 1
        if not self.two_phases:
            return Plan(self.sink, Handle("", 0, 0), None)
        timeout = TIMEOUT if self.variant == "decisions take long" else DECISION
        sink = self.sink
        driver = again(lambda: self.kafka.initialize(f"{sink}-driver", timeout))
        found = again(lambda: self.kafka.decisions.get(sink))
        lost = () if found is None else tuple(self.roll_forward(found))
        plan = Plan(sink, driver, found, lost)
        if self.two_phase_chance:
            self.sweep(plan)
        return plan

    def sweep(self, plan: Plan) -> None:
        """Aborts what tasks have left open, while the driver is the newest: nothing else ends some of them."""
        decided = set() if plan.decision is None else {each[:3] for each in plan.decision.handles}
        found = again(lambda: self.kafka.find_open(f"{plan.sink}-"))
        self.step()
        if again(lambda: self.kafka.current(f"{plan.sink}-driver")) != plan.driver[1:3]:
            return
        for handle in found:
            if handle[:3] not in decided:
                self.step()
                try:
                    again(lambda handle=handle: self.kafka.end(handle, commit=False))  # type: ignore[misc]
                except FencedError:
                    pass

    def roll_forward(self, decision: Decision) -> list[Handle]:
        """Commits what is decided; what of it was aborted, as the log tells."""
        lost = []
        for handle in decision.handles:
            try:
                again(lambda handle=handle: self.kafka.end(handle, commit=True))  # type: ignore[misc]
            except FencedError as error:
                if not self.was_committed(handle, error):
                    lost.append(handle)
                    self.losses += 1
                    self.taken |= handle[1:3] not in self.kafka.timed_out
            self.step()
        return lost

    def was_committed(self, handle: Handle, error: FencedError) -> bool:
        """By its marker."""
        if isinstance(error, ForgottenError) and self.variant.startswith("forgotten"):
            return self.variant == "forgotten is committed"
        return self.kafka.markers[handle.producer, handle.epoch]

    def known(self, plan: Plan, batch: int) -> str:
        """What a batch is by its number: "new", "skipped", "compared", or "refused"."""
        if plan.decision is None or batch > plan.decision.batch:
            return "new"
        if self.variant == "known is skipped":
            return "skipped"
        if batch == plan.decision.batch:
            return "compared"
        return "new" if self.ignores else "refused"

    def task(self, plan: Plan, partition: int, attempt: int, rows: list[Row]) -> Process:
        """An attempt of a task: it gives None where there is nothing to commit, or a handle."""
        yield
        worker = self.idle.pop() if self.idle else TaskIds()
        with self.named(plan, partition, attempt, worker) as name:
            yield
            never = self.two_phase_chance and self.chance.random() < self.two_phase_chance
            timeout = NEVER if never else TIMEOUT
            handle = again(lambda: self.kafka.initialize(f"{plan.sink}-{name}", timeout))
            for row in rows:
                yield
                self.kafka.produce(handle, [row])
        self.idle.append(worker)
        yield
        if not self.two_phases:
            self.kafka.end(handle, commit=True)
        return handle._replace(rows=tuple(rows)) if rows else None

    def named(self, plan: Plan, partition: int, attempt: int, worker: TaskIds) -> AbstractContextManager[str]:
        """A transactional id, without its sink's name."""
        if self.variant == "fixed ids":
            return nullcontext(str(partition))
        if self.variant == "numbered ids":
            return nullcontext(f"{plan.driver.epoch % SLOTS}-{partition}-{attempt}")
        state = PreparedTxnState(plan.driver.producer, plan.driver.epoch)
        return worker.lent(plan.sink, state, reuse=not plan.lost)

    def commit(self, plan: Plan, batch: int, handles: list[Handle]) -> None:
        """The driver's second step, or a replay of what is lost: with handles of the others, which are not open."""
        self.step()
        if self.decides:
            self.require_alone(plan, batch)
            decision = Decision(plan.sink, batch, (*self.replayed(plan), *handles))
            again(lambda: self.kafka.produce(plan.driver, decision=decision))
            self.step()
            self.require_time(handles)
            self.step()
            again(lambda: self.kafka.end(plan.driver, commit=True))
            self.step()
        if self.chance.random() < CRASH:
            raise RuntimeError("the process that commits has died")
        for handle in handles:
            again(lambda handle=handle: self.kafka.end(handle, commit=True))  # type: ignore[misc]
            self.step()

    def replayed(self, plan: Plan) -> list[Handle]:
        """What of the decision before is committed, where some of it is lost."""
        return [each for each in plan.decision.handles if each not in plan.lost] if plan.decision and plan.lost else []

    def require_alone(self, plan: Plan, batch: int) -> None:
        """No other sink has gone on with the query."""
        mine = -1 if plan.decision is None else plan.decision.batch
        if self.variant == "others are not asked" or (mine >= 0 and batch <= mine + 1):
            return
        others = [each for each in self.kafka.decisions.values() if each.sink != plan.sink and each.batch >= mine]
        if others:
            raise MovedError

    def require_time(self, handles: list[Handle]) -> None:
        """All transactions are open, and last longer than it takes to decide on them."""
        for handle in handles:
            left = again(lambda handle=handle: self.kafka.left(handle))  # type: ignore[misc]
            needed = 0 if self.variant == "open is enough" else 2 * DECISION
            if left < needed or left < 0:
                raise FencedError

    def abort(self, sink: str, batch: int, handles: list[Handle]) -> None:
        """What Spark calls after a failure."""
        if not self.two_phases:
            return
        if self.decides:
            again(lambda: self.kafka.initialize(f"{sink}-driver"))
            found = again(lambda: self.kafka.decisions.get(sink))
            decided = found is not None and found.batch == batch and set(handles) & set(found.handles)
            if found is not None and decided and self.variant != "blind abort":
                self.roll_forward(found)
                return
        for handle in handles:
            try:
                again(lambda handle=handle: self.kafka.end(handle, commit=False))  # type: ignore[misc]
            except FencedError:
                pass
            self.step()

    # --- Spark ------------------------------------------------------------------------------------------------------

    def rows_of(self, batch: int) -> list[Row]:
        """As they stand in the checkpoint; else there are new ones."""
        if batch not in self.planned:
            count = self.chance.randint(1, 6)
            self.planned[batch] = list(range(self.written, self.written + count))
            self.expected |= set(self.planned[batch])
            self.written += count
        return self.planned[batch]

    def batch(self) -> None:
        """A micro-batch, from its plan to Spark's knowing that it is done."""
        plan = self.begin()
        batch = plan.decision.batch if plan.decision is not None and plan.lost else self.done
        self.step()
        results: list[Any] = []
        try:
            if plan.lost:
                assert plan.decision is not None
                self.replay(plan, plan.decision, results)
            else:
                known = self.known(plan, batch)
                if known == "refused":
                    raise RefusedError
                same = known == "compared" and self.is_same(plan, self.rows_of(batch))
                if known == "compared" and not same and not self.ignores:
                    raise RefusedError
                if not same and known != "skipped":
                    self.write(plan, batch, results)
        except (FencedError, LostAnswerError, RuntimeError) as error:
            self.abort(plan.sink, batch, [each for each in results if isinstance(each, Handle)])
            raise FailedError from error
        self.step()
        if not plan.lost:
            self.done += 1

    def is_same(self, plan: Plan, rows: list[Row]) -> bool:
        """Whether these are the rows that were decided on."""
        assert plan.decision is not None
        if self.variant == "known is counted":
            return len(rows) == len(plan.decision.rows)
        if self.variant == "known is written" and self.ignores:
            return False
        return sorted(rows) == plan.decision.rows

    def replay(self, plan: Plan, decision: Decision, results: list[Any]) -> None:
        """Writes what is lost of a decision again."""
        for handle in plan.lost:
            results.append(self.tried(plan, 0, list(handle.rows)))
        self.commit(plan, decision.batch, [each for each in results if isinstance(each, Handle)])

    def write(self, plan: Plan, batch: int, results: list[Any]) -> None:
        """Tasks, and their commit."""
        parts: list[list[Row]] = [[] for _ in range(self.chance.randint(1, 3))]
        for row in self.rows_of(batch):
            self.chance.choice(parts).append(row)
        for partition, rows in enumerate(parts):
            results.append(self.tried(plan, partition, rows))
            if self.chance.random() < 0.1:
                # Another try of the stage, in which Spark numbers attempts from 0 again; this result counts.
                self.forgotten.append(self.task(plan, partition, 0, rows))
        handles = [each for each in results if isinstance(each, Handle)]
        if not self.two_phases or not handles:
            return
        if self.chance.random() < CRASH and not self.events["moved"]:
            self.forgotten.append(self.old_driver(plan, batch, handles))
            raise CrashError
        self.commit(plan, batch, handles)

    def old_driver(self, plan: Plan, batch: int, handles: list[Handle]) -> Process:
        """Commits when another has taken over."""
        yield
        try:
            self.commit(plan, batch, handles)
        except RuntimeError:
            pass

    def tried(self, plan: Plan, partition: int, rows: list[Row]) -> Any:
        """The result of a task's first attempt that has one."""
        for attempt in range(4):
            running = [self.task(plan, partition, attempt, rows)]
            if self.chance.random() < 0.15:
                running.append(self.task(plan, partition, attempt + 4, rows))
            while running:
                self.step()
                process = self.chance.choice(running)
                if self.chance.random() < 0.02:
                    running.remove(process)
                    self.forgotten.append(process)
                    continue
                try:
                    next(process)
                except StopIteration as end:
                    running.remove(process)
                    self.forgotten += [each for each in running if self.chance.random() < 0.5]
                    return end.value
                except (FencedError, LostAnswerError):
                    running.remove(process)
        raise RuntimeError("a task has failed four times")

    def people(self) -> None:
        """What they do to a checkpoint between two starts of the query."""
        if self.happens("restored", RESTORED):
            left = set(self.planned.get(self.done, ()))
            self.possible |= left
            self.expected -= left
            self.done = self.backup
            self.planned = {batch: rows for batch, rows in self.planned.items() if batch < self.done}
        elif self.chance.random() < 0.2 and self.done not in self.planned:
            self.backup = self.done
        if self.happens("pauses", 0.2):
            self.kafka.passes(2 * TIMEOUT)
        while self.kafka.transactions and self.happens("expires", 0.7):
            self.kafka.expire()
        if self.happens("moved", MOVED):
            self.sink = "b" if self.sink == "a" else "a"

    def run(self) -> str:
        """ "once", or what went wrong: "twice", "lost". "taken": a transaction was ended that was decided on, "late": a
        decision was on one that had ended; both would have been lost if the batch could not be read again. "open":
        readers wait for a transaction that nobody is going to end."""
        for _ in range(400):
            if self.done == BATCHES:
                break
            self.people()
            try:
                self.batch()
            except RefusedError:
                self.ignores = True
            except MovedError:
                self.sink = "b" if self.sink == "a" else "a"
            except (CrashError, FailedError, FencedError, LostAnswerError):
                pass
        while self.forgotten:
            self.go_on(self.forgotten[0])
        self.finish()
        seen = Counter(self.kafka.committed)
        if any(count > 1 for count in seen.values()):
            return "twice"
        if not self.expected <= seen.keys() <= self.expected | self.possible:
            return "lost"
        if self.two_phase_chance and again(lambda: self.kafka.find_open(f"{self.sink}-")):
            return "open"
        return "taken" if self.taken else "late" if self.kafka.late else "once"

    def finish(self) -> None:
        """The query is started a last time, for what was decided and not carried out."""
        self.events = dict.fromkeys(self.events, False)
        for _ in range(100):
            try:
                plan = self.begin()
                if not plan.lost:
                    return
                results: list[Any] = []
                assert plan.decision is not None
                self.replay(plan, plan.decision, results)
            except (CrashError, FencedError, LostAnswerError, RuntimeError, MovedError):
                pass
