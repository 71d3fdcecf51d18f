"""Offsets by time, and positions.

ListOffsets serves queries and resets, OffsetForLeaderEpoch finds truncated logs. Source:
org.apache.kafka.clients.consumer.internals.OffsetFetcher and OffsetsForLeaderEpochClient (4.1); KIP-79, KIP-320.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkapy.clients.consumer.subscription import (
    FetchState,
    LeaderAndEpoch,
    OffsetReset,
    PartitionState,
    SubscriptionState,
)
from kafkapy.errors import (
    ErrorCode,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    LogTruncationError,
    NodeNotReadyError,
    UnsupportedVersionError,
    error_for,
)
from kafkapy.protocol.messages.list_offsets import ListOffsetsRequest
from kafkapy.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kafkapy.types import IsolationLevel, ListOffsetsTimestamp, TopicPartition

if TYPE_CHECKING:
    from kafkapy.clients.network_client import NetworkClient
    from kafkapy.protocol.schema import Request

__all__ = ["ListedOffset", "Offsets"]

logger = logging.getLogger("kafka.consumer.offsets")

CONSUMER_REPLICA_ID: Final = -1
FIRST_USABLE_EPOCH_VERSION: Final = 3
"""Before version 3 (Kafka 2.3) OffsetForLeaderEpoch requires the permission to act as a broker."""
MIN_VERSION: Final[dict[int, int]] = {
    int(ListOffsetsTimestamp.MAX_TIMESTAMP): 7,
    int(ListOffsetsTimestamp.EARLIEST_LOCAL): 8,
    int(ListOffsetsTimestamp.LATEST_TIERED): 9,
    int(ListOffsetsTimestamp.EARLIEST_PENDING_UPLOAD): 11,
}
RETRIED: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


class ListedOffset(NamedTuple):
    """A broker's response for one timestamp.

    `offset` is -1 when no record matches; timestamp and epoch are -1 when unknown.
    """

    offset: int
    timestamp: int
    leader_epoch: int


class Offsets:
    """Asks leaders for offsets, and finds valid positions of partitions.

    On the loop's thread. `waits` returns whether a request may be waiting at a broker, so that a second connection is
    faster; `on_error` takes errors for the next poll; `on_positions` is called when positions may have become valid.
    """

    def __init__(
        self,
        network: NetworkClient,
        subscription: SubscriptionState,
        isolation: IsolationLevel,
        *,
        retry_backoff_ms: int,
        request_timeout_ms: int,
        waits: Callable[[int], bool],
        on_error: Callable[[Exception], None],
        on_positions: Callable[[], None],
    ) -> None:
        self._network = network
        self._subscription = subscription
        self._isolation = isolation
        self._retry_backoff_s = retry_backoff_ms / 1000
        self._request_timeout_ms = request_timeout_ms
        self._waits = waits
        self._on_error = on_error
        self._on_positions = on_positions
        self._tasks: set[asyncio.Task[None]] = set()
        self._leaderless: set[PartitionState] = set()
        """Partitions to reset once the metadata has their leaders."""
        self._timer: asyncio.TimerHandle | None = None
        self._seen_metadata = -1
        self._closed = False
        self._failed = False

    def close(self) -> None:
        """Cancels running requests."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()

    def leader_of(self, partition: TopicPartition) -> LeaderAndEpoch:
        """A partition's leader and leader epoch in the metadata."""
        cluster = self._network.cluster
        leader = cluster.leader_for(partition)
        return LeaderAndEpoch(-1 if leader is None else leader, cluster.leader_epoch_for(partition))

    # --- queries --------------------------------------------------------------------------------------------------

    async def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: int
    ) -> dict[TopicPartition, ListedOffset]:
        """The offset for each partition's timestamp (ms, or a `ListOffsetsTimestamp`).

        It retries until all are known. The topics must be among the wanted topics of the metadata. KafkaTimeoutError;
        TopicAuthorizationFailedError; UnsupportedVersionError when the broker does not support the special timestamp.
        """
        missing = {partition.topic for partition in timestamps}.difference(self._network.cluster.topics)
        found: dict[TopicPartition, ListedOffset] = {}
        left = dict(timestamps)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                if missing:
                    await self._refresh()
                while True:
                    listed, _ = await self._list_once(left)
                    found |= listed
                    left = {partition: at for partition, at in left.items() if partition not in listed}
                    if not left:
                        return found
                    await asyncio.sleep(self._retry_backoff_s)
                    await self._refresh()
        except TimeoutError:
            names = ", ".join(sorted(str(partition) for partition in left))
            raise KafkaTimeoutError(f"No offsets for {names} within {timeout_ms} ms") from None

    async def _send(self, node_id: int, request: Request, min_version: int) -> Any:
        """As `NetworkClient.send`, on a second connection if the first one waits."""
        if self._waits(node_id):
            try:
                return await self._network.send(self._network.beside(node_id), request, min_version=min_version)
            except (KafkaConnectionError, NodeNotReadyError) as error:
                logger.debug("%s on a second connection failed: %s", request.NAME, error)
        return await self._network.send(node_id, request, min_version=min_version)

    async def _refresh(self) -> None:
        try:
            await self._network.cluster.refresh()
        except KafkaError as error:
            if not error.retriable:
                raise
            logger.debug("Metadata refresh failed: %s", error)

    async def _list_once(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> tuple[dict[TopicPartition, ListedOffset], set[TopicPartition]]:
        """Sends one request to each leader; (found offsets, partitions to retry)."""
        by_node: dict[int, dict[TopicPartition, int]] = defaultdict(dict)
        retry: set[TopicPartition] = set()
        for partition, at in timestamps.items():
            leader = self.leader_of(partition)
            if leader.node_id < 0:
                retry.add(partition)
            else:
                by_node[leader.node_id][partition] = at
        if retry:
            self._network.cluster.invalidate()
        found: dict[TopicPartition, ListedOffset] = {}
        answers = await asyncio.gather(*(self._list_from(node_id, asked) for node_id, asked in by_node.items()))
        for listed, again in answers:
            found |= listed
            retry |= again
        return found, retry

    async def _list_from(
        self, node_id: int, timestamps: Mapping[TopicPartition, int]
    ) -> tuple[dict[TopicPartition, ListedOffset], set[TopicPartition]]:
        by_topic: dict[str, list[Any]] = defaultdict(list)
        for partition, at in timestamps.items():
            by_topic[partition.topic].append(
                ListOffsetsRequest.Topic.Partition(
                    partition_index=partition.partition,
                    current_leader_epoch=self.leader_of(partition).epoch,
                    timestamp=at,
                )
            )
        request = ListOffsetsRequest(
            replica_id=CONSUMER_REPLICA_ID,
            isolation_level=int(self._isolation),
            topics=[ListOffsetsRequest.Topic(name=name, partitions=each) for name, each in by_topic.items()],
            timeout_ms=self._request_timeout_ms,
        )
        # Since version 2 the request has the isolation level; without it read_committed would read too far.
        min_version = max([1, 2 if self._isolation else 1, *(MIN_VERSION.get(at, 1) for at in timestamps.values())])
        try:
            response = await self._send(node_id, request, min_version)
        except KafkaError as error:
            if not error.retriable:
                raise
            logger.debug("ListOffsets to node %d failed: %s", node_id, error)
            self._network.cluster.invalidate()
            return {}, set(timestamps)
        found: dict[TopicPartition, ListedOffset] = {}
        retry: set[TopicPartition] = set()
        unauthorized: set[str] = set()
        for topic in response.topics:
            for each in topic.partitions:
                partition = TopicPartition(topic.name, each.partition_index)
                code = ErrorCode.of(each.error_code)
                if not code:
                    found[partition] = ListedOffset(each.offset, each.timestamp, each.leader_epoch)
                elif code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT:
                    # Records of the oldest formats have no timestamps: no offset matches.
                    found[partition] = ListedOffset(-1, -1, -1)
                elif code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    unauthorized.add(topic.name)
                else:
                    logger.log(
                        logging.DEBUG if code in RETRIED else logging.WARNING,
                        "ListOffsets of %s failed with %s and will be retried",
                        partition,
                        code.name,
                    )
                    retry.add(partition)
        if unauthorized:
            names = ", ".join(sorted(unauthorized))
            raise error_for(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"Not authorized to access topics: {names}")
        if retry:
            self._network.cluster.invalidate()
        return found, retry

    # --- resets and validation ------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Starts due resets and validations.

        Validation follows a change of the metadata. Nothing starts after an error until `resume`.
        """
        if self._closed or self._failed:
            return
        cluster = self._network.cluster
        if cluster.version != self._seen_metadata:
            self._seen_metadata = cluster.version
            for state in self._subscription.all_states:
                state.leader_changed(self.leader_of(state.topic_partition))
            for state in self._leaderless:
                state.retry_at = 0.0
            self._leaderless.clear()
        now = time.monotonic()
        resets = self._subscription.in_state(FetchState.AWAIT_RESET, now)
        if resets:
            self._hold(resets, now)
            leaderless = {state for state in resets if self.leader_of(state.topic_partition).node_id < 0}
            if leaderless:
                # The metadata refreshes without delay: no back-off is necessary.
                self._leaderless |= leaderless
                if any(state.topic_partition.topic in cluster.topics for state in leaderless):
                    cluster.invalidate()
            if len(leaderless) < len(resets):
                self._start(self._reset([state for state in resets if state not in leaderless]))
        positions = self._subscription.in_state(FetchState.AWAIT_VALIDATION, now)
        if positions:
            self._hold(positions, now)
            for node_id, states in self._by_leader(positions).items():
                self._start(self._validate(node_id, states))
        self._arm(now)

    def resume(self) -> None:
        """Continues after an error that the user has seen."""
        self._failed = False
        self.wake()

    def _hold(self, states: Iterable[PartitionState], now: float) -> None:
        for state in states:
            state.retry_at = now + self._request_timeout_ms / 1000

    def _retry(self, states: Iterable[PartitionState]) -> None:
        again_at = time.monotonic() + self._retry_backoff_s
        for state in states:
            state.retry_at = again_at
        self._network.cluster.invalidate()

    def _start(self, coroutine: Any) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed = True
            self._on_error(error if isinstance(error, Exception) else RuntimeError(repr(error)))
        if not self._closed:
            self._on_positions()
            self.wake()

    def _arm(self, now: float) -> None:
        """Schedules a wake at the next attempt."""
        due = [
            state.retry_at
            for state in self._subscription.all_states
            if state.state in (FetchState.AWAIT_RESET, FetchState.AWAIT_VALIDATION)
        ]
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due:
            self._timer = asyncio.get_running_loop().call_later(max(min(due) - now, 0.001), self.wake)

    async def _reset(self, states: list[PartitionState]) -> None:
        asked: dict[TopicPartition, tuple[PartitionState, OffsetReset]] = {}
        now_ms = int(time.time() * 1000)
        for state in states:
            if state.reset is not None:
                asked[state.topic_partition] = (state, state.reset)
        timestamps = {partition: reset.timestamp(now_ms) for partition, (_, reset) in asked.items()}
        try:
            found, retry = await self._list_once(timestamps)
            # No record is that young: by_duration then starts at the log end offset.
            late = [partition for partition, listed in found.items() if listed.offset < 0]
            if late:
                ends, again = await self._list_once(dict.fromkeys(late, int(ListOffsetsTimestamp.LATEST)))
                for partition in late:
                    del found[partition]
                found |= ends
                retry |= again
        except KafkaError:
            self._retry(states)
            raise
        if retry:
            self._retry(asked[partition][0] for partition in retry)
        for partition, listed in found.items():
            self._subscription.complete_reset(partition, asked[partition][1], listed.offset, self.leader_of(partition))

    def _by_leader(self, states: Iterable[PartitionState]) -> dict[int, list[PartitionState]]:
        by_node: dict[int, list[PartitionState]] = defaultdict(list)
        for state in states:
            by_node[state.leader.node_id].append(state)
        return by_node

    async def _validate(self, node_id: int, states: list[PartitionState]) -> None:
        asked: dict[TopicPartition, tuple[int, int, LeaderAndEpoch]] = {}
        by_topic: dict[str, list[Any]] = defaultdict(list)
        for state in states:
            partition, epoch = state.topic_partition, state.buffer.end_epoch
            asked[partition] = (state.buffer.end_offset, epoch, state.leader)
            by_topic[partition.topic].append(
                OffsetForLeaderEpochRequest.Topic.Partition(
                    partition=partition.partition, current_leader_epoch=state.leader.epoch, leader_epoch=epoch
                )
            )
        request = OffsetForLeaderEpochRequest(
            replica_id=CONSUMER_REPLICA_ID,
            topics=[OffsetForLeaderEpochRequest.Topic(topic=name, partitions=each) for name, each in by_topic.items()],
        )
        try:
            response = await self._send(node_id, request, FIRST_USABLE_EPOCH_VERSION)
        except UnsupportedVersionError:
            for state in states:
                state.complete_validation()
            return
        except KafkaError as error:
            self._retry(states)
            if not error.retriable:
                raise
            return
        truncated = []
        retry = {state.topic_partition: state for state in states}
        unauthorized: set[str] = set()
        for topic in response.topics:
            for each in topic.partitions:
                partition = TopicPartition(topic.topic, each.partition)
                code = ErrorCode.of(each.error_code)
                if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    unauthorized.add(topic.topic)
                elif not code and partition in asked:
                    retry.pop(partition, None)
                    truncation = self._subscription.complete_validation(
                        partition, asked[partition], each.leader_epoch, each.end_offset
                    )
                    if truncation is not None:
                        truncated.append(truncation)
        if retry:
            self._retry(retry.values())
        if unauthorized:
            names = ", ".join(sorted(unauthorized))
            raise error_for(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"Not authorized to access topics: {names}")
        if truncated:
            raise LogTruncationError(
                "Truncated partitions detected: "
                + ", ".join(f"{each.topic_partition} at offset {each.offset}" for each in truncated),
                {each.topic_partition: each.divergent for each in truncated if each.divergent is not None},
            )
