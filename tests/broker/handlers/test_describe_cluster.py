"""DescribeCluster as a client sees it."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.describe_cluster import DescribeClusterRequest


@pytest.mark.parametrize("version", range(3))
def test_every_version_shows_the_cluster(client: Any, broker: Any, version: int) -> None:
    response = client(DescribeClusterRequest(include_cluster_authorized_operations=False), version)
    endpoint = broker.endpoints[0]
    assert (response.error_code, response.cluster_id) == (ErrorCode.NONE, broker.context.cluster_id)
    assert response.controller_id == 1
    assert [(each.broker_id, each.host, each.port) for each in response.brokers] == [(1, endpoint.host, endpoint.port)]
    assert response.cluster_authorized_operations == -(2**31)


def test_authorized_operations_come_when_asked_for(client: Any) -> None:
    response = client(DescribeClusterRequest(include_cluster_authorized_operations=True), 1)
    assert response.cluster_authorized_operations == sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))


def test_there_are_no_controller_endpoints(client: Any) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=2)
    assert client(request, 1).error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
    request.endpoint_type = 9
    assert client(request, 1).error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
