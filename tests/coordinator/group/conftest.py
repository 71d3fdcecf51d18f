"""A group coordinator on a virtual clock and a log in memory, with short forms of the requests."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy.coordinator.group.assignors.api import Partitions
from kafkapy.coordinator.group.assignors.range import RangeAssignor
from kafkapy.coordinator.group.assignors.uniform import UniformAssignor
from kafkapy.coordinator.group.classic.group import ClassicGroup
from kafkapy.coordinator.group.classic.requests import ClientInfo
from kafkapy.coordinator.group.config import GroupConfig
from kafkapy.coordinator.group.consumer.group import ConsumerGroup
from kafkapy.coordinator.group.consumer.requests import ConsumerClient, check_heartbeat
from kafkapy.coordinator.group.coordinator import GroupCoordinator
from kafkapy.coordinator.group.offset_requests import FetchedOffset, NewOffset, OffsetCommit
from kafkapy.coordinator.group.shard import GroupEvent, GroupShard
from kafkapy.coordinator.result import Later
from kafkapy.errors import ErrorCode, KafkaError
from kafkapy.protocol.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from kafkapy.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kafkapy.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from kafkapy.protocol.messages.heartbeat import HeartbeatRequest
from kafkapy.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kafkapy.protocol.messages.leave_group import LeaveGroupRequest
from kafkapy.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kafkapy.testing.coordinator import MemoryWriter, VirtualClock, snapshot_of
from kafkapy.testing.share import MemoryPersister, share_parts
from kafkapy.types import TopicPartition

GROUP = "group"
PARTITION = TopicPartition("__consumer_offsets", 0)
SESSION_MS, REBALANCE_MS, DELAY_MS = 10_000, 30_000, 3_000
CLIENT = ConsumerClient("client", "/127.0.0.1")


def subscription(*topics: str) -> bytes:
    """What a consumer says to the leader."""
    return ConsumerProtocolSubscription(topics=list(topics)).encode_versioned(1)


class GroupBench:
    """The whole coordinator over one partition. `restart` loads it anew from what was written."""

    group = GROUP
    session_ms, rebalance_ms, delay_ms = SESSION_MS, REBALANCE_MS, DELAY_MS

    def __init__(self, **config: Any) -> None:
        self.clock = VirtualClock()
        self.writer = MemoryWriter()
        self.config = GroupConfig(**{"initial_rebalance_delay_ms": DELAY_MS, **config})
        self.events: list[GroupEvent] = []
        self.persister = MemoryPersister(self.clock)
        self.ends: dict[TopicPartition, int] = {}
        self.snapshot = snapshot_of({"topic": 6})
        self.epoch = 0
        self.restart()

    def restart(self, **config: Any) -> None:
        """As a broker that was killed and is back: nothing is known but the log."""
        if config:
            self.config = GroupConfig(**{"initial_rebalance_delay_ms": DELAY_MS, **config})
        if self.epoch:
            self.coordinator.runtime.timer.close()  # the dead set no alarms
        self.coordinator = GroupCoordinator(
            self.config,
            self.writer,
            self.clock,
            partition_count=lambda: 1,
            rebalanced=self.events.append,
            assignors=[UniformAssignor(), RangeAssignor()],
            metadata=lambda: self.snapshot,
            **share_parts(self.clock, self.persister, self.ends),
        )
        self.epoch += 1
        self.coordinator.runtime.on_leadership_change(PARTITION, self.epoch, True)
        self.clock.run()

    @property
    def shard(self) -> GroupShard:
        return self.coordinator.runtime.shards()[0]

    def classic(self, group: str = GROUP) -> ClassicGroup:
        found = self.shard.find_classic(group)
        assert found is not None
        return found

    # --- requests -----------------------------------------------------------------------------------------------

    def join(
        self,
        member_id: str = "",
        *,
        group: str = GROUP,
        instance: str | None = None,
        protocols: dict[str, bytes] | None = None,
        version: int = 9,
        client: str = "client",
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
    ) -> Later[JoinGroupResponse]:
        named = protocols if protocols is not None else {"range": subscription("topic")}
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequest.Protocol(name=name, metadata=data) for name, data in named.items()],
        )
        who = ClientInfo(client, "/127.0.0.1", version)
        later = self.coordinator.write(group, lambda shard, _: shard.join(who, request))
        self.clock.run()
        return later

    def join_new(self, **how: Any) -> tuple[str, Later[JoinGroupResponse]]:
        """Both steps of a dynamic member's first join: its id, and the answer that is to come."""
        first = self.join(**how).result()
        assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return first.member_id, self.join(first.member_id, **how)

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        group: str = GROUP,
        instance: str | None = None,
        **fields: Any,
    ) -> Later[SyncGroupResponse]:
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            assignments=[
                SyncGroupRequest.Assignment(member_id=each, assignment=data)
                for each, data in (assignments or {}).items()
            ],
            **fields,
        )
        later = self.coordinator.write(group, lambda shard, _: shard.sync(request))
        self.clock.run()
        return later

    def heartbeat(
        self, member_id: str, generation: int, *, group: str = GROUP, instance: str | None = None
    ) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=group, generation_id=generation, member_id=member_id, group_instance_id=instance
        )
        later = self.coordinator.read(group, lambda shard, _: shard.heartbeat(request))
        return ErrorCode(getattr(later.error, "code", None) or later.result())

    def leave(self, *members: str, group: str = GROUP, instances: tuple[str, ...] = ()) -> list[ErrorCode]:
        asked = [LeaveGroupRequest.Member(member_id=each) for each in members]
        asked += [LeaveGroupRequest.Member(member_id="", group_instance_id=each) for each in instances]
        request = LeaveGroupRequest(group_id=group, members=asked)
        later: Later[list[ErrorCode]] = self.coordinator.write(group, lambda shard, _: shard.leave(request))
        self.clock.run()
        return later.result()

    def stable_group(self, count: int = 2, **how: Any) -> tuple[list[str], int]:
        """A stable group of dynamic members; their ids, the leader first, and the generation."""
        joins = [self.join_new(**how) for _ in range(count)]
        while not joins[0][1].done:
            self.clock.advance(DELAY_MS)
        generation = joins[0][1].result().generation_id
        leader = joins[0][1].result().leader
        members = sorted((each for each, _ in joins), key=lambda each: each != leader)
        waiting = [self.sync(each, generation) for each in members[1:]]
        waiting.append(self.sync(leader, generation, {each: each.encode() for each in members}))
        assert all(each.result().error_code == 0 for each in waiting)
        return members, generation

    # --- consumer protocol --------------------------------------------------------------------------------------

    def consumer_group(self, group: str = GROUP) -> ConsumerGroup:
        found = self.shard.groups[group]
        assert isinstance(found, ConsumerGroup)
        return found

    def beat(
        self,
        member_id: str,
        epoch: int,
        *,
        group: str = GROUP,
        owned: Partitions | None = None,
        version: int = 1,
        client: ConsumerClient = CLIENT,
        **fields: Any,
    ) -> ConsumerGroupHeartbeatResponse:
        """ConsumerGroupHeartbeat; errors come in the response, as in the handler."""
        listed = (
            None
            if owned is None
            else [
                ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic_id, partitions=sorted(numbers))
                for topic_id, numbers in owned.items()
            ]
        )
        request = ConsumerGroupHeartbeatRequest(
            group_id=group, member_id=member_id, member_epoch=epoch, topic_partitions=listed, **fields
        )
        try:
            check_heartbeat(request, version, self.coordinator.assignors)
            later = self.coordinator.write(group, lambda shard, _: shard.consumer.heartbeat(client, request))
            self.clock.run()
            return later.result()
        except KafkaError as error:
            return ConsumerGroupHeartbeatResponse(
                error_code=error.code, error_message=error.message, member_epoch=0, heartbeat_interval_ms=0
            )

    def enter(
        self, member_id: str, *topics: str, rebalance_ms: int = REBALANCE_MS, **fields: Any
    ) -> ConsumerGroupHeartbeatResponse:
        """A member of the consumer protocol joins; "topic" when no topic is named."""
        return self.beat(
            member_id,
            0,
            owned={},
            **{"subscribed_topic_names": list(topics) or ["topic"], "rebalance_timeout_ms": rebalance_ms, **fields},
        )

    def describe_consumer(self, group: str = GROUP) -> ConsumerGroupDescribeResponse.Group:
        later = self.coordinator.read(group, lambda shard, _: shard.consumer.describe([group], self.snapshot))
        return later.result()[0]

    # --- offsets ------------------------------------------------------------------------------------------------

    def commit(
        self,
        offsets: dict[tuple[str, int], int | NewOffset],
        *,
        group: str = GROUP,
        version: int = 8,
        **how: Any,
    ) -> dict[TopicPartition, ErrorCode] | ErrorCode:
        new = {
            TopicPartition(*where): what if isinstance(what, NewOffset) else NewOffset(what)
            for where, what in offsets.items()
        }
        who = ClientInfo("client", "/127.0.0.1", version)
        request = OffsetCommit(group, new, **how)
        later = self.coordinator.write(group, lambda shard, now: shard.offsets.commit(who, request, now))
        self.clock.run()
        return later.result() if later.error is None else later.error.code  # type: ignore[attr-defined]

    def fetch(
        self, *partitions: tuple[str, int], group: str = GROUP, stable: bool = False
    ) -> dict[tuple[str, int], FetchedOffset]:
        asked = [TopicPartition(*each) for each in partitions] or None
        later = self.coordinator.read(group, lambda shard, _: shard.offsets.fetch(group, asked, require_stable=stable))
        return {tuple(where): what for where, what in later.result().items()}  # type: ignore[misc]


@pytest.fixture
def bench() -> GroupBench:
    return GroupBench()


@pytest.fixture
def make_bench() -> type[GroupBench]:
    return GroupBench


@pytest.fixture(name="subscription")
def subscription_fixture() -> Any:
    return subscription
