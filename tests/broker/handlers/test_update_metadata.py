"""UpdateMetadata as a controller on another broker sends it, and Metadata as clients then see it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.describe_cluster import DescribeClusterRequest
from kafkapy.protocol.messages.metadata import MetadataRequest
from kafkapy.protocol.messages.update_metadata import UpdateMetadataPartitionState, UpdateMetadataRequest
from kafkapy.types import ZERO_UUID, random_uuid

SERVES_BROKERS = True

VERSIONS = range(9)
LiveBroker = UpdateMetadataRequest.LiveBroker
Endpoint = LiveBroker.Endpoint
PLAINTEXT, SSL = 0, 1


@pytest.fixture
def own(broker: Any) -> Iterator[LiveBroker]:
    """This broker as the controller describes it; the metadata cache is as before after the test."""
    cache = broker.context.metadata_cache
    before = cache.snapshot
    listener = broker.endpoints[0]
    endpoint = Endpoint(port=listener.port, host=listener.host, listener="PLAINTEXT", security_protocol=PLAINTEXT)
    yield LiveBroker(id=1, v0_host=listener.host, v0_port=listener.port, endpoints=[endpoint], rack=None)
    cache.snapshot = before


def other(version: int) -> LiveBroker:
    """Another broker, with a listener that this one has and one that it has not."""
    endpoints = [
        Endpoint(port=9, host="two", listener="PLAINTEXT", security_protocol=PLAINTEXT),
        Endpoint(port=10, host="two", listener="INSIDE" if version >= 3 else "", security_protocol=SSL),
    ]
    return LiveBroker(id=2, v0_host="two", v0_port=9, endpoints=endpoints, rack="r" if version >= 2 else None)


def request(
    broker: Any, version: int, topic: str, topic_id: UUID, brokers: list[LiveBroker], *leaders: int, **fields: Any
) -> UpdateMetadataRequest:
    """A request in the form of the version: a partition for each leader."""
    states = [
        UpdateMetadataPartitionState(
            topic_name=topic,
            partition_index=number,
            controller_epoch=1,
            leader=leader,
            leader_epoch=6,
            isr=[1, 2],
            zk_version=4,
            replicas=[1, 2, 3],
            offline_replicas=[2] if version >= 4 else [],
        )
        for number, leader in enumerate(leaders)
    ]
    form: dict[str, Any] = {"ungrouped_partition_states": states}
    if version >= 5:
        named = UpdateMetadataRequest.TopicState(
            topic_name=topic, topic_id=topic_id if version >= 7 else ZERO_UUID, partition_states=states
        )
        form = {"topic_states": [named]}
    epoch = broker.context.controller.epoch
    return UpdateMetadataRequest(
        **{"controller_id": 2, "controller_epoch": epoch, "live_brokers": brokers, **form, **fields}
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_clients_see_brokers_leaders_and_controller(
    client: Any, broker: Any, own: LiveBroker, topic_name: str, version: int
) -> None:
    topic_id = random_uuid()
    sent = request(broker, version, topic_name, topic_id, [own, other(version)], 2, 1, -1)
    assert client(sent, version).error_code == ErrorCode.NONE
    asked = MetadataRequest(topics=[MetadataRequest.Topic(name=topic_name)], allow_auto_topic_creation=False)
    seen = client(asked, 12)
    assert seen.controller_id == 2
    assert [(each.node_id, each.host, each.port, each.rack) for each in seen.brokers] == [
        (1, own.v0_host, own.v0_port, None),
        (2, "two", 9, "r" if version >= 2 else None),
    ]
    topic = seen.topics[0]
    assert (topic.error_code, topic.topic_id) == (ErrorCode.NONE, topic_id if version >= 7 else ZERO_UUID)
    offline = [2, 3] if version >= 4 else [3]
    assert [
        (each.leader_id, each.error_code, each.leader_epoch, each.replica_nodes, each.isr_nodes, each.offline_replicas)
        for each in topic.partitions
    ] == [
        (2, ErrorCode.NONE, 6, [1, 2, 3], [1, 2], offline),
        (1, ErrorCode.NONE, 6, [1, 2, 3], [1, 2], offline),
        (-1, ErrorCode.LEADER_NOT_AVAILABLE, 6, [1, 2, 3], [1, 2], offline),
    ]
    cached = broker.context.metadata_cache.snapshot
    assert [each.listener_name for each in cached.brokers[2].endpoints] == (
        ["PLAINTEXT"] if version == 0 else ["PLAINTEXT", "INSIDE" if version >= 3 else "SSL"]
    )
    assert cached.partition(topic_name, 0).partition_epoch == 4
    described = client(DescribeClusterRequest(), 1)
    assert (described.controller_id, [each.broker_id for each in described.brokers]) == (2, [1, 2])
    # The topic goes when its partitions are being deleted.
    assert client(request(broker, version, topic_name, topic_id, [own], -2, -2, -2), version).error_code == 0
    seen = client(asked, 12)
    assert [each.node_id for each in seen.brokers] == [1]
    assert seen.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", VERSIONS)
def test_a_former_controller_and_a_former_life_are_refused(
    client: Any, broker: Any, own: LiveBroker, topic_name: str, version: int
) -> None:
    refused = [({"controller_epoch": 0}, ErrorCode.STALE_CONTROLLER_EPOCH)]
    if version >= 5:
        epoch = broker.context.controller.broker_epoch
        refused.append(({"broker_epoch": epoch - 1}, ErrorCode.STALE_BROKER_EPOCH))
    for fields, error in refused:
        sent = request(broker, version, topic_name, random_uuid(), [own, other(version)], 2, **fields)
        assert client(sent, version).error_code == error
    assert set(broker.context.metadata_cache.snapshot.brokers) == {1}


def test_an_unknown_security_protocol_is_refused(client: Any, broker: Any, own: LiveBroker, topic_name: str) -> None:
    own.endpoints[0].security_protocol = 77
    response = client(request(broker, 8, topic_name, random_uuid(), [own], 1), 8)
    assert response.error_code == ErrorCode.INVALID_REQUEST


def test_a_request_that_a_lost_connection_delivers_late_changes_nothing(
    connect: Any, broker: Any, own: LiveBroker, topic_name: str
) -> None:
    topic_id, epoch = random_uuid(), broker.context.controller.broker_epoch
    lost, present = connect(broker), connect(broker)

    def send(sender: Any, number: int, leader: int, version: int = 8, **fields: Any) -> ErrorCode:
        sender._correlation = iter([number])
        brokers = [own, other(version)]
        sent = request(broker, version, topic_name, topic_id, brokers, leader, **{"broker_epoch": epoch, **fields})
        return ErrorCode(sender(sent, version).error_code)

    def leader() -> int:
        return int(broker.context.metadata_cache.partition(topic_name, 0).leader)

    assert send(lost, 6, 1) is ErrorCode.NONE
    # The controller did not get an answer to request 7, sent it again as request 8, and went on.
    assert send(present, 8, 1) is ErrorCode.NONE
    assert send(present, 9, 2) is ErrorCode.NONE
    assert send(lost, 7, 1) is ErrorCode.STALE_CONTROLLER_EPOCH
    assert leader() == 2
    # Others count for themselves: the next controller, and one whose requests have no broker epoch.
    assert send(lost, 3, 1, controller_id=3) is ErrorCode.NONE
    assert leader() == 1
    assert send(lost, 1, 2, version=4, broker_epoch=-1) is ErrorCode.NONE
    assert leader() == 2
    # Numbers begin again after the largest.
    assert send(present, 2**31 - 1, 1, controller_id=4) is ErrorCode.NONE
    assert send(present, 0, 2, controller_id=4) is ErrorCode.NONE
    assert leader() == 2
