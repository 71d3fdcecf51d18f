"""AlterPartition as the leader of a partition sees it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kafkapy.broker.server import KafkaServer
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.alter_partition import AlterPartitionRequest
from kafkapy.types import ResourceType, TopicPartition, random_uuid

SERVES_BROKERS = True

Topic = AlterPartitionRequest.Topic
Partition = Topic.Partition


def alter(
    client: Any, broker: KafkaServer, topic: tuple[str, UUID], version: int, epoch: int | None = None, **fields: Any
) -> Any:
    isr = fields.pop("isr", [1])
    named = {"topic_id": topic[1]} if version >= 2 else {"topic_name": topic[0]}
    wanted: dict[str, Any] = {"new_isr": isr}
    if version >= 3:
        wanted = {"new_isr_with_epochs": [Partition.BrokerState(broker_id=each) for each in isr]}
    partition = Partition(**{"partition_index": 0, "leader_epoch": 0, "partition_epoch": 0, **wanted, **fields})
    registered = broker.context.controller.broker_epoch if epoch is None else epoch
    return client(
        AlterPartitionRequest(broker_id=1, broker_epoch=registered, topics=[Topic(**named, partitions=[partition])]),
        version,
    )


def only(response: Any) -> Any:
    assert response.error_code == ErrorCode.NONE
    ((partition,),) = (topic.partitions for topic in response.topics)
    return partition


@pytest.mark.parametrize("version", range(4))
def test_the_isr_that_is_there_is_confirmed(client: Any, broker: KafkaServer, topic_name: str, version: int) -> None:
    topic_id = client.create_topic(topic_name)
    state = only(alter(client, broker, (topic_name, topic_id), version))
    assert state.error_code == ErrorCode.NONE
    assert (state.leader_id, state.leader_epoch, state.isr, state.partition_epoch) == (1, 0, [1], 0)


@pytest.mark.parametrize("version", range(4))
def test_refusals(client: Any, broker: KafkaServer, topic_name: str, version: int) -> None:
    topic_id = client.create_topic(topic_name)
    topic = (topic_name, topic_id)

    def error(topic: tuple[str, UUID] = topic, **fields: Any) -> int:
        return int(only(alter(client, broker, topic, version, **fields)).error_code)

    ineligible = ErrorCode.INELIGIBLE_REPLICA if version >= 2 else ErrorCode.OPERATION_NOT_ATTEMPTED
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= 2 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for newer in ({"leader_epoch": 1}, {"partition_epoch": 1}):
        response = alter(client, broker, topic, version, **newer)
        if version == 0:
            assert (response.error_code, response.topics) == (ErrorCode.NOT_CONTROLLER, [])
        else:
            assert only(response).error_code == ErrorCode.NOT_CONTROLLER
    assert error(leader_epoch=-1) == ErrorCode.FENCED_LEADER_EPOCH
    assert error(isr=[1, 2]) == ineligible
    assert error(partition_epoch=-1, isr=[1, 2]) == ErrorCode.INVALID_UPDATE_VERSION
    assert error(isr=[]) == error(isr=[1, 1]) == error(isr=[1] * 100_000) == ErrorCode.INVALID_REQUEST
    assert error(partition_index=7) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert error(("nowhere", random_uuid())) == unknown
    if version >= 1:
        assert error(leader_recovery_state=1) == ErrorCode.INVALID_REQUEST
    assert broker.context.controller.context.leadership[TopicPartition(topic_name, 0)].isr == (1,)


def test_an_earlier_registration_may_change_nothing(client: Any, broker: KafkaServer, topic_name: str) -> None:
    topic_id = client.create_topic(topic_name)
    response = alter(client, broker, (topic_name, topic_id), 3, epoch=broker.context.controller.broker_epoch - 1)
    assert (response.error_code, response.topics) == (ErrorCode.STALE_BROKER_EPOCH, [])


def test_a_client_without_cluster_action_is_refused(group_client: Any, groups_broker: KafkaServer, deny: Any) -> None:
    deny((ResourceType.CLUSTER, "kafka-cluster"))
    response = alter(group_client, groups_broker, ("t", random_uuid()), 3)
    assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
