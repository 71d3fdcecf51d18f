"""Exactly once: transactions of many tasks that are committed all or none, whatever dies on the way.

A sink has a name, and a driver: whoever holds the newest epoch of the transactional id NAME-driver. For each batch:

1. `begin` (driver)   takes a new epoch, which fences drivers before it; reads the sink's last decision and carries it
                      out as far as that was not done; aborts what dead tasks have left open.
2. a task             sums its rows up if its batch is decided; else it takes an id that no other process has (see
                      task_ids), sees that its driver is the newest, and writes in a transaction, which it leaves open
                      and returns a handle of.
3. `commit` (driver)  writes the decision in a transaction of its epoch; sees that every transaction is still open and
                      lasts long enough; commits the decision: THE COMMIT POINT. Then commits the transactions and
                      writes that this is done. A batch that was decided is done if it has the same rows.
4. `abort` (driver)   ends what the driver has not decided, and looks: what is decided is carried out; else the tasks'
                      transactions are aborted, and the ids of a sink that no driver comes to again are fenced.

A decision takes at most `decision_ms`, by this client's clock and by the driver's transaction.timeout.ms, and is taken
only if its transactions last for twice that. What the coordinator does not tell of a transaction that was decided on
stands in the logs (see outcomes): only what was aborted is lost.

A driver that dies before the commit point has written nothing: the next one aborts its transactions, and the batch is
written anew. Behind it the next one commits them, and the batch is skipped. A driver that was replaced cannot decide.
Spark's facts that this stands on: a batch that is not known to be done is repeated under the same number with the same
records, in whatever partitions; at most one attempt's result of each partition comes to `commit`.

Nothing here knows of Spark.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from kafkapy.clients.producer.transactional_requests import PreparedTxnState
from kafkapy.errors import InvalidTransactionTimeoutError, KafkaError
from kafkapy_spark import task_ids
from kafkapy_spark.control_topic import ControlTopic
from kafkapy_spark.decisions import MAX_EARLIER, Decision, Handle, past_of
from kafkapy_spark.outcomes import was_committed
from kafkapy_spark.sink_errors import (
    LostTransactionError,
    MovedError,
    RewoundError,
    SinkError,
    SupersededError,
    UnknownOutcomeError,
)
from kafkapy_spark.sink_options import OnKnown
from kafkapy_spark.sink_plan import Meaning, SinkPlan, TaskResult
from kafkapy_spark.transactions import OpenTransaction, TransactionClient, is_forgotten, is_over

__all__ = [
    "LostTransactionError",
    "RolledForward",
    "SinkDriver",
    "SinkError",
    "SinkPlan",
    "SupersededError",
    "TaskResult",
    "decision_ms",
    "require_current",
]

logger = logging.getLogger("kafkapy.spark")

MAX_DECISION_MS: Final = 60_000
"""Most time between the writing of a decision and its commit. Other sinks may have to wait that long for a driver that
has died there."""
OF_TIMEOUT: Final = 4
"""At most one part in so many of its transactions' timeout is a decision's time."""
TAKEN_OVER_MS: Final = 1_000
"""The timeout of a driver that only takes over, and begins no transaction."""
SWEEP_TIMEOUT_MS: Final = 10_000
FENCED_AT_ONCE: Final = 1_000


def decision_ms(timeout_ms: int) -> int:
    """The time that the decision on transactions with this timeout may take; the coordinator aborts it then."""
    return max(1, min(MAX_DECISION_MS, timeout_ms // OF_TIMEOUT))


def driver_transactional_id(sink: str) -> str:
    """Of a sink's driver."""
    return f"{sink}-driver"


async def require_current(client: TransactionClient, plan: SinkPlan) -> None:
    """SupersededError for a task that begins when its driver is not the newest any more: nobody would end what it
    wrote. Asked when the task has its id: a driver that comes later sees the id, and fences it. KafkaError."""
    if await client.current(driver_transactional_id(plan.sink)) != (
        plan.driver.producer_id,
        plan.driver.producer_epoch,
    ):
        raise SupersededError(f"a driver of the sink {plan.sink} has begun after the one that this task is of")


class RolledForward(NamedTuple):
    """What of a decision could not be carried out."""

    lost: list[Handle]
    """Aborted by the brokers."""
    unknown: list[Handle]
    """Committed or aborted: nobody knows."""

    @property
    def is_all(self) -> bool:
        """Whether all of it is committed."""
        return not self.lost and not self.unknown


class SinkDriver:
    """The driver's side of a sink. Used on the client's loop.

    replay: partitions whose transactions are lost are written again. on_known: see OnKnown. alone: no other sink is to
    write the same query, as is so for a stream, and not for applications that write into several topics. temporary:
    the sink is that of one write, which no driver comes to again.
    """

    def __init__(
        self,
        control: ControlTopic,
        sink: str,
        *,
        replay: bool = False,
        on_known: OnKnown = "refuse",
        alone: bool = True,
        temporary: bool = False,
    ) -> None:
        self.client = control.client
        self.sink = sink
        self.control = control
        self._replay = replay
        self._on_known = on_known
        self._alone = alone
        self._temporary = temporary

    @property
    def transactional_id(self) -> str:
        """The driver's."""
        return driver_transactional_id(self.sink)

    # --- 1 ----------------------------------------------------------------------------------------------------------

    async def begin(self, timeout_ms: int) -> SinkPlan:
        """The plan of a batch. timeout_ms: of the tasks' transactions. LostTransactionError; UnknownOutcomeError;
        KafkaError."""
        await self.control.ensure()
        driver = await self._initialize(decision_ms(timeout_ms))
        state = await self.control.read(self.sink)
        lost = frozenset[int]()
        if state.unfinished is not None:
            missing = await self._roll_forward(state.unfinished)
            if missing and not self._replay:
                raise LostTransactionError(self.sink, state.unfinished, missing)
            lost = frozenset(each.partition for each in missing)
        await self.sweep(driver, keep=state.unfinished if lost else None)
        return SinkPlan(self.sink, driver, timeout_ms, state.known, lost, self._on_known)

    async def _initialize(self, timeout_ms: int, expected: PreparedTxnState | None = None) -> PreparedTxnState:
        try:
            return await self.client.initialize(self.transactional_id, timeout_ms, expected)
        except InvalidTransactionTimeoutError:
            raise SinkError(
                f"the brokers allow transactions of less than {timeout_ms} ms only (transaction.max.timeout.ms)"
            ) from None

    async def _roll_forward(self, decision: Decision) -> list[Handle]:
        """Carries a decision out; what of it is lost. UnknownOutcomeError; KafkaError: it is not known whether all is
        done."""
        outcome = await self._carry_out(decision)
        if outcome.unknown:
            raise UnknownOutcomeError(self.sink, decision, outcome.unknown)
        return outcome.lost

    async def _carry_out(self, decision: Decision) -> RolledForward:
        by_transaction = {each.transaction(self.sink): each for each in decision.handles}
        refused = await self.client.end_all(by_transaction, committed=True)
        outcome = RolledForward([], [])
        for transaction, error in refused.items():
            handle = by_transaction[transaction]
            committed = await was_committed(self.client, transaction, handle.place) if handle.place else None
            if committed is None and is_forgotten(error):
                outcome.unknown.append(handle)
            elif not committed:
                outcome.lost.append(handle)
        if outcome.is_all:
            await self._finish(decision)
        return outcome

    async def finish(self, decision: Decision, *, accept_loss: bool = False) -> RolledForward:
        """Carries a decision out that a driver before has left; what of it could not be. It counts as done without that
        if the loss is accepted. KafkaError."""
        outcome = await self._carry_out(decision)
        if not outcome.is_all and accept_loss:
            logger.warning(
                "The sink %s goes on without partitions %s of batch %d of %s; it is not known whether %s are there",
                self.sink,
                [each.partition for each in outcome.lost],
                decision.batch,
                decision.query,
                [each.partition for each in outcome.unknown],
            )
            await self._finish(decision)
        return outcome

    async def _finish(self, decision: Decision) -> None:
        if decision.is_temporary(self.sink):
            await self.control.forget([self.sink])
        else:
            await self.control.done(self.sink, decision)

    async def sweep(self, driver: PreparedTxnState, keep: Decision | None = None) -> list[OpenTransaction]:
        """Aborts what tasks have left open that nobody is going to commit; what it found. An error is a warning:
        readers wait for such transactions, but nothing else depends on them.

        Only while this driver is the newest, whose word all that was found is subject to: the transactions are looked
        up before the driver's epoch is, so that none can be a newer driver's. Each is aborted as it was found.
        """
        kept = {each.transaction(self.sink) for each in keep.handles} if keep is not None else set()
        try:
            found = [each for each in await self.find_open() if each not in kept]
            if not found:
                return []
            if await self.client.current(self.transactional_id) != (driver.producer_id, driver.producer_epoch):
                return []
            await self.client.end_all(found, committed=False)
        except KafkaError as error:
            logger.warning("Open transactions of the sink %s could not be looked for and ended: %s", self.sink, error)
            return []
        logger.info("Open transactions of the sink %s that were left behind are aborted: %s", self.sink, found)
        return found

    async def find_open(self) -> list[OpenTransaction]:
        """Every transaction of the sink's tasks that is open. KafkaError."""
        return await self.client.find_open(self._tasks, SWEEP_TIMEOUT_MS)

    @property
    def _tasks(self) -> re.Pattern[str]:
        """Transactional ids of the sink's tasks."""
        name = re.sub(r"[][\\.^$*+?{}()|]", r"\\\g<0>", self.sink)  # as RE2 takes it
        return re.compile(f"{name}-{task_ids.PATTERN}")

    async def fence(self, driver: PreparedTxnState, keep: Decision | None = None) -> None:
        """Keeps tasks that have a transactional id from beginning a transaction: Spark gives up tasks that go on. A
        task that gets its id later finds that its driver was replaced (require_current).

        Only for a sink that no driver comes to again: InitProducerId aborts what is open under the id, whoever began
        it. Only while this driver is the newest, as for `sweep`. An error is a warning.
        """
        kept = {each.transaction(self.sink).transactional_id for each in keep.handles} if keep is not None else set()
        refused: list[BaseException] = []
        try:
            async with asyncio.timeout(SWEEP_TIMEOUT_MS / 1000):
                known = await self.client.find(self._tasks)
                # An id without an epoch is being made: its task asks for its driver later.
                wanted = [
                    each for each in known if each.transactional_id not in kept and each.state.producer_epoch >= 0
                ]
                if not wanted or await self.client.current(self.transactional_id) != driver[:2]:
                    return
                for at in range(0, len(wanted), FENCED_AT_ONCE):
                    asked = map(self._fence, wanted[at : at + FENCED_AT_ONCE])
                    outcomes = await asyncio.gather(*asked, return_exceptions=True)
                    refused += [each for each in outcomes if each is not None]
        except (KafkaError, TimeoutError) as error:
            refused.append(error)
        if refused:
            logger.warning("Tasks of the sink %s that go on could not be fenced: %r", self.sink, refused[0])

    async def _fence(self, task: OpenTransaction) -> None:
        try:
            await self.client.initialize(task.transactional_id, TAKEN_OVER_MS, task.state)
        except KafkaError as error:
            if not is_over(error):
                raise

    # --- 3 ----------------------------------------------------------------------------------------------------------

    async def commit(self, results: Sequence[TaskResult]) -> None:
        """Decides on a batch, and carries that out.

        SinkError: nothing is decided. SupersededError; LostTransactionError. Other KafkaErrors may come before or
        behind the commit point; `abort` is to be called after any.
        """
        if not results:
            return
        first = results[0]
        if any(each.plan != first.plan for each in results):
            raise SinkError(f"results of different plans came together: {results}")
        handles = tuple(each.handle for each in results if each.handle is not None)
        if first.meaning is not Meaning.NEW and await self._is_written(first, results, handles):
            return
        if not handles:
            return
        await self.control.find()
        await self._require_unmoved(first)
        written = {each.transaction(self.sink): each for each in handles}
        if first.replayed:
            previous = (await self.control.read(self.sink)).unfinished
            if previous is None or (previous.query, previous.batch) != (first.query, first.batch):
                raise self._superseded(first)
            handles = _replayed(self.sink, previous, results)
        await self._decide(first, len(results), handles, written)

    async def _is_written(self, first: TaskResult, results: Sequence[TaskResult], handles: Sequence[Handle]) -> bool:
        """Whether a batch whose number the sink knows is there. RewoundError where that is not so, and not wanted."""
        if first.meaning is Meaning.SKIPPED:
            return True
        past = past_of(first.known, first.query)
        assert past is not None
        if first.meaning is Meaning.REFUSED:
            found = "the sink knows only the rows of the last one"
            raise RewoundError(self.sink, first.query, first.batch, past, found)
        rows, checksum = sum(each.rows for each in results), sum(each.checksum for each in results) % 2**64
        if rows == past.rows and past.checksum in (None, checksum):
            await self.client.end_all({each.transaction(self.sink) for each in handles}, committed=False)
            return True
        if first.meaning is Meaning.NEW_IF_OTHER:
            logger.warning(
                "Batch %d of %s has other rows than the sink %s has written under that number, and is written "
                "(ignoreSinkState=true)",
                first.batch,
                first.query,
                self.sink,
            )
            return False
        found = f"it has {rows} rows" if rows != past.rows else f"its {rows} rows are others"
        raise RewoundError(self.sink, first.query, first.batch, past, f"{found}; {past.rows} rows were decided")

    async def _require_unmoved(self, first: TaskResult) -> None:
        """MovedError where another sink has gone on with the query. It is looked for when this one did not decide the
        batch before."""
        past = past_of(first.known, first.query)
        if not self._alone or first.on_known == "write" or (past is not None and first.batch <= past.batch + 1):
            return
        for name, state in (await self.control.read_all()).items():
            other = past_of(state.known, first.query)
            if name != self.sink and other is not None and (past is None or other.batch >= past.batch):
                raise MovedError(self.sink, first.query, first.batch, name, other)

    async def _decide(
        self,
        first: TaskResult,
        tasks: int,
        handles: tuple[Handle, ...],
        written: Mapping[OpenTransaction, Handle],
    ) -> None:
        """written: the transactions that have to be open still."""
        driver = OpenTransaction(self.transactional_id, first.driver)
        earlier = tuple(each for each in first.known if each.query != first.query)[:MAX_EARLIER]
        decision = Decision(
            first.query,
            first.batch,
            first.driver.producer_id,
            first.driver.producer_epoch,
            tasks,
            handles,
            earlier=earlier,
        )
        began_s = time.clock_gettime(time.CLOCK_BOOTTIME)

        async def check() -> float:
            return await self._left_s(first, driver, written, began_s)

        try:
            current = await self.control.decide(self.sink, driver, decision, check)
        except SinkError:
            # Others need not wait for what is not going to be decided.
            await self.client.end(driver, committed=False)
            raise
        except KafkaError as error:
            if is_over(error):
                raise self._superseded(first) from error
            raise
        if current is None:
            raise self._superseded(first)
        lost = await self._roll_forward(decision)
        if lost:
            raise LostTransactionError(self.sink, decision, lost)
        await self.sweep(current)

    async def _left_s(
        self,
        result: TaskResult,
        driver: OpenTransaction,
        written: Mapping[OpenTransaction, Handle],
        began_s: float,
    ) -> float:
        """The time that the commit of a decision may take. SinkError unless all transactions are open, and last for
        twice that time: once for the decision and once to carry it out.

        Their age is told by the coordinators' clocks alone: the driver's transaction begins now.
        """
        found = await self.client.open_descriptions([driver, *written])
        gone = [handle for each, handle in written.items() if each not in found]
        if gone:
            raise SinkError(
                f"batch {result.batch} of {result.query} is not written: the transactions of its partitions "
                f"{', '.join(str(each.partition) for each in gone)} have ended before all were ready "
                "(transaction.timeout.ms, or another driver of the sink); nothing is decided"
            )
        if driver not in found:
            raise self._superseded(result)
        elapsed_ms = (time.clock_gettime(time.CLOCK_BOOTTIME) - began_s) * 1000
        now_ms = found[driver].transaction_start_time_ms + elapsed_ms
        open_ = [found[each] for each in written]
        timeout_ms = min(each.transaction_timeout_ms for each in open_)
        left_ms = min(each.transaction_start_time_ms + each.transaction_timeout_ms for each in open_) - now_ms
        may_take_ms = decision_ms(timeout_ms)
        if left_ms < 2 * may_take_ms:
            raise SinkError(
                f"batch {result.batch} of {result.query} is not written: its transactions end in "
                f"{max(left_ms, 0) / 1000:.1f} s, and to decide on them and to commit them may take "
                f"{2 * may_take_ms / 1000:.1f} s. Nothing is decided. Batches have to be smaller, or "
                "transaction.timeout.ms longer"
            )
        return may_take_ms / 1000

    def _superseded(self, result: TaskResult) -> SupersededError:
        return SupersededError(
            f"another driver has taken the sink {self.sink} over while batch {result.batch} of {result.query} was "
            "written, or the brokers have ended the decision on it: two queries have the same checkpoint or "
            "transactionalIdPrefix, a query was started again while the old one ran, or the decision took too long"
        )

    # --- 4 ----------------------------------------------------------------------------------------------------------

    async def abort(self, results: Iterable[TaskResult | None], plan: SinkPlan | None = None) -> bool:
        """What is to be done after a batch, or its commit, has failed; whether it is written all the same.

        results: of the tasks that have succeeded. plan: where it is known. Where neither says who this driver was, it
        may have been replaced long ago: nothing is decided then, and nothing is ended. LostTransactionError;
        UnknownOutcomeError; KafkaError.
        """
        known = [each for each in results if each is not None]
        own = known[0].driver if known else plan.driver if plan is not None else None
        if own is None:
            return False
        await self.control.ensure()
        return await self._abort(known, await self._take_back(own))

    async def take_over(self) -> None:
        """Ends all that is open of the sink, whoever writes to it: what is decided is committed, else it is aborted. A
        query that runs there fails. LostTransactionError; UnknownOutcomeError; KafkaError."""
        await self.control.ensure()
        await self._abort([], await self._initialize(TAKEN_OVER_MS))

    async def _abort(self, known: Sequence[TaskResult], current: PreparedTxnState | None) -> bool:
        state = await self.control.read(self.sink)
        decision = state.decision
        written = decision is not None and bool(known) and _is_of(decision, known[0])
        if state.unfinished is not None and (current is not None or written):
            lost = await self._roll_forward(state.unfinished)
            if lost and not self._replay:
                raise LostTransactionError(self.sink, state.unfinished, lost)
        decided = {each.transaction(self.sink) for each in decision.handles} if decision is not None else set()
        mine = {each.handle.transaction(self.sink) for each in known if each.handle is not None}
        await self.client.end_all(mine - decided, committed=False)
        if current is not None:
            await self.sweep(current, keep=state.unfinished)
            if self._temporary:
                await self.fence(current, keep=state.unfinished)
        return written

    async def _take_back(self, own: PreparedTxnState) -> PreparedTxnState | None:
        """Ends what this driver has begun to decide: from then on it has decided or never will. Who the driver is then,
        or None when there is a newer one."""
        # Exact: a newer driver's transaction is not ended by it.
        ended = await self.client.end(OpenTransaction(self.transactional_id, own), committed=False)
        try:
            return await self._initialize(TAKEN_OVER_MS, ended or own)
        except KafkaError as error:
            if not is_over(error):
                raise
            return None


def _is_of(decision: Decision, result: TaskResult) -> bool:
    """Whether a decision is on the batch that a result is of."""
    if (decision.query, decision.batch) != (result.query, result.batch):
        return False
    driver = result.driver.producer_id, result.driver.producer_epoch
    return result.meaning in (Meaning.NEW, Meaning.SKIPPED) or (decision.producer_id, decision.producer_epoch) == driver


def _replayed(sink: str, previous: Decision, results: Sequence[TaskResult]) -> tuple[Handle, ...]:
    """The handles of a decision with those of lost partitions replaced. SinkError when the batch that was read again is
    not the one that was decided: partition by partition it has to have the same rows and checksums."""
    before = {each.partition: each for each in previous.handles}
    again = {each.partition: each for each in results}
    same = len(results) == previous.tasks == len(again) and all(
        (result.rows, result.checksum) == ((before[at].rows, before[at].checksum) if at in before else (0, 0))
        for at, result in again.items()
    )
    if not same or not before.keys() <= again.keys():
        raise SinkError(
            f"batch {previous.batch} of {previous.query} was read again for its lost transactions, and is not divided "
            f"into the same partitions as before: nothing is written. The sink {sink} has lost partitions of it."
        )
    return tuple(again[at].handle or handle for at, handle in before.items())
