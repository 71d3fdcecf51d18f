"""OffsetCommit, API key 8: versions 0 to 10.

The group coordinator stores the offsets of a group member, or of a consumer that assigns its partitions itself. The
response comes when all in-sync replicas of `__consumer_offsets` have them. Network threads serve a group that has a
lease (kafkapy/_speedups/requests/offset_commit), and this handler all that they do not.

Versions:
0: offsets by group.
1: generation and member id; a timestamp for each offset.
2: one retention time in place of the timestamps.
3: throttle time in the response.
4: the response leaves before the pause of a throttled client (KIP-219).
5: the retention time is gone (KIP-211).
6: leader epoch of each offset (KIP-320).
7: group.instance.id of static members (KIP-345).
8: flexible encoding with tagged fields (KIP-482).
9: members of consumer groups, by member epoch (KIP-848).
10: topics by id (KIP-848).

Known gaps: version 0 stores in `__consumer_offsets` like all others, where Kafka up to 3.x used ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from kafkapy.broker.context import DECISIONS, RequestContext
from kafkapy.coordinator.group.classic.requests import ClientInfo
from kafkapy.coordinator.group.offset_requests import CommitErrors, NewOffset, OffsetCommit
from kafkapy.coordinator.result import TOO_LARGE, Later
from kafkapy.errors import ErrorCode, KafkaError
from kafkapy.metadata.cache import MetadataSnapshot, TopicMetadata
from kafkapy.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kafkapy.slices import filled, in_slices
from kafkapy.types import AclOperation, ResourceType, TopicPartition

REQUEST = OffsetCommitRequest
RESPONSE = OffsetCommitResponse

FIRST_WITH_TOPIC_ID = 10
FEW = 1000
"""Partitions that are looked at in less than a slice, where no authorizer decides about their topics."""
Topic = OffsetCommitResponse.Topic


def handle(
    context: RequestContext, request: OffsetCommitRequest
) -> Later[OffsetCommitResponse] | Coroutine[Any, Any, OffsetCommitResponse]:
    """One outcome for each partition, in the order asked.

    A large request is served in slices, any other without a task.
    """
    few_topics = FEW if context.allows_all else DECISIONS
    if sum(map(_size, request.topics[:FEW])) > FEW or len(request.topics) > few_topics:
        return _handle_large(context, request)
    return _handle(context, request)


def _size(topic: OffsetCommitRequest.Topic) -> int:
    return len(topic.partitions)


def _handle(context: RequestContext, request: OffsetCommitRequest) -> Later[OffsetCommitResponse]:
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
        known = snapshot.topic(topic.name)
        for each in topic.partitions:
            errors.append(_look(topic.name, known, each, allowed, unknown, offsets))
    if not offsets:
        return Later.of(_response(request, errors, {}))
    committed = context.broker.coordinators.group.commit_offsets(*_commit(context, request, offsets, snapshot))
    return committed.map(lambda done: _response(request, errors, _outcome(done, offsets)))


async def _handle_large(context: RequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse:
    """The same as _handle in slices."""
    if not context.authorize(AclOperation.READ, ResourceType.GROUP, request.group_id):
        errors: list[ErrorCode | TopicPartition] = [
            ErrorCode.GROUP_AUTHORIZATION_FAILED
            async for topic in in_slices(request.topics)
            async for _ in in_slices(topic.partitions)
        ]
        return await _response_in_slices(request, errors, {})
    snapshot = context.broker.metadata_cache.snapshot
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if context.api_version >= FIRST_WITH_TOPIC_ID:
        unknown = ErrorCode.UNKNOWN_TOPIC_ID
        async for topic in in_slices(request.topics):
            topic.name = snapshot.topic_names.get(topic.topic_id, "")
    allowed = await context.authorized_names_in_slices(
        AclOperation.READ, ResourceType.TOPIC, (topic.name for topic in request.topics if topic.name)
    )
    errors = []
    offsets: dict[TopicPartition, NewOffset] = {}
    context.leave(errors, offsets)
    async for topic in in_slices(request.topics):
        known = snapshot.topic(topic.name)
        async for each in in_slices(topic.partitions):
            errors.append(_look(topic.name, known, each, allowed, unknown, offsets))
    outcome: CommitErrors = {}
    if offsets:
        committed = context.broker.coordinators.group.commit_offsets(*_commit(context, request, offsets, snapshot))
        try:
            outcome = await committed.wait()
        except KafkaError as error:
            outcome = await filled(offsets, _shown(error))
    return await _response_in_slices(request, errors, outcome)


def _look(
    name: str,
    topic: TopicMetadata | None,
    each: OffsetCommitRequest.Topic.Partition,
    allowed: set[str],
    unknown: ErrorCode,
    offsets: dict[TopicPartition, NewOffset],
) -> ErrorCode | TopicPartition:
    """The error of one partition, or the partition if it has none.

    The partition's offset is in `offsets` then.
    """
    if not name:
        return unknown
    if name not in allowed:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if topic is None or each.partition_index not in topic.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    partition = TopicPartition(name, each.partition_index)
    offsets[partition] = NewOffset(
        each.committed_offset, each.committed_leader_epoch, each.committed_metadata, each.commit_timestamp
    )
    return partition


def _commit(
    context: RequestContext,
    request: OffsetCommitRequest,
    offsets: dict[TopicPartition, NewOffset],
    snapshot: MetadataSnapshot,
) -> tuple[ClientInfo, OffsetCommit]:
    client = ClientInfo(context.client_id or "", f"/{context.client_address}", context.api_version)
    commit = OffsetCommit(
        request.group_id,
        offsets,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        request.retention_time_ms,
        looked_up=snapshot,
    )
    return client, commit


def _outcome(done: Later[CommitErrors], offsets: dict[TopicPartition, NewOffset]) -> CommitErrors:
    error = done.error
    if not isinstance(error, KafkaError):
        return done.result()
    return dict.fromkeys(offsets, _shown(error))


def _shown(error: KafkaError) -> ErrorCode:
    return ErrorCode.INVALID_COMMIT_OFFSET_SIZE if error.code in TOO_LARGE else error.code


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


async def _response_in_slices(
    request: OffsetCommitRequest, errors: list[ErrorCode | TopicPartition], outcome: CommitErrors
) -> OffsetCommitResponse:
    found = iter(errors)

    def error() -> ErrorCode:
        each = next(found)
        return outcome[each] if isinstance(each, TopicPartition) else each

    return OffsetCommitResponse(
        topics=[
            Topic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    Topic.Partition(partition_index=each.partition_index, error_code=error())
                    async for each in in_slices(topic.partitions)
                ],
            )
            async for topic in in_slices(request.topics)
        ]
    )
