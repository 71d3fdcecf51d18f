"""WriteTxnMarkers, API key 27: versions 0 to 2.

A transaction coordinator writes markers, which end transactions, into partitions led here.

Versions:
0: the API (KIP-98).
1: flexible encoding with tagged fields (KIP-482).
2: transaction version of each marker (KIP-1228).

Known gaps: none.
"""

from __future__ import annotations

from contextlib import suppress

from kafkapy.broker.context import RequestContext
from kafkapy.coordinator.result import Later
from kafkapy.coordinator.transaction.markers import Marker
from kafkapy.errors import ErrorCode, KafkaError, code_of, error_for
from kafkapy.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from kafkapy.slices import in_slices
from kafkapy.types import AclOperation, ResourceType, TopicPartition

REQUEST = WriteTxnMarkersRequest
RESPONSE = WriteTxnMarkersResponse

Answer = WriteTxnMarkersResponse.Marker
Topic = Answer.Topic


async def handle(context: RequestContext, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    """An error for each partition of each marker."""
    if not context.authorize(AclOperation.ALTER, ResourceType.CLUSTER, log_if_denied=False):
        context.authorize_cluster(AclOperation.CLUSTER_ACTION)
    # All of them are written before the first is waited for: they are replicated together.
    begun = [
        [
            [
                _write(context, marker, TopicPartition(topic.name, number))
                async for number in in_slices(topic.partition_indexes)
            ]
            async for topic in in_slices(marker.topics)
        ]
        async for marker in in_slices(request.markers)
    ]
    context.leave(begun)
    answers = []
    async for marker, topics in in_slices(zip(request.markers, begun, strict=True)):
        answered = []
        async for topic, writes in in_slices(zip(marker.topics, topics, strict=True)):
            partitions = [
                Topic.Partition(partition_index=number, error_code=await _error(write))
                async for number, write in in_slices(zip(topic.partition_indexes, writes, strict=True))
            ]
            answered.append(Topic(name=topic.name, partitions=partitions))
        answers.append(Answer(producer_id=marker.producer_id, topics=answered))
    return WriteTxnMarkersResponse(markers=answers)


def error_response(request: WriteTxnMarkersRequest, error: ErrorCode, message: str) -> WriteTxnMarkersResponse:
    """The error for every partition."""
    del message
    return WriteTxnMarkersResponse(
        markers=[
            Answer(
                producer_id=marker.producer_id,
                topics=[
                    Topic(
                        name=topic.name,
                        partitions=[
                            Topic.Partition(partition_index=number, error_code=error)
                            for number in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


def _write(context: RequestContext, marker: WriteTxnMarkersRequest.Marker, partition: TopicPartition) -> Later[None]:
    broker = context.broker
    if broker.replica_manager.log(partition) is None:
        return Later.failure(error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    return broker.coordinators.markers.write(
        partition,
        Marker(marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.transaction_result),
    )


async def _error(write: Later[None]) -> ErrorCode:
    if not write.done:
        with suppress(KafkaError):
            await write.wait()
    error = write.error
    if error is None:
        return ErrorCode.NONE
    if isinstance(error, KafkaError):
        return code_of(error)
    raise error
