"""ShareShard: the share-partitions of one partition of __share_group_state.

Every operation reads the present state of a share-partition, raises the error its caller gets, or returns the record
that changes the state; `apply` applies the record. Source: org.apache.kafka.coordinator.share.ShareCoordinatorShard.

Two epochs fence callers that were replaced. The state epoch belongs to the group coordinator, which begins a
share-partition again with a higher one. The leader epoch belongs to the leader of the partition: its first read fences
the leaders before it.

The log needs the last snapshot of each share-partition and all that follows. The shard notes the offsets of snapshots,
so that the coordinator can delete what lies before all of them. A share-partition without changes would keep all that
follows its snapshot: it gets a new snapshot when more than half of the log is not needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast
from uuid import UUID

from kafkapy.coordinator.result import Result
from kafkapy.coordinator.share.batches import combined, drop_below, merge
from kafkapy.coordinator.share.config import ShareCoordinatorConfig
from kafkapy.coordinator.share.records import (
    SNAPSHOT,
    UPDATE,
    StoredState,
    Told,
    share_key_of,
    share_tombstone,
    snapshot_record,
    state_of,
    update_key,
    update_record,
)
from kafkapy.coordinator.share.state import (
    UNINITIALIZED_START_OFFSET,
    UNKNOWN_DELIVERY_COMPLETE,
    ShareKey,
    ShareState,
    ShareSummary,
    StateBatch,
    delivery_complete_in,
)
from kafkapy.errors import ErrorCode, error_for

if TYPE_CHECKING:
    from kafkapy._speedups.log.partition_log import PartitionLog
    from kafkapy._speedups.requests.share.lease import StateLease
    from kafkapy._speedups.requests.share.state_write import StateWrite
    from kafkapy.coordinator.hosted import ShardContext
    from kafkapy.coordinator.records import CoordinatorRecord
    from kafkapy.protocol.messages.share_state_records import ShareSnapshotValue, ShareUpdateValue

MOST_BATCHES: Final = 20_000
"""State batches of one write. A record of more would exceed max.message.bytes, and a leader has at most as many as
group.share.partition.max.record.locks allows."""
NOTHING_KNOWN: Final = ShareSummary(0, 0, UNINITIALIZED_START_OFFSET, UNKNOWN_DELIVERY_COMPLETE)
"""The summary of a share-partition that was never initialized."""


class ShareShard:
    """The share-partitions of one partition that this broker leads.

    The runtime makes it; its methods are operations of the runtime, on the control loop's thread. `exists` returns
    whether a topic has a partition.
    """

    def __init__(
        self,
        context: ShardContext[ShareShard],
        config: ShareCoordinatorConfig,
        exists: Callable[[UUID, int], bool],
        abandon: Callable[[StateLease], object] = lambda lease: lease.abandon(),
    ) -> None:
        """`abandon` ends a lease when the shard is unloaded."""
        self.partition = context.partition
        self.states: dict[ShareKey, StoredState] = {}
        self.topics: dict[UUID, set[ShareKey]] = {}
        """The share-partitions of each topic."""
        self._config = config
        self._exists = exists
        self._leases: dict[ShareKey, StateLease] = {}
        """The share-partitions whose updates network threads append. See kafkapy/_speedups/requests/share/lease.pxd."""
        self._abandon = abandon
        self.held_up: set[ShareKey] = set()
        """Share-partitions whose last operation met an update that was under way."""
        self.told_end = 0
        """See NotesOffsets."""
        self._updates = 0
        """Updates that the log needs: those since the last snapshots."""
        self._snapshots: dict[ShareKey, int] = {}
        """Offset of each share-partition's last snapshot, in the order of offsets."""
        self._without_snapshot: set[ShareKey] = set()
        """Share-partitions whose log begins with an update."""
        self._end = 0
        """The offset after the last record."""

    # --- state ------------------------------------------------------------------------------------------------------

    def apply(self, record: CoordinatorRecord, producer_id: int = -1, producer_epoch: int = -1) -> None:
        """Apply a record: only this method changes durable state; see Shard."""
        del producer_id, producer_epoch
        key = share_key_of(record)
        state = self.states.get(key)
        if record.key_version != SNAPSHOT:
            if record.value is not None:
                self._apply_update(key, state, cast("ShareUpdateValue", record.value))
            return
        if state is not None:
            self._updates -= state.updates
        if record.value is None:
            self._remove(key)
            return
        new = state_of(cast("ShareSnapshotValue", record.value))
        if state is not None:
            new.fencing_leader_epoch = max(new.fencing_leader_epoch, state.fencing_leader_epoch)
        self._put(key, new)

    def _apply_update(self, key: ShareKey, state: StoredState | None, value: ShareUpdateValue) -> None:
        if state is None:
            # Its snapshot is not in the log any more, so its state epoch is lost. Kafka begins with the update too.
            state = StoredState(value.snapshot_epoch, 0, value.leader_epoch, UNINITIALIZED_START_OFFSET, 0)
            self._put(key, state)
            self._without_snapshot.add(key)
        state.update(value)
        self._updates += 1

    def _put(self, key: ShareKey, state: StoredState) -> None:
        self.states[key] = state
        self.topics.setdefault(key.topic_id, set()).add(key)

    def _remove(self, key: ShareKey) -> None:
        if self.states.pop(key, None) is None:
            return
        keys = self.topics[key.topic_id]
        keys.discard(key)
        if not keys:
            del self.topics[key.topic_id]

    def apply_end_transaction_marker(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        """See Shard. No record of this topic belongs to a transaction."""

    def on_loaded(self, now_ms: int) -> None:
        """See Shard."""

    def on_unloaded(self) -> None:
        """See Shard. The log has the updates of network threads."""
        for lease in self._leases.values():
            self._abandon(lease)
        self._leases.clear()

    # --- leases -----------------------------------------------------------------------------------------------------

    def lend(self, key: ShareKey, write: StateWrite, log: PartitionLog, leader_epoch: int) -> None:
        """Give a share-partition a lease for the updates until its next snapshot."""
        state = self.states.get(key)
        if state is None or key in self._leases or key in self._without_snapshot:
            return
        left = self._config.updates_per_snapshot - state.updates
        if left <= 0 or state.fencing_leader_epoch > write.leader_epoch or state.state_epoch > write.state_epoch:
            return
        lease = write.lend(
            log,
            leader_epoch,
            update_key(key).encode_versioned(UPDATE),
            state.snapshot_epoch,
            state.state_epoch,
            state.leader_epoch,
            state.start_offset,
            state.delivery_complete,
            left,
        )
        if lease is not None:
            self._leases[key] = lease

    def _state(self, key: ShareKey) -> StoredState | None:
        """The state for an operation that may write records. It ends the lease.

        COORDINATOR_NOT_AVAILABLE while a network thread appends an update: it lies before the operation's records.
        """
        state = self.states.get(key)
        lease = self._leases.get(key)
        if lease is not None and state is not None:
            told = lease.end()
            if told is None:
                self.held_up.add(key)
                raise error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, "A write of the share-partition is under way")
            del self._leases[key]
            self.held_up.discard(key)
            self._take_over(state, told)
        return state

    def _take_over(self, state: StoredState, told: Told) -> None:
        state.take_over(told)
        self._updates += told[0]
        if told[0]:
            self.told_end = max(self.told_end, told[3])
            self._end = max(self._end, told[3])

    # --- operations -------------------------------------------------------------------------------------------------

    def initialize(self, key: ShareKey, state_epoch: int, start_offset: int, now_ms: int) -> Result[None]:
        """Begin a share-partition in a state epoch; see Persister.

        A repeated request changes nothing.
        """
        _check_partition(key)
        _check_not_negative(state_epoch, "state epoch")
        _check_start_offset(start_offset)
        state = self._state(key)
        if state is not None and state.state_epoch > state_epoch:
            raise error_for(ErrorCode.FENCED_STATE_EPOCH)
        self._check_exists(key)
        if state is not None and state.state_epoch == state_epoch and state.start_offset == start_offset:
            return Result(None)
        new = StoredState(
            snapshot_epoch=0 if state is None else state.snapshot_epoch + 1,
            state_epoch=state_epoch,
            leader_epoch=0,
            start_offset=start_offset,
            delivery_complete=UNKNOWN_DELIVERY_COMPLETE if start_offset == UNINITIALIZED_START_OFFSET else 0,
            created_ms=now_ms,
            written_ms=now_ms,
        )
        return Result(None, [snapshot_record(key, new)])

    def read(self, key: ShareKey, leader_epoch: int, now_ms: int) -> Result[ShareState]:
        """The state for a new leader, which fences those before it; see Persister."""
        _check_partition(key)
        _check_not_negative(leader_epoch, "leader epoch")
        state = self._known(key)
        if state.fencing_leader_epoch > leader_epoch:
            raise error_for(ErrorCode.FENCED_LEADER_EPOCH)
        self._check_exists(key)
        complete = delivery_complete_in(state.batches)
        reply = ShareState(state.state_epoch, state.start_offset, complete, tuple(state.batches))
        if state.fencing_leader_epoch == leader_epoch:
            return Result(reply)
        record = self._change(key, state, leader_epoch, state.start_offset, state.delivery_complete, (), now_ms)
        return Result(reply, [record])

    def write(
        self,
        key: ShareKey,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete: int,
        batches: Sequence[StateBatch],
        now_ms: int,
    ) -> Result[None]:
        """Store what has changed in a share-partition; see Persister."""
        if key.partition < 0 or leader_epoch < 0 or state_epoch < 0 or start_offset < UNINITIALIZED_START_OFFSET:
            _check_partition(key)
            _check_not_negative(leader_epoch, "leader epoch")
            _check_not_negative(state_epoch, "state epoch")
            _check_start_offset(start_offset)
        _check_batches(batches)
        state = self._known(key)
        if state.fencing_leader_epoch > leader_epoch:
            raise error_for(ErrorCode.FENCED_LEADER_EPOCH)
        if state.state_epoch > state_epoch:
            raise error_for(ErrorCode.FENCED_STATE_EPOCH)
        self._check_exists(key)
        record = self._change(key, state, state.leader_epoch, start_offset, delivery_complete, batches, now_ms)
        return Result(None, [record])

    def delete(self, key: ShareKey) -> Result[None]:
        """Remove a share-partition of a topic that exists; see Persister."""
        _check_partition(key)
        self._check_exists(key)
        return self.forget(key)

    def forget(self, key: ShareKey) -> Result[None]:
        """Remove a share-partition, whether its topic exists or not."""
        return Result(None, [share_tombstone(key)] if self._state(key) is not None else ())

    def summary(self, key: ShareKey) -> ShareSummary:
        """The state without its batches; NOTHING_KNOWN for an unknown share-partition."""
        _check_partition(key)
        self._check_exists(key)
        state = self.states.get(key)
        if state is None:
            return NOTHING_KNOWN
        if (lease := self._leases.get(key)) is not None:
            self._take_over(state, lease.tell())
        return ShareSummary(state.state_epoch, state.leader_epoch, state.start_offset, state.delivery_complete)

    def refresh(self, key: ShareKey, now_ms: int) -> Result[None]:
        """Write the snapshot of a share-partition again when it is old enough."""
        state = self.states.get(key)
        if state is None or now_ms - state.written_ms < self._config.cold_interval_ms:
            return Result(None)
        self._state(key)
        again = replace(state, snapshot_epoch=state.snapshot_epoch + 1, written_ms=now_ms)
        return Result(None, [snapshot_record(key, again)])

    def _known(self, key: ShareKey) -> StoredState:
        state = self._state(key)
        if state is None:
            raise error_for(ErrorCode.INVALID_REQUEST, "The share-partition was not initialized")
        return state

    def _check_exists(self, key: ShareKey) -> None:
        if not self._exists(key.topic_id, key.partition):
            raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _change(
        self,
        key: ShareKey,
        state: StoredState,
        leader_epoch: int,
        start_offset: int,
        delivery_complete: int,
        batches: Sequence[StateBatch],
        now_ms: int,
    ) -> CoordinatorRecord:
        """An update, or a snapshot after enough updates. The start offset never goes back."""
        complete = delivery_complete
        if start_offset < state.start_offset:
            complete = state.delivery_complete
        elif start_offset == state.start_offset:
            complete = max(complete, state.delivery_complete)
        start = max(start_offset, state.start_offset)
        if state.updates < self._config.updates_per_snapshot:
            changes = combined(batches)
            drop_below(changes, start)
            if state.update_key is None:
                state.update_key = update_key(key)
            return update_record(state.update_key, state.snapshot_epoch, leader_epoch, start, complete, changes)
        merged = list(state.batches)
        merge(merged, batches, start)
        new = StoredState(
            snapshot_epoch=state.snapshot_epoch + 1,
            state_epoch=state.state_epoch,
            leader_epoch=leader_epoch,
            start_offset=start,
            delivery_complete=complete,
            merged=merged,
            created_ms=now_ms,
            written_ms=now_ms,
        )
        return snapshot_record(key, new)

    # --- the log ----------------------------------------------------------------------------------------------------

    def stored_at(self, record: CoordinatorRecord, offset: int) -> None:
        """Note the offset of a record; see NotesOffsets."""
        self._end = offset + 1
        if record.key_version == SNAPSHOT:
            # Put in again, at the end.
            key = share_key_of(record)
            self._snapshots.pop(key, None)
            self._without_snapshot.discard(key)
            if record.value is not None:
                self._snapshots[key] = offset
        elif self._without_snapshot and record.value is not None:
            key = share_key_of(record)
            if key in self._without_snapshot:
                self._snapshots.setdefault(key, offset)

    @property
    def needed_from(self) -> int:
        """The offset from which on the log is needed."""
        return next(iter(self._snapshots.values()), self._end)

    @property
    def is_mostly_redundant(self) -> bool:
        """Whether most records from `needed_from` on are redundant."""
        return self._end - self.needed_from > 2 * (len(self._snapshots) + self._updates)


def _check_partition(key: ShareKey) -> None:
    if key.partition < 0:
        raise error_for(ErrorCode.INVALID_REQUEST, "The partition is a negative number")


def _check_not_negative(epoch: int, name: str) -> None:
    if epoch < 0:
        raise error_for(ErrorCode.INVALID_REQUEST, f"The {name} is a negative number")


def _check_start_offset(start_offset: int) -> None:
    if start_offset < UNINITIALIZED_START_OFFSET:
        raise error_for(ErrorCode.INVALID_REQUEST, "The start offset is below -1")


def _check_batches(batches: Sequence[StateBatch]) -> None:
    if len(batches) > MOST_BATCHES:
        raise error_for(ErrorCode.INVALID_REQUEST, f"The write has more than {MOST_BATCHES} state batches")
    for first, last, state, count in batches:
        if not 0 <= first <= last or state < 0 or count < 0:
            raise error_for(ErrorCode.INVALID_REQUEST, f"There can be no state batch {(first, last, state, count)}")
