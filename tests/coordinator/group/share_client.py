"""A client of share groups (KIP-932) for tests: it does what it is told."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kafkapy.coordinator.group.share.group import ShareGroup
from kafkapy.coordinator.group.share.requests import ShareClient, check_share_heartbeat
from kafkapy.coordinator.share.state import ShareKey
from kafkapy.errors import ErrorCode, KafkaError
from kafkapy.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

GROUP = "queue"
CLIENT = ShareClient("client", "/127.0.0.1")


def beat(
    bench: Any, member_id: str, epoch: int, *, group: str = GROUP, client: ShareClient = CLIENT, **fields: Any
) -> ShareGroupHeartbeatResponse:
    """ShareGroupHeartbeat; errors come in the response, as in the handler."""
    request = ShareGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=epoch, **fields)
    try:
        check_share_heartbeat(request)
        later = bench.coordinator.write(group, lambda shard, _: shard.share.heartbeat(client, request))
        bench.clock.run()
        answer: ShareGroupHeartbeatResponse = later.result()
        return answer
    except KafkaError as error:
        return ShareGroupHeartbeatResponse(
            error_code=error.code, error_message=error.message, member_epoch=0, heartbeat_interval_ms=0
        )


def group_of(bench: Any, group: str = GROUP) -> ShareGroup:
    found = bench.shard.groups[group]
    assert isinstance(found, ShareGroup)
    return found


def assigned(response: ShareGroupHeartbeatResponse) -> dict[UUID, frozenset[int]] | None:
    if response.assignment is None:
        return None
    return {each.topic_id: frozenset(each.partitions) for each in response.assignment.topic_partitions}


def topic_id(bench: Any, name: str = "topic") -> UUID:
    found: UUID = bench.snapshot.topics[name].topic_id
    return found


def key(bench: Any, partition: int, name: str = "topic", group: str = GROUP) -> ShareKey:
    return ShareKey(group, topic_id(bench, name), partition)


class Member:
    """A well-behaved client. `beat` also lets the coordinator's timers of a second run first."""

    def __init__(self, bench: Any, member_id: str, *topics: str, group: str = GROUP, **fields: Any) -> None:
        self.bench, self.member_id, self.group = bench, member_id, group
        self.epoch = 0
        self.owned: dict[UUID, frozenset[int]] = {}
        self.take(beat(bench, member_id, 0, group=group, subscribed_topic_names=list(topics) or ["topic"], **fields))

    def take(self, response: ShareGroupHeartbeatResponse) -> None:
        assert response.error_code == ErrorCode.NONE, (response.error_code, response.error_message)
        self.epoch = response.member_epoch
        new = assigned(response)
        if new is not None:
            self.owned = new

    def beat(self, wait_ms: int = 1_000, **fields: Any) -> ShareGroupHeartbeatResponse:
        self.bench.clock.advance(wait_ms)
        response = beat(self.bench, self.member_id, self.epoch, group=self.group, **fields)
        self.take(response)
        return response

    def leave(self) -> ShareGroupHeartbeatResponse:
        return beat(self.bench, self.member_id, -1, group=self.group)

    @property
    def numbers(self) -> set[int]:
        return {number for numbers in self.owned.values() for number in numbers}


def settle(*members: Member, rounds: int = 4) -> None:
    for _ in range(rounds):
        for member in members:
            member.beat()
