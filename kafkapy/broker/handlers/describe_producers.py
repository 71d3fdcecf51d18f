"""DescribeProducers, API key 61: version 0.

The response lists the idempotent and transactional producers in the producer state of partitions hosted here. A
follower answers too: kafka-transactions finds hanging transactions of one broker by that.

Versions:
0: the API (KIP-664).

Known gaps: none.
"""

from __future__ import annotations

from kafkapy.broker.context import RequestContext
from kafkapy.errors import ErrorCode, KafkaError, code_of
from kafkapy.metadata.topic_names import invalid_reason
from kafkapy.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from kafkapy.slices import in_slices
from kafkapy.types import AclOperation, ResourceType, TopicPartition

REQUEST = DescribeProducersRequest
RESPONSE = DescribeProducersResponse

Topic = DescribeProducersResponse.Topic


async def handle(context: RequestContext, request: DescribeProducersRequest) -> DescribeProducersResponse:
    """One answer for each partition, in the order asked."""
    topics = []
    async for topic in in_slices(request.topics):
        error, message = _topic_error(context, topic.name)
        answers = [
            _failed(index, error, message) if error else _answer(context, TopicPartition(topic.name, index))
            async for index in in_slices(topic.partition_indexes)
        ]
        topics.append(Topic(name=topic.name, partitions=answers))
    return DescribeProducersResponse(topics=topics)


def error_response(request: DescribeProducersRequest, error: ErrorCode, message: str) -> DescribeProducersResponse:
    """The error for every partition."""
    return DescribeProducersResponse(
        topics=[
            Topic(name=topic.name, partitions=[_failed(each, error, message) for each in topic.partition_indexes])
            for topic in request.topics
        ]
    )


def _topic_error(context: RequestContext, name: str) -> tuple[ErrorCode, str]:
    reason = invalid_reason(name)
    if reason is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}"
    error = ErrorCode.NONE
    if not context.authorize(AclOperation.READ, ResourceType.TOPIC, name):
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif not context.broker.metadata_cache.contains(name):
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return error, error.message


def _answer(context: RequestContext, partition: TopicPartition) -> Topic.Partition:
    try:
        producers = context.broker.replica_manager.active_producers(partition)
    except KafkaError as error:
        return _failed(partition.partition, code_of(error), error.message)
    return Topic.Partition(
        partition_index=partition.partition,
        active_producers=[
            Topic.Partition.ActiveProducer(
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
                last_sequence=each.last_sequence,
                last_timestamp=each.last_timestamp,
                coordinator_epoch=each.coordinator_epoch,
                current_txn_start_offset=each.current_txn_start_offset,
            )
            for each in producers
        ],
    )


def _failed(partition: int, error: ErrorCode, message: str) -> Topic.Partition:
    return Topic.Partition(partition_index=partition, error_code=error, error_message=message, active_producers=[])
