"""UnregisterBroker as a client sees it."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.describe_cluster import DescribeClusterRequest
from kafkapy.protocol.messages.unregister_broker import UnregisterBrokerRequest
from kafkapy.types import ResourceType


@pytest.mark.parametrize("broker_id", [2, -1])
def test_a_broker_that_is_gone_is_not_registered(client: Any, broker_id: int) -> None:
    response = client(UnregisterBrokerRequest(broker_id=broker_id), 0)
    assert response.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert str(broker_id) in response.error_message


def test_a_running_broker_stays_registered(client: Any) -> None:
    assert client(UnregisterBrokerRequest(broker_id=1), 0).error_code == ErrorCode.INVALID_REQUEST
    cluster = client(DescribeClusterRequest(include_cluster_authorized_operations=False), 0)
    assert [each.broker_id for each in cluster.brokers] == [1]


def test_one_who_may_not_alter_the_cluster_is_told_so(group_client: Any, deny: Any) -> None:
    deny((ResourceType.CLUSTER, "kafka-cluster"))
    response = group_client(UnregisterBrokerRequest(broker_id=2), 0)
    assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
