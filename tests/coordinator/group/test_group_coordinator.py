"""GroupCoordinator: what handlers get where the group cannot be asked, or cannot be written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from kafkapy import errors
from kafkapy.coordinator.group.assignors.uniform import UniformAssignor
from kafkapy.coordinator.group.classic.requests import ClientInfo
from kafkapy.coordinator.group.config import GroupConfig, MigrationPolicy
from kafkapy.coordinator.group.consumer.requests import ConsumerClient
from kafkapy.coordinator.group.coordinator import GroupCoordinator
from kafkapy.coordinator.group.offset_requests import NewOffset, OffsetCommit
from kafkapy.errors import ErrorCode
from kafkapy.metadata.topic_names import GROUP_METADATA_TOPIC
from kafkapy.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kafkapy.protocol.messages.heartbeat import HeartbeatRequest
from kafkapy.protocol.messages.join_group import JoinGroupRequest
from kafkapy.protocol.messages.leave_group import LeaveGroupRequest
from kafkapy.protocol.messages.sync_group import SyncGroupRequest
from kafkapy.testing.coordinator import MemoryWriter, VirtualClock, snapshot_of
from kafkapy.testing.share import share_parts
from kafkapy.types import TopicPartition

PARTITION = TopicPartition(GROUP_METADATA_TOPIC, 0)


class Bench:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.writer = MemoryWriter()
        self.coordinator = GroupCoordinator(
            GroupConfig(),
            self.writer,
            self.clock,
            partition_count=lambda: 1,
            assignors=[UniformAssignor()],
            metadata=lambda: snapshot_of({"t": 1}),
            **share_parts(self.clock),
        )

    def lead(self) -> None:
        self.coordinator.runtime.on_leadership_change(PARTITION, 1, True)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_every_member_is_taken_for_alive_while_the_group_is_loaded(bench: Bench) -> None:
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    with pytest.raises(errors.NotCoordinatorError):
        bench.coordinator.heartbeat(beat).result()
    bench.lead()
    assert bench.coordinator.heartbeat(beat).result() is ErrorCode.NONE
    bench.clock.run()
    with pytest.raises(errors.UnknownMemberIdError):
        bench.coordinator.heartbeat(beat).result()


def test_a_member_that_does_not_fit_into_a_batch_is_no_matter_of_message_sizes(bench: Bench) -> None:
    bench.lead()
    bench.clock.run()
    bench.writer.max_bytes = 500
    client = ConsumerClient("c", "/127.0.0.1")
    request = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=0, rebalance_timeout_ms=1000, topic_partitions=[]
    )
    request.subscribed_topic_names = ["t" * 249 for _ in range(3)]
    with pytest.raises(errors.UnknownServerError):
        bench.coordinator.consumer_heartbeat(client, request, 1).result()
    assert bench.writer.appends == 0
    bench.writer.max_bytes = 1_048_588
    joined = bench.coordinator.consumer_heartbeat(client, request, 1)
    bench.clock.run()
    assert joined.result().error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("timeout_ms", "allowed"), [(0, False), (5_999, False), (6_000, True), (1_800_000, True), (1_800_001, False)]
)
def test_bounds_of_session_timeouts(bench: Bench, timeout_ms: int, allowed: bool) -> None:
    bench.lead()
    bench.clock.run()
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=timeout_ms,
        rebalance_timeout_ms=60_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequest.Protocol(name="range", metadata=b"")],
    )
    client = ClientInfo("c", "/127.0.0.1", 9)
    if allowed:
        joined = bench.coordinator.join(client, request)
        bench.clock.run()
        assert joined.result().error_code == ErrorCode.MEMBER_ID_REQUIRED
    else:
        with pytest.raises(errors.InvalidSessionTimeoutError):
            bench.coordinator.join(client, request)


def test_requests_without_a_group_are_refused(bench: Bench) -> None:
    bench.lead()
    bench.clock.run()
    coordinator, client = bench.coordinator, ClientInfo("c", "/127.0.0.1", 9)
    calls: list[Callable[[], object]] = [
        lambda: coordinator.join(client, JoinGroupRequest(group_id="", session_timeout_ms=10_000)),
        lambda: coordinator.sync(SyncGroupRequest(group_id="")),
        lambda: coordinator.heartbeat(HeartbeatRequest(group_id="")),
        lambda: coordinator.leave(LeaveGroupRequest(group_id="")),
        lambda: asyncio.run(coordinator.delete_offsets("", [])),
    ]
    for call in calls:
        with pytest.raises(errors.InvalidGroupIdError):
            call()


def test_groups_are_listed_where_all_of_them_are_known(bench: Bench) -> None:
    def listed() -> list[str]:
        return [each.group_id for each in asyncio.run(bench.coordinator.list_groups([], []))]

    assert listed() == []
    bench.lead()
    with pytest.raises(errors.CoordinatorLoadInProgressError):
        listed()
    bench.clock.run()
    committed = bench.coordinator.commit_offsets(
        ClientInfo("c", "/127.0.0.1", 8), OffsetCommit("g", {TopicPartition("t", 0): NewOffset(1)})
    )
    bench.clock.run()
    assert committed.result() == {TopicPartition("t", 0): ErrorCode.NONE}
    assert listed() == ["g"]
    bench.coordinator.runtime.on_leadership_change(PARTITION, 2, False)
    assert listed() == []


def test_groups_that_are_not_coordinated_here_are_not_deleted(bench: Bench) -> None:
    def deleted() -> dict[str, ErrorCode]:
        return asyncio.run(bench.coordinator.delete_groups(["g", "h", "g"]))

    assert deleted() == {"g": ErrorCode.NOT_COORDINATOR, "h": ErrorCode.NOT_COORDINATOR}
    bench.lead()
    assert deleted() == dict.fromkeys("gh", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    bench.clock.run()
    assert deleted() == dict.fromkeys("gh", ErrorCode.GROUP_ID_NOT_FOUND)


@pytest.mark.parametrize(
    ("policy", "up", "down"),
    [("disabled", False, False), ("downgrade", False, True), ("upgrade", True, False), ("bidirectional", True, True)],
)
def test_which_way_groups_may_go(policy: str, up: bool, down: bool) -> None:
    found = MigrationPolicy(policy)
    assert (found.may_upgrade, found.may_downgrade) == (up, down)
