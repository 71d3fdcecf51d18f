"""Metadata as a client sees it."""

from __future__ import annotations

import asyncio
from itertools import permutations
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest

from kafkapy.broker.handlers import metadata
from kafkapy.errors import ErrorCode
from kafkapy.metadata.broker_requests import UpdateMetadata, UpdateMetadataPartition
from kafkapy.metadata.cache import MetadataCache
from kafkapy.metadata.znodes import BrokerRegistration, PartitionState
from kafkapy.protocol.messages.create_topics import CreateTopicsRequest
from kafkapy.protocol.messages.metadata import MetadataRequest
from kafkapy.types import Endpoint, TopicPartition


def create(client: Any, name: str, partitions: int = 1) -> UUID:
    topic = CreateTopicsRequest.Topic(
        name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
    )
    result = client(CreateTopicsRequest(topics=[topic]), 7).topics[0]
    assert result.error_code == ErrorCode.NONE, result.error_message
    return result.topic_id


def named(*names: str | None, auto: bool = False, **fields: Any) -> MetadataRequest:
    topics = [MetadataRequest.Topic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=auto, **fields)


@pytest.mark.parametrize("version", range(14))
def test_every_version_names_leader_and_broker(client: Any, broker: Any, topic_name: str, version: int) -> None:
    create(client, topic_name, 2)
    response = client(named(topic_name, auto=version < 4), version)
    endpoint = broker.endpoints[0]
    assert [(each.node_id, each.host, each.port) for each in response.brokers] == [(1, endpoint.host, endpoint.port)]
    (topic,) = response.topics
    assert (topic.error_code, topic.name, len(topic.partitions)) == (ErrorCode.NONE, topic_name, 2)
    for partition in topic.partitions:
        assert (partition.error_code, partition.leader_id) == (ErrorCode.NONE, 1)
        assert (partition.replica_nodes, partition.isr_nodes) == ([1], [1])
    if version >= 1:
        assert response.controller_id == 1
    if version >= 2:
        assert response.cluster_id == broker.context.cluster_id


def test_no_topics_mean_all_in_version_0_and_none_later(client: Any, topic_name: str) -> None:
    create(client, topic_name)
    assert topic_name in {topic.name for topic in client(MetadataRequest(topics=[]), 0).topics}
    assert client(MetadataRequest(topics=[]), 1).topics == []
    assert topic_name in {topic.name for topic in client(MetadataRequest(topics=None), 1).topics}


def test_an_unknown_topic_is_not_made_where_the_client_forbids_it(client: Any, topic_name: str) -> None:
    (topic,) = client(named(topic_name), 12).topics
    assert (topic.error_code, topic.name) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic_name)


def test_an_unknown_topic_is_made_and_has_a_leader_at_once(client: Any, topic_name: str) -> None:
    (topic,) = client(named(topic_name, auto=True), 12).topics
    assert (topic.error_code, [each.leader_id for each in topic.partitions]) == (ErrorCode.NONE, [1])


@pytest.mark.parametrize("name", ["bad name", "..", "a" * 250, "ünder"])
def test_a_bad_name_is_never_made(client: Any, name: str) -> None:
    (topic,) = client(named(name, auto=True), 12).topics
    assert topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_topic_is_found_by_its_id(client: Any, topic_name: str) -> None:
    topic_id = create(client, topic_name)
    (topic,) = client(MetadataRequest(topics=[MetadataRequest.Topic(topic_id=topic_id, name=None)]), 12).topics
    assert (topic.error_code, topic.name, topic.topic_id) == (ErrorCode.NONE, topic_name, topic_id)


def test_an_unknown_id_has_an_error_of_its_own(client: Any) -> None:
    unknown = uuid4()
    (topic,) = client(MetadataRequest(topics=[MetadataRequest.Topic(topic_id=unknown, name=None)]), 12).topics
    assert (topic.error_code, topic.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, unknown)


def test_ids_are_refused_below_version_12(client: Any) -> None:
    request = MetadataRequest(topics=[MetadataRequest.Topic(topic_id=uuid4(), name="x")])
    assert client(request, 10).topics[0].error_code == ErrorCode.INVALID_REQUEST


def test_authorized_operations_come_when_asked_for(client: Any, topic_name: str) -> None:
    create(client, topic_name)
    without = client(named(topic_name), 9)
    assert without.topics[0].topic_authorized_operations == -(2**31)
    request = named(topic_name, include_topic_authorized_operations=True, include_cluster_authorized_operations=True)
    response = client(request, 9)
    assert response.topics[0].topic_authorized_operations == sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))
    assert response.cluster_authorized_operations == sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))


def test_many_clients_that_ask_for_one_new_topic_all_see_it(connect: Any, topic_name: str) -> None:
    from concurrent.futures import ThreadPoolExecutor

    clients = [connect() for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda each: each(named(topic_name, auto=True), 12).topics[0], clients))
    assert {answer.error_code for answer in answers} == {ErrorCode.NONE}
    assert len({answer.topic_id for answer in answers}) == 1


def test_what_may_be_done_is_said_of_missing_topics_too(client: Any, topic_name: str) -> None:
    request = MetadataRequest(
        topics=[MetadataRequest.Topic(name=topic_name)],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    (missing,) = client(request, 12).topics
    client.create_topic(topic_name)
    (there,) = client(request, 12).topics
    assert (missing.error_code, there.error_code) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE)
    assert missing.topic_authorized_operations == there.topic_authorized_operations


def shared_by_two_brokers() -> MetadataCache:
    """Broker 1 has both listeners, broker 2, which leads, the inner one only."""

    async def fill() -> MetadataCache:
        cache = MetadataCache("cluster")
        brokers = {
            1: BrokerRegistration(1, (Endpoint("OUTER", "h1", 1), Endpoint("INNER", "h1", 2))),
            2: BrokerRegistration(2, (Endpoint("INNER", "h2", 2),)),
        }
        state = UpdateMetadataPartition(PartitionState(2, 4, (2, 1), 1), (2, 1), ())
        cache.update(UpdateMetadata(1, 1, 5, {"t": uuid4()}, {TopicPartition("t", 0): state}, brokers))
        return cache

    return asyncio.run(fill())


@pytest.mark.parametrize("order", list(permutations(["INNER", "OUTER", "NOWHERE"])))
@pytest.mark.parametrize("version", [0, 5, 6, 13])
def test_clients_of_each_listener_are_told_of_the_leaders_that_they_can_reach(
    order: tuple[str, ...], version: int
) -> None:
    """Whichever of them asked before: answers are kept from one request to the next."""
    cache = shared_by_two_brokers()
    topic = cache.topic("t")
    assert topic is not None
    unreachable = ErrorCode.LISTENER_NOT_FOUND if version >= 6 else ErrorCode.LEADER_NOT_AVAILABLE
    expected = {"INNER": (ErrorCode.NONE, 2), "OUTER": (unreachable, -1), "NOWHERE": (unreachable, -1)}
    for listener in (*order, *order):
        context = SimpleNamespace(api_version=version, listener_name=listener)
        (seen,) = metadata._found(context, cache.snapshot, topic).partitions
        assert (seen.error_code, seen.leader_id) == expected[listener]
        replicas = {"INNER": [2, 1], "OUTER": [1], "NOWHERE": []}[listener] if version == 0 else [2, 1]
        assert seen.replica_nodes == replicas


def test_versions_do_not_share_what_they_tell_otherwise() -> None:
    cache = shared_by_two_brokers()
    topic = cache.topic("t")
    assert topic is not None
    for version in (13, 5, 0, 13, 0, 5):
        context = SimpleNamespace(api_version=version, listener_name="OUTER")
        (seen,) = metadata._found(context, cache.snapshot, topic).partitions
        code = ErrorCode.LISTENER_NOT_FOUND if version >= 6 else ErrorCode.LEADER_NOT_AVAILABLE
        assert (seen.error_code, seen.replica_nodes) == (code, [1] if version == 0 else [2, 1])
