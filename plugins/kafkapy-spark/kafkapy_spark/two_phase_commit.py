"""Exactly once: transactions of many tasks that are committed all or none, whatever dies on the way.

A sink has a name, and a driver: whoever holds the newest epoch of the transactional id NAME-driver. For each batch:

1. `begin` (driver)   takes a new epoch, which fences drivers before it; reads the sink's last decision and carries it
                      out as far as that was not done; aborts what dead tasks have left open.
2. a task             nothing if its batch is decided; else it writes in a transaction NAME-SLOT-PARTITION-ATTEMPT,
                      which it leaves open, and returns a handle of. The slot changes with the driver's epoch.
3. `commit` (driver)  if every transaction is still open, writes the decision in a transaction of the driver's epoch:
                      THE COMMIT POINT. Then commits the transactions and writes that this is done.
4. `abort` (driver)   ends what the driver has not decided, and looks: what is decided is carried out; else the tasks'
                      transactions are aborted.

A driver that dies before the commit point has written nothing: the next one aborts its transactions, and the batch is
written anew. Behind it the next one commits them, and the batch is skipped. A driver that was replaced cannot decide.
Spark's facts that this stands on: a batch that is not known to be done is repeated under the same number with the same
records, in whatever partitions; at most one attempt's result of each partition comes to `commit`.

Nothing here knows of Spark.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kafkapy.clients.producer.transactional_requests import PreparedTxnState
from kafkapy.errors import InvalidTransactionTimeoutError, KafkaError
from kafkapy_spark.control_topic import ControlTopic, Decision, Handle, task_transactional_id
from kafkapy_spark.transactions import OpenTransaction, TransactionClient, is_over

__all__ = [
    "LostTransactionError",
    "SinkDriver",
    "SinkError",
    "SinkPlan",
    "SupersededError",
    "TaskResult",
    "require_current",
]

logger = logging.getLogger("kafkapy.spark")

SLOTS: Final = 16
"""Transactional ids of a task's attempt, used in turn: one that a driver before has left is not used by the next."""
DRIVER_TIMEOUT_MS: Final = 60_000
"""Most time between the writing of a decision and its commit. Other sinks may have to wait that long for a driver that
has died there."""
SWEEP_TIMEOUT_MS: Final = 10_000


class SinkError(KafkaError):
    """A batch cannot be written, or not yet; nothing is written twice or left out by that."""


class SupersededError(SinkError):
    """Another driver writes to the sink: this one decides nothing any more."""


class LostTransactionError(SinkError):
    """Transactions that were decided on are not there any more: records of these partitions are missing."""

    def __init__(self, sink: str, decision: Decision, lost: Sequence[Handle]) -> None:
        self.decision = decision
        self.lost = tuple(lost)
        partitions = ", ".join(str(each.partition) for each in lost)
        super().__init__(
            f"batch {decision.batch} of {decision.query} was decided by the sink {sink}, but the transactions of its "
            f"partitions {partitions} ({sum(each.rows for each in lost)} of {decision.rows} rows) were ended by the "
            "broker before they could be committed (transaction.timeout.ms). With the option onLostTransaction=replay "
            "these partitions are written again if the batch is; `kafkapy-spark txn commit --accept-loss` goes on "
            "without them."
        )


@dataclass(frozen=True)
class TaskResult:
    """What the attempt of a task tells the driver."""

    query: str
    batch: int
    partition: int
    driver: PreparedTxnState
    """The driver that has planned it."""
    skipped: bool = False
    replayed: bool = False
    """Whether the batch was read again for its lost transactions."""
    handle: Handle | None = None
    """None when there was nothing to write."""
    rows: int = 0
    checksum: int = 0


@dataclass(frozen=True)
class SinkPlan:
    """What tasks have to know."""

    sink: str
    driver: PreparedTxnState
    timeout_ms: int
    decided: Decision | None = None
    """The last one, without its handles unless some are lost."""
    lost: frozenset[int] = frozenset()
    """Partitions of it that have to be written again."""
    ignore_state: bool = False

    @property
    def slot(self) -> int:
        """Of this driver's tasks."""
        return self.driver.producer_epoch % SLOTS

    def transactional_id(self, partition: int, attempt: int) -> str:
        """Of an attempt of a task."""
        return task_transactional_id(self.sink, self.slot, partition, attempt)

    def comparing_transactional_id(self, partition: int, attempt: int) -> str:
        """Of an attempt that writes again what is committed, only to compare it. No driver has its slot: what the
        coordinator knows of the id that was committed with is how it is known that it was."""
        return task_transactional_id(self.sink, SLOTS, partition, attempt)

    def is_replayed(self, query: str, batch: int) -> bool:
        """Whether partitions of a batch that is decided are written again. SinkError for a later batch, before which
        they would be left out."""
        if not self.lost or self.decided is None:
            return False
        if (query, batch) == (self.decided.query, self.decided.batch):
            return True
        raise SinkError(
            f"partitions {sorted(self.lost)} of batch {self.decided.batch} of {self.decided.query} are lost, and batch "
            f"{batch} of {query} is written next: the sink {self.sink} does not go on without them"
        )

    def is_decided(self, query: str, batch: int) -> bool:
        """Whether a batch is written already. One that was followed by others was, unless the sink's state is to be
        ignored: a checkpoint was rewound."""
        if self.decided is None or self.decided.query != query or batch > self.decided.batch:
            return False
        if batch == self.decided.batch:
            return True
        if self.ignore_state:
            return False
        logger.warning(
            "Batch %d of %s is skipped: the sink %s has written batch %d already (the checkpoint was rewound; "
            "ignoreSinkState=true writes it again)",
            batch,
            query,
            self.sink,
            self.decided.batch,
        )
        return True


def driver_transactional_id(sink: str) -> str:
    """Of a sink's driver."""
    return f"{sink}-driver"


async def require_current(client: TransactionClient, plan: SinkPlan) -> None:
    """SupersededError for a task that begins when its driver is not the newest any more: it would use transactional ids
    that later drivers' tasks may have. KafkaError."""
    if await client.current(driver_transactional_id(plan.sink)) != (
        plan.driver.producer_id,
        plan.driver.producer_epoch,
    ):
        raise SupersededError(f"a driver of the sink {plan.sink} has begun after the one that this task is of")


class SinkDriver:
    """The driver's side of a sink. Used on the client's loop.

    temporary: nobody is going to use the sink's name again, so that nothing is kept of it once all is written.
    """

    def __init__(self, control: ControlTopic, sink: str, *, replay: bool = False, temporary: bool = False) -> None:
        self.client = control.client
        self.sink = sink
        self.control = control
        self._replay = replay
        self._temporary = temporary

    @property
    def transactional_id(self) -> str:
        """The driver's."""
        return driver_transactional_id(self.sink)

    # --- 1 ----------------------------------------------------------------------------------------------------------

    async def begin(self, timeout_ms: int, *, ignore_state: bool = False) -> SinkPlan:
        """The plan of a batch. timeout_ms: of the tasks' transactions. LostTransactionError; KafkaError."""
        await self.control.ensure()
        driver = await self._initialize()
        state = await self.control.read(self.sink)
        decision, lost = state.decision, frozenset[int]()
        if state.unfinished is not None:
            missing = await self._roll_forward(state.unfinished)
            if missing and not self._replay:
                raise LostTransactionError(self.sink, state.unfinished, missing)
            lost = frozenset(each.partition for each in missing)
        await self.sweep(driver, keep=state.unfinished if lost else None)
        if decision is not None and not lost:
            decision = replace(decision, handles=())
        return SinkPlan(self.sink, driver, timeout_ms, decision, lost, ignore_state)

    async def _initialize(self, expected: PreparedTxnState | None = None) -> PreparedTxnState:
        try:
            return await self.client.initialize(self.transactional_id, DRIVER_TIMEOUT_MS, expected)
        except InvalidTransactionTimeoutError:
            raise SinkError(
                f"the brokers allow transactions of less than {DRIVER_TIMEOUT_MS} ms only (transaction.max.timeout.ms)"
            ) from None

    async def _roll_forward(self, decision: Decision) -> list[Handle]:
        """Carries a decision out; what of it is lost. KafkaError: it is not known whether all is done."""
        by_transaction = {each.transaction(self.sink): each for each in decision.handles}
        lost = await self.client.end_all(by_transaction, committed=True)
        if not lost:
            await self._finish(decision)
        return [by_transaction[each] for each in lost]

    async def finish(self, decision: Decision, *, accept_loss: bool = False) -> list[Handle]:
        """Carries a decision out that a driver before has left; what of it is lost. It counts as done without that if
        the loss is accepted. KafkaError."""
        lost = await self._roll_forward(decision)
        if lost and accept_loss:
            logger.warning("%s", LostTransactionError(self.sink, decision, lost))
            await self._finish(decision)
        return lost

    async def _finish(self, decision: Decision) -> None:
        if self._temporary:
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
        name = re.sub(r"[][\\.^$*+?{}()|]", r"\\\g<0>", self.sink)  # as RE2 takes it
        pattern = re.compile(f"{name}-[0-9]+-[0-9]+-[0-9]+")
        return await self.client.find_open(pattern, SWEEP_TIMEOUT_MS)

    # --- 3 ----------------------------------------------------------------------------------------------------------

    async def commit(self, results: Sequence[TaskResult]) -> None:
        """Decides on a batch, and carries that out.

        SinkError: nothing is decided. SupersededError; LostTransactionError. Other KafkaErrors may come before or
        behind the commit point; `abort` is to be called after any.
        """
        if not results or all(each.skipped for each in results):
            return
        first = results[0]
        if any(_plan_of(each) != _plan_of(first) for each in results):
            raise SinkError(f"results of different plans came together: {results}")
        await self.control.find()
        handles = tuple(each.handle for each in results if each.handle is not None)
        driver = OpenTransaction(self.transactional_id, first.driver)
        if handles:
            await self._check_open(first, handles)
        if first.replayed:
            previous = (await self.control.read(self.sink)).unfinished
            if previous is None or (previous.query, previous.batch) != (first.query, first.batch):
                raise self._superseded(first)
            handles = _replayed(self.sink, previous, results)
        if not handles:
            return
        identity = first.driver.producer_id, first.driver.producer_epoch
        decision = Decision(first.query, first.batch, *identity, len(results), handles)
        try:
            current = await self.control.decide(self.sink, driver, decision)
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

    def _superseded(self, result: TaskResult) -> SupersededError:
        return SupersededError(
            f"another driver has taken the sink {self.sink} over while batch {result.batch} of {result.query} was "
            "written: two queries have the same checkpoint or transactionalIdPrefix, or a query was started again "
            "while the old one ran"
        )

    async def _check_open(self, result: TaskResult, handles: Iterable[Handle]) -> None:
        by_transaction = {each.transaction(self.sink): each for each in handles}
        still_open = await self.client.still_open(by_transaction)
        gone = [by_transaction[each] for each, is_open in still_open.items() if not is_open]
        if gone:
            raise SinkError(
                f"batch {result.batch} of {result.query} is not written: the transactions of its partitions "
                f"{', '.join(str(each.partition) for each in gone)} have ended before all were ready "
                "(transaction.timeout.ms, or another driver of the sink); nothing is decided"
            )

    # --- 4 ----------------------------------------------------------------------------------------------------------

    async def abort(self, results: Iterable[TaskResult | None], plan: SinkPlan | None = None) -> bool:
        """What is to be done after a batch, or its commit, has failed; whether it is written all the same.

        results: of the tasks that have succeeded. plan: where it is known. LostTransactionError; KafkaError.
        """
        known = [each for each in results if each is not None]
        own = known[0].driver if known else plan.driver if plan is not None else None
        await self.control.ensure()
        current = await self._take_back(own)
        state = await self.control.read(self.sink)
        decision = state.decision
        batch = (known[0].query, known[0].batch) if known else None
        written = decision is not None and (decision.query, decision.batch) == batch
        if state.unfinished is not None and (current is not None or written):
            lost = await self._roll_forward(state.unfinished)
            if lost and not self._replay:
                raise LostTransactionError(self.sink, state.unfinished, lost)
        decided = {each.transaction(self.sink) for each in decision.handles} if decision is not None else set()
        mine = {each.handle.transaction(self.sink) for each in known if each.handle is not None}
        await self.client.end_all(mine - decided, committed=False)
        if current is not None:
            await self.sweep(current, keep=state.unfinished)
        return written

    async def _take_back(self, own: PreparedTxnState | None) -> PreparedTxnState | None:
        """Ends what this driver has begun to decide: from then on it has decided or never will. Who the driver is then,
        or None when there is a newer one. Where it is not known who this driver was, it becomes the newest."""
        if own is None:
            return await self._initialize()
        # Exact: a newer driver's transaction is not ended by it.
        ended = await self.client.end(OpenTransaction(self.transactional_id, own), committed=False)
        try:
            return await self._initialize(ended or own)
        except KafkaError as error:
            if not is_over(error):
                raise
            return None


def _plan_of(result: TaskResult) -> tuple[object, ...]:
    return result.query, result.batch, result.driver, result.skipped, result.replayed


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
