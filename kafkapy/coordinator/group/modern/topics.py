"""The cluster's topics for consumer and share groups: partitions, racks, and a hash.

The hash changes with the topics. Source: org.apache.kafka.coordinator.group.modern.SubscribedTopicDescriberImpl and
Utils.computeGroupHash (KIP-1101).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final
from uuid import UUID

from kafkapy.metadata.cache import MetadataSnapshot, TopicMetadata

_MEMO: Final = "group-hash"


class GroupTopics:
    """The topics of one metadata snapshot, as assignors see them. Immutable.

    Made for one operation.
    """

    def __init__(self, snapshot: MetadataSnapshot) -> None:
        self.snapshot = snapshot

    def ids_of(self, names: Iterable[str]) -> frozenset[UUID]:
        """The ids of the existing topics among `names`."""
        topics = self.snapshot.topics
        return frozenset(topics[name].topic_id for name in names if name in topics)

    def num_partitions(self, topic_id: UUID) -> int:
        """See SubscribedTopics."""
        topic = self.snapshot.topic_by_id(topic_id)
        return -1 if topic is None else topic.partition_count

    def racks(self, topic_id: UUID, partition: int) -> frozenset[str]:
        """See SubscribedTopics."""
        topic = self.snapshot.topic_by_id(topic_id)
        return frozenset() if topic is None else frozenset(_racks(self.snapshot, topic, partition))

    def hash_of(self, names: Iterable[str]) -> int:
        """The signed 64-bit hash of topics; 0 when none of them exists.

        It changes with the id, the partitions or the racks of one of the topics. Kafka's own hash is another (XXH3): a
        group that moves over is assigned once more.
        """
        topics = self.snapshot.topics
        hashes = [self._topic_hash(topics[name]) for name in sorted(names) if name in topics]
        return int.from_bytes(_digest(hashes), "big", signed=True) if hashes else 0

    def _topic_hash(self, topic: TopicMetadata) -> bytes:
        key = _MEMO, self.snapshot.brokers_version
        known: bytes | None = topic.memo.get(key)
        if known is None:
            parts = [topic.topic_id.bytes, topic.name.encode()]
            for number in topic.partitions:
                racks = [rack.encode() for rack in sorted(_racks(self.snapshot, topic, number))]
                parts += [b"%d" % number, b"%d" % len(racks), *racks]
            known = topic.memo[key] = _digest(parts)
        return known


def _racks(snapshot: MetadataSnapshot, topic: TopicMetadata, partition: int) -> list[str]:
    known = topic.partitions.get(partition)
    brokers = [] if known is None else [snapshot.brokers.get(replica) for replica in known.replicas]
    return [broker.rack for broker in brokers if broker is not None and broker.rack is not None]


def _digest(parts: Iterable[bytes]) -> bytes:
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(len(part).to_bytes(4, "big"))
        digest.update(part)
    return digest.digest()
