"""AllocateProducerIds as another broker sees it."""

from __future__ import annotations

from typing import Any

from kafkapy.broker.server import KafkaServer
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from kafkapy.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkapy.types import ResourceType

SERVES_BROKERS = True


def allocate(client: Any, broker_id: int, epoch: int) -> Any:
    return client(AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=epoch), 0)


def test_each_block_follows_the_last_one_and_producers_get_other_ids(client: Any, broker: KafkaServer) -> None:
    epoch = broker.context.controller.broker_epoch
    first, second = allocate(client, 1, epoch), allocate(client, 1, epoch)
    assert first.error_code == second.error_code == ErrorCode.NONE
    assert first.producer_id_len == second.producer_id_len == 1000
    assert second.producer_id_start == first.producer_id_start + 1000
    given = client(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4)
    assert given.error_code == ErrorCode.NONE
    assert not first.producer_id_start <= given.producer_id < second.producer_id_start + 1000


def test_only_a_registered_broker_gets_one(client: Any, broker: KafkaServer) -> None:
    epoch = broker.context.controller.broker_epoch
    assert allocate(client, 9, epoch).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert allocate(client, 1, epoch - 1).error_code == ErrorCode.STALE_BROKER_EPOCH


def test_a_client_without_cluster_action_is_refused(group_client: Any, groups_broker: KafkaServer, deny: Any) -> None:
    deny((ResourceType.CLUSTER, "kafka-cluster"))
    refused = allocate(group_client, 1, groups_broker.context.controller.broker_epoch)
    assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
