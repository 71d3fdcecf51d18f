"""The state of share-partitions: it is initialized before a partition is assigned.

A heartbeat writes the partitions of subscribed topics that have no state as initializing, and asks the share
coordinators for their states. The outcomes are written when all are there: partitions that failed are tried again by
the next heartbeat. Source: GroupCoordinatorService (persisterInitialize), GroupMetadataManager
(maybeCreateInitializeShareGroupStateRequest, initializeShareGroupState, uninitializeShareGroupState).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from kafkapy.coordinator.group.modern.rebalance import Records
from kafkapy.coordinator.group.share import records as records_of
from kafkapy.coordinator.group.share.group import ShareGroup
from kafkapy.coordinator.group.share.state_partitions import StateTopic, StateTopics
from kafkapy.coordinator.result import Later, Result
from kafkapy.coordinator.share.state import UNINITIALIZED_START_OFFSET, ShareKey
from kafkapy.metadata.cache import MetadataSnapshot

if TYPE_CHECKING:
    from kafkapy.coordinator.clock import Clock
    from kafkapy.coordinator.group.config import GroupConfig
    from kafkapy.coordinator.shard_timer import ShardTimer
    from kafkapy.coordinator.share.persister import Persister

logger = logging.getLogger("kafka.coordinator.group.GroupCoordinator")

_NUMBERS: Final = count()
"""Numbers of initializations, so that each has one timeout."""


class _Mark(NamedTuple):
    """States that are on their way, and the time on the monotonic clock when that began."""

    begun_ms: int
    topics: StateTopics


class ShareInitialization:
    """Initializes the share-partitions of a shard's groups.

    Owned by a GroupShard; used on the control loop's thread.
    """

    def __init__(
        self,
        find: Callable[[str], ShareGroup | None],
        timer: ShardTimer[Any],
        clock: Clock,
        config: GroupConfig,
        metadata: Callable[[], MetadataSnapshot],
        persister: Callable[[], Persister],
    ) -> None:
        """`find` returns the share group of an id."""
        self._find = find
        self._timer = timer
        self._clock = clock
        self._config = config
        self._metadata = metadata
        self._persister = persister
        self._marks: dict[str, list[_Mark]] = {}
        """Group to the states that are on their way."""
        self._failing: set[str] = set()
        """The groups whose last states did not all arrive."""

    def is_near(self, group_id: str) -> bool:
        """Whether states of the group are on their way, and the last ones arrived."""
        return group_id not in self._failing and bool(self._in_flight(group_id))

    def begin(
        self, group: ShareGroup, names: Iterable[str], epoch: int, records: Records
    ) -> Callable[[BaseException | None], None] | None:
        """Write the subscribed partitions without a state as initializing.

        Returns what follows once that is committed, or None where nothing is missing. `epoch` is the group's epoch,
        and the state epoch of the new states.
        """
        missing = group.state_partitions.missing(names, self._metadata(), self._in_flight(group.group_id))
        if not missing:
            return None
        group_id = group.group_id
        records.append(records_of.state_partitions(group_id, group.state_partitions.with_initializing(missing)))
        self.mark(group_id, missing)

        def committed(error: BaseException | None) -> None:
            if error is None:
                self._ask(group_id, missing, epoch)
            else:
                self.unmark(group_id, missing)

        return committed

    def _in_flight(self, group_id: str) -> dict[UUID, frozenset[int]]:
        """The partitions whose states are on their way since less than the retry interval."""
        since = self._clock.monotonic_ms() - self._config.share_initialize_retry_interval_ms
        found: dict[UUID, frozenset[int]] = {}
        for mark in self._marks.get(group_id, ()):
            if mark.begun_ms <= since:
                continue
            for topic_id, topic in mark.topics.items():
                known = found.get(topic_id)
                found[topic_id] = topic.partitions if known is None else known | topic.partitions
        return found

    def mark(self, group_id: str, topics: StateTopics) -> None:
        """Note that states are on their way: no heartbeat asks for them too."""
        now_ms = self._clock.monotonic_ms()
        since = now_ms - self._config.share_initialize_retry_interval_ms
        marks = [mark for mark in self._marks.get(group_id, ()) if mark.begun_ms > since]
        self._marks[group_id] = [*marks, _Mark(now_ms, topics)]

    def unmark(self, group_id: str, topics: StateTopics) -> None:
        """Note that the states that were marked with these topics have ended."""
        left = [mark for mark in self._marks.get(group_id, ()) if mark.topics is not topics]
        if left:
            self._marks[group_id] = left
        else:
            self._marks.pop(group_id, None)

    def forget(self, group_id: str) -> None:
        """A deleted group leaves nothing behind."""
        self._failing.discard(group_id)
        self._marks.pop(group_id, None)

    def _ask(self, group_id: str, topics: StateTopics, epoch: int) -> None:
        persister = self._persister()
        keys = keys_of(group_id, topics)
        left = len(keys)
        failed: list[ShareKey] = []

        def answered(key: ShareKey, done: Later[None]) -> None:
            nonlocal left
            left -= 1
            if done.error is not None:
                logger.error("The state of share-partition %s cannot be initialized: %s", key, done.error)
                failed.append(key)
            if not left:
                self._finish(group_id, topics, failed)

        for key in keys:
            later = persister.initialize(key, epoch, UNINITIALIZED_START_OFFSET)
            later.then(lambda done, key=key: answered(key, done))  # type: ignore[misc]

    def _finish(self, group_id: str, topics: StateTopics, failed: Sequence[ShareKey]) -> None:
        def due(shard: object, now_ms: int) -> Result[None]:
            del shard, now_ms
            if failed and self._find(group_id) is not None:
                self._failing.add(group_id)
            else:
                self._failing.discard(group_id)
            self.unmark(group_id, topics)
            return Result(None, self.outcomes(group_id, *split(topics, failed)))

        self._timer.schedule(("share-state", next(_NUMBERS)), 0, due)

    def outcomes(self, group_id: str, initialized: StateTopics, failed: StateTopics) -> Records:
        """The record of ended initializations."""
        group = self._find(group_id)
        if group is None:
            # It was deleted meanwhile, and its states with it, but for these.
            for key in keys_of(group_id, initialized):
                self._persister().delete(key)
            return []
        after = group.state_partitions.with_outcomes(initialized, failed)
        return [] if after == group.state_partitions else [records_of.state_partitions(group_id, after)]


def keys_of(group_id: str, topics: StateTopics) -> list[ShareKey]:
    """The keys of share-partitions."""
    return [
        ShareKey(group_id, topic_id, number)
        for topic_id, topic in topics.items()
        for number in sorted(topic.partitions)
    ]


def split(topics: StateTopics, failed: Iterable[ShareKey]) -> tuple[dict[UUID, StateTopic], dict[UUID, StateTopic]]:
    """Topics with the partitions that did not fail, and topics with the failed ones."""
    numbers: dict[UUID, set[int]] = {}
    for key in failed:
        numbers.setdefault(key.topic_id, set()).add(key.partition)
    good: dict[UUID, StateTopic] = {}
    bad: dict[UUID, StateTopic] = {}
    for topic_id, (name, partitions) in topics.items():
        without_state = partitions & numbers.get(topic_id, set())
        if without_state:
            bad[topic_id] = StateTopic(name, without_state)
        if partitions - without_state:
            good[topic_id] = StateTopic(name, partitions - without_state)
    return good, bad
