"""A client of the consumer protocol (KIP-848) for tests: it does what it is told."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kafkapy.coordinator.group.assignors.api import Partitions
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse

SESSION_MS = 45_000


def assigned(response: ConsumerGroupHeartbeatResponse) -> dict[UUID, frozenset[int]] | None:
    if response.assignment is None:
        return None
    return {each.topic_id: frozenset(each.partitions) for each in response.assignment.topic_partitions}


def topic_id(bench: Any, name: str = "topic") -> UUID:
    found: UUID = bench.snapshot.topics[name].topic_id
    return found


class Member:
    """A well-behaved client: it has what it was assigned, and gives up what it is told to at its next heartbeat."""

    def __init__(self, bench: Any, member_id: str, *topics: str, **fields: Any) -> None:
        self.bench, self.member_id, self.topics, self.fields = bench, member_id, topics, fields
        self.epoch = 0
        self.owned: dict[UUID, frozenset[int]] = {}
        self.take(bench.enter(member_id, *topics, **fields))

    def take(self, response: ConsumerGroupHeartbeatResponse) -> None:
        assert response.error_code == ErrorCode.NONE, (response.error_code, response.error_message)
        self.epoch = response.member_epoch
        new = assigned(response)
        if new is not None:
            self.owned = new

    def beat(self) -> ConsumerGroupHeartbeatResponse:
        fields = {"instance_id": self.fields["instance_id"]} if "instance_id" in self.fields else {}
        response = self.bench.beat(self.member_id, self.epoch, owned=self.owned, **fields)
        self.take(response)
        return response

    @property
    def numbers(self) -> set[int]:
        return {number for numbers in self.owned.values() for number in numbers}


def settle(*members: Member, rounds: int = 6) -> None:
    for _ in range(rounds):
        for member in members:
            member.beat()


def owned_once(*members: Member) -> Partitions:
    """All partitions that the members have; no two have the same."""
    found: dict[UUID, frozenset[int]] = {}
    for member in members:
        for topic, numbers in member.owned.items():
            assert not found.get(topic, frozenset()) & numbers
            found[topic] = found.get(topic, frozenset()) | numbers
    return found
