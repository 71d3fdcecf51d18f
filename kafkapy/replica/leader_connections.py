"""A follower's connections to its leaders: for the fetcher threads, and for rare questions.

The clients' own code connects and authenticates. Each fetcher gets one connection, which its thread takes over;
questions (ListOffsets, OffsetForLeaderEpoch) go over one more connection for each leader. Source:
kafka.server.BrokerBlockingSender, kafka.server.RemoteLeaderEndPoint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kafkapy._speedups.replica.fetcher import NEWEST_VERSION, OLDEST_VERSION, ReplicaFetcher
from kafkapy.clients.cluster import BrokerNode
from kafkapy.clients.connection import FURTHER, NodeConnection
from kafkapy.clients.connections import Connections
from kafkapy.clients.metrics import ClientMetrics
from kafkapy.errors import ErrorCode, KafkaError, UnsupportedVersionError, error_for
from kafkapy.protocol.messages.list_offsets import ListOffsetsRequest
from kafkapy.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kafkapy.protocol.registry import ApiKeys
from kafkapy.protocol.schema import Request
from kafkapy.replica.fetcher_api import FollowerVersions
from kafkapy.replica.truncation import EpochEnd
from kafkapy.types import Endpoint, ListOffsetsTimestamp, TopicPartition

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig
    from kafkapy.config.clients import ClientConfig

__all__ = ["LeaderConnections"]

SAMPLES: Final = (2, 30.0)
"""Number and seconds of the samples of a connection's metrics, as clients have them."""
RECEIVE_BUFFER: Final = "replica.socket.receive.buffer.bytes"


class LeaderConnections:
    """Owns the connections until a fetcher takes them over. Used on the control loop."""

    def __init__(
        self,
        config: BrokerConfig,
        broker_id: int,
        client_config: ClientConfig,
        leaders: Callable[[int], Endpoint | None],
        versions: FollowerVersions,
    ) -> None:
        """`leaders`: the inter-broker address of a live broker."""
        self._broker_id = broker_id
        self._leaders = leaders
        self._versions = versions
        timeout_ms = config.get_int("replica.socket.timeout.ms")
        values: dict[str, Any] = {
            "request.timeout.ms": timeout_ms,
            "reconnect.backoff.ms": 0,
            "reconnect.backoff.max.ms": 0,
        }
        if config.is_set(RECEIVE_BUFFER):
            # Else the kernel sizes the buffer, which is faster than Kafka's 64 KB on a long way.
            values["receive.buffer.bytes"] = config.get_int(RECEIVE_BUFFER)
        client_config = client_config.replaced(**values)
        metrics = ClientMetrics(*SAMPLES)
        self._connections = Connections(
            client_config, f"broker-{broker_id}-fetcher", metrics, self._node, lambda node_id: None
        )

    def _node(self, node_id: int) -> BrokerNode | None:
        endpoint = self._leaders(node_id % FURTHER)
        return None if endpoint is None else BrokerNode(node_id, endpoint.host, endpoint.port)

    async def connect(self, fetcher: ReplicaFetcher, leader_id: int, index: int) -> float | None:
        """Connects a fetcher with its leader.

        Returns the time.monotonic() at which it needs another connection, because the SASL session ends; None: never.
        KafkaError.
        """
        connection = await self._connections.ready(leader_id + (index + 1) * FURTHER)
        newest = min(self._versions.fetch, NEWEST_VERSION)
        version = _negotiated(connection, ApiKeys.FETCH, OLDEST_VERSION, newest)
        io, channel, ends_s = self._connections.hand_over(connection)
        fetcher.connect(io, channel, version)
        return ends_s

    async def _ask(self, leader_id: int, request: Request, newest: int) -> Any:
        connection = await self._connections.ready(leader_id)
        versions = request.VERSIONS
        version = _negotiated(connection, request.API_KEY, versions.low, min(newest, versions.high))
        return await self._connections.round_trip(connection, request, version)

    async def offset(
        self, leader_id: int, topic_partition: TopicPartition, leader_epoch: int, timestamp: ListOffsetsTimestamp
    ) -> int:
        """The first offset (EARLIEST) or the end (LATEST) of the leader's log. KafkaError."""
        kind = ListOffsetsRequest.Topic
        asked = kind.Partition(
            partition_index=topic_partition.partition, current_leader_epoch=leader_epoch, timestamp=int(timestamp)
        )
        request = ListOffsetsRequest(
            replica_id=self._broker_id, topics=[kind(name=topic_partition.topic, partitions=[asked])]
        )
        response = await self._ask(leader_id, request, self._versions.list_offsets)
        for topic in response.topics:
            for answer in topic.partitions:
                if (topic.name, answer.partition_index) == topic_partition:
                    if answer.error_code:
                        raise error_for(answer.error_code)
                    offsets = answer.old_style_offsets or [answer.offset]
                    return int(offsets[0])
        raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"the leader's answer lacks {topic_partition}")

    async def epoch_ends(
        self, leader_id: int, asked: Mapping[TopicPartition, tuple[int, int]]
    ) -> dict[TopicPartition, EpochEnd | KafkaError]:
        """Where epochs end in the leader's log; `asked` are (current leader epoch, epoch) pairs.

        KafkaError when the leader does not answer.
        """
        kind = OffsetForLeaderEpochRequest.Topic
        topics: dict[str, list[OffsetForLeaderEpochRequest.Topic.Partition]] = {}
        for (topic, partition), (current, epoch) in asked.items():
            topics.setdefault(topic, []).append(
                kind.Partition(partition=partition, current_leader_epoch=current, leader_epoch=epoch)
            )
        request = OffsetForLeaderEpochRequest(
            replica_id=self._broker_id, topics=[kind(topic=topic, partitions=each) for topic, each in topics.items()]
        )
        response = await self._ask(leader_id, request, self._versions.offset_for_leader_epoch)
        found: dict[TopicPartition, EpochEnd | KafkaError] = {}
        for each in response.topics:
            for answer in each.partitions:
                outcome: EpochEnd | KafkaError = EpochEnd(answer.leader_epoch, answer.end_offset)
                if answer.error_code:
                    outcome = error_for(answer.error_code)
                found[TopicPartition(each.topic, answer.partition)] = outcome
        missing = error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the leader's answer lacks the partition")
        return {topic_partition: found.get(topic_partition, missing) for topic_partition in asked}

    async def close(self) -> None:
        """Closes the connections that no fetcher has. A second call does nothing."""
        if not self._connections.closed:
            for task in self._connections.cancel():
                task.cancel()
            self._connections.close()
            await self._connections.close_security()


def _negotiated(connection: NodeConnection, api_key: int, low: int, high: int) -> int:
    """The newest version that both sides know. UnsupportedVersionError."""
    served = connection.api_versions.get(api_key)
    if served is None or min(high, served[1]) < max(low, served[0]):
        raise UnsupportedVersionError(f"{connection} serves no {ApiKeys(api_key).title} of version {low} to {high}")
    return min(high, served[1])
