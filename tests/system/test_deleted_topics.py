"""DeleteTopics of many topics beside many committed offsets of others. Work is counted as CPU time of the loop."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from system.raw_client import RawClient
from system.test_bounded_requests import LONGEST_HOLD_ANYWHERE_NS, LONGEST_HOLD_NS, TRIES, Broker

from kafkapy.protocol.messages.create_topics import CreateTopicsRequest
from kafkapy.protocol.messages.delete_topics import DeleteTopicsRequest
from kafkapy.protocol.messages.heartbeat import HeartbeatRequest
from kafkapy.protocol.messages.join_group import JoinGroupRequest
from kafkapy.protocol.messages.offset_commit import OffsetCommitRequest
from kafkapy.protocol.messages.sync_group import SyncGroupRequest
from kafkapy.testing.broker_process import BrokerProcess

PARTITIONS = 1000


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    overrides = {
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        "num.network.threads": "1",
        "log.retention.check.interval.ms": "3600000",
    }
    with BrokerProcess(overrides=overrides) as process:
        yield Broker(process)


def create(client: RawClient, names: list[str], partitions: int = 1) -> None:
    topics = [CreateTopicsRequest.Topic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
    answer = client.call(CreateTopicsRequest(topics=topics, timeout_ms=120_000), 4)
    assert {each.error_code for each in answer.topics} == {0}


def commit(client: RawClient, group: str, topic: str) -> None:
    partitions = [
        OffsetCommitRequest.Topic.Partition(partition_index=number, committed_offset=5, committed_metadata="")
        for number in range(PARTITIONS)
    ]
    request = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequest.Topic(name=topic, partitions=partitions)])
    deadline = time.monotonic() + 60
    while (error := client.call(request, 7).topics[0].partitions[0].error_code) != 0:
        assert error in (14, 16), error
        assert time.monotonic() < deadline


def join(client: RawClient, group: str) -> tuple[str, int]:
    protocol = JoinGroupRequest.Protocol(name="range", metadata=b"")
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=1_800_000,
        rebalance_timeout_ms=60_000,
        member_id="",
        protocol_type="consumer",
        protocols=[protocol],
    )
    joined = client.call(request, 3)
    assert joined.error_code == 0
    mine = SyncGroupRequest.Assignment(member_id=joined.member_id, assignment=b"x")
    request = SyncGroupRequest(
        group_id=group, generation_id=joined.generation_id, member_id=joined.member_id, assignments=[mine]
    )
    assert client.call(request, 3).error_code == 0
    return joined.member_id, joined.generation_id


def holding_ns(broker: Broker, groups: int, topics: int) -> Iterator[int]:
    """For each try, the CPU time that the loop uses between a heartbeat and its answer, at most, while topics are
    deleted.
    """
    with broker.client() as client:
        create(client, ["foreign"], PARTITIONS)
        for number in range(groups):
            commit(client, f"group-{number}", "foreign")
    for number in range(TRIES):
        yield held_ns(broker, [f"gone-{number}-{each}" for each in range(topics)], f"live-{number}")


def held_ns(broker: Broker, names: list[str], group: str) -> int:
    """Of one try."""
    with broker.client() as client, broker.client() as member:
        client.socket.settimeout(300)
        create(client, names)
        member_id, generation = join(member, group)
        beat = HeartbeatRequest(group_id=group, generation_id=generation, member_id=member_id)
        answers: list[Any] = []
        delete = DeleteTopicsRequest(topic_names=names, timeout_ms=240_000)
        thread = threading.Thread(target=lambda: answers.append(client.call(delete, 4)))
        thread.start()
        held = [0]
        while thread.is_alive():
            before = broker.control_loop_cpu_ns()
            assert member.call(beat, 3).error_code == 0
            held.append(broker.control_loop_cpu_ns() - before)
        thread.join()
        assert {each.error_code for each in answers[0].responses} == {0}
    return max(held)


def test_deleting_topics_beside_offsets_of_others_does_not_hold_the_loop(broker: Broker) -> None:
    assert any(held < LONGEST_HOLD_ANYWHERE_NS for held in holding_ns(broker, 30, 300))


@pytest.mark.soak
def test_a_thousand_topics_beside_300_000_offsets_hold_no_heartbeat() -> None:
    with BrokerProcess(overrides={"group.initial.rebalance.delay.ms": "0", "num.network.threads": "1"}) as process:
        assert any(held < LONGEST_HOLD_NS for held in holding_ns(Broker(process), 300, 1000))
