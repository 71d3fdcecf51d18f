"""Fetching ahead: requests to each broker, and their responses.

One request per broker at a time. It contains all fetchable partitions of that broker, so that the broker's session
stays the same from request to request. The next one is sent after the response, as long as

- no partition of the broker is *full*: one chunk is being read and one waits. A request without a partition that has
  records would wait at the broker for fetch.max.wait.ms, and that partition with it;
- the buffered bytes of the broker's partitions are below fetch.max.bytes.

An empty partition that the user waits for by name (`awaited`) is fetched anyway, alone.

So a consumer holds, per broker, at most fetch.max.bytes of buffered records and one response (fetch.max.bytes, and a
larger batch).

At the end of the log the request waits at the broker, and so do later requests on the connection. A partition that was
moved (seek), resumed or assigned meanwhile is therefore fetched *beside* it: on a second connection, opened on demand,
without a session, without waiting for records, and for at most the bytes that may still be buffered. Partitions without
records are left to the next request of the first connection. Kafka's consumer lets such a partition wait.

Source: org.apache.kafka.clients.consumer.internals.AbstractFetch and FetchCollector (4.1); KIP-227, KIP-320, KIP-392,
KIP-951.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kafkapy._speedups.clients.consumer.fetch_frame import FetchResponseFrame
from kafkapy._speedups.clients.io.frames import BytesFrame
from kafkapy._speedups.protocol.encoder import encode_message
from kafkapy.clients.cluster import BrokerNode
from kafkapy.clients.consumer.fetch_session import FetchPlan, FetchSession, WantedPartition
from kafkapy.clients.consumer.subscription import PartitionState, SubscriptionState
from kafkapy.clients.network_client import NetworkClient, request_header
from kafkapy.errors import (
    CorruptMessageError,
    ErrorCode,
    KafkaError,
    NodeNotReadyError,
    OffsetOutOfRangeError,
    error_for,
)
from kafkapy.protocol.messages.fetch import FetchRequest
from kafkapy.types import ZERO_UUID, IsolationLevel, TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from kafkapy._speedups.clients.consumer.fetched_partition import FetchedPartition
    from kafkapy._speedups.clients.consumer.record_iterator import FetchBuffer
    from kafkapy.clients.consumer.metrics import FetchMetrics

__all__ = ["FetchConfig", "Fetcher"]

logger = logging.getLogger("kafka.consumer.fetcher")

FETCH: Final = 1
MIN_VERSION: Final = 4
"""Kafka 0.11's version: the first with message format v2 and isolation levels."""
LAST_VERSION_WITHOUT_IDS: Final = 12
MAX_VERSION: Final = 18
FULL_CHUNKS: Final = 2
NEVER: Final = float("inf")

STALE: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Errors after which the client refreshes metadata and then fetches again."""


@dataclass(frozen=True, slots=True)
class FetchConfig:
    """The fetcher's part of the consumer's configuration."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_partition_bytes: int
    isolation: IsolationLevel
    check_crcs: bool
    rack: str
    sessions: bool
    request_timeout_ms: int
    retry_backoff_s: float
    metadata_max_age_s: float
    tuple_headers: bool
    """Whether the headers of records are a tuple, as in aiokafka, not a list."""
    key_deserializer: Any
    value_deserializer: Any


@dataclass(frozen=True, slots=True)
class Flight:
    """The running requests to a broker, on its first and second connection.

    `wanted` is the request that may wait there. `beside` keeps partitions without records.
    """

    wanted: dict[TopicPartition, WantedPartition]
    beside: dict[TopicPartition, WantedPartition]

    def covers(self, partition: TopicPartition, offset: int) -> bool:
        """Whether the running requests fetch this offset."""
        asked = self.wanted.get(partition)
        if asked is None or asked.offset != offset:
            asked = self.beside.get(partition)
        return asked is not None and asked.offset == offset


class Fetcher:
    """Fills the buffers of the assigned partitions. On the loop's thread.

    `on_error` takes errors for the next poll; `on_reset` is called when a partition needs a reset or a validation of
    its position.
    """

    def __init__(
        self,
        network: NetworkClient,
        subscription: SubscriptionState,
        buffer: FetchBuffer,
        config: FetchConfig,
        metrics: FetchMetrics,
        *,
        on_error: Callable[[Exception], None],
        on_reset: Callable[[], None],
    ) -> None:
        self._network = network
        self._subscription = subscription
        self._buffer = buffer
        self._config = config
        self._metrics = metrics
        self._on_error = on_error
        self._on_reset = on_reset
        self._sessions: dict[int, FetchSession] = {}
        self._flights: dict[int, Flight] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        """By node id, including the ids of second connections."""
        self._not_before: dict[int, float] = {}
        self.awaited: Collection[TopicPartition] = ()
        """The partitions that the user waits for by name; they are fetched even when others are full."""
        self._timer: asyncio.TimerHandle | None = None
        self._scheduled = False
        self._closed = False

    # --- requests -------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Schedules a round. Cheap; may be called any number of times."""
        if not self._scheduled and not self._closed:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._round)

    def _round(self) -> None:
        self._scheduled = False
        if self._closed:
            return
        # Before the checks: later reads of the user's thread are signalled and cause another round.
        self._buffer.telling = True
        now = time.monotonic()
        wanted: dict[int, dict[TopicPartition, WantedPartition]] = defaultdict(dict)
        beside: dict[int, dict[TopicPartition, WantedPartition]] = defaultdict(dict)
        buffered: dict[int, int] = defaultdict(int)
        full: set[int] = set()
        topic_ids: dict[str, UUID] = {}
        cluster = self._network.cluster
        waiting = False
        later = NEVER
        for state in self._subscription.all_states:
            if not state.fetchable or state.failed:
                continue
            if now < state.retry_at:
                later = min(later, state.retry_at)
                continue
            node_id = state.leader.node_id if state.preferred_read_replica < 0 else self._node_for(state, now)
            if node_id < 0:
                cluster.invalidate()
                continue
            partition, buffer = state.topic_partition, state.buffer
            chunks = buffer.chunks
            if chunks:
                buffered[node_id] += buffer.bytes
            flight = self._flights.get(node_id)
            if flight is not None:
                if not chunks and not flight.covers(partition, buffer.end_offset):
                    beside[node_id][partition] = self._wanted(state, topic_ids)
                continue
            if chunks:
                if chunks >= FULL_CHUNKS:
                    full.add(node_id)
                    continue
                if state.fetch_when_drained:
                    waiting = True
                    continue
            wanted[node_id][partition] = self._wanted(state, topic_ids)
        for node_id, partitions in wanted.items():
            if node_id in full or buffered[node_id] >= max(self._config.max_bytes, 1):
                waiting = True
                partitions = {place: asked for place, asked in partitions.items() if place in self.awaited}
                if not partitions:
                    continue
            not_before = self._not_before.get(node_id, 0.0)
            if now < not_before:
                later = min(later, not_before)
                continue
            self._flights[node_id] = Flight(partitions, {})
            self._tasks[node_id] = asyncio.get_running_loop().create_task(self._fetch(node_id, partitions))
        for node_id, partitions in beside.items():
            self._ask_beside(node_id, partitions, self._config.max_bytes - buffered[node_id], now)
        # A busy broker gets another round after its response; only free space needs a signal.
        self._buffer.telling = waiting or bool(full)
        self._wake_at(later, now)

    def _wanted(self, state: PartitionState, topic_ids: dict[str, UUID]) -> WantedPartition:
        """The request for a partition.

        `topic_ids` are the ids found in this round.
        """
        topic = state.topic_partition.topic
        topic_id = topic_ids.get(topic)
        if topic_id is None:
            topic_id = topic_ids[topic] = self._network.cluster.topic_id(topic) or ZERO_UUID
        offset, epoch, before = state.buffer.end_offset, state.leader.epoch, state.wanted
        if before is None or before.offset != offset or before.leader_epoch != epoch or before.topic_id is not topic_id:
            before = state.wanted = WantedPartition(topic_id, offset, epoch, self._config.max_partition_bytes)
        return before

    def _ask_beside(
        self, node_id: int, partitions: dict[TopicPartition, WantedPartition], max_bytes: int, now: float
    ) -> None:
        """Fetches partitions that a broker's running request does not contain."""
        place = self._network.beside(node_id)
        if place in self._tasks or now < self._not_before.get(place, 0.0) or not self._network.is_ready(node_id):
            return
        if max_bytes > 0:
            flight = self._flights[node_id]
            flight.beside.update(partitions)
            fetch = self._fetch_beside(place, flight, partitions, max_bytes)
            self._tasks[place] = asyncio.get_running_loop().create_task(fetch)

    def waits(self, node_id: int) -> bool:
        """Whether a fetch may wait at the broker and block its connection."""
        return node_id in self._flights

    def _wake_at(self, time_s: float, now: float) -> None:
        """Schedules a round at that time, in place of the scheduled one."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if time_s != NEVER:
            self._timer = asyncio.get_running_loop().call_later(max(time_s - now, 0.001), self.wake)

    def _node_for(self, state: PartitionState, now: float) -> int:
        """The broker to fetch from, -1 when unknown.

        It is the replica that the leader prefers for this client, or the leader.
        """
        leader = state.leader.node_id
        replica = state.read_replica(now)
        if replica < 0 or replica == leader:
            return leader
        cluster = self._network.cluster
        metadata = cluster.partition(state.topic_partition)
        if metadata is not None and replica in metadata.replicas and replica not in metadata.offline_replicas:
            return replica
        state.clear_replica()
        cluster.invalidate()
        return leader

    def _request(self, plan: FetchPlan, version: int, max_wait_ms: int, max_bytes: int) -> FetchRequest:
        config = self._config
        topics: list[Any] = []
        named = ""
        for partition, wanted in plan.send.items():
            if not topics or partition.topic != named:
                named = partition.topic
                topics.append(FetchRequest.Topic(topic=named, topic_id=wanted.topic_id, partitions=[]))
            topics[-1].partitions.append(
                FetchRequest.Topic.Partition(
                    partition=partition.partition,
                    current_leader_epoch=wanted.leader_epoch,
                    fetch_offset=wanted.offset,
                    partition_max_bytes=wanted.max_bytes,
                )
            )
        forgotten: dict[tuple[str, UUID], list[int]] = defaultdict(list)
        replaced = plan.replaced if version > LAST_VERSION_WITHOUT_IDS else []
        for partition, topic_id in [*plan.forget, *replaced]:
            forgotten[partition.topic, topic_id].append(partition.partition)
        return FetchRequest(
            replica_id=-1,
            max_wait_ms=max_wait_ms,
            min_bytes=config.min_bytes,
            max_bytes=max_bytes,
            isolation_level=int(config.isolation),
            session_id=plan.session_id,
            session_epoch=plan.epoch,
            topics=topics,
            forgotten_topics_data=[
                FetchRequest.ForgottenTopic(topic=topic, topic_id=topic_id, partitions=partitions)
                for (topic, topic_id), partitions in forgotten.items()
            ],
            rack_id=config.rack,
        )

    # --- one request ----------------------------------------------------------------------------------------------

    async def _fetch(self, node_id: int, wanted: dict[TopicPartition, WantedPartition]) -> None:
        session = self._sessions.get(node_id)
        if session is None:
            session = self._sessions[node_id] = FetchSession(node_id, self._config.sessions)
        config = self._config
        try:
            response, plan = await self._send(node_id, session, wanted, config.max_wait_ms, config.max_bytes)
        except KafkaError as error:
            self._failed(node_id, session, error)
        else:
            self._take(node_id, session, plan, response)
        finally:
            del self._tasks[node_id], self._flights[node_id]
            self.wake()

    async def _fetch_beside(
        self, place: int, flight: Flight, wanted: dict[TopicPartition, WantedPartition], max_bytes: int
    ) -> None:
        """Fetches on a second connection. `place` is its id.

        Failed partitions wait until the first connection's response.
        """
        session = FetchSession(place, enabled=False)
        try:
            response, plan = await self._send(place, session, wanted, 0, max_bytes)
        except KafkaError as error:
            logger.debug("Fetch on a second connection failed: %s", error)
            self._not_before[place] = time.monotonic() + self._config.retry_backoff_s
        else:
            self._take(place, session, plan, response)
            for partition, asked in wanted.items():
                state = self._subscription.get(partition)
                if state is None or state.buffer.end_offset != asked.offset:
                    flight.beside.pop(partition, None)
        finally:
            del self._tasks[place]
            self.wake()

    async def _send(
        self,
        node_id: int,
        session: FetchSession,
        wanted: dict[TopicPartition, WantedPartition],
        max_wait_ms: int,
        max_bytes: int,
    ) -> tuple[FetchResponseFrame, FetchPlan]:
        network, config = self._network, self._config
        if not network.is_ready(node_id):
            await network.ready(node_id)
        version = await network.version(node_id, FETCH, MIN_VERSION, MAX_VERSION)
        plan = session.build(wanted)
        if not plan.with_topic_ids:
            version = min(version, LAST_VERSION_WITHOUT_IDS)
        response = FetchResponseFrame(version, config.check_crcs, max(config.max_bytes, config.max_partition_bytes))
        started = time.monotonic()
        header = request_header(FETCH, version, network.client_id)
        frame = BytesFrame(encode_message(self._request(plan, version, max_wait_ms, max_bytes), version, header))
        await network.submit(node_id, FETCH, version, frame, response, config.request_timeout_ms)
        network.throttled(node_id, FETCH, version, response.throttle_ms)
        self._metrics.fetched(time.monotonic() - started, response.throttle_ms)
        return response, plan

    def _failed(self, node_id: int, session: FetchSession, error: KafkaError) -> None:
        session.failed()
        for state in self._subscription.states(session.partitions):
            state.clear_replica()
        self._not_before[node_id] = time.monotonic() + self._config.retry_backoff_s
        if error.retriable:
            logger.log(
                logging.DEBUG if isinstance(error, NodeNotReadyError) else logging.INFO,
                "Fetch from node %d failed: %s",
                node_id,
                error,
            )
            self._network.cluster.invalidate()
        else:
            self._on_error(error)

    # --- responses ------------------------------------------------------------------------------------------------

    def _take(self, node_id: int, session: FetchSession, plan: FetchPlan, response: FetchResponseFrame) -> None:
        fetched: dict[TopicPartition, FetchedPartition] = {}
        unknown = False
        if not response.error_code:
            for each in response.partitions():
                topic = session.names.get(each.topic_id) if each.topic_id is not None else each.topic
                if topic is None:
                    unknown = True
                else:
                    fetched[TopicPartition(topic, each.partition)] = each
        usable = session.completed(
            plan, response.error_code, response.session_id, response.throttle_ms, set(fetched), unknown
        )
        if not usable:
            if response.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR:
                self._network.cluster.invalidate()
            elif response.error_code in (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.KAFKA_STORAGE_ERROR):
                self._not_before[node_id] = time.monotonic() + self._config.retry_backoff_s
        if response.throttle_ms > 0:
            self._not_before[node_id] = time.monotonic() + response.throttle_ms / 1000
        if not usable:
            return
        for partition, chunk in fetched.items():
            self._take_partition(partition, plan.partitions[partition].offset, chunk, response)

    def _take_partition(
        self, partition: TopicPartition, offset: int, chunk: FetchedPartition, response: FetchResponseFrame
    ) -> None:
        state = self._subscription.get(partition)
        if state is None or not state.has_valid_position or state.buffer.end_offset != offset:
            return  # unassigned, moved or awaiting validation since the request
        if chunk.error_code:
            self._partition_error(state, offset, ErrorCode.of(chunk.error_code), chunk, response)
            return
        state.fetched_at_ms = time.time_ns() // 1_000_000
        if chunk.high_watermark >= 0:
            state.high_watermark = chunk.high_watermark
        if chunk.last_stable_offset >= 0:
            state.last_stable_offset = chunk.last_stable_offset
        if chunk.log_start_offset >= 0:
            state.log_start_offset = chunk.log_start_offset
        if chunk.preferred_read_replica >= 0:
            state.prefer_replica(chunk.preferred_read_replica, time.monotonic() + self._config.metadata_max_age_s)
        # Records that do not reach the offset cannot be read; the user gets the error when reading arrives there.
        state.fetch_when_drained = chunk.has_records and chunk.end_offset <= offset
        if not chunk.has_records:
            return
        config = self._config
        chunk.start(
            partition.topic,
            offset,
            config.isolation is IsolationLevel.READ_COMMITTED,
            config.key_deserializer,
            config.value_deserializer,
            config.tuple_headers,
        )
        state.buffer.add(chunk)
        self._metrics.received(chunk.bytes)
        # Other partitions come first in the next full request; within a session the broker does the same.
        self._subscription.move_to_end(partition)

    def _partition_error(
        self,
        state: PartitionState,
        offset: int,
        code: ErrorCode,
        chunk: FetchedPartition,
        response: FetchResponseFrame,
    ) -> None:
        partition = state.topic_partition
        cluster = self._network.cluster
        self._subscription.move_to_end(partition)
        if code in STALE:
            logger.debug("Fetch of %s at offset %d failed: %s", partition, offset, code.name)
            state.clear_replica()
            if not self._moved(partition, chunk, response):
                state.retry_at = time.monotonic() + self._config.retry_backoff_s
                cluster.invalidate()
            return
        if code is ErrorCode.OFFSET_OUT_OF_RANGE and state.clear_replica() >= 0:
            return  # a follower's log may be shorter or longer than the leader's: the leader is fetched from
        if state.buffer.chunks:
            # First the user reads the buffered records; then the fetch is repeated, and returns the error again.
            state.fetch_when_drained = True
            return
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            if self._subscription.default_reset.defined:
                logger.info("Fetch position %d is out of range for partition %s, resetting offset", offset, partition)
                state.request_reset(self._subscription.default_reset)
                self._on_reset()
            else:
                self._wait(
                    state, OffsetOutOfRangeError(f"Fetch position {offset} is out of range for partition {partition}")
                )
        elif code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            logger.warning("Not authorized to read from partition %s", partition)
            self._wait(state, error_for(code, f"Not authorized to access topics: {partition.topic}"))
        elif code is ErrorCode.CORRUPT_MESSAGE:
            self._wait(
                state, CorruptMessageError(f"Corrupt message when fetching offset {offset} of partition {partition}")
            )
        elif code in (ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.UNKNOWN_SERVER_ERROR):
            logger.log(
                logging.DEBUG if code is ErrorCode.UNKNOWN_LEADER_EPOCH else logging.WARNING,
                "Fetch of %s at offset %d failed: %s",
                partition,
                offset,
                code.name,
            )
            state.retry_at = time.monotonic() + self._config.retry_backoff_s
        else:
            self._wait(state, error_for(code, f"Fetch of {partition} at offset {offset} failed: {code.message}"))

    def _moved(self, partition: TopicPartition, chunk: FetchedPartition, response: FetchResponseFrame) -> bool:
        """Whether the response names another leader (KIP-951).

        The metadata's listeners do the rest.
        """
        if chunk.current_leader is None:
            return False
        leader_id, leader_epoch = chunk.current_leader
        endpoints = [BrokerNode(*endpoint) for endpoint in response.node_endpoints if endpoint[0] == leader_id]
        return self._network.cluster.update_leader(
            partition, leader_id, leader_epoch, endpoints[0] if endpoints else None
        )

    def _wait(self, state: PartitionState, error: Exception) -> None:
        """Reports an error; the partition is fetched again after poll() raised it."""
        state.failed = True
        self._on_error(error)

    def resume(self) -> None:
        """Continues after errors that the user has seen."""
        for state in self._subscription.all_states:
            state.failed = False
        self.wake()

    # --- the end --------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Ends the running requests, and the sessions at reachable brokers."""
        self._closed = True
        self._wake_at(NEVER, 0.0)
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        closing = []
        for node_id, session in self._sessions.items():
            plan = session.close()
            if plan is not None and self._network.is_ready(node_id) and not self._network.in_flight(node_id):
                closing.append(self._close_session(node_id, plan))
        await asyncio.gather(*closing, return_exceptions=True)

    async def _close_session(self, node_id: int, plan: FetchPlan) -> None:
        request = self._request(plan, MAX_VERSION, 0, self._config.max_bytes)
        await self._network.send(node_id, request, timeout_ms=self._config.request_timeout_ms)
