"""The records of share-partitions in __share_group_state.

A snapshot holds the whole state of a share-partition, an update what has changed since. A tombstone of the snapshot's
key ends both. Source: ShareCoordinatorRecordHelpers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, cast

from kafkapy.coordinator.records import CoordinatorRecord, RecordTypes
from kafkapy.coordinator.share.batches import merge
from kafkapy.coordinator.share.state import UNINITIALIZED_START_OFFSET, ShareKey, StateBatch, from_wire, to_wire
from kafkapy.protocol.messages.share_state_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)

SNAPSHOT: Final = 0
UPDATE: Final = 1

Told = tuple[int, int, int, int, list[tuple[int, int, int, int]]]
"""The updates that network threads have stored by a lease: see StateLease.tell."""

MOST_UNMERGED: Final = 1_000
"""State batches of updates that wait to be merged."""

SHARE_RECORDS: Final = RecordTypes(
    {SNAPSHOT: (ShareSnapshotKey, ShareSnapshotValue), UPDATE: (ShareUpdateKey, ShareUpdateValue)}
)


@dataclass(slots=True)
class StoredState:
    """The state of one share-partition as its records make it, owned by a shard."""

    snapshot_epoch: int
    """The number of the last snapshot."""
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete: int
    merged: list[StateBatch] = field(default_factory=list)
    """The batches without those of `unmerged`; see batches."""
    unmerged: list[StateBatch] = field(default_factory=list)
    """Batches of updates: most are passed by the start offset before anybody reads them."""
    created_ms: int = 0
    """The time of the last snapshot that was written for a change."""
    written_ms: int = 0
    """The time of the last snapshot."""
    updates: int = 0
    """Updates since the last snapshot."""
    fencing_leader_epoch: int = 0
    """The highest leader epoch of all records: a new snapshot may have a lower one."""
    update_key: ShareUpdateKey | None = None
    """The key of its updates, once one was written."""

    def update(self, value: ShareUpdateValue) -> None:
        """Apply an update."""
        self.leader_epoch = value.leader_epoch
        self.fencing_leader_epoch = max(self.fencing_leader_epoch, value.leader_epoch)
        if value.start_offset != UNINITIALIZED_START_OFFSET:
            if value.start_offset < self.start_offset:
                self._merge()  # what lay below the higher one is gone
            self.start_offset = value.start_offset
        self.delivery_complete = value.delivery_complete_count
        self.updates += 1
        if value.state_batches:
            self.unmerged += from_wire(value.state_batches)
            if len(self.unmerged) > MOST_UNMERGED:
                self._merge()

    def take_over(self, told: Told) -> None:
        """Apply updates that network threads have stored."""
        updates, self.start_offset, self.delivery_complete, _, batches = told
        self.updates += updates
        self.unmerged += map(StateBatch._make, batches)
        if len(self.unmerged) > MOST_UNMERGED:
            self._merge()

    @property
    def batches(self) -> list[StateBatch]:
        """The state batches, in the order of offsets and without overlaps."""
        self._merge()
        return self.merged

    def _merge(self) -> None:
        merge(self.merged, self.unmerged, self.start_offset)
        self.unmerged.clear()


def snapshot_record(key: ShareKey, state: StoredState) -> CoordinatorRecord:
    """The record of a whole state."""
    value = ShareSnapshotValue(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        create_timestamp=state.created_ms,
        write_timestamp=state.written_ms,
        state_batches=to_wire(ShareSnapshotValue.StateBatch, state.batches),
        delivery_complete_count=state.delivery_complete,
    )
    return CoordinatorRecord(_snapshot_key(key), SNAPSHOT, value)


def update_key(key: ShareKey) -> ShareUpdateKey:
    """The key of a share-partition's updates."""
    return ShareUpdateKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition)


def update_record(
    key: ShareUpdateKey,
    snapshot_epoch: int,
    leader_epoch: int,
    start_offset: int,
    delivery_complete: int,
    batches: Iterable[StateBatch],
) -> CoordinatorRecord:
    """The record of what has changed since a snapshot."""
    value = ShareUpdateValue(
        snapshot_epoch=snapshot_epoch,
        leader_epoch=leader_epoch,
        start_offset=start_offset,
        state_batches=to_wire(ShareUpdateValue.StateBatch, batches),
        delivery_complete_count=delivery_complete,
    )
    return CoordinatorRecord(key, UPDATE, value)


def share_tombstone(key: ShareKey) -> CoordinatorRecord:
    """The record that ends a share-partition."""
    return CoordinatorRecord(_snapshot_key(key), SNAPSHOT, None)


def share_key_of(record: CoordinatorRecord) -> ShareKey:
    """The share-partition of a record."""
    key = cast(ShareSnapshotKey, record.key)
    return ShareKey(key.group_id, key.topic_id, key.partition)


def state_of(value: ShareSnapshotValue) -> StoredState:
    """The state in a snapshot."""
    return StoredState(
        snapshot_epoch=value.snapshot_epoch,
        state_epoch=value.state_epoch,
        leader_epoch=value.leader_epoch,
        start_offset=value.start_offset,
        delivery_complete=value.delivery_complete_count,
        merged=from_wire(value.state_batches),
        created_ms=value.create_timestamp,
        written_ms=value.write_timestamp,
        fencing_leader_epoch=value.leader_epoch,
    )


def _snapshot_key(key: ShareKey) -> ShareSnapshotKey:
    return ShareSnapshotKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition)
