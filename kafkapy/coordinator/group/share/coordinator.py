"""ShareGroups: the handlers' interface to share groups, a part of the group coordinator.

Source: the share part of org.apache.kafka.coordinator.group.GroupCoordinatorService.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar
from uuid import UUID

from kafkapy.coordinator.group.replies import check_group_id, writable
from kafkapy.coordinator.group.shard import GroupShard
from kafkapy.coordinator.group.share.listeners import ShareGroupListeners
from kafkapy.coordinator.group.share.offsets import (
    NO_SHARE_OFFSET,
    LatestOffsets,
    ShareOffset,
    ShareOffsets,
    TopicOutcome,
)
from kafkapy.coordinator.group.share.requests import (
    Group,
    ShareClient,
    check_share_heartbeat,
    describe_share_error,
)
from kafkapy.coordinator.group.share.state_partitions import StateTopic, StateTopics
from kafkapy.coordinator.hosted import Operation
from kafkapy.coordinator.result import Later
from kafkapy.coordinator.runtime import CoordinatorRuntime
from kafkapy.coordinator.share.persister import Persister
from kafkapy.errors import ErrorCode, KafkaError, code_of
from kafkapy.metadata.cache import MetadataSnapshot
from kafkapy.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from kafkapy.slices import filled, in_chunks, in_slices
from kafkapy.types import ZERO_UUID, TopicPartition

T = TypeVar("T")


class TopicOffsets(NamedTuple):
    """The start offsets of a group in one topic; ZERO_UUID for an unknown topic."""

    name: str
    topic_id: UUID
    offsets: dict[int, ShareOffset]


class AlteredTopic(NamedTuple):
    """The outcome of an alteration for one topic; ZERO_UUID for an unknown topic."""

    name: str
    topic_id: UUID
    errors: dict[int, ErrorCode]


class ShareGroups:
    """Runs the requests of share groups on their shards.

    Owned by the GroupCoordinator; used on the control loop.
    """

    def __init__(
        self,
        runtime: CoordinatorRuntime[GroupShard],
        listeners: ShareGroupListeners,
        persister: Callable[[], Persister],
        latest_offsets: LatestOffsets,
        metadata: Callable[[], MetadataSnapshot],
        share_version: Callable[[], int],
    ) -> None:
        """`share_version` returns the level of share.version that is in force."""
        self._runtime = runtime
        self._metadata = metadata
        self._share_version = share_version
        self._offsets = ShareOffsets(persister, latest_offsets, listeners)

        self.listeners = listeners

    @property
    def are_served(self) -> bool:
        """Whether the cluster's share.version allows share groups."""
        return self._share_version() >= 1

    # --- members ----------------------------------------------------------------------------------------------------

    def heartbeat(self, client: ShareClient, request: ShareGroupHeartbeatRequest) -> Later[ShareGroupHeartbeatResponse]:
        """ShareGroupHeartbeat.

        See `check_share_heartbeat` and ShareRequests.heartbeat for the errors.
        """
        check_share_heartbeat(request)
        partition = self._runtime.partition_for(request.group_id)
        return writable(self._runtime.write(partition, lambda shard, _: shard.share.heartbeat(client, request)))

    async def describe(self, group_id: str) -> Group:
        """A share group with its members, or the error of its id."""
        try:
            check_group_id(group_id)
            snapshot = self._metadata()
            partition = self._runtime.partition_for(group_id)
            return await self._runtime.read(partition, lambda shard, _: shard.share.describe(group_id, snapshot))
        except KafkaError as error:
            return describe_share_error(group_id, code_of(error), error.message)

    # --- offsets ----------------------------------------------------------------------------------------------------

    async def describe_offsets(self, group_id: str, topics: Mapping[str, Sequence[int]] | None) -> list[TopicOffsets]:
        """The start offsets of some partitions by topic, or (None) of all.

        An unknown topic has none, which is no error.
        """
        partition = self._runtime.partition_for(group_id)
        initialized = await self._runtime.read(partition, lambda shard, _: shard.share_offsets.initialized(group_id))
        snapshot = self._metadata()
        if topics is None:
            names = snapshot.topic_names
            topics = {names[each]: sorted(initialized[each].partitions) for each in initialized if each in names}
        asked = {each: topic_id async for each, topic_id in in_slices(_known(topics, snapshot))}
        found = await self._offsets.describe(group_id, asked)
        described = []
        async for name, numbers in in_slices(topics.items()):
            topic = snapshot.topics.get(name)
            offsets = {
                number: found.get(TopicPartition(name, number), NO_SHARE_OFFSET) async for number in in_slices(numbers)
            }
            described.append(TopicOffsets(name, ZERO_UUID if topic is None else topic.topic_id, offsets))
        return described

    async def alter_offsets(self, group_id: str, topics: Mapping[str, Mapping[int, int]]) -> list[AlteredTopic]:
        """Set start offsets of an empty share group, by topic and partition.

        A new group is created. Raises INVALID_GROUP_ID, GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
        """
        check_group_id(group_id)
        snapshot = self._metadata()
        altered: dict[str, AlteredTopic] = {}
        offsets: dict[tuple[UUID, int], int] = {}
        changes: dict[UUID, StateTopic] = {}
        async for name, starts in in_slices(topics.items()):
            topic = snapshot.topics.get(name)
            topic_id = ZERO_UUID if topic is None else topic.topic_id
            known = {} if topic is None else topic.partitions
            errors: dict[int, ErrorCode] = {}
            good: set[int] = set()
            async for number, start in in_slices(starts.items()):
                errors[number] = ErrorCode.NONE if number in known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if number in known:
                    good.add(number)
                    offsets[topic_id, number] = start
            altered[name] = AlteredTopic(name, topic_id, errors)
            if good:
                changes[topic_id] = StateTopic(name, frozenset(good))
        if changes:
            await self._alter(group_id, changes, offsets, altered)
        else:
            # A group that has members, or another protocol, is an error of its own.
            await self._write(group_id, lambda shard, _: shard.share_offsets.check_empty(group_id))
        return list(altered.values())

    async def _alter(
        self,
        group_id: str,
        changes: dict[UUID, StateTopic],
        offsets: Mapping[tuple[UUID, int], int],
        altered: Mapping[str, AlteredTopic],
    ) -> None:
        epoch = await self._write(group_id, lambda shard, _: shard.share_offsets.begin_alter(group_id, changes))
        outcomes = await self._offsets.initialize(group_id, changes, epoch, offsets)
        async for key, error in in_slices(outcomes.items()):
            altered[changes[key.topic_id].name].errors[key.partition] = error
        failed = [key for key, error in outcomes.items() if error is not ErrorCode.NONE]
        await self._write(group_id, lambda shard, _: shard.share_offsets.end_alter(group_id, changes, failed))

    async def delete_offsets(self, group_id: str, names: Iterable[str]) -> dict[str, TopicOutcome]:
        """Delete the start offsets of an empty group in topics; the outcome of each.

        Raises INVALID_GROUP_ID, GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
        """
        check_group_id(group_id)
        asked = await filled(names, None)
        known = self._metadata().topics
        existing = [name async for name in in_slices(asked) if name in known]
        outcomes, topics = await self._write(
            group_id, lambda shard, _: shard.share_offsets.begin_deletion(group_id, existing)
        )
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        unknown = TopicOutcome(None, missing, missing.message)
        errors = await self._offsets.delete(group_id, topics)
        gone = frozenset(topic_id for topic_id, error in errors.items() if error is ErrorCode.NONE)
        await self._write(group_id, lambda shard, _: shard.share_offsets.end_deletion(group_id, topics, gone))
        for topic_id, topic in topics.items():
            error = errors[topic_id]
            outcomes[topic.name] = TopicOutcome(topic_id, error, error.message or None)
        return {name: outcomes.get(name, unknown) async for name in in_slices(asked)}

    async def delete_states(self, partition: int, group_ids: Sequence[str]) -> dict[str, ErrorCode]:
        """Delete the states of the share groups among groups of one partition of __consumer_offsets.

        Returns the errors of groups that must not be deleted: they have members, or still have states.
        """
        found = await self._runtime.write(
            partition, lambda shard, _: shard.share_offsets.begin_group_deletion(group_ids)
        )
        errors: dict[str, ErrorCode] = {}
        deleted: dict[str, StateTopics] = {}
        async for group_id, topics in in_slices(found.items()):
            if isinstance(topics, ErrorCode):
                errors[group_id] = topics
            else:
                deleted[group_id] = topics
        # A share coordinator that is away is waited for: once for many groups.
        async for chunk in in_chunks(deleted.items()):
            answers = await asyncio.gather(*(self._offsets.delete(*each) for each in chunk))
            for (group_id, _), outcomes in zip(chunk, answers, strict=True):
                failed = [error for error in outcomes.values() if error is not ErrorCode.NONE]
                if failed:
                    errors[group_id] = failed[0]
        if deleted:
            await self._runtime.write(partition, lambda shard, _: shard.share_offsets.end_group_deletion(deleted))
        return errors

    def _write(self, group_id: str, operation: Operation[GroupShard, T]) -> Later[T]:
        return writable(self._runtime.write(self._runtime.partition_for(group_id), operation))


def _known(topics: Mapping[str, Sequence[int]], snapshot: MetadataSnapshot) -> Iterator[tuple[TopicPartition, UUID]]:
    """The partitions that exist, with their topics' ids."""
    for name, numbers in topics.items():
        topic = snapshot.topics.get(name)
        if topic is not None:
            for number in numbers:
                if number in topic.partitions:
                    yield TopicPartition(name, number), topic.topic_id
