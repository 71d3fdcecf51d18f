"""Topics that are created automatically count in the quota of controller mutations of the client that asked."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker.conftest import Client, config
from broker.quota_requests import alter
from waiting import wait_until

from kafkapy.broker.server import KafkaServer
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.create_topics import CreateTopicsRequest
from kafkapy.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkapy.protocol.messages.metadata import MetadataRequest
from kafkapy.testing import Cluster

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
RATE = 0.01
"""Partitions per second: the bucket of 11 s holds less than one, and none comes back while a test runs."""


def ask(client: Client, client_id: str, *names: str) -> dict[str, ErrorCode]:
    topics = [MetadataRequest.Topic(name=name) for name in names]
    response = client(MetadataRequest(topics=topics, allow_auto_topic_creation=True), 12, client_id)
    assert response.throttle_time_ms == 0
    return {topic.name: ErrorCode.of(topic.error_code) for topic in response.topics}


def exists(client: Client, name: str) -> bool:
    request = MetadataRequest(topics=[MetadataRequest.Topic(name=name)], allow_auto_topic_creation=False)
    return client(request, 12).topics[0].error_code != UNKNOWN


@pytest.fixture
def server(tmp_path: Path) -> Iterator[KafkaServer]:
    with KafkaServer(config(tmp_path, num_partitions="3")) as started:
        yield started


@pytest.fixture
def client(server: KafkaServer) -> Iterator[Client]:
    client = Client(server.endpoints[0].host, server.endpoints[0].port)
    yield client
    client.close()


def test_topics_beyond_the_quota_are_unknown_until_it_allows_them(client: Client) -> None:
    alter(client, {"client-id": "maker"}, controller_mutation_rate=RATE)
    # What is not exhausted takes any number of partitions, once.
    assert ask(client, "maker", "first", "second") == {"first": ErrorCode.NONE, "second": UNKNOWN}
    assert ask(client, "maker", "third", "first") == {"third": UNKNOWN, "first": ErrorCode.NONE}
    assert not exists(client, "second")
    assert ask(client, "other", "third") == {"third": ErrorCode.NONE}
    alter(client, {"client-id": "maker"}, controller_mutation_rate=1000)
    wait_until(lambda: ask(client, "maker", "second")["second"] is ErrorCode.NONE, "the new quota allows the topic")


def test_automatic_and_requested_topics_share_the_quota(client: Client) -> None:
    alter(client, {"user": "ANONYMOUS"}, controller_mutation_rate=RATE)
    assert ask(client, "one", "automatic") == {"automatic": ErrorCode.NONE}
    topic = CreateTopicsRequest.Topic(name="asked", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    response = client(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7, "other")
    assert response.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert response.throttle_time_ms > 60_000


def test_the_topics_of_coordinators_count_for_nobody(client: Client) -> None:
    alter(client, {"client-id": None}, controller_mutation_rate=RATE)
    for key_type in (0, 1):
        response = client(FindCoordinatorRequest(coordinator_keys=["a"], key_type=key_type), 4, "member")
        assert response.coordinators[0].error_code == ErrorCode.NONE
    assert ask(client, "member", "own") == {"own": ErrorCode.NONE}


def test_a_topic_that_exists_costs_nothing(client: Client) -> None:
    alter(client, {"client-id": "reader"}, controller_mutation_rate=RATE)
    assert ask(client, "writer", "there") == {"there": ErrorCode.NONE}
    for _ in range(3):
        assert ask(client, "reader", "there") == {"there": ErrorCode.NONE}
    assert ask(client, "reader", "new") == {"new": ErrorCode.NONE}


def test_every_broker_counts_what_clients_ask_it_for() -> None:
    with Cluster(2, num_partitions=2) as cluster:
        servers = [broker.server for broker in cluster.brokers.values()]
        (other,) = [server for server in servers if not server.context.controller.is_active]
        client = Client(other.endpoints[0].host, other.endpoints[0].port)
        try:
            alter(client, {"client-id": "maker"}, controller_mutation_rate=RATE)
            deadline = time.monotonic() + 60
            # The quota arrives at this broker a moment later.
            made = 0
            while ask(client, "maker", f"topic-{made}")[f"topic-{made}"] is not UNKNOWN:
                assert time.monotonic() < deadline
                made += 1
            assert made >= 1
            assert not exists(client, f"topic-{made}")
            assert ask(client, "other", "free")["free"] in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE)
        finally:
            client.close()
