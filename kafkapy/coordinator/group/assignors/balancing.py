"""Balances partitions among members with different subscriptions.

Source: org.apache.kafka.coordinator.group.assignor.UniformHeterogeneousAssignmentBuilder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heapreplace
from typing import Final
from uuid import UUID

from kafkapy.coordinator.group.assignors.api import AssignorError, Partitions, SubscribedTopics
from kafkapy.types import uuid_to_string

MAX_ROUNDS: Final = 16
"""Most rounds through all topics.

One round is enough when all subscribers of a topic subscribe to the same topics; otherwise each round about halves the
remaining imbalance.
"""


class TopicBalancer:
    """Owns one assignment while it is computed.

    `kept` holds only partitions of topics that their member reads.
    """

    def __init__(
        self, kept: Mapping[str, Partitions], subscribers: Mapping[UUID, list[str]], counts: Mapping[UUID, int]
    ) -> None:
        self._kept = kept
        self._subscribers = subscribers
        self._counts = counts
        self._sizes = {member_id: sum(map(len, partitions.values())) for member_id, partitions in kept.items()}
        self._changed: dict[str, dict[UUID, set[int]]] = {}
        """Members whose partitions differ from those in `kept`."""

    def add(self, free: Iterable[tuple[UUID, int]]) -> None:
        """Give each free partition to its topic's subscriber with the fewest partitions."""
        by_topic: dict[UUID, list[int]] = {}
        for topic_id, number in free:
            by_topic.setdefault(topic_id, []).append(number)
        for topic_id in self._hardest_first(by_topic):
            receivers = self._receivers(topic_id)
            for number in by_topic[topic_id]:
                size, member_id = receivers[0]
                heapreplace(receivers, (size + 1, member_id))
                self._partitions(member_id).setdefault(topic_id, set()).add(number)
                self._sizes[member_id] += 1

    def balance(self) -> None:
        """Move partitions to members that have fewer.

        It ends when no single move improves the balance, or after MAX_ROUNDS.
        """
        ordered = self._hardest_first(
            topic_id for topic_id, member_ids in self._subscribers.items() if len(member_ids) > 1
        )
        untouched = 0
        for _ in range(MAX_ROUNDS):
            for topic_id in ordered:
                if untouched == len(ordered):
                    return
                untouched = 0 if self._balance_topic(topic_id) else untouched + 1

    def assignment(self) -> dict[str, Partitions]:
        """The present partitions of every member."""
        result = dict(self._kept)
        for member_id, partitions in self._changed.items():
            result[member_id] = {topic_id: frozenset(numbers) for topic_id, numbers in partitions.items() if numbers}
        return result

    def _hardest_first(self, topic_ids: Iterable[UUID]) -> list[UUID]:
        """Topics in order: most partitions per subscriber, then fewest subscribers."""

        def key(topic_id: UUID) -> tuple[float, int, UUID]:
            subscribers = len(self._subscribers[topic_id])
            return -self._counts[topic_id] / subscribers, subscribers, topic_id

        return sorted(topic_ids, key=key)

    def _receivers(self, topic_id: UUID) -> list[tuple[int, str]]:
        """A heap of (partitions, member id) with the smallest subscriber first."""
        heap = [(self._sizes[member_id], member_id) for member_id in self._subscribers[topic_id]]
        heapify(heap)
        return heap

    def _balance_topic(self, topic_id: UUID) -> bool:
        """Move the topic's partitions among its subscribers; whether any moved."""
        sizes = [self._sizes[member_id] for member_id in self._subscribers[topic_id]]
        if max(sizes) - min(sizes) <= 1:
            return False
        receivers = self._receivers(topic_id)
        givers = [
            (-self._sizes[member_id], member_id)
            for member_id in self._subscribers[topic_id]
            if self._current(member_id).get(topic_id)
        ]
        heapify(givers)
        moved = False
        while givers:
            giver = givers[0][1]
            receiver = receivers[0][1]
            if self._sizes[giver] - self._sizes[receiver] <= 1:
                break
            numbers = self._partitions(giver)[topic_id]
            number = max(numbers)
            numbers.remove(number)
            self._partitions(receiver).setdefault(topic_id, set()).add(number)
            self._sizes[giver] -= 1
            self._sizes[receiver] += 1
            heapreplace(receivers, (self._sizes[receiver], receiver))
            if numbers:
                heapreplace(givers, (-self._sizes[giver], giver))
            else:
                heappop(givers)
            moved = True
        return moved

    def _current(self, member_id: str) -> Mapping[UUID, set[int] | frozenset[int]]:
        return self._changed.get(member_id) or self._kept[member_id]

    def _partitions(self, member_id: str) -> dict[UUID, set[int]]:
        """A member's partitions, for a change."""
        changed = self._changed.get(member_id)
        if changed is None:
            changed = {topic_id: set(numbers) for topic_id, numbers in self._kept[member_id].items()}
            self._changed[member_id] = changed
        return changed


def partition_count(topics: SubscribedTopics, topic_id: UUID) -> int:
    """The number of a subscribed topic's partitions. AssignorError for an unknown topic."""
    count = topics.num_partitions(topic_id)
    if count == -1:
        raise AssignorError(
            f"Members are subscribed to topic {uuid_to_string(topic_id)} which doesn't exist in the topic metadata."
        )
    return count
