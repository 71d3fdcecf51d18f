"""Share coordinators in memory, for tests of the group coordinator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from kafkapy.coordinator.clock import Clock
from kafkapy.coordinator.group.assignors.simple import SimpleAssignor
from kafkapy.coordinator.result import Later
from kafkapy.coordinator.share.persister import Persister
from kafkapy.coordinator.share.state import ShareKey, ShareState, ShareSummary, StateBatch
from kafkapy.errors import ErrorCode, KafkaError
from kafkapy.types import TopicPartition

T = TypeVar("T")


class MemoryPersister:
    """The states of share-partitions as a dict.

    One test uses it, on its thread. Answers come in the clock's next turn; `hold` keeps them until `release`. A key in
    `failures` gets that error.
    """

    def __init__(self, clock: Clock) -> None:
        self.states: dict[ShareKey, ShareSummary] = {}
        self.failures: dict[ShareKey, KafkaError] = {}
        self.calls: list[tuple[str, ShareKey]] = []
        self.hold = False
        self._clock = clock
        self._held: list[tuple[Later[Any], Any]] = []

    def _answer(self, name: str, key: ShareKey, value: T) -> Later[T]:
        self.calls.append((name, key))
        failure = self.failures.get(key)
        later: Later[T] = Later()
        if self.hold:
            self._held.append((later, value if failure is None else failure))
        elif failure is not None:
            self._clock.call_soon(lambda: later.fail(failure))
        else:
            self._clock.call_soon(lambda: later.set(value))
        return later

    def release(self) -> None:
        """Give the answers that were kept, and keep no more."""
        self.hold = False
        held, self._held = self._held, []
        for later, what in held:
            if isinstance(what, KafkaError):
                later.fail(what)
            else:
                later.set(what)

    def initialize(self, key: ShareKey, state_epoch: int, start_offset: int) -> Later[None]:
        """See Persister."""
        if key not in self.failures:
            self.states[key] = ShareSummary(state_epoch, 0, start_offset, 0)
        return self._answer("initialize", key, None)

    def read(self, key: ShareKey, leader_epoch: int) -> Later[ShareState]:
        """See Persister."""
        known = self.states.get(key, ShareSummary(0, 0, -1, 0))
        return self._answer("read", key, ShareState(known.state_epoch, known.start_offset, 0, ()))

    def write(
        self,
        key: ShareKey,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete: int,
        batches: Sequence[StateBatch],
    ) -> Later[None]:
        """See Persister."""
        if key not in self.failures:
            self.states[key] = ShareSummary(state_epoch, leader_epoch, start_offset, delivery_complete)
        return self._answer("write", key, None)

    def delete(self, key: ShareKey) -> Later[None]:
        """See Persister."""
        if key not in self.failures:
            self.states.pop(key, None)
        return self._answer("delete", key, None)

    def summary(self, key: ShareKey, leader_epoch: int) -> Later[ShareSummary]:
        """See Persister."""
        return self._answer("summary", key, self.states.get(key, ShareSummary(0, 0, -1, 0)))


def share_parts(
    clock: Clock, persister: Persister | None = None, ends: Mapping[TopicPartition, int] | None = None
) -> dict[str, Any]:
    """The arguments of a GroupCoordinator for share groups; `ends`: latest offsets of partitions."""

    async def latest_offsets(partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int | ErrorCode]:
        known = ends or {}
        return {each: known.get(each, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for each in partitions}

    memory = MemoryPersister(clock) if persister is None else persister
    return {
        "share_assignor": SimpleAssignor(),
        "persister": lambda: memory,
        "latest_offsets": latest_offsets,
        "share_version": lambda: 2,
    }
