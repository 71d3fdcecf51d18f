"""LeaderAndIsr as a controller on another broker sends it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest
from kafkapy.types import ZERO_UUID, TopicPartition, random_uuid

SERVES_BROKERS = True

VERSIONS = range(8)


def state(topic: str, number: int = 0, **fields: Any) -> LeaderAndIsrPartitionState:
    return LeaderAndIsrPartitionState(
        **{
            "topic_name": topic,
            "partition_index": number,
            "controller_epoch": 1,
            "leader": 1,
            "leader_epoch": 3,
            "isr": [1, 2],
            "partition_epoch": 5,
            "replicas": [1, 2],
            "is_new": True,
            **fields,
        }
    )


def request(
    broker: Any, version: int, topic_id: UUID, *states: LeaderAndIsrPartitionState, **fields: Any
) -> LeaderAndIsrRequest:
    """A request in the form of the version, from a controller that this broker still believes."""
    if version < 2:
        partitions = {"ungrouped_partition_states": list(states)}
    else:
        topics = {}
        for each in states:
            topics.setdefault(each.topic_name, []).append(each)
        partitions = {
            "topic_states": [
                LeaderAndIsrRequest.TopicState(topic_name=name, topic_id=topic_id, partition_states=found)
                for name, found in topics.items()
            ]
        }
    return LeaderAndIsrRequest(
        **{
            "controller_id": 2,
            "controller_epoch": broker.context.controller.epoch,
            "live_leaders": [LeaderAndIsrRequest.LiveLeader(broker_id=1, host_name="127.0.0.1", port=1)],
            **partitions,
            **fields,
        }
    )


def errors_of(response: Any, version: int) -> list[tuple[int, ErrorCode]]:
    partitions = response.partition_errors if version < 5 else [p for t in response.topics for p in t.partition_errors]
    return [(each.partition_index, ErrorCode(each.error_code)) for each in partitions]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_partition_is_led_as_the_request_says(client: Any, broker: Any, topic_name: str, version: int) -> None:
    topic_id = random_uuid()
    sent = request(
        broker,
        version,
        topic_id,
        state(topic_name, **{"adding_replicas": [2], "removing_replicas": []} if version >= 3 else {}),
        state(topic_name, 1, leader=2),
    )
    response = client(sent, version)
    assert response.error_code == ErrorCode.NONE
    assert errors_of(response, version) == [(0, ErrorCode.NONE), (1, ErrorCode.NONE)]
    if version >= 5:
        assert [each.topic_id for each in response.topics] == [topic_id]
    hosted = broker.context.replica_manager.partitions
    led, followed = hosted[TopicPartition(topic_name, 0)], hosted[TopicPartition(topic_name, 1)]
    assert (led.is_leader, led.leader_epoch, led.log.is_leader) == (True, 3, True)
    assert (followed.is_leader, followed.log.leader_id) == (False, 2)
    assert led.topic_id == (topic_id if version >= 5 else ZERO_UUID)
    assert led.assignment.state.isr == (1, 2)
    assert led.assignment.state.version == 5
    assert led.assignment.adding == ((2,) if version >= 3 else ())


@pytest.mark.parametrize("version", VERSIONS)
def test_each_partition_has_an_error_of_its_own(client: Any, broker: Any, topic_name: str, version: int) -> None:
    topic_id = random_uuid()
    client(request(broker, version, topic_id, state(topic_name)), version)
    again = [state(topic_name), state(topic_name, 1), state(topic_name, 2, replicas=[2, 3])]
    response = client(request(broker, version, topic_id, *again), version)
    assert response.error_code == ErrorCode.NONE
    assert errors_of(response, version) == [
        (0, ErrorCode.STALE_CONTROLLER_EPOCH),
        (1, ErrorCode.NONE),
        (2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_former_controller_is_refused(client: Any, broker: Any, topic_name: str, version: int) -> None:
    response = client(request(broker, version, random_uuid(), state(topic_name), controller_epoch=0), version)
    assert response.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    assert errors_of(response, version) == [(0, ErrorCode.STALE_CONTROLLER_EPOCH)]
    assert TopicPartition(topic_name, 0) not in broker.context.replica_manager.partitions


@pytest.mark.parametrize("version", [each for each in VERSIONS if each >= 2])
def test_a_request_for_a_former_life_of_the_broker_is_refused(
    client: Any, broker: Any, topic_name: str, version: int
) -> None:
    epoch = broker.context.controller.broker_epoch
    assert epoch > 0
    stale = client(request(broker, version, random_uuid(), state(topic_name), broker_epoch=epoch - 1), version)
    assert stale.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert errors_of(stale, version) == [(0, ErrorCode.STALE_BROKER_EPOCH)]
    # The controller may see a new registration before the broker does.
    for number, fresh in enumerate((epoch, epoch + 1)):
        sent = request(broker, version, random_uuid(), state(f"{topic_name}-{number}"), broker_epoch=fresh)
        assert client(sent, version).error_code == ErrorCode.NONE
