"""A model of the exactly-once sink, small enough to be run through very many schedules.

Kafka is a dictionary of transactional ids: InitProducerId fences, EndTxn is refused for another epoch, answers get
lost. Spark repeats batches under their number in other partitions, tries tasks again, runs some twice, forgets some
that go on, and dies at any step. Processes are generators: each `yield` is a place to stop, or to die.

What is left out of the protocol, one thing at a time, shows what it is for: see VARIANTS.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

T = TypeVar("T")
Row = tuple[int, int]
Process = Generator[None, None, Any]

VARIANTS: Final = {
    "proposed": "what two_phase_commit does",
    "no second phase": "each task commits its own transaction",
    "no decision": "the driver commits the tasks' transactions without having written that it will",
    "blind abort": "abort() takes back without looking for a decision",
    "fixed ids": "transactional ids are those of the partitions",
}
BATCHES: Final = 4
LOST: Final = 0.06
CRASH: Final = 0.03
SLOTS: Final = 16


class FencedError(Exception):
    """Another producer has the id, or the transaction was ended otherwise."""


class LostAnswerError(Exception):
    """The request was carried out, or not."""


class CrashError(Exception):
    """The driver has died."""


class FailedError(Exception):
    """Spark gives the batch up; the query is started again."""


class Handle(NamedTuple):
    """A task's open transaction."""

    name: str
    epoch: int


class Decision(NamedTuple):
    """The control record."""

    batch: int
    handles: tuple[Handle, ...]


class Plan(NamedTuple):
    """What a driver's beginning has found."""

    epoch: int
    decision: Decision | None


@dataclass
class Transaction:
    """A transactional id."""

    epoch: int = 0
    state: str = "empty"
    rows: list[Row] = field(default_factory=list)
    decision: Decision | None = None

    def clear(self, state: str) -> None:
        """Ends what is open."""
        self.state, self.rows, self.decision = state, [], None


class Kafka:
    """The broker: what readers of committed records see is in `committed`."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.transactions: dict[str, Transaction] = {}
        self.committed: list[Row] = []
        self.decision: Decision | None = None

    def _answered(self, request: Callable[[], T]) -> T:
        luck = self.chance.random()
        if luck < LOST / 2:
            raise LostAnswerError
        answer = request()
        if luck < LOST:
            raise LostAnswerError
        return answer

    def initialize(self, name: str) -> int:
        """InitProducerId."""

        def request() -> int:
            found = self.transactions.setdefault(name, Transaction())
            found.clear("empty")
            found.epoch += 1
            return found.epoch

        return self._answered(request)

    def produce(self, handle: Handle, rows: Iterable[Row] = (), decision: Decision | None = None) -> None:
        """Records, or the control record, within a transaction."""

        def request() -> None:
            found = self._of(handle)
            found.state = "open"
            found.rows.extend(rows)
            found.decision = decision or found.decision

        self._answered(request)

    def end(self, handle: Handle, *, commit: bool) -> None:
        """EndTxn. Asked again, it says the same."""

        def request() -> None:
            found = self._of(handle)
            outcome = "committed" if commit else "aborted"
            if found.state == "open":
                if commit:
                    self.committed += found.rows
                    self.decision = found.decision or self.decision
                found.clear(outcome)
            elif found.state != outcome and (commit or found.state != "empty"):
                raise FencedError

        self._answered(request)

    def is_open(self, handle: Handle) -> bool:
        """DescribeTransactions."""
        found = self.transactions[handle.name]
        return self._answered(lambda: (found.epoch, found.state) == (handle.epoch, "open"))

    def _of(self, handle: Handle) -> Transaction:
        found = self.transactions[handle.name]
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

    def __init__(self, seed: int, variant: str) -> None:
        self.chance = random.Random(seed)
        self.kafka = Kafka(self.chance)
        self.variant = variant
        self.rows = {batch: [(batch, row) for row in range(self.chance.randint(1, 6))] for batch in range(BATCHES)}
        self.done = 0
        self.forgotten: list[Process] = []

    @property
    def two_phases(self) -> bool:
        """Whether tasks leave their transactions open."""
        return self.variant != "no second phase"

    @property
    def decides(self) -> bool:
        """Whether there is a control record."""
        return self.variant not in ("no second phase", "no decision")

    def step(self) -> None:
        """A place for the driver to die, and for what was forgotten to go on."""
        if self.chance.random() < CRASH:
            raise CrashError
        if self.forgotten and self.chance.random() < 0.25:
            self.go_on(self.chance.choice(self.forgotten))

    def go_on(self, process: Process) -> None:
        """One step of a process that nobody waits for."""
        self.forgotten.remove(process)
        try:
            next(process)
        except (StopIteration, FencedError, LostAnswerError, CrashError):
            return
        self.forgotten.append(process)

    # --- the protocol -----------------------------------------------------------------------------------------------

    def begin(self) -> Plan:
        """The driver's first step."""
        if not self.two_phases:
            return Plan(0, None)
        epoch = again(lambda: self.kafka.initialize("driver"))
        found = again(lambda: self.kafka.decision)
        if found is not None:
            self.roll_forward(found)
        return Plan(epoch, found)

    def roll_forward(self, decision: Decision) -> None:
        """Commits what is decided; ids that tasks of this driver use already were committed before."""
        for handle in decision.handles:
            try:
                again(lambda handle=handle: self.kafka.end(handle, commit=True))  # type: ignore[misc]
            except FencedError:
                pass
            self.step()

    def task(self, plan: Plan, batch: int, partition: int, attempt: int, rows: list[Row]) -> Process:
        """An attempt of a task: it gives None where there is nothing to commit, or a handle."""
        if plan.decision is not None and batch <= plan.decision.batch:
            return "skipped"
        yield
        name = str(partition) if self.variant == "fixed ids" else f"{plan.epoch % SLOTS}-{partition}-{attempt}"
        handle = Handle(name, again(lambda: self.kafka.initialize(name)))
        for row in rows:
            yield
            self.kafka.produce(handle, [row])
        yield
        if not self.two_phases:
            self.kafka.end(handle, commit=True)
        return handle if rows else None

    def commit(self, plan: Plan, batch: int, handles: list[Handle]) -> None:
        """The driver's second step."""
        self.step()
        if self.decides:
            driver = Handle("driver", plan.epoch)
            if not all(again(lambda handle=handle: self.kafka.is_open(handle)) for handle in handles):  # type: ignore[misc]
                raise FencedError
            self.step()
            again(lambda: self.kafka.produce(driver, decision=Decision(batch, tuple(handles))))
            self.step()
            again(lambda: self.kafka.end(driver, commit=True))
            self.step()
        if self.chance.random() < CRASH:
            raise RuntimeError("the process that commits has died")
        for handle in handles:
            again(lambda handle=handle: self.kafka.end(handle, commit=True))  # type: ignore[misc]
            self.step()

    def abort(self, batch: int, handles: list[Handle]) -> None:
        """What Spark calls after a failure."""
        if not self.two_phases:
            return
        if self.decides:
            again(lambda: self.kafka.initialize("driver"))
            found = again(lambda: self.kafka.decision)
            if found is not None and found.batch == batch and self.variant != "blind abort":
                self.roll_forward(found)
                return
        for handle in handles:
            try:
                again(lambda handle=handle: self.kafka.end(handle, commit=False))  # type: ignore[misc]
            except FencedError:
                pass
            self.step()

    # --- Spark ------------------------------------------------------------------------------------------------------

    def batch(self) -> None:
        """A micro-batch, from its plan to Spark's knowing that it is done."""
        batch = self.done
        plan = self.begin()
        self.step()
        parts: list[list[Row]] = [[] for _ in range(self.chance.randint(1, 3))]
        for row in self.rows[batch]:
            self.chance.choice(parts).append(row)
        results: list[Any] = []
        try:
            for partition, rows in enumerate(parts):
                results.append(self.tried(plan, batch, partition, rows))
            handles = [each for each in results if isinstance(each, Handle)]
            if self.two_phases and "skipped" not in results:
                if self.chance.random() < CRASH:
                    self.forgotten.append(self.old_driver(plan, batch, handles))
                    raise CrashError
                self.commit(plan, batch, handles)
        except (FencedError, LostAnswerError, RuntimeError) as error:
            self.abort(batch, [each for each in results if isinstance(each, Handle)])
            raise FailedError from error
        self.step()
        self.done += 1

    def old_driver(self, plan: Plan, batch: int, handles: list[Handle]) -> Process:
        """Commits when another has taken over."""
        yield
        try:
            self.commit(plan, batch, handles)
        except RuntimeError:
            pass

    def tried(self, plan: Plan, batch: int, partition: int, rows: list[Row]) -> Any:
        """The result of a task's first attempt that has one."""
        for attempt in range(4):
            running = [self.task(plan, batch, partition, attempt, rows)]
            if self.chance.random() < 0.15:
                running.append(self.task(plan, batch, partition, attempt + 4, rows))
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

    def run(self) -> str:
        """ "once", or what went wrong: "twice", "lost"."""
        for _ in range(400):
            if self.done == BATCHES:
                break
            try:
                self.batch()
            except (CrashError, FailedError, FencedError, LostAnswerError):
                pass
        while self.forgotten:
            self.go_on(self.forgotten[0])
        seen = Counter(self.kafka.committed)
        if any(count > 1 for count in seen.values()):
            return "twice"
        return "once" if seen.keys() == {row for rows in self.rows.values() for row in rows} else "lost"
