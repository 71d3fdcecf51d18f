"""The MetadataCache: this broker's answers about brokers, topics and partitions.

Only the controller's UpdateMetadata fills it. Readers take `cache.snapshot` once and use it for a whole answer; an
update builds a new snapshot and publishes it with one assignment, so a reader never sees half of an update. Source:
kafka.server.metadata.ZkMetadataCache.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from uuid import UUID

from kafkapy.metadata.broker_requests import LEADER_DURING_DELETE, UpdateMetadata, UpdateMetadataPartition
from kafkapy.metadata.topic_names import is_internal
from kafkapy.metadata.znodes import BrokerRegistration
from kafkapy.slices import in_slices
from kafkapy.types import ZERO_UUID, Endpoint, Node, TopicPartition

NO_CONTROLLER: Final = -1


class PartitionMetadata(NamedTuple):
    """One partition as clients see it. Immutable.

    `leader` is -1 when the partition has none.
    """

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()
    partition_epoch: int = 0
    """The version of the partition's state in the store."""


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """One topic. Immutable except for `memo`; a change replaces the whole topic."""

    name: str
    topic_id: UUID
    partitions: Mapping[int, PartitionMetadata]
    """Partition number to partition, in order.

    A new topic may show only some of its partitions for a moment.
    """
    is_internal: bool = False
    memo: dict[object, Any] = field(default_factory=dict, compare=False, repr=False)
    """Parts of answers that handlers have computed from this topic.

    Keys must hold all other inputs, such as `MetadataSnapshot.brokers_version`.
    """

    @property
    def partition_count(self) -> int:
        """The number of partitions that the cache knows."""
        return len(self.partitions)


@dataclass(frozen=True, slots=True)
class MetadataSnapshot:
    """The cluster's metadata at one moment. Immutable; any thread may read it."""

    controller_id: int = NO_CONTROLLER
    controller_epoch: int = 0
    brokers: Mapping[int, BrokerRegistration] = field(default_factory=dict)
    """Live brokers by id."""
    brokers_version: int = 0
    """A number that grows when `brokers` changes."""
    topics: Mapping[str, TopicMetadata] = field(default_factory=dict)
    topic_names: Mapping[UUID, str] = field(default_factory=dict)

    def topic(self, name: str) -> TopicMetadata | None:
        """The topic, or None."""
        return self.topics.get(name)

    def topic_by_id(self, topic_id: UUID) -> TopicMetadata | None:
        """The topic with that id, or None."""
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics.get(name)

    def partition(self, topic: str, partition: int) -> PartitionMetadata | None:
        """The partition, or None when the topic or the partition is not known."""
        found = self.topics.get(topic)
        return None if found is None else found.partitions.get(partition)

    def nodes(self, listener_name: str) -> list[Node]:
        """Live brokers with their address on a listener, in order of id.

        A broker without that listener is left out.
        """
        found = []
        for broker_id in sorted(self.brokers):
            node = self.node(broker_id, listener_name)
            if node is not None:
                found.append(node)
        return found

    def node(self, broker_id: int, listener_name: str) -> Node | None:
        """A live broker's address on a listener.

        None when the broker is not alive or has no such listener.
        """
        broker = self.brokers.get(broker_id)
        endpoint = None if broker is None else broker.endpoint(listener_name)
        if broker is None or endpoint is None:
            return None
        return Node(broker_id, endpoint.host, endpoint.port, broker.rack)

    def offline_replicas(self, partition: PartitionMetadata, listener_name: str | None = None) -> list[int]:
        """Replicas that clients cannot reach.

        They are on a failed log directory, on a dead broker, or on a broker without the listener.
        """
        return [
            replica
            for replica in partition.replicas
            if replica in partition.offline_replicas
            or replica not in self.brokers
            or (listener_name is not None and self.brokers[replica].endpoint(listener_name) is None)
        ]


class MetadataCache:
    """Owns the current snapshot.

    The control loop updates it; any thread reads it.
    """

    def __init__(self, cluster_id: str | None = None) -> None:
        self.snapshot = MetadataSnapshot()
        self.cluster_id = cluster_id
        self._changed = asyncio.Event()

    # --- reading: short forms for one question; take `snapshot` to ask several ---------------------------------------

    @property
    def controller_id(self) -> int:
        """The id of the controller, -1 when it is not known."""
        return self.snapshot.controller_id

    def topics(self) -> Mapping[str, TopicMetadata]:
        """All topics by name, internal ones too."""
        return self.snapshot.topics

    def topic(self, name: str) -> TopicMetadata | None:
        """The topic, or None."""
        return self.snapshot.topic(name)

    def topic_by_id(self, topic_id: UUID) -> TopicMetadata | None:
        """The topic with that id, or None."""
        return self.snapshot.topic_by_id(topic_id)

    def topic_id(self, name: str) -> UUID:
        """The topic's id; ZERO_UUID for an unknown topic, as the wire wants it."""
        topic = self.snapshot.topic(name)
        return ZERO_UUID if topic is None else topic.topic_id

    def partition(self, topic: str, partition: int) -> PartitionMetadata | None:
        """The partition, or None."""
        return self.snapshot.partition(topic, partition)

    def brokers(self, listener_name: str) -> list[Node]:
        """Live brokers with their address on a listener, by id."""
        return self.snapshot.nodes(listener_name)

    def endpoint(self, broker_id: int, listener_name: str) -> Endpoint | None:
        """A live broker's advertised endpoint on a listener."""
        broker = self.snapshot.brokers.get(broker_id)
        return None if broker is None else broker.endpoint(listener_name)

    def contains(self, topic: str | TopicPartition) -> bool:
        """Whether the topic or the partition is known."""
        if isinstance(topic, TopicPartition):
            return self.partition(topic.topic, topic.partition) is not None
        return topic in self.snapshot.topics

    async def wait_for_change(self) -> None:
        """Return after the next update, for answers that wait for a topic."""
        await self._changed.wait()

    # --- writing ------------------------------------------------------------------------------------------------------

    def update(self, request: UpdateMetadata) -> list[TopicPartition]:
        """Apply an UpdateMetadata and return the partitions it deleted.

        A partition whose leader is LEADER_DURING_DELETE is removed.
        """
        update = _Update(self.snapshot, request)
        for _ in update.steps():
            continue
        return self._publish(update)

    async def update_in_slices(self, request: UpdateMetadata) -> list[TopicPartition]:
        """`update` for a request of any size.

        One at a time: readers have the snapshot before it until the whole request is applied.
        """
        update = _Update(self.snapshot, request)
        async for _ in in_slices(update.steps()):
            continue
        return self._publish(update)

    def _publish(self, update: _Update) -> list[TopicPartition]:
        self.snapshot = update.snapshot()
        waiting, self._changed = self._changed, asyncio.Event()
        waiting.set()
        return update.deleted


class _Update:
    """The next snapshot while it is made, in steps of one partition or topic."""

    def __init__(self, old: MetadataSnapshot, request: UpdateMetadata) -> None:
        self._old = old
        self._request = request
        self._changed: dict[str, dict[int, PartitionMetadata]] = {}
        self._topics: Mapping[str, TopicMetadata] = old.topics
        self._names: Mapping[UUID, str] = old.topic_names
        self.deleted: list[TopicPartition] = []

    def steps(self) -> Iterator[None]:
        """Do one step for each item."""
        for (topic, number), each in self._request.partitions.items():
            self._add(topic, number, each)
            yield
        if self._changed:
            topics, names = dict(self._old.topics), dict(self._old.topic_names)
            self._topics, self._names = topics, names
            for name, partitions in self._changed.items():
                self._put(topics, names, name, partitions)
                yield

    def _add(self, topic: str, number: int, each: UpdateMetadataPartition) -> None:
        state = each.state
        partitions = self._changed.get(topic)
        known = self._old.topics.get(topic) if partitions is None else None
        if known is not None and known.topic_id != self._request.topic_ids.get(topic, known.topic_id):
            known = None  # the topic was deleted and created again: nothing of the old one may show through
            partitions = self._changed[topic] = {}
        if state.leader == LEADER_DURING_DELETE:
            if partitions is None:
                partitions = self._changed[topic] = {} if known is None else dict(known.partitions)
            if partitions.pop(number, None) is not None:
                self.deleted.append(TopicPartition(topic, number))
            return
        now = PartitionMetadata(
            number, state.leader, state.leader_epoch, each.replicas, state.isr, each.offline_replicas,
            max(0, state.version),
        )  # fmt: skip
        if partitions is None:
            if known is not None and known.partitions.get(number) == now:
                return  # a controller that takes over tells everything again
            partitions = self._changed[topic] = {} if known is None else dict(known.partitions)
        partitions[number] = now

    def _put(
        self,
        topics: dict[str, TopicMetadata],
        names: dict[UUID, str],
        name: str,
        partitions: dict[int, PartitionMetadata],
    ) -> None:
        known = topics.pop(name, None)
        if known is not None:
            names.pop(known.topic_id, None)
        if not partitions:
            return
        topic_id = self._request.topic_ids.get(name) or (known.topic_id if known is not None else ZERO_UUID)
        topics[name] = TopicMetadata(name, topic_id, dict(sorted(partitions.items())), is_internal(name))
        if topic_id != ZERO_UUID:
            names[topic_id] = name

    def snapshot(self) -> MetadataSnapshot:
        """The snapshot after all steps."""
        old, request = self._old, self._request
        same_brokers = request.live_brokers == old.brokers
        return MetadataSnapshot(
            request.controller_id,
            request.controller_epoch,
            old.brokers if same_brokers else dict(request.live_brokers),
            old.brokers_version + (not same_brokers),
            self._topics,
            self._names,
        )
