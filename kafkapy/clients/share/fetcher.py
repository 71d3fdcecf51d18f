"""ShareFetch and ShareAcknowledge: records from each broker, and acknowledgements to it.

One request per broker at a time, because a share session counts its requests. A broker is asked for records only
while the user waits for some and none are buffered: the time of their locks runs from their acquisition on, and
fetching ahead would shorten it. Acknowledgements go with the next ShareFetch to their broker, else at once in a
ShareAcknowledge.

With share.acquire.mode=record_limit one broker at a time acquires records, in turn, so that the records without an
acknowledgement stay within max.poll.records at all of them together. Each waits for its part of fetch.max.wait.ms, so
that records at another broker do not wait for long.

The acknowledgements of one partition in a request come from one response: a broker refuses all acknowledgements of a
partition when the lock of one record has ended, and the locks of a response end together. Source:
org.apache.kafka.clients.consumer.internals.ShareConsumeRequestManager (4.4); KIP-932, KIP-1206, KIP-1222.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kafkapy._speedups.clients.consumer.share_fetch_frame import ShareFetchResponseFrame
from kafkapy._speedups.clients.io.frames import BytesFrame
from kafkapy._speedups.protocol.encoder import encode_message
from kafkapy.clients.cluster import BrokerNode
from kafkapy.clients.network_client import NetworkClient, RequestOf, request_header
from kafkapy.clients.share.acknowledgements import Acknowledgement, Deliveries
from kafkapy.clients.share.session import CLOSING, LOST, SharePlan, ShareSession
from kafkapy.errors import ErrorCode, KafkaError, NodeNotReadyError, UnsupportedVersionError, error_for
from kafkapy.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from kafkapy.protocol.messages.share_fetch import ShareFetchRequest
from kafkapy.types import TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from kafkapy._speedups.clients.consumer.acquired_partition import AcquiredPartition
    from kafkapy._speedups.clients.consumer.record_iterator import FetchBuffer
    from kafkapy.clients.consumer.subscription import SubscriptionState
    from kafkapy.clients.share.metrics import ShareMetrics

__all__ = ["ShareFetchConfig", "ShareFetcher"]

logger = logging.getLogger("kafka.consumer.share")

SHARE_FETCH: Final = 78
FIRST_VERSION: Final = 1
"""Kafka 4.1's version of both APIs: the first that is stable."""
MODES_SINCE: Final = 2
"""The first ShareFetch version with acquire modes, and the first of both APIs with renewals (Kafka 4.2)."""
LAST_VERSION: Final = 2
RECORD_LIMIT: Final = 1
NEVER: Final = float("inf")

MOVED: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
GONE: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID}
)
STALE: Final = MOVED | GONE | {ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.REPLICA_NOT_AVAILABLE}
"""Errors after which the client refreshes metadata; acknowledgements are not repeated, because the locks are gone."""

Batch = ShareAcknowledgeRequest.Topic.Partition.AcknowledgementBatch
FetchBatch = ShareFetchRequest.Topic.Partition.AcknowledgementBatch
Wanted = Mapping[TopicPartition, "UUID"]


@dataclass(frozen=True, slots=True)
class ShareFetchConfig:
    """The fetcher's part of the share consumer's configuration."""

    group_id: str
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    record_limit: bool
    check_crcs: bool
    request_timeout_ms: int
    api_timeout_ms: int
    retry_backoff_s: float
    tuple_headers: bool
    """Whether the headers of records are a tuple, as in aiokafka, not a list."""
    key_deserializer: Any
    value_deserializer: Any


class ShareFetcher:
    """Sends a share consumer's requests to the leaders. On the loop's thread.

    `on_error` takes errors for the next poll, `on_acknowledged` finished acknowledgements with their error or None.
    """

    def __init__(
        self,
        network: NetworkClient,
        subscription: SubscriptionState,
        buffer: FetchBuffer,
        deliveries: Deliveries,
        config: ShareFetchConfig,
        metrics: ShareMetrics,
        *,
        member_id: Callable[[], str],
        on_error: Callable[[Exception], None],
        on_acknowledged: Callable[[Acknowledgement, Exception | None], None],
    ) -> None:
        self._network = network
        self._subscription = subscription
        self._buffer = buffer
        self._deliveries = deliveries
        self._config = config
        self._metrics = metrics
        self._member_id = member_id
        self._on_error = on_error
        self._on_acknowledged = on_acknowledged
        self.wants = False
        """Whether the user waits for records; the user's thread clears it when it has some."""
        self.lock_timeout_ms: int | None = None
        """The time of the broker's acquisition locks in ms, from its last response."""
        self._sessions: dict[int, ShareSession] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._fetching: set[int] = set()
        """The nodes with a running ShareFetch."""
        self._last_fetched = -1
        self._outbox: dict[int, list[Acknowledgement]] = defaultdict(list)
        self._open: set[Acknowledgement] = set()
        """Collected acknowledgements without an outcome."""
        self._not_before: dict[int, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._scheduled = False
        self._closing = False

    # --- rounds ---------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Schedules a round. Cheap; may be called any number of times."""
        if not self._scheduled and not self._closing:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._round)

    def _round(self) -> None:
        self._scheduled = False
        if self._closing:
            return
        # Before the checks: later reads of the user's thread are signalled and cause another round.
        self._buffer.telling = True
        self._deliveries.prune()
        now = time.monotonic()
        later = NEVER
        wanted = self._wanted_by_node()
        asks = self._nodes_to_ask(wanted, now)
        self._collect()
        for node_id in {*wanted, *self._sessions, *self._outbox}:
            if node_id in self._tasks:
                continue
            self._drop_unsendable(node_id)
            not_before = self._not_before.get(node_id, 0.0)
            if now < not_before:
                if node_id in asks or self._outbox.get(node_id):
                    later = min(later, not_before)
                continue
            self._begin(node_id, wanted.get(node_id, {}), node_id in asks)
        self._wake_at(later, now)

    def _begin(self, node_id: int, wanted: Wanted, asks: bool) -> None:
        """Starts the next request to a node, if it needs one."""
        session = self._sessions.get(node_id)
        acknowledgements = self._pick(node_id)
        if asks:
            if session is None:
                session = self._sessions[node_id] = ShareSession(node_id)
            if all(not each.renews and wanted.get(each.partition) == each.topic_id for each in acknowledgements):
                self._fetching.add(node_id)
                self._last_fetched = node_id
                self._spawn(node_id, self._fetch(session, wanted, acknowledgements))
                return
        if session is None:
            return
        if acknowledgements:
            self._spawn(node_id, self._acknowledge(session, acknowledgements))
        elif not wanted and not any(chunk.node_id == node_id for chunk in self._deliveries):
            del self._sessions[node_id]
            if not session.is_new and self._network.is_ready(node_id):
                self._spawn(node_id, self._acknowledge(session, [], closing=True))

    def _spawn(self, node_id: int, coroutine: Any) -> None:
        async def run() -> None:
            try:
                await coroutine
            except Exception as error:
                logger.exception("A request of the share session with node %d failed", node_id)
                self._on_error(error)
            finally:
                self._fetching.discard(node_id)
                del self._tasks[node_id]
                self.wake()

        self._tasks[node_id] = asyncio.get_running_loop().create_task(run())

    def _wanted_by_node(self) -> dict[int, dict[TopicPartition, UUID]]:
        """The assigned partitions by leader, with the ids of their topics."""
        cluster = self._network.cluster
        wanted: dict[int, dict[TopicPartition, UUID]] = defaultdict(dict)
        for state in self._subscription.all_states:
            partition = state.topic_partition
            topic_id, metadata = cluster.topic_id(partition.topic), cluster.partition(partition)
            if topic_id is None or metadata is None or metadata.leader < 0:
                cluster.invalidate()
            elif state.fetchable:
                wanted[metadata.leader][partition] = topic_id
        return wanted

    def _nodes_to_ask(self, wanted: Mapping[int, Wanted], now: float) -> set[int]:
        """The nodes to ask for records now."""
        if not self.wants or not self._buffer.empty or self._deliveries.renewing or self._deliveries.held:
            return set()  # with records held, the user's thread has taken the last ones, and clears `wants` next
        if not self._config.record_limit:
            return set(wanted)
        free = sorted(node_id for node_id in wanted if node_id not in self._tasks)
        # One that has to wait holds up the others only if all have to.
        free = [node_id for node_id in free if now >= self._not_before.get(node_id, 0.0)] or free
        if self._fetching or not free:
            return set()
        return {next((node_id for node_id in free if node_id > self._last_fetched), free[0])}

    def _wake_at(self, time_s: float, now: float) -> None:
        """Schedules a round at that time, in place of the scheduled one."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if time_s != NEVER:
            self._timer = asyncio.get_running_loop().call_later(max(time_s - now, 0.001), self.wake)

    # --- acknowledgements -----------------------------------------------------------------------------------------

    def _collect(self, also_busy: bool = False) -> None:
        """Takes acknowledgements of the user's thread, for brokers that can get them now, or for all."""
        deadline = time.monotonic() + self._config.api_timeout_ms / 1000
        for chunk in self._deliveries:
            if also_busy or chunk.node_id not in self._tasks:
                found = self._deliveries.collect(chunk, deadline)
                if found is not None:
                    self._outbox[chunk.node_id].append(found)
                    self._open.add(found)
                    self._metrics.acknowledged(found.count)

    def commit(self) -> list[Acknowledgement]:
        """Sends all acknowledgements that may be sent; returns all without an outcome."""
        self._collect(also_busy=True)
        self.wake()
        return list(self._open)

    def _pick(self, node_id: int) -> list[Acknowledgement]:
        """Takes the acknowledgements of the next request out of a node's outbox."""
        waiting = self._outbox.pop(node_id, [])
        chosen: dict[TopicPartition, Acknowledgement] = {}
        left = []
        for each in waiting:
            first = chosen.setdefault(each.partition, each)
            if first is not each and not first.join(each):
                left.append(each)
            elif first is not each:
                self._open.discard(each)
        if left:
            self._outbox[node_id] = left
        return list(chosen.values())

    def _drop_unsendable(self, node_id: int) -> None:
        """Fails acknowledgements whose session or leader is gone."""
        waiting = self._outbox.get(node_id)
        if not waiting:
            return
        session = self._sessions.get(node_id)
        kept = []
        for each in waiting:
            leader = self._network.cluster.leader_for(each.partition)
            if leader is not None and leader != node_id and leader >= 0:
                self._finish(each, error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            elif session is None or session.is_new:
                self._finish(each, _session_ended(node_id))
            else:
                kept.append(each)
        if kept:
            self._outbox[node_id] = kept
        else:
            del self._outbox[node_id]

    def _finish(self, acknowledgement: Acknowledgement, error: Exception | None) -> None:
        self._open.discard(acknowledgement)
        if error is not None:
            logger.info(
                "Acknowledgement of %d records of %s failed: %s",
                acknowledgement.count, acknowledgement.partition, error,
            )  # fmt: skip
            self._metrics.not_acknowledged(acknowledgement.count)
        self._deliveries.finish(acknowledgement, error)
        self._on_acknowledged(acknowledgement, error)

    def _finish_all(self, acknowledgements: Iterable[Acknowledgement], error: Exception) -> None:
        for each in acknowledgements:
            self._finish(each, error)

    def _answered(
        self, acknowledgement: Acknowledgement, code: ErrorCode, message: str | None, *, retry: bool = False
    ) -> None:
        """Handles the outcome of one partition; another attempt follows while that may help."""
        if not code:
            self._finish(acknowledgement, None)
            return
        error = error_for(code, message or None)
        if retry and error.retriable and code not in STALE and time.monotonic() < acknowledgement.deadline:
            node_id = acknowledgement.chunk.node_id
            self._outbox[node_id].insert(0, acknowledgement)
            self._not_before[node_id] = time.monotonic() + self._config.retry_backoff_s
            return
        if code in STALE:
            self._network.cluster.invalidate()
        self._finish(acknowledgement, error)

    async def _acknowledge(
        self, session: ShareSession, acknowledgements: list[Acknowledgement], closing: bool = False
    ) -> None:
        """Sends a ShareAcknowledge, which may close the session."""
        node_id = session.node_id
        renews = any(each.renews for each in acknowledgements)
        by_topic: dict[UUID, list[Any]] = defaultdict(list)
        partition_class = ShareAcknowledgeRequest.Topic.Partition
        for each in acknowledgements:
            batches = [
                Batch(first_offset=first, last_offset=last, acknowledge_types=list(types))
                for first, last, types in each.batches
            ]
            by_topic[each.topic_id].append(
                partition_class(partition_index=each.partition.partition, acknowledgement_batches=batches)
            )
        request = ShareAcknowledgeRequest(
            group_id=self._config.group_id,
            member_id=self._member_id(),
            share_session_epoch=CLOSING if closing else session.epoch,
            is_renew_ack=renews,
            topics=[
                ShareAcknowledgeRequest.Topic(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in by_topic.items()
            ],
        )
        try:
            response = await self._network.send(
                node_id,
                RequestOf(ShareAcknowledgeRequest, lambda _: request),
                timeout_ms=self._config.request_timeout_ms,
                min_version=MODES_SINCE if renews else FIRST_VERSION,
                max_version=LAST_VERSION,
            )
        except UnsupportedVersionError as error:
            self._finish_all(acknowledgements, error)
            return
        except KafkaError as error:
            session.lost()
            self._finish_all(acknowledgements, error)
            self._failed(node_id, error)
            return
        code = ErrorCode.of(response.error_code)
        if not session.answered(code):
            self._finish_all(acknowledgements, self._error_of_session(node_id, code, response.error_message))
            return
        if response.acquisition_lock_timeout_ms > 0:
            self.lock_timeout_ms = response.acquisition_lock_timeout_ms
        sent = {(each.topic_id, each.partition.partition): each for each in acknowledgements}
        for topic in response.responses:
            for each in topic.partitions:
                acknowledgement = sent.pop((topic.topic_id, each.partition_index), None)
                if acknowledgement is None:
                    continue
                code = ErrorCode.of(each.error_code)
                if code in MOVED:
                    self._moved(
                        acknowledgement.partition,
                        (each.current_leader.leader_id, each.current_leader.leader_epoch),
                        [(node.node_id, node.host, node.port, node.rack) for node in response.node_endpoints],
                    )
                self._answered(acknowledgement, code, each.error_message, retry=not closing)
        self._unanswered(sent.values())

    def _unanswered(self, acknowledgements: Iterable[Acknowledgement]) -> None:
        self._finish_all(
            list(acknowledgements),
            error_for(ErrorCode.INVALID_RECORD_STATE, "The broker's response has no outcome of this acknowledgement"),
        )

    @staticmethod
    def _error_of_session(node_id: int, code: ErrorCode, message: str | None) -> KafkaError:
        if code in LOST:
            return _session_ended(node_id, code)
        return error_for(code, message or None)

    # --- records --------------------------------------------------------------------------------------------------

    def _request(
        self, plan: SharePlan, acknowledgements: list[Acknowledgement], version: int, max_wait_ms: int
    ) -> ShareFetchRequest:
        config = self._config
        batches = {
            each.partition: [
                FetchBatch(first_offset=first, last_offset=last, acknowledge_types=list(types))
                for first, last, types in each.batches
            ]
            for each in acknowledgements
        }
        ids = {each.partition: each.topic_id for each in acknowledgements} | dict(plan.added)
        topics: dict[UUID, list[Any]] = defaultdict(list)
        for partition, topic_id in ids.items():
            topics[topic_id].append(
                ShareFetchRequest.Topic.Partition(
                    partition_index=partition.partition, acknowledgement_batches=batches.get(partition, [])
                )
            )
        forgotten: dict[UUID, list[int]] = defaultdict(list)
        for partition, topic_id in plan.forgotten.items():
            forgotten[topic_id].append(partition.partition)
        return ShareFetchRequest(
            group_id=config.group_id,
            member_id=self._member_id(),
            share_session_epoch=plan.epoch,
            max_wait_ms=max_wait_ms,
            min_bytes=config.min_bytes,
            max_bytes=config.max_bytes,
            max_records=config.max_records,
            batch_size=config.max_records,
            share_acquire_mode=RECORD_LIMIT if config.record_limit and version >= MODES_SINCE else 0,
            topics=[
                ShareFetchRequest.Topic(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in topics.items()
            ],
            forgotten_topics_data=[
                ShareFetchRequest.ForgottenTopic(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in forgotten.items()
            ],
        )

    async def _fetch(self, session: ShareSession, wanted: Wanted, acknowledgements: list[Acknowledgement]) -> None:
        network, config, node_id = self._network, self._config, session.node_id
        turns = len(self._wanted_by_node()) if config.record_limit else 1
        try:
            low = MODES_SINCE if config.record_limit else FIRST_VERSION
            version = await network.version(node_id, SHARE_FETCH, low, LAST_VERSION)
            plan = session.plan(wanted)
            request = self._request(plan, acknowledgements, version, config.max_wait_ms // max(turns, 1))
            response = ShareFetchResponseFrame(version, config.check_crcs, max(config.max_bytes, 1 << 20))
            frame = BytesFrame(
                encode_message(request, version, request_header(SHARE_FETCH, version, network.client_id))
            )
            started = time.monotonic()
            await network.submit(node_id, SHARE_FETCH, version, frame, response, config.request_timeout_ms)
            now = time.monotonic()
            network.throttled(node_id, SHARE_FETCH, version, response.throttle_ms)
            self._metrics.fetched(now - started, response.throttle_ms)
            partitions = response.partitions()
        except KafkaError as error:
            session.lost()
            self._finish_all(acknowledgements, error)
            self._failed(node_id, error)
            return
        code = ErrorCode.of(response.error_code)
        if not session.answered(code):
            refused = self._error_of_session(node_id, code, response.error_message)
            self._finish_all(acknowledgements, refused)
            self._failed(node_id, refused)
            return
        if response.lock_timeout_ms > 0:
            self.lock_timeout_ms = response.lock_timeout_ms
        sent = {(each.topic_id, each.partition.partition): each for each in acknowledgements}
        for chunk in partitions:
            self._take(session, chunk, now, response)
            acknowledgement = None if chunk.topic_id is None else sent.pop((chunk.topic_id, chunk.partition), None)
            if acknowledgement is not None:
                code = ErrorCode.of(chunk.acknowledge_error_code)
                self._answered(acknowledgement, code, chunk.acknowledge_error_message, retry=True)
        self._unanswered(sent.values())

    def _take(
        self, session: ShareSession, chunk: AcquiredPartition, now: float, response: ShareFetchResponseFrame
    ) -> None:
        topic = None if chunk.topic_id is None else session.names.get(chunk.topic_id)
        if topic is None:
            logger.warning("Node %d sent records of a topic outside the share session", session.node_id)
            return
        partition = chunk.topic_partition = TopicPartition(topic, chunk.partition)
        chunk.node_id = session.node_id
        code = ErrorCode.of(chunk.error_code)
        if code:
            self._partition_error(partition, code, chunk, response)
        if not chunk.waiting:
            return
        if response.lock_timeout_ms > 0:
            chunk.locked_until = now + response.lock_timeout_ms / 1000
        config = self._config
        chunk.start(
            topic, chunk.first_offset, False, config.key_deserializer, config.value_deserializer, config.tuple_headers
        )
        self._metrics.received(chunk.bytes, chunk.waiting)
        self._deliveries.add(chunk)
        state = self._subscription.get(partition)
        if state is None:
            chunk.release_waiting()  # another member gets the partition's records
        else:
            state.buffer.add(chunk)

    def _partition_error(
        self, partition: TopicPartition, code: ErrorCode, chunk: AcquiredPartition, response: ShareFetchResponseFrame
    ) -> None:
        if code in STALE:
            logger.debug("ShareFetch of %s failed: %s", partition, code.name)
            leader = chunk.current_leader
            if code not in MOVED or leader is None or not self._moved(partition, leader, response.node_endpoints):
                self._back_off(chunk.node_id)
                self._network.cluster.invalidate()
        elif code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            logger.warning("Not authorized to read from partition %s", partition)
            self._back_off(chunk.node_id)
            self._on_error(error_for(code, f"Not authorized to access topics: {partition.topic}"))
        elif error_for(code).retriable or code is ErrorCode.UNKNOWN_SERVER_ERROR:
            logger.warning("ShareFetch of %s failed: %s", partition, code.name)
            self._back_off(chunk.node_id)
        else:
            self._back_off(chunk.node_id)
            text = chunk.error_message or code.message
            self._on_error(error_for(code, f"ShareFetch of {partition} failed: {text}"))

    def _moved(
        self,
        partition: TopicPartition,
        leader: tuple[int, int],
        endpoints: Iterable[tuple[int, str, int, str | None]],
    ) -> bool:
        """Whether the response names another leader (KIP-951)."""
        leader_id, epoch = leader
        nodes = [BrokerNode(*endpoint) for endpoint in endpoints if endpoint[0] == leader_id]
        return self._network.cluster.update_leader(partition, leader_id, epoch, nodes[0] if nodes else None)

    def _back_off(self, node_id: int) -> None:
        self._not_before[node_id] = time.monotonic() + self._config.retry_backoff_s

    def _failed(self, node_id: int, error: KafkaError) -> None:
        self._back_off(node_id)
        if error.retriable:
            level = logging.DEBUG if isinstance(error, NodeNotReadyError) else logging.INFO
            logger.log(level, "Request of the share session with node %d failed: %s", node_id, error)
            self._network.cluster.invalidate()
        else:
            self._on_error(error)

    # --- the end --------------------------------------------------------------------------------------------------

    async def end_sessions(self) -> None:
        """Sends the last acknowledgements, and closes all sessions: the brokers release the other records.

        Requests start again with `resume`.
        """
        self._closing = True
        self._wake_at(NEVER, 0.0)
        self.wants = False
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()))
        self._collect()
        await asyncio.gather(*(self._end_session(session) for session in self._sessions.values()))
        for node_id in list(self._outbox):
            waiting = self._outbox.pop(node_id)
            self._finish_all(waiting, _session_ended(node_id))
        self._sessions.clear()
        self._deliveries.drop()

    async def _end_session(self, session: ShareSession) -> None:
        self._drop_unsendable(session.node_id)
        if session.is_new:
            return
        while True:
            pause_s = self._not_before.get(session.node_id, 0.0) - time.monotonic()
            if pause_s > 0:
                await asyncio.sleep(pause_s)
            acknowledgements = self._pick(session.node_id)
            last = not self._outbox.get(session.node_id)
            await self._acknowledge(session, acknowledgements, closing=last)
            if last or session.is_new:
                return

    @property
    def is_closing(self) -> bool:
        """Whether sessions end, and no request starts."""
        return self._closing

    def resume(self) -> None:
        """Allows requests after `end_sessions`."""
        self._closing = False
        self._not_before.clear()

    async def stop(self) -> None:
        """Ends the running requests, when the time of `end_sessions` is over."""
        self._closing = True
        self._wake_at(NEVER, 0.0)
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        closed = error_for(ErrorCode.NETWORK_EXCEPTION, "The share consumer was closed")
        self._finish_all(list(self._open), closed)
        self._outbox.clear()


def _session_ended(node_id: int, code: ErrorCode = ErrorCode.NONE) -> KafkaError:
    reason = f": {code.name}" if code else ""
    return error_for(ErrorCode.NETWORK_EXCEPTION, f"The share session with node {node_id} ended{reason}")
