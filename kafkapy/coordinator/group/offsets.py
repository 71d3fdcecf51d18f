"""Committed offsets of a shard's groups, and offsets of open transactions.

Source: org.apache.kafka.coordinator.group.OffsetMetadataManager (its state, not its requests). `apply` and
`apply_end_transaction_marker` are the only ways to change it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from kafkapy.protocol.messages.group_metadata_records import OffsetCommitKey, OffsetCommitValue
from kafkapy.types import TopicPartition

NO_PRODUCER = -1


class CommittedOffset(NamedTuple):
    """A committed offset with its metadata. Times in ms since the epoch."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int | None = None
    """The expiry that an old client chose (OffsetCommit 2 to 4), None for others."""
    sequence: int = -1
    """A number that grows with each record of the log.

    A transaction's offset does not replace one with a larger number.
    """


_Offsets = dict[str, dict[TopicPartition, CommittedOffset]]


class OffsetStore:
    """The offsets of a shard.

    Owned by a GroupShard; used on the control loop's thread.
    """

    def __init__(self) -> None:
        self._groups: _Offsets = {}
        self._pending: dict[int, _Offsets] = {}
        self._open: dict[str, set[int]] = {}
        self._topics: dict[str, dict[str, int]] = {}
        """Topic to group to the number of its offsets of the topic, committed and pending."""
        self._sequence = 0

    # --- changes ----------------------------------------------------------------------------------------------------

    def apply(self, key: OffsetCommitKey, value: OffsetCommitValue | None, producer_id: int = NO_PRODUCER) -> None:
        """Apply a record: an offset, a transactional offset, or a tombstone."""
        self._sequence += 1
        partition = TopicPartition(key.topic, key.partition)
        if value is None:
            self._remove(self._groups, key.group, partition)
            for producer in list(self._open.get(key.group, ())):
                self._remove(self._pending[producer], key.group, partition)
                if key.group not in self._pending[producer]:
                    self._close(producer, key.group)
            return
        committed = CommittedOffset(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp if value.expire_timestamp >= 0 else None,
            self._sequence,
        )
        if producer_id == NO_PRODUCER:
            self._put(self._groups, key.group, partition, committed)
        else:
            self._put(self._pending.setdefault(producer_id, {}), key.group, partition, committed)
            self._open.setdefault(key.group, set()).add(producer_id)

    def put(self, group_id: str, partition: TopicPartition, offset: CommittedOffset) -> None:
        """Take over an offset that the log has got from a network thread."""
        self._sequence += 1
        self._put(self._groups, group_id, partition, offset._replace(sequence=self._sequence))

    def apply_end_transaction_marker(self, producer_id: int, committed: bool) -> list[str]:
        """End a transaction: its offsets count now, or are dropped.

        Returns the groups of these offsets.
        """
        self._sequence += 1
        ended = self._pending.pop(producer_id, {})
        for group_id, offsets in ended.items():
            self._close(producer_id, group_id)
            known = self._groups.get(group_id, {})
            for partition, offset in offsets.items():
                before = known.get(partition)
                if committed and (before is None or offset.sequence > before.sequence):
                    self._put(self._groups, group_id, partition, offset)
                    known = self._groups[group_id]
                self._count(partition.topic, group_id, -1)
        return list(ended)

    def _put(self, store: _Offsets, group_id: str, partition: TopicPartition, offset: CommittedOffset) -> None:
        offsets = store.setdefault(group_id, {})
        if partition not in offsets:
            self._count(partition.topic, group_id, 1)
        offsets[partition] = offset

    def _remove(self, store: _Offsets, group_id: str, partition: TopicPartition) -> None:
        offsets = store.get(group_id)
        if offsets is not None and offsets.pop(partition, None) is not None:
            self._count(partition.topic, group_id, -1)
            if not offsets:
                del store[group_id]

    def _count(self, topic: str, group_id: str, change: int) -> None:
        groups = self._topics.setdefault(topic, {})
        count = groups.get(group_id, 0) + change
        if count:
            groups[group_id] = count
            return
        groups.pop(group_id, None)
        if not groups:
            del self._topics[topic]

    def _close(self, producer_id: int, group_id: str) -> None:
        producers = self._open.get(group_id)
        if producers is not None:
            producers.discard(producer_id)
            if not producers:
                del self._open[group_id]

    # --- questions --------------------------------------------------------------------------------------------------

    def get(self, group_id: str, partition: TopicPartition) -> CommittedOffset | None:
        """The committed offset of a partition."""
        offsets = self._groups.get(group_id)
        return None if offsets is None else offsets.get(partition)

    def of_group(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """All committed offsets of a group; not to be changed."""
        return self._groups.get(group_id, {})

    def groups(self) -> list[str]:
        """The groups that have committed offsets."""
        return list(self._groups)

    def has_open_transactions(self, group_id: str) -> bool:
        """Whether an open transaction holds offsets of the group."""
        return group_id in self._open

    def is_pending(self, group_id: str, partition: TopicPartition) -> bool:
        """Whether an open transaction holds an offset of the partition."""
        producers = self._open.get(group_id)
        return producers is not None and any(
            partition in self._pending[producer].get(group_id, ()) for producer in producers
        )

    def pending_of_group(self, group_id: str) -> Iterator[TopicPartition]:
        """Partitions with offsets of open transactions; a partition may repeat."""
        for producer in self._open.get(group_id, ()):
            yield from self._pending[producer].get(group_id, ())

    def groups_of_topics(self, topics: Iterable[str]) -> list[str]:
        """The groups with an offset, committed or pending, of any of the topics."""
        return list(dict.fromkeys(group_id for topic in topics for group_id in self._topics.get(topic, ())))

    def partitions_of_topics(self, group_id: str, topics: AbstractSet[str]) -> tuple[list[TopicPartition], int]:
        """A group's partitions of some topics with an offset, committed or pending.

        Returns also how many offsets were read.
        """
        stores = [self._groups.get(group_id, {})]
        stores += [self._pending[producer].get(group_id, {}) for producer in self._open.get(group_id, ())]
        found = dict.fromkeys(each for offsets in stores for each in offsets if each.topic in topics)
        return list(found), sum(map(len, stores))

    def __len__(self) -> int:
        return sum(len(offsets) for offsets in list(self._groups.values()))
