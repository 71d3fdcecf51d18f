"""The runtime of every coordinator: a shard per led internal partition.

Source: org.apache.kafka.coordinator.common.runtime.CoordinatorRuntime. All of it happens on the control loop's thread,
so a shard needs no lock.

For the author of a coordinator
-------------------------------
    class Shard:                                    # see the Shard protocol in hosted.py
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
sees them; they are written at the end of the loop's turn, or `linger_ms` later, many operations in one batch. The disk
may be slow: the writer appends on its own threads, one append to a partition at a time, and records that operations of
that partition write meanwhile go into the next. While the disk is quick, the loop waits for the appends of a turn
together. The reply goes out when the high watermark has passed the records. A `read` sees everything applied, and its
reply waits until that is committed.

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
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Generic

from kafkapy import errors
from kafkapy.coordinator.batches import build, encode
from kafkapy.coordinator.clock import Clock
from kafkapy.coordinator.hosted import (
    Durations,
    HostedShard,
    MarkerGuard,
    Operation,
    PendingOperation,
    S,
    ShardContext,
    ShardState,
    T,
    Turn,
)
from kafkapy.coordinator.loader import Load, NotesOffsets
from kafkapy.coordinator.log_errors import translated, translated_failure
from kafkapy.coordinator.partitioning import partition_of
from kafkapy.coordinator.records import RecordTypes
from kafkapy.coordinator.result import Later, Result, hand_over
from kafkapy.coordinator.shard_timer import LONGEST_RELOAD_PAUSE_MS, RELOAD_PAUSE_MS, ShardTimer
from kafkapy.coordinator.timer import TimerHeap
from kafkapy.coordinator.writer import PartitionWriter
from kafkapy.errors import KafkaError
from kafkapy.records.control import build_end_transaction_marker
from kafkapy.types import CompressionType, TopicPartition

APPENDS: Final = "appends"
"""Key of the one timeout for all appends: most end long before, and are not worth one each."""
SETTLING_PAUSE_MS: Final = 20
"""Pause before another look for appends of the data plane to a partition that is to be loaded."""
FLUSH: Final = "flush"
"""Key of the timeout after which records wait for no others."""


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
        linger_ms: int = 0,
        compression: int = CompressionType.NONE,
        value_versions: Mapping[int, int] | None = None,
        is_settled: Callable[[int], bool] = lambda _: True,
    ) -> None:
        """`value_versions`: by key version, the newest version of a value that all brokers can read.

        `linger_ms`: the time in ms that records wait for others of later turns; up to 0 none.
        `is_settled`: whether no append of the data plane to a partition is under way; a load waits for that.
        """
        self.name = name
        self.topic = topic
        self.clock = clock
        self.timer = TimerHeap(clock)
        self._make_shard = make_shard
        self._types = types
        self._writer = writer
        self._partition_count = partition_count
        self._write_timeout_ms = write_timeout_ms
        self._linger_ms = linger_ms
        self._compression = compression
        self._value_versions = value_versions or {}
        self._is_settled = is_settled
        self._hosted: dict[int, HostedShard[S]] = {}
        self._unwritten: list[HostedShard[S]] = []
        """Shards with records to write at the end of this turn."""
        self._appending: set[int] = set()
        """Partitions with an append in progress, also of an unloaded shard: a load waits for its end."""
        self.load_times = Durations()
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

    def at_rest(self, partition: int) -> tuple[S, int] | None:
        """A shard and its leader epoch; None unless all of its records are committed."""
        hosted = self._hosted.get(partition)
        if hosted is None or hosted.state is not ShardState.ACTIVE or hosted.appending:
            return None
        if hosted.unwritten or hosted.uncommitted or hosted.turns:
            return None
        return hosted.shard, hosted.leader_epoch

    # --- leadership -------------------------------------------------------------------------------------------------

    def on_leadership_change(self, partition: TopicPartition, leader_epoch: int, leads: bool) -> None:
        """Load or unload the shard of a partition; other topics are ignored.

        A shard stays as it is when its broker leads on in a new epoch.
        """
        if partition.topic != self.topic or self._stopped:
            return
        hosted = self._hosted.get(partition.partition)
        if hosted is not None:
            if leader_epoch < hosted.leader_epoch or (leads and leader_epoch == hosted.leader_epoch):
                return
            if leads and hosted.state is not ShardState.FAILED:
                # This broker has led all the time, so the log is the one that the shard knows: a follower left the ISR.
                hosted.leader_epoch = leader_epoch
                self._commit(hosted)
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
        hosted: HostedShard[S] = HostedShard(partition, leader_epoch)
        number = partition.partition
        hosted.timer = ShardTimer(self.timer, lambda operation: self.write(number, operation), hosted)
        hosted.shard = self._make_shard(ShardContext(number, hosted.timer, self.clock))
        hosted.notes = hosted.shard if isinstance(hosted.shard, NotesOffsets) else None
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
        self._begin_load(hosted)

    def _begin_load(self, hosted: HostedShard[S]) -> None:
        """Start a load once no append is under way: it must find all records."""
        number = hosted.partition.partition
        if hosted.load is None or number in self._appending:
            return
        if self._is_settled(number):
            hosted.load.start()
        else:
            self.timer.schedule(hosted, SETTLING_PAUSE_MS, lambda: self._begin_load(hosted))

    def _unload(self, hosted: HostedShard[S], error: KafkaError | None = None) -> None:
        self._hosted.pop(hosted.partition.partition, None)
        hosted.end_guards()
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

    def _reload(self, hosted: HostedShard[S], error: KafkaError | None = None, pause_ms: int = RELOAD_PAUSE_MS) -> None:
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
        except KafkaError as error:
            return Later.failure(translated(error))
        now = self.clock.time_ms()
        try:
            result = operation(hosted.shard, now)
        except KafkaError as error:
            # It tells of the operation, not of the log: UNKNOWN_TOPIC_OR_PARTITION means the caller's topic.
            return Later.failure(error)
        if not result.records and result.after is None and self._is_committed(hosted):
            return result.reply if isinstance(result.reply, Later) else Later.of(result.reply)
        later: Later[T] = Later()
        pending = PendingOperation(later, result.reply, result.after, now, [], result.producer)
        if not result.records:
            self._wait_for_committed(hosted, pending)
            return later
        size = encode(result.records, pending, self._value_versions)
        if size > hosted.max_batch_bytes:
            refusal = errors.MessageTooLargeError(f"{size} bytes are more than {hosted.partition} takes in one batch")
            if result.after is not None:
                result.after(refusal)
            return Later.failure(refusal)
        if not hosted.unwritten:
            if not self._unwritten:
                self._flush_later(self._linger_ms)
            self._unwritten.append(hosted)
        hosted.unwritten.append(pending)
        hosted.unwritten_bytes += size
        if self._linger_ms > 0 and hosted.unwritten_bytes >= hosted.max_batch_bytes:
            self._flush_later(0)
        if hosted.notes is not None:
            pending.records = result.records
        self._apply(hosted, result)
        return later

    def read(self, partition: int, operation: Callable[[S, int], T | Later[T]]) -> Later[T]:
        """Run an operation that writes nothing; see the module's docstring."""
        try:
            hosted = self._active(partition)
            now = self.clock.time_ms()
            reply = operation(hosted.shard, now)
        except KafkaError as error:
            return Later.failure(error)
        if self._is_committed(hosted):
            return reply if isinstance(reply, Later) else Later.of(reply)
        later: Later[T] = Later()
        self._wait_for_committed(hosted, PendingOperation(later, reply, None, now, []))
        return later

    def guard(self, partition: int, producer_id: int) -> MarkerGuard:
        """A guard against a marker of a producer in the partition.

        See MarkerGuard. NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
        """
        return self._active(partition).guard(producer_id)

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
        hosted.marker_comes(producer_id)
        self._flush(hosted)
        later: Later[None] = Later()

        def go() -> None:
            self._write_marker(partition, producer_id, producer_epoch, coordinator_epoch, committed, later)

        if hosted.appending or hosted.unwritten or hosted.turns:
            hosted.turns.append(Turn(True, go))
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
                later.fail(translated_failure(outcome))
                return
            hosted.shard.apply_end_transaction_marker(producer_id, producer_epoch, committed)
            pending = PendingOperation(later, None, None, now, [], end_offset=outcome)
            hosted.uncommitted.append(pending)
            self._commit(hosted)
            self._limit_wait(hosted, pending)

        hosted.marking = True
        self._append(hosted, marker, written)

    def _after_markers(self, hosted: HostedShard[S], write: Callable[[], Later[T]]) -> Later[T]:
        later: Later[T] = Later()
        hosted.turns.append(Turn(False, lambda: write().then(lambda done: hand_over(done, later))))
        return later

    def _active(self, partition: int) -> HostedShard[S]:
        hosted = self._hosted.get(partition)
        if hosted is None or hosted.state is ShardState.FAILED:
            raise errors.NotCoordinatorError(f"{self.topic}-{partition} is not coordinated by this broker")
        if hosted.state is ShardState.LOADING:
            raise errors.CoordinatorLoadInProgressError(f"{hosted.partition} is being loaded")
        return hosted

    def _apply(self, hosted: HostedShard[S], result: Result[T]) -> None:
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

    def _is_committed(self, hosted: HostedShard[S]) -> bool:
        """Whether all that an operation may have seen is committed."""
        return not (hosted.unwritten or hosted.uncommitted or self._high_watermark(hosted) < self._known_end(hosted))

    def _wait_for_committed(self, hosted: HostedShard[S], pending: PendingOperation) -> None:
        """Answer an operation without records once all that it may have seen is committed."""
        if hosted.unwritten:
            hosted.unwritten.append(pending)
        elif not self._is_committed(hosted):
            waits_for = hosted.uncommitted[-1].end_offset if hosted.uncommitted else hosted.loaded_end
            pending.end_offset = waits_for
            hosted.uncommitted.append(pending)
            self._limit_wait(hosted, pending)
        else:
            self._finish(pending)

    def _known_end(self, hosted: HostedShard[S]) -> int:
        """The end of what a load or the data plane has told the shard."""
        if hosted.notes is not None and hosted.notes.told_end > hosted.loaded_end:
            hosted.loaded_end = hosted.notes.told_end
            if self._high_watermark(hosted) < hosted.loaded_end:
                self._writer.end_offset(hosted.partition)  # so that the runtime hears of it
        return hosted.loaded_end

    # --- writing ----------------------------------------------------------------------------------------------------

    def _flush_later(self, linger_ms: int) -> None:
        if linger_ms > 0:
            self.timer.schedule(FLUSH, linger_ms, self._flush_all)
        else:
            if self._linger_ms > 0:
                self.timer.cancel(FLUSH)
            self.clock.call_soon(self._flush_all)

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

    def _flush(self, hosted: HostedShard[S]) -> None:
        if not hosted.unwritten or hosted.state is not ShardState.ACTIVE or hosted.appending:
            return
        written = list(hosted.unwritten)
        hosted.unwritten.clear()
        hosted.unwritten_bytes = 0
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
                self._reload(hosted, translated_failure(outcome))
                return
            if hosted.notes is not None:
                _note_offsets(hosted.notes, written, outcome)
            waiting = [pending for pending in hosted.uncommitted if pending.end_offset < 0]
            for pending in waiting:
                pending.end_offset = outcome
            self._commit(hosted)
            if hosted.uncommitted:
                for pending in waiting:
                    self._limit_wait(hosted, pending)

        # Refused as a whole or taken as a whole: a part of it would be applied but not written.
        self._append(hosted, build(written, hosted.max_batch_bytes, self._compression), ended)

    def _append(self, hosted: HostedShard[S], batches: bytes, then: Callable[[int | Exception], None]) -> None:
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
            if current is not None and current is not hosted:
                self._begin_load(current)

        hosted.appending = True
        self._appending.add(number)
        try:
            self._writer.append(hosted.partition, batches, hosted.leader_epoch, done)
        except Exception:
            self._logger.exception("Partition %s cannot be written to", hosted.partition)
            done(errors.UnknownServerError())
        if hosted.appending and APPENDS not in self.timer:
            self.timer.schedule(APPENDS, self._write_timeout_ms(), self._appends_too_late)

    def _go_on(self, hosted: HostedShard[S]) -> None:
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
                    pending.fail(errors.CoordinatorNotAvailableError("The records were not written in time"))

    def _limit_wait(self, hosted: HostedShard[S], pending: PendingOperation) -> None:
        """Fail an operation whose records are not committed in time; they stay."""
        if pending.committed or pending.later.done:
            return

        def too_late() -> None:
            pending.fail(errors.CoordinatorNotAvailableError("The records were not replicated in time"))

        pending.limited = True
        self.timer.schedule(pending, self._write_timeout_ms(), too_late)

    def _committed(self, partition: TopicPartition) -> None:
        hosted = self._hosted.get(partition.partition) if partition.topic == self.topic else None
        if hosted is not None:
            self._commit(hosted)

    def _high_watermark(self, hosted: HostedShard[S]) -> int:
        return self._writer.high_watermark(hosted.partition, hosted.leader_epoch)

    def _commit(self, hosted: HostedShard[S]) -> None:
        if not hosted.uncommitted:
            return
        high_watermark = self._high_watermark(hosted)
        waiting = hosted.uncommitted
        # A finished operation may run others, which may put more into the queue: it is read again each time.
        while waiting and 0 <= waiting[0].end_offset <= high_watermark:
            self._finish(waiting.popleft())

    def _finish(self, pending: PendingOperation) -> None:
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
            reply.then(lambda done: hand_over(done, pending.later))
        else:
            pending.later.set(reply)


def _note_offsets(notes: NotesOffsets, written: Iterable[PendingOperation], end_offset: int) -> None:
    """Tell a shard the offsets of records that were appended together."""
    offset = end_offset - sum([len(pending.records) for pending in written])
    for pending in written:
        for record in pending.records:
            notes.stored_at(record, offset)
            offset += 1
        pending.records = ()


def _unexpected(error: Exception) -> Exception | None:
    return None if isinstance(error, KafkaError) else error
