"""StopReplica as a controller on another broker sends it."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.stop_replica import StopReplicaRequest
from kafkapy.types import TopicPartition

SERVES_BROKERS = True

VERSIONS = range(5)


def request(
    broker: Any, version: int, topic: str, numbers: list[int], *, delete: bool, leader_epoch: int = -1, **fields: Any
) -> StopReplicaRequest:
    """A request in the form of the version, from a controller that this broker still believes."""
    form: dict[str, Any] = {"delete_partitions": delete} if version < 3 else {}
    if version == 0:
        form["ungrouped_partitions"] = [
            StopReplicaRequest.UngroupedPartition(topic_name=topic, partition_index=number) for number in numbers
        ]
    elif version < 3:
        form["topics"] = [StopReplicaRequest.Topic(name=topic, partition_indexes=numbers)]
    else:
        states = [
            StopReplicaRequest.TopicState.PartitionState(
                partition_index=number, leader_epoch=leader_epoch, delete_partition=delete
            )
            for number in numbers
        ]
        form["topic_states"] = [StopReplicaRequest.TopicState(topic_name=topic, partition_states=states)]
    epoch = broker.context.controller.epoch
    return StopReplicaRequest(**{"controller_id": 2, "controller_epoch": epoch, **form, **fields})


def errors_of(response: Any) -> dict[tuple[str, int], ErrorCode]:
    return {(each.topic_name, each.partition_index): ErrorCode(each.error_code) for each in response.partition_errors}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_replica_stops_and_its_log_stays_or_goes(client: Any, broker: Any, topic_name: str, version: int) -> None:
    client.create_topic(topic_name, partitions=3)
    replicas, logs = broker.context.replica_manager, broker.context.log_manager
    zero, one, two = (TopicPartition(topic_name, number) for number in range(3))
    response = client(request(broker, version, topic_name, [0], delete=False), version)
    assert (response.error_code, errors_of(response)) == (ErrorCode.NONE, {(topic_name, 0): ErrorCode.NONE})
    assert zero not in replicas.partitions
    assert logs.get(zero) is not None
    response = client(request(broker, version, topic_name, [0, 1], delete=True), version)
    assert errors_of(response) == {(topic_name, 0): ErrorCode.NONE, (topic_name, 1): ErrorCode.NONE}
    assert [logs.get(each) is None for each in (zero, one, two)] == [True, True, False]
    assert [each in replicas.partitions for each in (zero, one, two)] == [False, False, True]


@pytest.mark.parametrize("version", [3, 4])
def test_a_request_from_before_the_partition_was_made_again_is_fenced(
    client: Any, broker: Any, topic_name: str, version: int
) -> None:
    """KIP-570; an epoch of -1 or -2 (the topic is being deleted) is not compared."""
    client.create_topic(topic_name)
    partition = TopicPartition(topic_name, 0)
    replicas = broker.context.replica_manager
    hosted = replicas.partitions[partition]
    hosted.assignment = hosted.assignment._replace(state=hosted.assignment.state._replace(leader_epoch=4))
    response = client(request(broker, version, topic_name, [0], delete=True, leader_epoch=3), version)
    assert errors_of(response) == {(topic_name, 0): ErrorCode.FENCED_LEADER_EPOCH}
    assert partition in replicas.partitions
    response = client(request(broker, version, topic_name, [0], delete=True, leader_epoch=-2), version)
    assert errors_of(response) == {(topic_name, 0): ErrorCode.NONE}
    assert partition not in replicas.partitions


@pytest.mark.parametrize("version", VERSIONS)
def test_a_former_controller_and_a_former_life_are_refused(
    client: Any, broker: Any, topic_name: str, version: int
) -> None:
    client.create_topic(topic_name)
    refused = [({"controller_epoch": 0}, ErrorCode.STALE_CONTROLLER_EPOCH)]
    if version >= 1:
        epoch = broker.context.controller.broker_epoch
        refused.append(({"broker_epoch": epoch - 1}, ErrorCode.STALE_BROKER_EPOCH))
    for fields, error in refused:
        response = client(request(broker, version, topic_name, [0], delete=True, **fields), version)
        assert (response.error_code, errors_of(response)) == (error, {(topic_name, 0): error})
    assert TopicPartition(topic_name, 0) in broker.context.replica_manager.partitions
