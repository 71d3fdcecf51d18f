"""The runtime of every coordinator: a shard per led internal partition.

Source: org.apache.kafka.coordinator.common.runtime.CoordinatorRuntime. All of it happens on the control loop's thread,
so a shard needs no lock.

For the author of a coordinator
-------------------------------
    class Shard:                                    # see the Shard protocol below
        def __init__(self, context: ShardContext): ...
        def apply(self, record, producer_id=-1, producer_epoch=-1): ...

    runtime = CoordinatorRuntime(
        "GroupCoordinator", GROUP_METADATA_TOPIC, Shard, RecordTypes({1: (OffsetCommitKey, OffsetCommitValue), ...}),
        writer, clock, partition_count=lambda: 50, write_timeout_ms=lambda: 5000,
    )
    replica_manager.leadership_listeners.append(runtime.on_leadership_change)   # loads and unloads shards

    partition = runtime.partition_for(group_id)     # arithmetic only: whether it is led here shows when it is used
    reply = await runtime.write(partition, lambda shard, now_ms: shard.commit_offsets(request, now_ms)).wait()
    reply = await runtime.read(partition, lambda shard, now_ms: shard.fetch_offsets(request)).wait()
    await runtime.complete_transaction(partition, producer_id, producer_epoch, coordinator_epoch, committed).wait()

An operation gets the shard and the wall-clock time in ms. One given to `write` returns a `Result`: a reply (or a
`Later` that will hold it), records, and perhaps `after`. It must either raise a KafkaError and have changed nothing, or
succeed. It may change memory that is lost with the broker (who has joined, who waits); what must survive goes into
records, and only `apply` changes it. Records are applied as soon as the operation has returned, so the next operation
sees them; they are written at the end of the loop's turn, many operations in one batch. The disk may be slow: the
writer appends on its own threads, one append to a partition at a time, and records that operations of that partition
write meanwhile go into the next. While the disk is quick, the loop waits for the appends of a turn together. The reply
goes out when the high watermark has passed the records. A `read` sees everything applied, and its reply waits until
that is committed.

When an append fails, what was applied is not in the log: all that waits fails, and the shard is unloaded and loaded
again. A foreseeable failure (no leader, too few replicas in sync, a record too large) is refused before the
operation's records are applied, so this is left to disks that break.

Errors that reach callers: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE (too few replicas in
sync, or the write timeout has passed), MESSAGE_TOO_LARGE, and what the operation raised.

A shard is loaded up to the end of its log. Its unreplicated records may be lost with the leadership, so the first
replies after a load wait until they are replicated.

`complete_transaction` writes the marker that ends a producer's transaction in a partition, and then has the shard apply
it; writes to the shard wait until then, so that memory sees the order of the log. Records of a transaction are written
by a `Result` with a `producer`, and `apply` gets them with its id.

Timeouts: `context.timer.schedule(key, delay_ms, operation)` runs a write operation later; scheduling a key again moves
it. They end with the shard.

Tests need neither a loop nor a disk: kafkapy.testing.coordinator has a VirtualClock and a MemoryWriter.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, Final, Generic, Protocol, TypeVar

from kafkapy import errors
from kafkapy.coordinator.clock import Clock
from kafkapy.coordinator.loader import Applies, Load
from kafkapy.coordinator.records import RecordTypes
from kafkapy.coordinator.result import Later, ProducerStamp, Result
from kafkapy.coordinator.shard_timer import LONGEST_RELOAD_PAUSE_MS, RELOAD_PAUSE_MS, ShardTimer
from kafkapy.coordinator.timer import TimerHeap
from kafkapy.coordinator.writer import PartitionWriter
from kafkapy.errors import ErrorCode, KafkaError
from kafkapy.records.batches import RecordBatchBuilder
from kafkapy.records.control import build_end_transaction_marker
from kafkapy.types import CompressionType, TopicPartition

REMEMBERED_KEY: Final = 100
"""Characters of a group or transactional id whose partition is remembered; of longer ones it is computed each time."""
RECORD_OVERHEAD: Final = 64
"""Bytes that a record takes in a batch beside its key and value, at most."""
BATCH_OVERHEAD: Final = 61
APPENDS: Final = "appends"
"""Key of the one timeout for all appends: most end long before, and are not worth one each."""

T = TypeVar("T")


class Shard(Applies, Protocol):
    """The state of one partition's groups or transactions.

    Made by the runtime for a load, and used until it is unloaded; every method runs on the control loop's thread.
    """

    def on_loaded(self, now_ms: int) -> None:
        """Start timeouts after the log has been applied."""

    def on_unloaded(self) -> None:
        """Fail the waiting requests with NOT_COORDINATOR: another broker coordinates the partition now."""


S = TypeVar("S", bound=Shard)
Operation = Callable[[S, int], Result[T]]


class ShardState(Enum):
    """The state of a shard."""

    LOADING = "Loading"
    ACTIVE = "Active"
    FAILED = "Failed"


@dataclass(slots=True)
class LoadTimes:
    """Durations of loads in ms since the broker's start, for metrics."""

    count: int = 0
    total_ms: int = 0
    max_ms: int = 0

    def add(self, took_ms: int) -> None:
        """Add a duration."""
        self.count += 1
        self.total_ms += took_ms
        self.max_ms = max(self.max_ms, took_ms)


@dataclass(frozen=True, slots=True)
class ShardContext(Generic[S]):
    """The context that a shard is made with."""

    partition: int
    timer: ShardTimer[S]
    clock: Clock


@dataclass(slots=True, eq=False)
class _Pending:
    """An operation that ran and whose records are not committed yet."""

    later: Later[Any]
    reply: Any
    after: Callable[[BaseException | None], None] | None
    timestamp_ms: int
    encoded: list[tuple[bytes, bytes | None]]
    producer: ProducerStamp | None = None
    encoded_bytes: int = 0
    """Bytes of the records in a batch, at most."""
    end_offset: int = -1
    committed: bool = False
    limited: bool = False
    """Whether the operation has a timeout."""


@dataclass(slots=True, eq=False)
class _Turn:
    """A transaction marker, or a later write, that waits for its turn."""

    marker: bool
    go: Callable[[], None]


class _Hosted(Generic[S]):
    """One shard with its queues. Owned by the runtime."""

    def __init__(self, partition: TopicPartition, leader_epoch: int) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.state = ShardState.LOADING
        self.shard: S
        self.timer: ShardTimer[S]
        self.load: Load | None = None
        self.unwritten: deque[_Pending] = deque()
        self.uncommitted: deque[_Pending] = deque()
        self.appending = False
        """An append is in progress. `uncommitted` entries without an end offset are part of it, or wait for it."""
        self.marking = False
        """Whether that append is a transaction marker."""
        self.turns: deque[_Turn] = deque()
        """Markers that wait for an append to end, and the writes behind them."""
        self.max_batch_bytes = 0
        """The log's largest batch in bytes, as of the last operation."""
        self.loaded_end = 0
        """The log's end when it was loaded. Records below it may be uncommitted, and may be lost."""


class CoordinatorRuntime(Generic[S]):
    """Owns the shards of one internal topic.

    KafkaServer makes it; handlers and the shards' timeouts use it on the control loop's thread.
    """

    def __init__(
        self,
        name: str,
        topic: str,
        make_shard: Callable[[ShardContext[S]], S],
        types: RecordTypes,
        writer: PartitionWriter,
        clock: Clock,
        *,
        partition_count: Callable[[], int],
        write_timeout_ms: Callable[[], int] = lambda: 5000,
        compression: int = CompressionType.NONE,
    ) -> None:
        self.name = name
        self.topic = topic
        self.clock = clock
        self.timer = TimerHeap(clock)
        self._make_shard = make_shard
        self._types = types
        self._writer = writer
        self._partition_count = partition_count
        self._write_timeout_ms = write_timeout_ms
        self._compression = compression
        self._hosted: dict[int, _Hosted[S]] = {}
        self._unwritten: list[_Hosted[S]] = []
        """Shards with records to write at the end of this turn."""
        self._appending: set[int] = set()
        """Partitions with an append in progress, also of an unloaded shard: a load waits for its end."""
        self.load_times = LoadTimes()
        self._stopped = False
        self._logger = logging.getLogger(f"kafka.coordinator.{name}")
        writer.on_committed(self._committed)

    # --- which shard ------------------------------------------------------------------------------------------------

    def partition_for(self, key: str) -> int:
        """The partition of the topic that a group or transactional id belongs to."""
        return partition_of(key, self._partition_count())

    def shards(self) -> dict[int, S]:
        """The loaded shards by partition, for metrics and tests."""
        hosted = list(self._hosted.items())
        return {number: each.shard for number, each in hosted if each.state is ShardState.ACTIVE}

    def states(self) -> dict[int, ShardState]:
        """Every partition led here, and the state of its shard. Any thread."""
        return {number: each.state for number, each in list(self._hosted.items())}

    # --- leadership -------------------------------------------------------------------------------------------------

    def on_leadership_change(self, partition: TopicPartition, leader_epoch: int, leads: bool) -> None:
        """Load or unload the shard of a partition; other topics are ignored."""
        if partition.topic != self.topic or self._stopped:
            return
        hosted = self._hosted.get(partition.partition)
        if hosted is not None:
            if leads and leader_epoch == hosted.leader_epoch:
                return
            if leader_epoch < hosted.leader_epoch:
                return
            self._unload(hosted)
        if leads:
            self._load(partition, leader_epoch)

    def stop(self) -> None:
        """Write pending records, and unload all shards; waiting requests get NOT_COORDINATOR."""
        self._stopped = True
        for hosted in list(self._hosted.values()):
            self._flush(hosted)
            self._unload(hosted)
        self.timer.close()

    def _load(self, partition: TopicPartition, leader_epoch: int, pause_ms: int = RELOAD_PAUSE_MS) -> None:
        hosted: _Hosted[S] = _Hosted(partition, leader_epoch)
        number = partition.partition
        hosted.timer = ShardTimer(self.timer, lambda operation: self.write(number, operation), hosted)
        hosted.shard = self._make_shard(ShardContext(number, hosted.timer, self.clock))
        started = self.clock.monotonic_ms()

        def done() -> None:
            load = hosted.load
            hosted.load = None
            hosted.loaded_end = self._writer.end_offset(partition)
            hosted.state = ShardState.ACTIVE
            hosted.shard.on_loaded(self.clock.time_ms())
            took = self.clock.monotonic_ms() - started
            self.load_times.add(took)
            if load is not None and load.records:
                self._logger.info("The coordinator loaded %d records from %s in %d ms", load.records, partition, took)

        def failed(error: Exception) -> None:
            hosted.state = ShardState.FAILED
            hosted.load = None
            self._logger.error("Partition %s cannot be loaded: %s", partition, error, exc_info=_unexpected(error))
            longer = min(2 * pause_ms, LONGEST_RELOAD_PAUSE_MS)
            self.timer.schedule(hosted, pause_ms, lambda: self._reload(hosted, pause_ms=longer))

        self._hosted[number] = hosted
        hosted.load = Load(partition, hosted.shard, self._types, self._writer, self.clock, done, failed)
        if number not in self._appending:
            hosted.load.start()

    def _unload(self, hosted: _Hosted[S], error: KafkaError | None = None) -> None:
        self._hosted.pop(hosted.partition.partition, None)
        self.timer.cancel(hosted)
        hosted.timer.close()
        if hosted.load is not None:
            hosted.load.cancel()
        failure = error or errors.NotCoordinatorError(f"{hosted.partition} is coordinated here no more")
        waiting = [*hosted.uncommitted, *hosted.unwritten]
        hosted.uncommitted.clear()
        hosted.unwritten.clear()
        for pending in waiting:
            self.timer.cancel(pending)
            pending.later.fail(failure)
        while hosted.turns:
            # They find out that the shard is unloaded.
            hosted.turns.popleft().go()
        if hosted.state is ShardState.ACTIVE:
            hosted.shard.on_unloaded()

    def _reload(self, hosted: _Hosted[S], error: KafkaError | None = None, pause_ms: int = RELOAD_PAUSE_MS) -> None:
        if self._hosted.get(hosted.partition.partition) is hosted:
            self._unload(hosted, error)
            self._load(hosted.partition, hosted.leader_epoch, pause_ms)

    # --- operations -------------------------------------------------------------------------------------------------

    def write(self, partition: int, operation: Operation[S, T]) -> Later[T]:
        """Run an operation that may write. See the module's docstring."""
        hosted = self._hosted.get(partition)
        if hosted is not None and (hosted.marking or hosted.turns):
            return self._after_markers(hosted, lambda: self._write(partition, operation))
        return self._write(partition, operation)

    def _write(self, partition: int, operation: Operation[S, T]) -> Later[T]:
        try:
            hosted = self._active(partition)
            hosted.max_batch_bytes = self._writer.ensure_writable(hosted.partition)
            now = self.clock.time_ms()
            result = operation(hosted.shard, now)
            later: Later[T] = Later()
            pending = _Pending(later, result.reply, result.after, now, [], result.producer)
        except KafkaError as error:
            return Later.failure(translated(error))
        if not result.records:
            self._wait_for_committed(hosted, pending)
            return later
        self._encode(result, pending)
        size = pending.encoded_bytes + BATCH_OVERHEAD
        if size > hosted.max_batch_bytes:
            refusal = errors.MessageTooLargeError(f"{size} bytes are more than {hosted.partition} takes in one batch")
            if result.after is not None:
                result.after(refusal)
            return Later.failure(refusal)
        if not hosted.unwritten:
            if not self._unwritten:
                self.clock.call_soon(self._flush_all)
            self._unwritten.append(hosted)
        hosted.unwritten.append(pending)
        self._apply(hosted, result)
        return later

    def read(self, partition: int, operation: Callable[[S, int], T | Later[T]]) -> Later[T]:
        """Run an operation that writes nothing; see the module's docstring."""
        try:
            hosted = self._active(partition)
            now = self.clock.time_ms()
            reply = operation(hosted.shard, now)
        except KafkaError as error:
            return Later.failure(translated(error))
        later: Later[T] = Later()
        self._wait_for_committed(hosted, _Pending(later, reply, None, now, []))
        return later

    def complete_transaction(
        self, partition: int, producer_id: int, producer_epoch: int, coordinator_epoch: int, committed: bool
    ) -> Later[None]:
        """Write the end marker of a producer's transaction, and apply it.

        Errors as for `write`, and those of the log (INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED).
        """
        try:
            hosted = self._active(partition)
            self._writer.ensure_writable(hosted.partition)
        except KafkaError as error:
            return Later.failure(translated(error))
        self._flush(hosted)
        later: Later[None] = Later()

        def go() -> None:
            self._write_marker(partition, producer_id, producer_epoch, coordinator_epoch, committed, later)

        if hosted.appending or hosted.unwritten or hosted.turns:
            hosted.turns.append(_Turn(True, go))
        else:
            go()
        return later

    def _write_marker(
        self,
        partition: int,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        committed: bool,
        later: Later[None],
    ) -> None:
        try:
            hosted = self._active(partition)
        except KafkaError as error:
            later.fail(translated(error))
            return
        now = self.clock.time_ms()
        marker = build_end_transaction_marker(
            producer_id, producer_epoch, committed=committed, coordinator_epoch=coordinator_epoch, timestamp_ms=now
        )

        def written(outcome: int | Exception) -> None:
            hosted.marking = False
            if self._hosted.get(partition) is not hosted:
                later.fail(errors.NotCoordinatorError(f"{hosted.partition} is coordinated here no more"))
                return
            # The log may refuse a marker for its epoch, so it is written before anything is applied.
            if isinstance(outcome, Exception):
                later.fail(_translated(outcome))
                return
            hosted.shard.apply_end_transaction_marker(producer_id, producer_epoch, committed)
            pending = _Pending(later, None, None, now, [], end_offset=outcome)
            hosted.uncommitted.append(pending)
            self._commit(hosted)
            self._limit_wait(hosted, pending)

        hosted.marking = True
        self._append(hosted, marker, written)

    def _after_markers(self, hosted: _Hosted[S], write: Callable[[], Later[T]]) -> Later[T]:
        later: Later[T] = Later()
        hosted.turns.append(_Turn(False, lambda: write().then(lambda done: _hand_over(done, later))))
        return later

    def _active(self, partition: int) -> _Hosted[S]:
        hosted = self._hosted.get(partition)
        if hosted is None or hosted.state is ShardState.FAILED:
            raise errors.NotCoordinatorError(f"{self.topic}-{partition} is not coordinated by this broker")
        if hosted.state is ShardState.LOADING:
            raise errors.CoordinatorLoadInProgressError(f"{hosted.partition} is being loaded")
        return hosted

    def _apply(self, hosted: _Hosted[S], result: Result[T]) -> None:
        producer_id, producer_epoch = result.producer or (-1, -1)
        try:
            for record in result.records:
                hosted.shard.apply(record, producer_id, producer_epoch)
        except Exception:
            # The shard is not what its log says any more.
            self._logger.exception(
                "A record of partition %s cannot be applied; the coordinator loads the partition again",
                hosted.partition,
            )
            self._reload(hosted, errors.UnknownServerError())

    def _encode(self, result: Result[T], pending: _Pending) -> None:
        size = 0
        for record in result.records:
            key, value = encoded = record.encode()
            pending.encoded.append(encoded)
            size += len(key) + RECORD_OVERHEAD if value is None else len(key) + len(value) + RECORD_OVERHEAD
        pending.encoded_bytes = size

    def _wait_for_committed(self, hosted: _Hosted[S], pending: _Pending) -> None:
        """Answer an operation without records once all that it may have seen is committed."""
        if hosted.unwritten:
            hosted.unwritten.append(pending)
        elif hosted.uncommitted or self._writer.high_watermark(hosted.partition) < hosted.loaded_end:
            waits_for = hosted.uncommitted[-1].end_offset if hosted.uncommitted else hosted.loaded_end
            pending.end_offset = waits_for
            hosted.uncommitted.append(pending)
            self._limit_wait(hosted, pending)
        else:
            self._finish(pending)

    # --- writing ----------------------------------------------------------------------------------------------------

    def _flush_all(self) -> None:
        self._writer.together(self._flush_each)

    def _flush_each(self) -> None:
        unwritten, self._unwritten = self._unwritten, []
        for hosted in unwritten:
            try:
                self._flush(hosted)
            except Exception:
                # Other shards are unaffected; the waiting requests of this one get an answer.
                self._logger.exception(
                    "Partition %s cannot be written to; the coordinator loads the partition again", hosted.partition
                )
                self._reload(hosted, errors.UnknownServerError())

    def _flush(self, hosted: _Hosted[S]) -> None:
        if not hosted.unwritten or hosted.state is not ShardState.ACTIVE or hosted.appending:
            return
        written = list(hosted.unwritten)
        hosted.unwritten.clear()
        hosted.uncommitted.extend(written)

        def ended(outcome: int | Exception) -> None:
            if self._hosted.get(hosted.partition.partition) is not hosted:
                return
            if isinstance(outcome, Exception):
                self._logger.error(
                    "Records cannot be written to partition %s: %s; the coordinator loads the partition again",
                    hosted.partition,
                    outcome,
                )
                self._reload(hosted, _translated(outcome))
                return
            waiting = [pending for pending in hosted.uncommitted if pending.end_offset < 0]
            for pending in waiting:
                pending.end_offset = outcome
            self._commit(hosted)
            if hosted.uncommitted:
                for pending in waiting:
                    self._limit_wait(hosted, pending)

        # Refused as a whole or taken as a whole: a part of it would be applied but not written.
        self._append(hosted, self._build(written, hosted.max_batch_bytes), ended)

    def _append(self, hosted: _Hosted[S], batches: bytes, then: Callable[[int | Exception], None]) -> None:
        """Give the writer the shard's only append in progress. `then` is called in any case."""
        number = hosted.partition.partition

        def done(outcome: int | Exception) -> None:
            self._appending.discard(number)
            hosted.appending = False
            current = self._hosted.get(number)
            try:
                then(outcome)
                if hosted.unwritten or hosted.turns:
                    self._go_on(hosted)
            except Exception:
                self._logger.exception(
                    "Partition %s cannot be written to; the coordinator loads the partition again", hosted.partition
                )
                self._reload(hosted, errors.UnknownServerError())
            if current is not None and current is not hosted and current.load is not None:
                current.load.start()

        hosted.appending = True
        self._appending.add(number)
        try:
            self._writer.append(hosted.partition, batches, hosted.leader_epoch, done)
        except Exception:
            self._logger.exception("Partition %s cannot be written to", hosted.partition)
            done(errors.UnknownServerError())
        if hosted.appending and APPENDS not in self.timer:
            self.timer.schedule(APPENDS, self._write_timeout_ms(), self._appends_too_late)

    def _go_on(self, hosted: _Hosted[S]) -> None:
        """Write the records that waited for an append to end."""
        self._flush(hosted)
        while hosted.turns and not hosted.marking:
            if hosted.turns[0].marker and (hosted.appending or hosted.unwritten):
                return
            hosted.turns.popleft().go()

    def _appends_too_late(self) -> None:
        """Fail operations that wait too long for a disk, checked four times per timeout; the records may be written
        later.
        """
        timeout_ms = self._write_timeout_ms()
        now = self.clock.time_ms()
        late = [hosted for hosted in self._hosted.values() if hosted.appending]
        if late:
            self.timer.schedule(APPENDS, max(timeout_ms // 4, 1), self._appends_too_late)
        for hosted in late:
            for pending in [*hosted.uncommitted, *hosted.unwritten]:
                if not pending.later.done and now - pending.timestamp_ms >= timeout_ms:
                    error = errors.CoordinatorNotAvailableError("The records were not written in time")
                    after, pending.after = pending.after, None
                    if after is not None:
                        after(error)
                    pending.later.fail(error)

    def _build(self, written: list[_Pending], limit: int) -> bytes:
        """The records as batches that operations share, without splitting one's; transactional ones apart."""
        batches: list[bytes] = []
        builder: RecordBatchBuilder | None = None
        stamp: ProducerStamp | None = None
        for pending in written:
            if not pending.encoded:
                continue
            if builder is not None and (pending.producer != stamp or builder.size + pending.encoded_bytes > limit):
                batches.append(self._finished(builder, stamp))
                builder = None
            if builder is None:
                builder, stamp = RecordBatchBuilder(), pending.producer
            for key, value in pending.encoded:
                builder.append(pending.timestamp_ms, key, value)
            pending.encoded = []
        if builder is not None:
            batches.append(self._finished(builder, stamp))
        return batches[0] if len(batches) == 1 else b"".join(batches)

    def _finished(self, builder: RecordBatchBuilder, stamp: ProducerStamp | None) -> bytes:
        if stamp is None:
            return builder.build(self._compression)
        return builder.build(
            self._compression,
            producer_id=stamp.producer_id,
            producer_epoch=stamp.producer_epoch,
            transactional=True,
        )

    def _limit_wait(self, hosted: _Hosted[S], pending: _Pending) -> None:
        """Fail an operation whose records are not committed in time; they stay."""
        if pending.committed or pending.later.done:
            return

        def too_late() -> None:
            error = errors.CoordinatorNotAvailableError("The records were not replicated in time")
            after, pending.after = pending.after, None
            if after is not None:
                after(error)
            pending.later.fail(error)

        pending.limited = True
        self.timer.schedule(pending, self._write_timeout_ms(), too_late)

    def _committed(self, partition: TopicPartition) -> None:
        hosted = self._hosted.get(partition.partition) if partition.topic == self.topic else None
        if hosted is not None:
            self._commit(hosted)

    def _commit(self, hosted: _Hosted[S]) -> None:
        if not hosted.uncommitted:
            return
        high_watermark = self._writer.high_watermark(hosted.partition)
        waiting = hosted.uncommitted
        # A finished operation may run others, which may put more into the queue: it is read again each time.
        while waiting and 0 <= waiting[0].end_offset <= high_watermark:
            self._finish(waiting.popleft())

    def _finish(self, pending: _Pending) -> None:
        pending.committed = True
        if pending.limited:
            self.timer.cancel(pending)
        if pending.after is not None:
            after, pending.after = pending.after, None
            try:
                after(None)
            except Exception:
                # Those behind it in the queue have nothing to do with it.
                self._logger.exception("A callback of a completed write failed")
                pending.later.fail(errors.UnknownServerError())
        reply = pending.reply
        if isinstance(reply, Later):
            reply.then(lambda done: _hand_over(done, pending.later))
        else:
            pending.later.set(reply)


def _hand_over(done: Later[Any], later: Later[Any]) -> None:
    if done.error is not None:
        later.fail(done.error)
    else:
        later.set(done.result())


def partition_of(key: str, partition_count: int) -> int:
    """The partition of a coordinator topic that a key belongs to.

    It is the absolute value of Java's hash of the text, 0 for the least number
    (org.apache.kafka.common.utils.Utils.abs).
    """
    # Clients choose the keys, and may send any number of them with 32,767 characters each: those are not remembered.
    return (_remembered if len(key) <= REMEMBERED_KEY else _partition_of)(key, partition_count)


def _partition_of(key: str, partition_count: int) -> int:
    value = abs(java_hash(key))
    return 0 if value > 0x7FFFFFFF else value % partition_count


_remembered = lru_cache(10_000)(_partition_of)


def java_hash(text: str) -> int:
    """Java's String.hashCode: over UTF-16 code units, as a signed 32-bit number."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(units), 2):
        value = (31 * value + (units[index] << 8 | units[index + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


_TRANSLATED: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}


def translated(error: KafkaError) -> KafkaError:
    """The retriable error for a log's error; clients look it up again."""
    code = _TRANSLATED.get(error.code)
    return error if code is None else errors.error_for(code, error.message)


def _translated(error: Exception) -> KafkaError:
    return translated(error if isinstance(error, KafkaError) else errors.KafkaStorageError())


def _unexpected(error: Exception) -> Exception | None:
    return None if isinstance(error, KafkaError) else error
