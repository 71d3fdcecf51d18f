"""OffsetCommit, API key 8: versions 0 to 10.

Stores offsets of a group, of one of its members or of a consumer that assigns its partitions itself. The answer comes
when they are on all in-sync replicas of `__consumer_offsets`.

Known gaps: version 0 stores in `__consumer_offsets` like all others, where Kafka up to 3.x used ZooKeeper.
"""

from __future__ import annotations

from kafkapy.broker.context import RequestContext
from kafkapy.coordinator.group.classic_requests import ClientInfo
from kafkapy.coordinator.group.offset_requests import CommitErrors, NewOffset, OffsetCommit
from kafkapy.coordinator.result import TOO_LARGE, Later
from kafkapy.errors import ErrorCode, KafkaError
from kafkapy.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kafkapy.types import AclOperation, ResourceType, TopicPartition

REQUEST = OffsetCommitRequest
RESPONSE = OffsetCommitResponse

FIRST_WITH_TOPIC_ID = 10
Topic = OffsetCommitResponse.Topic


def handle(context: RequestContext, request: OffsetCommitRequest) -> Later[OffsetCommitResponse]:
    """One outcome for each partition, in the order asked."""
    if not context.authorize(AclOperation.READ, ResourceType.GROUP, request.group_id):
        return Later.of(error_response(request, ErrorCode.GROUP_AUTHORIZATION_FAILED, ""))
    snapshot = context.broker.metadata_cache.snapshot
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if context.api_version >= FIRST_WITH_TOPIC_ID:
        unknown = ErrorCode.UNKNOWN_TOPIC_ID
        for topic in request.topics:
            # Ids that nobody has stay without a name, so that they are unknown below.
            topic.name = snapshot.topic_names.get(topic.topic_id, "")
    allowed = context.authorized_names(
        AclOperation.READ, ResourceType.TOPIC, [topic.name for topic in request.topics if topic.name]
    )
    errors: list[ErrorCode | TopicPartition] = []
    offsets: dict[TopicPartition, NewOffset] = {}
    for topic in request.topics:
        name = topic.name
        known = snapshot.topic(name)
        for each in topic.partitions:
            if not name:
                errors.append(unknown)
            elif name not in allowed:
                errors.append(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            elif known is None or each.partition_index not in known.partitions:
                errors.append(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                partition = TopicPartition(name, each.partition_index)
                errors.append(partition)
                offsets[partition] = NewOffset(
                    each.committed_offset, each.committed_leader_epoch, each.committed_metadata, each.commit_timestamp
                )
    if not offsets:
        return Later.of(_response(request, errors, {}))
    client = ClientInfo(context.client_id or "", f"/{context.client_address}", context.api_version)
    commit = OffsetCommit(
        request.group_id,
        offsets,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        request.retention_time_ms,
    )
    committed = context.broker.coordinators.group.commit_offsets(client, commit)
    return committed.map(lambda done: _response(request, errors, _outcome(done, offsets)))


def _outcome(done: Later[CommitErrors], offsets: dict[TopicPartition, NewOffset]) -> CommitErrors:
    error = done.error
    if not isinstance(error, KafkaError):
        return done.result()
    return dict.fromkeys(offsets, ErrorCode.INVALID_COMMIT_OFFSET_SIZE if error.code in TOO_LARGE else error.code)


def _response(
    request: OffsetCommitRequest, errors: list[ErrorCode | TopicPartition], outcome: CommitErrors
) -> OffsetCommitResponse:
    found = iter([outcome[each] if isinstance(each, TopicPartition) else each for each in errors])
    return OffsetCommitResponse(
        topics=[
            Topic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    Topic.Partition(partition_index=each.partition_index, error_code=next(found))
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def error_response(request: OffsetCommitRequest, error: ErrorCode, message: str) -> OffsetCommitResponse:
    """The error for every partition."""
    del message
    return _response(request, [error for topic in request.topics for _ in topic.partitions], {})
