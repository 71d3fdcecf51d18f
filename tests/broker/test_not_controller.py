"""Requests for the controller at a broker that is none: NOT_CONTROLLER, wherever the API has a place for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from broker.conftest import Client

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from kafkapy.protocol.messages.alter_partition import AlterPartitionRequest
from kafkapy.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from kafkapy.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from kafkapy.protocol.messages.create_partitions import CreatePartitionsRequest
from kafkapy.protocol.messages.create_topics import CreateTopicsRequest
from kafkapy.protocol.messages.delete_topics import DeleteTopicsRequest
from kafkapy.protocol.messages.describe_cluster import DescribeClusterRequest
from kafkapy.protocol.messages.elect_leaders import ElectLeadersRequest
from kafkapy.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from kafkapy.protocol.messages.metadata import MetadataRequest
from kafkapy.testing import Cluster

REPLY_TOPIC = AlterPartitionReassignmentsRequest.Topic
NEW = CreateTopicsRequest.Topic(name="n", num_partitions=1, replication_factor=1, assignments=[], configs=[])
MORE = CreatePartitionsRequest.Topic(name="t", count=5, assignments=None)
MOVE = REPLY_TOPIC(name="t", partitions=[REPLY_TOPIC.Partition(partition_index=0, replicas=[1])])


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(2) as cluster:
        cluster.create_topic("t")
        yield cluster


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    """A connection to the broker that is not the controller."""
    by_id = {broker_id: broker.server for broker_id, broker in cluster.brokers.items()}
    (other,) = [server for server in by_id.values() if not server.context.controller.is_active]
    client = Client(other.endpoints[0].host, other.endpoints[0].port)
    yield client
    client.close()


def test_every_broker_knows_the_controller_and_all_brokers(cluster: Cluster, client: Client) -> None:
    (controller,) = [i for i, broker in cluster.brokers.items() if broker.server.context.controller.is_active]
    seen = client(MetadataRequest(topics=[]), 12)
    assert (seen.controller_id, [each.node_id for each in seen.brokers]) == (controller, [1, 2])
    described = client(DescribeClusterRequest(), 1)
    assert (described.controller_id, [each.broker_id for each in described.brokers]) == (controller, [1, 2])


@pytest.mark.parametrize(
    ("request_", "version", "errors"),
    [
        (CreateTopicsRequest(topics=[NEW]), 7, lambda response: [response.topics[0].error_code]),
        (
            CreatePartitionsRequest(topics=[MORE], timeout_ms=1000, validate_only=False),
            3,
            lambda response: [response.results[0].error_code],
        ),
        (
            DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000),
            5,
            lambda response: [response.responses[0].error_code],
        ),
        (ElectLeadersRequest(election_type=0, topic_partitions=None), 2, lambda response: [response.error_code]),
        (AlterPartitionReassignmentsRequest(topics=[MOVE]), 0, lambda response: [response.error_code]),
        (ListPartitionReassignmentsRequest(topics=None), 0, lambda response: [response.error_code]),
        (AlterPartitionRequest(broker_id=1, broker_epoch=1, topics=[]), 3, lambda response: [response.error_code]),
        (AllocateProducerIdsRequest(broker_id=1, broker_epoch=1), 0, lambda response: [response.error_code]),
        (ControlledShutdownRequest(broker_id=1, broker_epoch=1), 3, lambda response: [response.error_code]),
    ],
    ids=lambda value: type(value).__name__ if hasattr(value, "VERSIONS") else "",
)
def test_another_broker_says_so(
    client: Client, request_: Any, version: int, errors: Callable[[Any], list[int]]
) -> None:
    assert errors(client(request_, version)) == [ErrorCode.NOT_CONTROLLER]
