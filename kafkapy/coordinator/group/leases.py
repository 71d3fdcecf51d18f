"""The groups of a shard whose offsets network threads append (kafkapy/_speedups/requests/offset_commit/lease.pxd).

A group gets a lease when it has committed offsets, and nothing of the shard is unwritten. The lease ends before an
operation of the group: whatever changes its members or offsets recalls it first, and finds the offsets that network
threads have appended in the OffsetStore. An operation that only reads offsets hears of them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, ClassVar

from kafkapy._speedups.requests.offset_commit.lease import MOST_PARTITIONS
from kafkapy.coordinator.group.offsets import CommittedOffset
from kafkapy.errors import ErrorCode, RetriableError
from kafkapy.types import TopicPartition

if TYPE_CHECKING:
    from kafkapy._speedups.log.partition_log import PartitionLog
    from kafkapy._speedups.requests.offset_commit.lease import CommitLease, CommitTable
    from kafkapy.coordinator.group.group import Group
    from kafkapy.coordinator.group.offsets import OffsetStore
    from kafkapy.metadata.cache import MetadataSnapshot


Told = tuple[list[tuple[str, int, int, int, str, int]], list[tuple[str, int]]]
"""Offsets, and members with the ms since their last commits."""


class LeaseBusyError(RetriableError):
    """A network thread appends offsets of the group now: try again.

    The disk may hang.
    """

    code: ClassVar[ErrorCode] = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class OffsetLeases:
    """The leases of a shard's groups.

    Owned by a GroupShard; used on the control loop's thread.
    """

    def __init__(
        self,
        table: CommitTable | None,
        store: OffsetStore,
        find: Callable[[str], Group | None],
        metadata: Callable[[], MetadataSnapshot],
        abandon: Callable[[CommitLease], object],
        *,
        most_metadata: int,
        monotonic_ms: Callable[[], int],
    ) -> None:
        """`abandon` ends a lease when the shard is unloaded. `most_metadata`: bytes of an offset's metadata."""
        self._table = table
        self._store = store
        self._find = find
        self._metadata = metadata
        self._abandon = abandon
        self._most_metadata = most_metadata
        self._monotonic_ms = monotonic_ms
        self._leases: dict[str, CommitLease] = {}

    def __len__(self) -> int:
        return len(self._leases)

    def lend(self, group_id: str, log: PartitionLog, leader_epoch: int) -> None:
        """Give a group a lease, if its state allows one.

        The shard has no unwritten records.
        """
        group, offsets = self._find(group_id), self._store.of_group(group_id)
        if self._table is None or group is None or group_id in self._leases or not group.wants_lease():
            return
        if len(offsets) > MOST_PARTITIONS or not self._table.takes(log):
            return
        terms = group.lease_terms()
        if terms is None or self._store.has_open_transactions(group_id):
            return  # with transactions, the order of offsets and markers counts
        snapshot = self._metadata()
        partitions: dict[str, list[int]] = {}
        for name, number in offsets:
            partitions.setdefault(name, []).append(number)
        topics = [
            (name, topic.topic_id.bytes, [number for number in numbers if number in topic.partitions])
            for name, numbers in partitions.items()
            if (topic := snapshot.topic(name)) is not None
        ]
        self._leases[group_id] = self._table.lend(
            group_id,
            log,
            leader_epoch,
            terms.members,
            topics,
            without_member=terms.without_member,
            checks_instance=terms.checks_instance,
            oldest_version=terms.oldest_version,
            most_metadata=self._most_metadata,
        )

    def recall(self, group_id: str) -> None:
        """End the group's lease before an operation of the group. LeaseBusyError: nothing was changed."""
        lease = self._leases.get(group_id)
        if lease is not None:
            self._take_over(group_id, lease.end())
            del self._leases[group_id]
            if (group := self._find(group_id)) is not None:
                group.lease_ended(lease.used)

    def recall_for(self, key: Hashable) -> None:
        """The same before a timeout, whose key names the group."""
        if isinstance(key, tuple) and key[1] in self._leases:
            self.recall(key[1])

    def hear(self, group_id: str) -> None:
        """Put the newest offsets into the OffsetStore. LeaseBusyError: nothing was changed."""
        lease = self._leases.get(group_id)
        if lease is not None:
            self._take_over(group_id, lease.tell())

    def _take_over(self, group_id: str, told: Told | None) -> None:
        if told is None:
            raise LeaseBusyError("Offsets of the group are being written")
        offsets, members = told
        for topic, partition, offset, leader_epoch, metadata, timestamp_ms in offsets:
            committed = CommittedOffset(offset, leader_epoch, metadata, timestamp_ms)
            self._store.put(group_id, TopicPartition(topic, partition), committed)
        if members and (group := self._find(group_id)) is not None:
            now = self._monotonic_ms()
            for member_id, ago_ms in members:
                group.committed(member_id, now - ago_ms)

    def newest(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """The group's offsets with those that were not heard yet. Any thread."""
        lease = self._leases.get(group_id)
        newest = () if lease is None else lease.newest()
        offsets = dict(list(self._store.of_group(group_id).items()))
        for topic, number, offset, leader_epoch, metadata, timestamp_ms in newest:
            partition = TopicPartition(topic, number)
            # The control loop may have heard of a later one in between.
            if partition not in offsets or timestamp_ms > offsets[partition].commit_timestamp_ms:
                offsets[partition] = CommittedOffset(offset, leader_epoch, metadata, timestamp_ms)
        return offsets

    def abandon(self) -> None:
        """End all leases: the shard is unloaded, and the log has the offsets."""
        for lease in self._leases.values():
            self._abandon(lease)
        self._leases.clear()
