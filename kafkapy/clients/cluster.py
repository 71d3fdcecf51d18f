"""A client's metadata of its cluster: brokers, topics, leaders, and the refreshes.

The client's loop writes it. Any thread may read it: an update creates new dicts and then replaces the old ones. Source:
org.apache.kafka.clients.Metadata, and its subclasses ConsumerMetadata and ProducerMetadata.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkapy.clients.backoff import Backoff
from kafkapy.clients.shared_task import outcome_of
from kafkapy.errors import ErrorCode, InvalidMetadataError, KafkaError, error_class
from kafkapy.protocol.messages.metadata import MetadataRequest
from kafkapy.types import ZERO_UUID, TopicPartition

if TYPE_CHECKING:
    from kafkapy.config.clients import ClientConfig

__all__ = ["BrokerNode", "ClusterMetadata", "PartitionMetadata", "TopicMetadata"]

log = logging.getLogger(__name__)

RELIABLE_EPOCHS: Final = 9
"""The first Metadata version with reliable leader epochs (KAFKA-9212)."""
NO_EPOCH: Final = -1
SPARE_INDEXES: Final = 1000
"""Partition indexes may exceed twice the topic's number of partitions by this many. Brokers number partitions from 0
without gaps; a larger index is a defect of the broker, and would need lists of that length."""


def index_limit(partitions: int) -> int:
    """The partition indexes of a topic with so many partitions are below this."""
    return 2 * partitions + SPARE_INDEXES


class BrokerNode(NamedTuple):
    """A broker and its address.

    Bootstrap servers, with unknown ids, have ids below 0.
    """

    node_id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def nodeId(self) -> int:
        """kafka-python's name for `node_id`."""
        return self.node_id


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """A partition: leader, leader epoch, replicas.

    `leader` is -1 without a leader, `leader_epoch` -1 when unknown; `error` is an error code or 0.
    """

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]
    error: int = 0


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """A topic. With an `error` (a code) it has no partitions.

    `topic_id` is all zeros from brokers before 2.8.
    """

    name: str
    topic_id: uuid.UUID
    error: int
    partitions: Mapping[int, PartitionMetadata]
    is_internal: bool = False


Listener = Callable[["ClusterMetadata"], object]
SendMetadata = Callable[[MetadataRequest], Awaitable[tuple[Any, int]]]
"""Sends a Metadata request to any broker; (response, version). Raises the errors of `NetworkClient.send_metadata`."""


class ClusterMetadata:
    """One client's view of the cluster.

    The client's NetworkClient creates it, and runs the updates while it is started.
    """

    def __init__(self, config: ClientConfig, send: SendMetadata, bootstrap: Iterable[BrokerNode] = ()) -> None:
        self._send = send
        self._backoff = Backoff(config["retry.backoff.ms"], config["retry.backoff.max.ms"])
        self._max_age_s = config["metadata.max.age.ms"] / 1000
        self._max_idle_s = config.get("metadata.max.idle.ms", 0) / 1000 or None
        self.allow_auto_topic_creation: bool = config.get("allow.auto.create.topics", False)
        """Whether a Metadata request may create its topics; producers and consumers set it."""
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.topics: dict[str, TopicMetadata] = {}
        self.version = 0
        """The number of updates."""
        self._brokers: dict[int, BrokerNode] = {}
        self._former: dict[int, BrokerNode] = {}
        self._extra: dict[int, BrokerNode] = {}
        self._topic_names: dict[uuid.UUID, str] = {}
        self._epochs: dict[TopicPartition, int] = {}
        self._listeners: list[Listener] = []
        # the requested topics
        self._all = False
        self._wanted: dict[str, float] = {}
        self._new: set[str] = set()
        # the times of refreshes
        self._full_due = True
        self._invalidations = 0
        self._attempts = 0
        self._equivalent = 0
        self._last_attempt_s = 0.0
        self._last_full_s = 0.0
        self._refreshing: asyncio.Task[None] | None = None
        self._refreshing_new: frozenset[str] | None = None
        self._wake = asyncio.Event()
        self.bootstrap(bootstrap)

    # --- reading ------------------------------------------------------------------------------------------------------

    @property
    def bootstrapping(self) -> bool:
        """Whether only the bootstrap servers are known."""
        return next(iter(self._brokers), -1) < 0

    def brokers(self) -> dict[int, BrokerNode]:
        """The brokers by id.

        Before the first update, the bootstrap servers with ids below 0.
        """
        return self._brokers

    def node(self, node_id: int) -> BrokerNode | None:
        """A broker or a node of `add_node`, by id.

        After a rebootstrap also the former brokers.
        """
        return self._brokers.get(node_id) or self._extra.get(node_id) or self._former.get(node_id)

    def broker_metadata(self, broker_id: int) -> BrokerNode | None:
        """The broker with this id, or None. A name of kafka-python's."""
        return self._brokers.get(broker_id)

    @property
    def controller(self) -> BrokerNode | None:
        """The broker that accepts requests for the controller."""
        return self._brokers.get(self.controller_id)

    def topic_names(self, exclude_internal_topics: bool = True) -> set[str]:
        """Known topics without an error (kafka-python's `topics()`)."""
        return {
            name
            for name, topic in self.topics.items()
            if not topic.error and not (exclude_internal_topics and topic.is_internal)
        }

    def topic_id(self, topic: str) -> uuid.UUID | None:
        """The topic's id, or None without one."""
        found = self.topics.get(topic)
        return None if found is None or found.topic_id == ZERO_UUID else found.topic_id

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        """The topic's name, or None for an unknown id."""
        return self._topic_names.get(topic_id)

    def partition(self, partition: TopicPartition) -> PartitionMetadata | None:
        """The metadata of a partition, or None."""
        topic = self.topics.get(partition.topic)
        return topic.partitions.get(partition.partition) if topic is not None else None

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """All partition numbers, or None for an unknown topic."""
        found = self.topics.get(topic)
        return set(found.partitions) if found is not None and found.partitions else None

    def available_partitions_for_topic(self, topic: str) -> set[int] | None:
        """The numbers of the partitions with a leader, or None."""
        found = self.topics.get(topic)
        if found is None or not found.partitions:
            return None
        return {number for number, partition in found.partitions.items() if partition.leader in self._brokers}

    def leader_for(self, partition: TopicPartition) -> int | None:
        """The leader's id, or None.

        None: there is no leader, its address is unknown, or a newer epoch was seen.
        """
        found = self.partition(partition)
        if found is None or found.leader not in self._brokers:
            return None
        if found.leader_epoch < self._epochs.get(partition, NO_EPOCH):
            return None
        return found.leader

    leader_for_partition = leader_for

    def leader_epoch_for(self, partition: TopicPartition) -> int:
        """The leader epoch, -1 when unknown."""
        found = self.partition(partition)
        return NO_EPOCH if found is None else found.leader_epoch

    leader_epoch_for_partition = leader_epoch_for

    def partitions_for_broker(self, broker_id: int) -> set[TopicPartition] | None:
        """The partitions that a broker leads, or None."""
        found = {
            TopicPartition(name, number)
            for name, topic in self.topics.items()
            for number, partition in topic.partitions.items()
            if partition.leader == broker_id
        }
        return found or None

    # --- the requested topics -----------------------------------------------------------------------------------------

    def want(self, topics: Iterable[str]) -> None:
        """Adds topics to all later refreshes; new topics are requested at once.

        A producer's topic expires metadata.max.idle.ms after its last `want`.
        """
        now_s = time.monotonic()
        new = False
        for topic in topics:
            if topic not in self._wanted:
                self._new.add(topic)
                new = True
            self._wanted[topic] = now_s
        if new and not self._all:
            self._equivalent = 0
            self._wake.set()

    def want_only(self, topics: Iterable[str]) -> None:
        """Restricts refreshes to exactly these topics."""
        wanted = set(topics)
        self._all = False
        self._forget([topic for topic in self._wanted if topic not in wanted])
        self.want(wanted)

    def want_all(self, all_topics: bool) -> None:
        """Sets whether refreshes request all topics of the cluster."""
        if all_topics and not self._all:
            self._full_due = True
            self._equivalent = 0
            self._wake.set()
        self._all = all_topics

    def _forget(self, topics: Iterable[str]) -> None:
        for topic in topics:
            self._wanted.pop(topic, None)
            self._new.discard(topic)

    def invalidate(self) -> None:
        """Marks the metadata as out of date: a refresh follows soon.

        The refresh waits for a back-off if the previous one did not help.
        """
        self._full_due = True
        self._invalidations += 1
        self._wake.set()

    def seen_epoch(self, partition: TopicPartition, leader_epoch: int) -> None:
        """Records a leader epoch from a broker.

        A newer epoch than the known one means another leader.
        """
        known = self._epochs.get(partition)
        if known is not None and leader_epoch > known:
            self._epochs[partition] = leader_epoch
            self.invalidate()

    def update_leader(
        self, partition: TopicPartition, leader: int, epoch: int, endpoint: BrokerNode | None = None
    ) -> bool:
        """Adopts the current leader from a Produce or Fetch response (KIP-951).

        The leader must be newer than the known one and have a known address, from `endpoint` or earlier. Returns
        whether it was adopted.
        """
        known = self.partition(partition)
        if known is None or leader < 0 or epoch < 0 or epoch <= self._epochs.get(partition, known.leader_epoch):
            return False
        if endpoint is not None and endpoint.node_id == leader:
            self._brokers = {**self._brokers, leader: endpoint}
        if leader not in self._brokers:
            return False
        topic = self.topics[partition.topic]
        changed = replace(known, leader=leader, leader_epoch=epoch)
        partitions = {**topic.partitions, partition.partition: changed}
        self.topics = {**self.topics, topic.name: replace(topic, partitions=partitions)}
        self._epochs[partition] = epoch
        self._changed()
        return True

    def add_node(self, node: BrokerNode) -> None:
        """Adds a node that updates do not contain, such as a coordinator."""
        self._extra[node.node_id] = node

    def add_listener(self, listener: Listener) -> None:
        """Registers a function for the loop to call after each update.

        Its argument is this object.
        """
        self._listeners.append(listener)

    def remove_listener(self, listener: Listener) -> None:
        """Removes a listener of `add_listener`."""
        self._listeners.remove(listener)

    # --- updates ------------------------------------------------------------------------------------------------------

    def bootstrap(self, servers: Iterable[BrokerNode]) -> None:
        """Starts again with the bootstrap servers; topics stay until the next update."""
        self._former = {**self._former, **self._brokers}
        self._brokers = {server.node_id: server for server in servers}
        self._full_due = True

    async def refresh(self) -> None:
        """Requests metadata and returns when the update is done.

        Concurrent callers share one request; a caller with newer topics gets another one. KafkaConnectionError,
        NoBrokersAvailableError and others after one attempt at each broker: the caller retries.
        """
        # A callback forgets finished tasks; awaiting one here would not let the callback run.
        while (under_way := self._refreshing) is not None and not under_way.done():
            covered = self._refreshing_new is None or self._new <= self._refreshing_new
            await outcome_of(under_way)
            if covered and not self._new:
                return
        if not self._new:
            self._full_due = True
        await outcome_of(self._start_refresh())

    def _start_refresh(self) -> asyncio.Task[None]:
        task = asyncio.ensure_future(self._refresh())
        self._refreshing = task
        self._refreshing_new = None
        task.add_done_callback(self._refreshed)
        return task

    def cancel(self) -> list[asyncio.Task[None]]:
        """Cancels a running refresh, for a closing client, and returns it."""
        if self._refreshing is None:
            return []
        self._refreshing.cancel()
        return [self._refreshing]

    def _refreshed(self, task: asyncio.Task[None]) -> None:
        if self._refreshing is task:
            self._refreshing = None
        if not task.cancelled():
            task.exception()  # its waiters get the error

    async def _refresh(self) -> None:
        now_s = time.monotonic()
        self._expire(now_s)
        partial = bool(self._new) and not self._full_due and not self._all and self._age(now_s) < self._max_age_s
        asked = frozenset(self._new)
        self._refreshing_new = asked
        invalidations = self._invalidations
        names = None if self._all else sorted(asked if partial else self._wanted)
        try:
            response, version = await self._send(self._request(names))
        except BaseException:
            self._attempts += 1
            self._equivalent = 0
            self._last_attempt_s = time.monotonic()
            raise
        self._new -= asked
        if not partial:
            # Data that became out of date during the request is requested again.
            self._full_due = self._invalidations != invalidations
        self._update(response, version, partial)

    def _request(self, names: list[str] | None) -> MetadataRequest:
        """A Metadata request for these topics; None for all topics."""
        topics = None if names is None else [MetadataRequest.Topic(name=name) for name in names]
        return MetadataRequest(topics=topics, allow_auto_topic_creation=self.allow_auto_topic_creation)

    def _expire(self, now_s: float) -> None:
        if self._max_idle_s is not None:
            idle = [topic for topic, used_s in self._wanted.items() if now_s - used_s > self._max_idle_s]
            self._forget(topic for topic in idle if topic not in self._new)

    def _update(self, response: Any, version: int, partial: bool) -> None:
        """Adopts a response. Source: Metadata.handleMetadataResponse."""
        self._last_attempt_s = time.monotonic()
        self._attempts = 0
        self._equivalent += 1
        if not partial:
            self._last_full_s = self._last_attempt_s
        topics: dict[str, TopicMetadata] = {}
        for topic in response.topics:
            if topic.name is None:
                continue
            if not self._all and topic.name not in self._wanted:
                continue  # no longer wanted
            topics[topic.name] = self._topic(topic, version >= RELIABLE_EPOCHS)
        if partial:
            topics = {**{name: topic for name, topic in self.topics.items() if name in self._wanted}, **topics}
        self._brokers = {
            broker.node_id: BrokerNode(broker.node_id, broker.host, broker.port, broker.rack)
            for broker in response.brokers
        }
        self._former = {}
        self.controller_id = response.controller_id
        if response.cluster_id != self.cluster_id:
            log.info("Cluster id: %s", response.cluster_id)
            self.cluster_id = response.cluster_id
        self.topics = topics
        self._topic_names = {topic.topic_id: name for name, topic in topics.items() if topic.topic_id != ZERO_UUID}
        if len(self._epochs) > 2 * sum(len(topic.partitions) for topic in topics.values()):
            self._epochs = {each: epoch for each, epoch in self._epochs.items() if each.topic in topics}
        self._changed()

    def _topic(self, topic: Any, reliable_epochs: bool) -> TopicMetadata:
        if topic.error_code:
            if issubclass(error_class(topic.error_code), InvalidMetadataError):
                self.invalidate()
            return TopicMetadata(topic.name, topic.topic_id, topic.error_code, {}, topic.is_internal)
        before = self.topics.get(topic.name)
        same = before is not None and (topic.topic_id in (ZERO_UUID, before.topic_id))
        partitions: dict[int, PartitionMetadata] = {}
        limit = index_limit(len(topic.partitions))
        for each in topic.partitions:
            if not 0 <= each.partition_index < limit:
                log.warning("Metadata of topic %s has partition index %d: ignored", topic.name, each.partition_index)
                continue
            known = before.partitions.get(each.partition_index) if before is not None and same else None
            partitions[each.partition_index] = self._partition(topic.name, each, known, same, reliable_epochs)
        return TopicMetadata(topic.name, topic.topic_id, 0, partitions, topic.is_internal)

    def _partition(
        self, topic: str, each: Any, known: PartitionMetadata | None, same_topic: bool, reliable_epochs: bool
    ) -> PartitionMetadata:
        """The new metadata of a partition.

        An older leader never replaces a newer one. Source: Metadata.updateLatestMetadata.
        """
        if each.error_code and issubclass(error_class(each.error_code), InvalidMetadataError):
            self.invalidate()
        place = TopicPartition(topic, each.partition_index)
        epoch = each.leader_epoch if reliable_epochs else NO_EPOCH
        seen = self._epochs.get(place)
        if epoch == NO_EPOCH:
            self._epochs.pop(place, None)
            self._equivalent = 0
        elif seen is None or not same_topic or epoch >= seen:
            if epoch != seen:
                self._equivalent = 0
            self._epochs[place] = epoch
        elif known is not None:
            return known
        return PartitionMetadata(
            each.partition_index,
            each.leader_id,
            epoch,
            tuple(each.replica_nodes),
            tuple(each.isr_nodes),
            tuple(each.offline_replicas),
            each.error_code,
        )

    def _changed(self) -> None:
        self.version += 1
        for listener in list(self._listeners):
            try:
                listener(self)
            except Exception:
                log.exception("A listener of cluster metadata failed")

    # --- the updater --------------------------------------------------------------------------------------------------

    def _age(self, now_s: float) -> float:
        return now_s - self._last_full_s

    def _next_update_s(self, now_s: float) -> float:
        """Seconds until the next update. Source: Metadata.timeToNextUpdate."""
        expires = max(self._last_full_s + self._max_age_s - now_s, 0.0)
        if expires == 0:
            self._equivalent = 0
        wait = 0.0
        if self._attempts:
            wait = self._backoff.delay_s(self._attempts - 1)
        elif self._equivalent and not (self._new and not self._full_due):
            wait = self._backoff.delay_s(self._equivalent - 1)
        allowed = max(self._last_attempt_s + wait - now_s, 0.0)
        due = 0.0 if self._full_due or (self._new and not self._all) else expires
        return max(due, allowed)

    async def keep_current(self) -> None:
        """Refreshes whenever an update is due. Cancellation ends it."""
        while True:
            if self._refreshing is not None:
                await asyncio.wait([self._refreshing])
                continue
            self._wake.clear()
            wait_s = self._next_update_s(time.monotonic())
            if wait_s > 0:
                try:
                    async with asyncio.timeout(wait_s):
                        await self._wake.wait()
                except TimeoutError:
                    pass
                continue
            try:
                await outcome_of(self._start_refresh())
            except KafkaError as error:
                log.info("Metadata refresh failed and will be retried: %s", error)
            except Exception:
                log.exception("Metadata refresh failed and will be retried")

    def topic_error(self, topic: str) -> KafkaError | None:
        """The error of a topic as a new exception, or None.

        None also for an unknown topic.
        """
        found = self.topics.get(topic)
        if found is None or not found.error:
            return None
        return error_class(found.error)(f"{topic}: {ErrorCode.of(found.error).message}")
