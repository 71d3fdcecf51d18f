"""ControlledShutdown as a stopping broker sees it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkapy.broker.server import KafkaServer
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from kafkapy.types import ResourceType

SERVES_BROKERS = True


@pytest.mark.parametrize("version", range(4))
def test_partitions_without_another_replica_stay(
    tmp_path: Path, make_config: Callable[..., Any], connect: Callable[..., Any], version: int
) -> None:
    with KafkaServer(make_config(tmp_path)) as server:
        client = connect(server)
        client.create_topic("t", 2)
        epoch = server.context.controller.broker_epoch
        response = client(ControlledShutdownRequest(broker_id=1, broker_epoch=epoch), version)
        assert (response.error_code, response.remaining_partitions) == (ErrorCode.NONE, [])
        assert server.context.controller.context.shutting_down_brokers == {1}


@pytest.mark.parametrize("version", range(4))
def test_a_broker_that_is_not_there_is_not_available(client: Any, version: int) -> None:
    response = client(ControlledShutdownRequest(broker_id=9), version)
    assert response.error_code == ErrorCode.BROKER_NOT_AVAILABLE


@pytest.mark.parametrize("version", [2, 3])
def test_an_earlier_registration_is_refused(client: Any, broker: KafkaServer, version: int) -> None:
    epoch = broker.context.controller.broker_epoch - 1
    response = client(ControlledShutdownRequest(broker_id=1, broker_epoch=epoch), version)
    assert response.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert broker.context.controller.context.shutting_down_brokers == set()


def test_a_client_without_cluster_action_is_refused(group_client: Any, deny: Any) -> None:
    deny((ResourceType.CLUSTER, "kafka-cluster"))
    response = group_client(ControlledShutdownRequest(broker_id=1), 3)
    assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
