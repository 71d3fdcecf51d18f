"""The share-partitions of a group that have a state, get one, or lose it.

Source: ShareGroup.ShareGroupStatePartitionMetadataInfo, and GroupMetadataManager (subscribedTopicsChangeMap,
combineInitMaps).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple
from uuid import UUID

from kafkapy.metadata.cache import MetadataSnapshot


class StateTopic(NamedTuple):
    """A topic with the numbers of some of its partitions. Immutable."""

    name: str
    partitions: frozenset[int]


StateTopics = Mapping[UUID, StateTopic]

NONE: Final[frozenset[int]] = frozenset()


class StatePartitions(NamedTuple):
    """The record of a group's share-partitions. Immutable.

    A partition is assigned to members once it is initialized.
    """

    initializing: StateTopics = {}
    initialized: StateTopics = {}
    deleting: Mapping[UUID, str] = {}
    """Topic id to name."""

    def missing(
        self, names: Iterable[str], snapshot: MetadataSnapshot, in_flight: Mapping[UUID, frozenset[int]]
    ) -> dict[UUID, StateTopic]:
        """The partitions of subscribed topics that have no state.

        It leaves out what is `in_flight`.
        """
        found: dict[UUID, StateTopic] = {}
        for name in names:
            topic = snapshot.topics.get(name)
            if topic is None:
                continue
            have, coming = _partitions(self.initialized, topic.topic_id), in_flight.get(topic.topic_id, NONE)
            # Most often all have one, or all get one: nothing is compared then.
            if len(have) + len(coming) < topic.partition_count:
                missing = frozenset(topic.partitions) - have - coming
                if missing:
                    found[topic.topic_id] = StateTopic(name, missing)
        return found

    def with_initializing(self, topics: StateTopics) -> StatePartitions:
        """The same with partitions whose initialization begins; their topics are not deleted any more."""
        deleting = {topic_id: name for topic_id, name in self.deleting.items() if topic_id not in topics}
        return StatePartitions(_united(self.initializing, topics), self.initialized, deleting)

    def with_outcomes(self, initialized: StateTopics, failed: StateTopics) -> StatePartitions:
        """The same after some initializations have ended.

        Partitions that are not initializing any more do not count: they were deleted meanwhile.
        """
        awaited = {
            topic_id: StateTopic(topic.name, topic.partitions & _partitions(initialized, topic_id))
            for topic_id, topic in self.initializing.items()
            if topic.partitions & _partitions(initialized, topic_id)
        }
        waiting = _without(_without(self.initializing, initialized), failed)
        return StatePartitions(waiting, _united(self.initialized, awaited), self.deleting)

    def with_deleting(self, topics: StateTopics) -> StatePartitions:
        """The same with topics whose state is being deleted."""
        deleting = {**self.deleting, **{topic_id: topic.name for topic_id, topic in topics.items()}}
        return self.without(topics.keys())._replace(deleting=deleting)

    def without(self, topic_ids: AbstractSet[UUID]) -> StatePartitions:
        """The same without some topics."""
        return StatePartitions(
            {topic_id: topic for topic_id, topic in self.initializing.items() if topic_id not in topic_ids},
            {topic_id: topic for topic_id, topic in self.initialized.items() if topic_id not in topic_ids},
            {topic_id: name for topic_id, name in self.deleting.items() if topic_id not in topic_ids},
        )

    def ids_named(self, names: AbstractSet[str]) -> Iterator[UUID]:
        """The ids of the topics with one of the names; an id may repeat."""
        for topics in (self.initializing, self.initialized):
            yield from (topic_id for topic_id, topic in topics.items() if topic.name in names)
        yield from (topic_id for topic_id, name in self.deleting.items() if name in names)

    def all_of(self, topic_id: UUID, snapshot: MetadataSnapshot) -> frozenset[int]:
        """The partitions of a topic that may have a state.

        Of a topic that is being deleted all partitions that exist: an earlier attempt may have left some.
        """
        partitions = _partitions(self.initializing, topic_id) | _partitions(self.initialized, topic_id)
        if topic_id in self.deleting:
            topic = snapshot.topic_by_id(topic_id)
            if topic is not None:
                partitions |= frozenset(topic.partitions)
        return partitions

    @property
    def topic_names(self) -> dict[UUID, str]:
        """The names of all topics, by id."""
        return {
            **self.deleting,
            **{topic_id: topic.name for topic_id, topic in self.initializing.items()},
            **{topic_id: topic.name for topic_id, topic in self.initialized.items()},
        }


def _partitions(topics: StateTopics, topic_id: UUID) -> frozenset[int]:
    topic = topics.get(topic_id)
    return NONE if topic is None else topic.partitions


def _united(some: StateTopics, more: StateTopics) -> dict[UUID, StateTopic]:
    both = dict(some)
    for topic_id, topic in more.items():
        both[topic_id] = StateTopic(topic.name, _partitions(some, topic_id) | topic.partitions)
    return both


def _without(topics: StateTopics, gone: StateTopics) -> dict[UUID, StateTopic]:
    left = {
        topic_id: StateTopic(topic.name, topic.partitions - _partitions(gone, topic_id))
        for topic_id, topic in topics.items()
    }
    return {topic_id: topic for topic_id, topic in left.items() if topic.partitions}
