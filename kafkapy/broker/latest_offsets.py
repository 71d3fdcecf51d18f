"""The latest offsets of partitions in a cluster, for the lag of share groups.

Source: org.apache.kafka.coordinator.group.util.NetworkPartitionMetadataClient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kafkapy.coordinator.result import Later
from kafkapy.errors import ErrorCode, KafkaError, code_of
from kafkapy.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kafkapy.slices import in_slices
from kafkapy.types import IsolationLevel, ListOffsetsTimestamp, TopicPartition

if TYPE_CHECKING:
    from kafkapy.coordinator.peers import Peers
    from kafkapy.replica.replica_manager import ReplicaManager

Topic = ListOffsetsRequest.Topic
Found = dict[TopicPartition, "int | ErrorCode"]

CONSUMER = -1
"""The replica id of a client."""


class LatestOffsets:
    """Reads high watermarks, from the logs led here and by requests to other leaders.

    Owned by Coordinators; used on the control loop. `leader_of` returns the leader of a partition, -1 when it has none
    now, None for an unknown partition.
    """

    def __init__(
        self,
        broker_id: int,
        replica_manager: ReplicaManager,
        peers: Peers,
        leader_of: Callable[[TopicPartition], int | None],
        *,
        timeout_ms: Callable[[], int],
    ) -> None:
        self._broker_id = broker_id
        self._replica_manager = replica_manager
        self._peers = peers
        self._leader_of = leader_of
        self._timeout_ms = timeout_ms

    async def __call__(self, partitions: Sequence[TopicPartition]) -> Found:
        """The latest offset of each partition, or its error."""
        found: Found = {}
        elsewhere: dict[int, list[TopicPartition]] = {}
        async for partition in in_slices(partitions):
            leader = self._leader_of(partition)
            if leader is None:
                found[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif leader == self._broker_id:
                found[partition] = await self._local(partition)
            elif leader < 0:
                found[partition] = ErrorCode.LEADER_NOT_AVAILABLE
            else:
                elsewhere.setdefault(leader, []).append(partition)
        asked = [
            (those, self._peers.send(leader, await _request(those), self._timeout_ms()))
            for leader, those in elsewhere.items()
        ]
        for those, later in asked:
            found |= await _answers(those, later)
        return found

    async def _local(self, partition: TopicPartition) -> int | ErrorCode:
        try:
            found = await self._replica_manager.list_offset(
                partition, ListOffsetsTimestamp.LATEST, isolation=IsolationLevel.READ_UNCOMMITTED
            )
        except KafkaError as error:
            return code_of(error)
        return ErrorCode.OFFSET_NOT_AVAILABLE if found is None else found.offset


async def _request(partitions: Sequence[TopicPartition]) -> ListOffsetsRequest:
    by_topic: dict[str, list[int]] = {}
    async for topic, number in in_slices(partitions):
        by_topic.setdefault(topic, []).append(number)
    return ListOffsetsRequest(
        replica_id=CONSUMER,
        isolation_level=IsolationLevel.READ_UNCOMMITTED,
        topics=[
            Topic(
                name=name,
                partitions=[
                    Topic.Partition(partition_index=number, timestamp=ListOffsetsTimestamp.LATEST)
                    async for number in in_slices(numbers)
                ],
            )
            for name, numbers in by_topic.items()
        ],
    )


async def _answers(partitions: Sequence[TopicPartition], later: Later[ListOffsetsResponse]) -> Found:
    try:
        response = await later
    except KafkaError as error:
        return dict.fromkeys(partitions, code_of(error))
    found: Found = dict.fromkeys(partitions, ErrorCode.UNKNOWN_SERVER_ERROR)
    for topic in response.topics:
        async for each in in_slices(topic.partitions):
            code = ErrorCode(each.error_code)
            found[TopicPartition(topic.name, each.partition_index)] = each.offset if code is ErrorCode.NONE else code
    return found
