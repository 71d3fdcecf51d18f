"""OffsetForLeaderEpoch, API key 23: versions 0 to 4.

The response gives the end offset of a leader epoch in the logs led here, so that clients and followers find where
they diverge.

Versions:
0: the API (KIP-101).
1: the leader epoch that the offset belongs to (KIP-279).
2: current leader epoch for fencing (KIP-320); throttle time in the response.
3: replica id; -2 sees offsets beyond the high watermark (KIP-392).
4: flexible encoding with tagged fields (KIP-482).

Known gaps: none.
"""

from __future__ import annotations

from kafkapy.broker.context import RequestContext
from kafkapy.errors import ErrorCode, KafkaError, code_of
from kafkapy.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from kafkapy.slices import in_slices
from kafkapy.types import AclOperation, ResourceType, TopicPartition

REQUEST = OffsetForLeaderEpochRequest
RESPONSE = OffsetForLeaderEpochResponse

Topic = OffsetForLeaderEpochResponse.Topic


async def handle(context: RequestContext, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    """One answer for each partition, in the order asked."""
    names = {topic.topic async for topic in in_slices(request.topics)}
    context.leave(names)
    if not context.authorize(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, log_if_denied=False):
        names = await context.authorized_names_in_slices(AclOperation.DESCRIBE, ResourceType.TOPIC, names)
    replicas = context.broker.replica_manager
    topics = []
    async for topic in in_slices(request.topics):
        answers = []
        async for asked in in_slices(topic.partitions):
            if topic.topic not in names:
                answers.append(_failed(asked.partition, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
                continue
            partition = TopicPartition(topic.topic, asked.partition)
            try:
                epoch, end_offset = replicas.end_offset_for_leader_epoch(
                    partition, asked.leader_epoch, current_leader_epoch=asked.current_leader_epoch
                )
            except KafkaError as error:
                answers.append(_failed(asked.partition, code_of(error)))
            else:
                answers.append(
                    Topic.Partition(
                        error_code=ErrorCode.NONE, partition=asked.partition, leader_epoch=epoch, end_offset=end_offset
                    )
                )
        topics.append(Topic(topic=topic.topic, partitions=answers))
    return OffsetForLeaderEpochResponse(topics=topics)


def error_response(
    request: OffsetForLeaderEpochRequest, error: ErrorCode, message: str
) -> OffsetForLeaderEpochResponse:
    """The error for every partition."""
    del message
    return OffsetForLeaderEpochResponse(
        topics=[
            Topic(topic=topic.topic, partitions=[_failed(each.partition, error) for each in topic.partitions])
            for topic in request.topics
        ]
    )


def _failed(partition: int, error: ErrorCode) -> Topic.Partition:
    return Topic.Partition(error_code=error, partition=partition)
