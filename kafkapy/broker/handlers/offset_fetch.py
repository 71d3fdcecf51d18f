"""OffsetFetch, API key 9: versions 0 to 10.

The response gives committed offsets of some partitions or of all (null). With require_stable, a partition with an
open transaction is UNSTABLE_OFFSET_COMMIT.

Versions:
0: offsets in ZooKeeper.
1: offsets in `__consumer_offsets`.
2: all partitions (null); an error code of the whole response.
3: throttle time in the response.
4: the response leaves before the pause of a throttled client (KIP-219).
5: leader epoch of each offset (KIP-320).
6: flexible encoding with tagged fields (KIP-482).
7: require_stable (KIP-447).
8: several groups at once (KIP-709).
9: member id and member epoch of consumer groups (KIP-848).
10: topics by id (KIP-848).

Known gaps: version 0 reads from `__consumer_offsets` like all others, where Kafka up to 3.x used ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from kafkapy.broker.context import RequestContext
from kafkapy.coordinator.group.offset_requests import FetchedOffset
from kafkapy.errors import ErrorCode, KafkaError, code_of
from kafkapy.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from kafkapy.protocol.schema import ZERO_UUID
from kafkapy.slices import in_slices
from kafkapy.types import AclOperation, ResourceType, TopicPartition

REQUEST = OffsetFetchRequest
RESPONSE = OffsetFetchResponse

FIRST_WITH_GROUP_ERROR, FIRST_BATCHED, FIRST_WITH_TOPIC_ID = 2, 8, 10
Topic = OffsetFetchResponse.Topic
Group = OffsetFetchResponse.Group


class AskedTopic(NamedTuple):
    """One topic of a request of any version.

    The name is empty for an id that no topic has.
    """

    name: str
    partitions: list[int]
    topic_id: UUID = ZERO_UUID


async def handle(context: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """One answer for each group, in the order asked."""
    if context.api_version >= FIRST_BATCHED:
        groups = [await _group(context, group, request.require_stable) async for group in in_slices(request.groups)]
        return OffsetFetchResponse(groups=groups)
    asked = (
        None
        if request.topics is None
        else [AskedTopic(t.name, t.partition_indexes) async for t in in_slices(request.topics)]
    )
    answers, error = await _fetch(context, request.group_id, asked, request.require_stable)
    if error is not ErrorCode.NONE:
        return _error_of_one_group(context.api_version, request, error)
    return OffsetFetchResponse(
        topics=[
            Topic(
                name=topic.name,
                partitions=[_old_partition(index, offset) async for index, offset in in_slices(offsets.items())],
            )
            async for topic, offsets in in_slices(answers)
        ]
    )


def error_response(request: OffsetFetchRequest, error: ErrorCode, message: str) -> OffsetFetchResponse:
    """The error wherever clients of any version look for it."""
    del message
    response = _error_of_one_group(0, request, error)
    response.error_code = error
    response.groups = [Group(group_id=group.group_id, topics=[], error_code=error) for group in request.groups]
    return response


def _error_of_one_group(version: int, request: OffsetFetchRequest, error: ErrorCode) -> OffsetFetchResponse:
    if version >= FIRST_WITH_GROUP_ERROR:
        return OffsetFetchResponse(topics=[], error_code=error)
    failed = FetchedOffset(error=error)
    return OffsetFetchResponse(
        topics=[
            Topic(name=topic.name, partitions=[_old_partition(index, failed) for index in topic.partition_indexes])
            for topic in request.topics or ()
        ]
    )


async def _group(context: RequestContext, group: OffsetFetchRequest.Group, require_stable: bool) -> Group:
    asked: list[AskedTopic] | None = None
    if group.topics is not None:
        names = context.broker.metadata_cache.snapshot.topic_names
        by_id = context.api_version >= FIRST_WITH_TOPIC_ID
        asked = [
            AskedTopic(names.get(t.topic_id, "") if by_id else t.name, t.partition_indexes, t.topic_id)
            async for t in in_slices(group.topics)
        ]
    answers, error = await _fetch(context, group.group_id, asked, require_stable, group.member_id, group.member_epoch)
    return Group(
        group_id=group.group_id,
        error_code=error,
        topics=[
            Group.Topic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[_partition(index, offset) async for index, offset in in_slices(offsets.items())],
            )
            async for topic, offsets in in_slices(answers)
        ],
    )


Answers = list[tuple[AskedTopic, dict[int, FetchedOffset]]]


async def _fetch(
    context: RequestContext,
    group_id: str,
    asked: list[AskedTopic] | None,
    require_stable: bool,
    member_id: str | None = None,
    member_epoch: int = -1,
) -> tuple[Answers, ErrorCode]:
    if not context.authorize(AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
        return [], ErrorCode.GROUP_AUTHORIZATION_FAILED
    wanted: list[TopicPartition] | None = None
    if asked is not None:
        allowed = await _visible(context, (topic.name for topic in asked if topic.name))
        wanted = [
            TopicPartition(t.name, index)
            async for t in in_slices(asked)
            if t.name in allowed
            async for index in in_slices(t.partitions)
        ]
        context.leave(wanted)
    try:
        found = await context.broker.coordinators.group.fetch_offsets(
            group_id, wanted, require_stable=require_stable, member_id=member_id, member_epoch=member_epoch
        )
    except KafkaError as error:
        return [], code_of(error)
    if asked is None:
        return await _all(context, found), ErrorCode.NONE
    answers: Answers = []
    context.leave(answers, found)
    async for topic in in_slices(asked):
        offsets = {}
        async for index in in_slices(topic.partitions):
            known = found.get(TopicPartition(topic.name, index))
            offsets[index] = _refused(topic) if known is None else known
        answers.append((topic, offsets))
    return answers, ErrorCode.NONE


def _refused(topic: AskedTopic) -> FetchedOffset:
    return FetchedOffset(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED if topic.name else ErrorCode.UNKNOWN_TOPIC_ID)


async def _all(context: RequestContext, found: dict[TopicPartition, FetchedOffset]) -> Answers:
    snapshot = context.broker.metadata_cache.snapshot
    by_topic: dict[str, dict[int, FetchedOffset]] = {}
    async for partition, offset in in_slices(found.items()):
        by_topic.setdefault(partition.topic, {})[partition.partition] = offset
    answers: Answers = []
    visible = await _visible(context, by_topic)
    async for name, offsets in in_slices(by_topic.items()):
        topic = snapshot.topic(name)
        # Where topics go by their ids one that has been deleted cannot be named any more.
        if name in visible and (topic is not None or context.api_version < FIRST_WITH_TOPIC_ID):
            answers.append((AskedTopic(name, [], ZERO_UUID if topic is None else topic.topic_id), offsets))
    return answers


async def _visible(context: RequestContext, names: Iterable[str]) -> set[str]:
    return await context.authorized_names_in_slices(AclOperation.DESCRIBE, ResourceType.TOPIC, names)


def _partition(index: int, offset: FetchedOffset) -> Group.Topic.Partition:
    return Group.Topic.Partition(
        partition_index=index,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        error_code=offset.error,
    )


def _old_partition(index: int, offset: FetchedOffset) -> Topic.Partition:
    return Topic.Partition(
        partition_index=index,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        error_code=offset.error,
    )
