"""The start offsets of share groups: describe, alter, delete; deletion of a group's states.

The share coordinators hold the offsets; the group coordinator knows which partitions have any. Source:
GroupCoordinatorService and GroupMetadataManager (describeShareGroupOffsets, alterShareGroupOffsets,
deleteShareGroupOffsets, deleteShareGroups); KIP-1226 (lag).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from kafkapy.coordinator.group.share import records as records_of
from kafkapy.coordinator.group.share.group import ShareGroup
from kafkapy.coordinator.group.share.initialization import ShareInitialization, keys_of, split
from kafkapy.coordinator.group.share.listeners import ShareGroupListeners
from kafkapy.coordinator.group.share.rebalance import ShareRebalance
from kafkapy.coordinator.group.share.state_partitions import StatePartitions, StateTopic, StateTopics
from kafkapy.coordinator.records import CoordinatorRecord
from kafkapy.coordinator.result import Later, Result
from kafkapy.coordinator.share.state import (
    NO_EPOCH,
    UNINITIALIZED_START_OFFSET,
    UNKNOWN_DELIVERY_COMPLETE,
    ShareKey,
    ShareSummary,
)
from kafkapy.errors import ErrorCode, KafkaError, code_of
from kafkapy.metadata.cache import MetadataSnapshot
from kafkapy.slices import in_slices
from kafkapy.types import TopicPartition

if TYPE_CHECKING:
    from kafkapy.coordinator.share.persister import Persister

logger = logging.getLogger("kafka.coordinator.group.GroupCoordinator")

UNKNOWN_LAG: Final = -1
GONE: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
"""Errors of a share-partition that has no state."""


class ShareOffset(NamedTuple):
    """The start offset of a share-partition and its lag; -1: not known."""

    start_offset: int = UNINITIALIZED_START_OFFSET
    leader_epoch: int = 0
    lag: int = UNKNOWN_LAG
    error: ErrorCode = ErrorCode.NONE


NO_SHARE_OFFSET: Final = ShareOffset()

LatestOffsets = Callable[[Sequence[TopicPartition]], Awaitable[Mapping[TopicPartition, "int | ErrorCode"]]]
"""Returns the latest offsets of partitions, or their errors."""


class TopicOutcome(NamedTuple):
    """The outcome of a deletion of offsets for one topic."""

    topic_id: UUID | None
    error: ErrorCode
    message: str | None


NOTHING_TO_DELETE: Final = TopicOutcome(
    None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no offset information to delete."
)


# --- in the shard -----------------------------------------------------------------------------------------------------


class ShareOffsetOperations:
    """The parts of these requests that read and write a shard.

    Owned by a GroupShard; used on the control loop's thread.
    """

    def __init__(
        self,
        rebalance: ShareRebalance,
        initialization: ShareInitialization,
        metadata: Callable[[], MetadataSnapshot],
    ) -> None:
        self._rebalance = rebalance
        self._initialization = initialization
        self._metadata = metadata

    def initialized(self, group_id: str) -> StateTopics:
        """The partitions of a group that have a state; none for an unknown group."""
        group = self._rebalance.find(group_id)
        return {} if group is None else group.state_partitions.initialized

    def begin_alter(self, group_id: str, topics: StateTopics) -> Result[int]:
        """Write partitions as initializing; the reply is the state epoch of their new states.

        The group is created if it is new. GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
        """
        group = _empty(self._rebalance.get_to_join(group_id))
        after = group.state_partitions.with_initializing(topics)
        self._initialization.mark(group_id, topics)

        def written(error: BaseException | None) -> None:
            if error is not None:
                self._initialization.unmark(group_id, topics)

        return Result(group.epoch, [records_of.state_partitions(group_id, after)], written)

    def end_alter(self, group_id: str, topics: StateTopics, failed: Iterable[ShareKey]) -> Result[None]:
        """Write the outcomes of an alteration; failed partitions get no new state."""
        self._initialization.unmark(group_id, topics)
        return Result(None, self._initialization.outcomes(group_id, *split(topics, failed)))

    def check_empty(self, group_id: str) -> Result[None]:
        """Check that a group may be altered: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        _empty(self._rebalance.get_to_join(group_id))
        return Result(None)

    def begin_deletion(
        self, group_id: str, names: Iterable[str]
    ) -> Result[tuple[dict[str, TopicOutcome], dict[UUID, StateTopic]]]:
        """Write topics as deleting.

        The reply has the outcomes of refused topics by name, and the partitions of the others; unknown topics are in
        neither. GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
        """
        group = _empty(self._rebalance.get(group_id))
        snapshot, state = self._metadata(), group.state_partitions
        refused: dict[str, TopicOutcome] = {}
        topics: dict[UUID, StateTopic] = {}
        for name in names:
            topic = snapshot.topics.get(name)
            if topic is None:
                continue
            if topic.topic_id in state.initialized or topic.topic_id in state.deleting:
                topics[topic.topic_id] = StateTopic(name, state.all_of(topic.topic_id, snapshot))
            else:
                refused[name] = NOTHING_TO_DELETE
        if not topics:
            return Result((refused, topics))
        # A member that joins meanwhile must not have the states made that are being deleted.
        self._initialization.mark(group_id, topics)

        def written(error: BaseException | None) -> None:
            if error is not None:
                self._initialization.unmark(group_id, topics)

        return Result((refused, topics), [records_of.state_partitions(group_id, state.with_deleting(topics))], written)

    def end_deletion(self, group_id: str, topics: StateTopics, topic_ids: frozenset[UUID]) -> Result[None]:
        """Write topics off whose states were deleted; `topics` are those of `begin_deletion`."""
        self._initialization.unmark(group_id, topics)
        group = self._rebalance.find(group_id)
        if group is None or not topic_ids & group.state_partitions.deleting.keys():
            return Result(None)
        state = group.state_partitions
        left = {topic_id: name for topic_id, name in state.deleting.items() if topic_id not in topic_ids}
        return Result(None, [records_of.state_partitions(group_id, state._replace(deleting=left))])

    def begin_group_deletion(self, group_ids: Iterable[str]) -> Result[dict[str, StateTopics | ErrorCode]]:
        """Write all states of empty share groups as deleting.

        The reply has the partitions of each share group among the ids, or the error of one that has members.
        """
        snapshot = self._metadata()
        found: dict[str, StateTopics | ErrorCode] = {}
        marked: dict[str, StateTopics] = {}
        records = []
        for group_id in group_ids:
            group = self._rebalance.find(group_id)
            if group is None:
                continue
            try:
                group.validate_delete()
            except KafkaError as error:
                found[group_id] = error.code
                continue
            names = group.state_partitions.topic_names
            topics = {
                topic_id: StateTopic(name, group.state_partitions.all_of(topic_id, snapshot))
                for topic_id, name in names.items()
            }
            if topics:
                found[group_id] = marked[group_id] = topics
                self._initialization.mark(group_id, topics)
                records.append(records_of.state_partitions(group_id, StatePartitions(deleting=names)))

        def written(error: BaseException | None) -> None:
            if error is not None:
                for group_id, topics in marked.items():
                    self._initialization.unmark(group_id, topics)

        return Result(found, records, written)

    def end_group_deletion(self, deleted: Mapping[str, StateTopics]) -> Result[None]:
        """End the deletion of states: from now on members may have them made again."""
        for group_id, topics in deleted.items():
            self._initialization.unmark(group_id, topics)
        return Result(None)

    # --- topics that are gone ---------------------------------------------------------------------------------------

    def groups_of_topics(self, names: AbstractSet[str]) -> list[str]:
        """The share groups with share-partitions of any of the topics."""
        return [
            group.group_id
            for group in self._rebalance.share_groups()
            if any(True for _ in group.state_partitions.ids_named(names))
        ]

    def forget_topics(self, group_id: str, names: AbstractSet[str]) -> list[CoordinatorRecord]:
        """The record of a group without share-partitions of deleted topics.

        A new topic of the same name has another id, and stays. The share coordinators forget the states by themselves.
        """
        group = self._rebalance.find(group_id)
        if group is None:
            return []
        alive = self._metadata().topic_names
        gone = {topic_id for topic_id in group.state_partitions.ids_named(names) if topic_id not in alive}
        return [records_of.state_partitions(group_id, group.state_partitions.without(gone))] if gone else []


# --- in the coordinator -----------------------------------------------------------------------------------------------


class ShareOffsets:
    """The requests about share groups' offsets, with the share coordinators' part.

    Owned by the GroupCoordinator; used on the control loop. `latest_offsets` returns the end, or the error, of each
    partition that it is asked for, in the whole cluster.
    """

    def __init__(
        self,
        persister: Callable[[], Persister],
        latest_offsets: LatestOffsets,
        listeners: ShareGroupListeners,
    ) -> None:
        self._persister = persister
        self._latest_offsets = latest_offsets
        self._listeners = listeners

    async def describe(
        self, group_id: str, partitions: Mapping[TopicPartition, UUID]
    ) -> dict[TopicPartition, ShareOffset]:
        """The start offsets of partitions, given with their topics' ids, and their lags.

        A partition without a state has no start offset, which is no error.
        """
        persister = self._persister()
        asked: list[tuple[TopicPartition, Later[ShareSummary]]] = [
            (partition, persister.summary(ShareKey(group_id, topic_id, partition.partition), NO_EPOCH))
            async for partition, topic_id in in_slices(partitions.items())
        ]
        found: dict[TopicPartition, ShareOffset] = {}
        counted: dict[TopicPartition, ShareSummary] = {}
        async for partition, later in in_slices(asked):
            try:
                summary = await later
            except KafkaError as error:
                code = code_of(error)
                found[partition] = NO_SHARE_OFFSET if code in GONE else ShareOffset(error=code)
                continue
            found[partition] = ShareOffset(summary.start_offset, max(summary.leader_epoch, 0))
            if (
                summary.start_offset != UNINITIALIZED_START_OFFSET
                and summary.delivery_complete != UNKNOWN_DELIVERY_COMPLETE
            ):
                counted[partition] = summary
        ends = await self._latest_offsets(list(counted)) if counted else {}
        async for partition, summary in in_slices(counted.items()):
            end = ends[partition]
            if isinstance(end, ErrorCode):
                found[partition] = ShareOffset(error=end)
            else:
                lag = end - summary.start_offset - summary.delivery_complete
                found[partition] = found[partition]._replace(lag=lag)
        return found

    async def initialize(
        self, group_id: str, topics: StateTopics, state_epoch: int, offsets: Mapping[tuple[UUID, int], int]
    ) -> dict[ShareKey, ErrorCode]:
        """Set start offsets, by topic id and partition; the error of each share-partition."""
        persister = self._persister()
        asked = [
            (key, persister.initialize(key, state_epoch, offsets[key.topic_id, key.partition]))
            async for key in in_slices(keys_of(group_id, topics))
        ]
        errors = {key: await _error(later) async for key, later in in_slices(asked)}
        self._changed(group_id, split(topics, [key for key, error in errors.items() if error is not ErrorCode.NONE])[0])
        return errors

    async def delete(self, group_id: str, topics: StateTopics) -> dict[UUID, ErrorCode]:
        """Delete the states of topics; the error of each topic."""
        persister = self._persister()
        asked = [(key, persister.delete(key)) async for key in in_slices(keys_of(group_id, topics))]
        errors = dict.fromkeys(topics, ErrorCode.NONE)
        async for key, later in in_slices(asked):
            error = await _error(later)
            if error is not ErrorCode.NONE and error not in GONE:
                logger.error("The state of share-partition %s cannot be deleted: %s", key, error.name)
                errors[key.topic_id] = error
        self._changed(group_id, topics)
        return errors

    def _changed(self, group_id: str, topics: StateTopics) -> None:
        for topic_id, topic in topics.items():
            self._listeners.state_changed(group_id, topic_id, topic.partitions)


async def _error(later: Later[None]) -> ErrorCode:
    try:
        await later
    except KafkaError as error:
        return code_of(error)
    return ErrorCode.NONE


def _empty(group: ShareGroup) -> ShareGroup:
    group.validate_delete()
    return group
