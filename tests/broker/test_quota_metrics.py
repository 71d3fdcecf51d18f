"""Metrics of quotas: whom they measure, by which names, and how many series they may have."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from broker.conftest import Client, config
from broker.quota_requests import alter, produce
from waiting import wait_until

from kafkapy.broker.metrics import BrokerCollector
from kafkapy.broker.quota_callback import DefaultQuotaCallback, QuotaType
from kafkapy.broker.server import KafkaServer
from kafkapy.config.broker import BrokerConfig
from kafkapy.protocol.messages.create_topics import CreateTopicsRequest
from kafkapy.security.principal import KafkaPrincipal

Connect = Callable[[], Client]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[KafkaServer]:
    with KafkaServer(config(tmp_path, kafkapy_metrics_max_series="1000")) as started:
        yield started


@pytest.fixture
def connect(server: KafkaServer) -> Iterator[Connect]:
    clients: list[Client] = []

    def make() -> Client:
        clients.append(Client(server.endpoints[0].host, server.endpoints[0].port))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


def series(server: KafkaServer, name: str) -> dict[tuple[str, str], float]:
    """Values by user and client id."""
    return {
        (sample.labels["user"], sample.labels["client_id"]): sample.value
        for family in BrokerCollector(server).collect()
        for sample in family.samples
        if sample.name == name
    }


def test_nobody_is_measured_without_a_quota(server: KafkaServer, connect: Connect) -> None:
    client = connect()
    client.create_topic("t")
    produce(client, "t", "free")
    assert series(server, "kafka_server_produce_byterate") == {}


def test_all_clients_are_measured_while_one_has_a_quota(server: KafkaServer, connect: Connect) -> None:
    client = connect()
    client.create_topic("t")
    alter(client, {"client-id": "bounded"}, producer_byte_rate=1e9)
    for name in ("bounded", "free"):
        produce(connect(), "t", name)
    rates = series(server, "kafka_server_produce_byterate")
    assert rates.keys() == {("", "bounded"), ("", "free")}
    assert all(rate > 0 for rate in rates.values())
    # Quotas of other kinds measure nobody.
    assert series(server, "kafka_server_fetch_byterate") == series(server, "kafka_server_request_requesttime") == {}


def test_mutations_of_all_clients_are_counted_while_one_has_a_quota(server: KafkaServer, connect: Connect) -> None:
    client = connect()
    alter(client, {"client-id": "bounded"}, controller_mutation_rate=10)
    for name in ("bounded", "free"):
        topic = CreateTopicsRequest.Topic(name=name, num_partitions=4, replication_factor=1, assignments=[], configs=[])
        assert client(CreateTopicsRequest(topics=[topic]), 7, name).topics[0].error_code == 0
    assert series(server, "kafka_server_controllermutation_mutations_total") == {("", "bounded"): 4, ("", "free"): 4}
    assert series(server, "kafka_server_controllermutation_tokens").keys() == {("", "bounded")}


def test_idle_clients_are_forgotten_after_an_hour(server: KafkaServer, connect: Connect) -> None:
    client, other, quotas = connect(), connect(), server.context.client_quotas
    client.create_topic("t")
    alter(client, {"client-id": "bounded"}, producer_byte_rate=1e9, controller_mutation_rate=10)
    produce(client, "t", "stays")
    produce(other, "t", "goes")
    other.close()
    topic = CreateTopicsRequest.Topic(name="n", num_partitions=4, replication_factor=1, assignments=[], configs=[])
    assert client(CreateTopicsRequest(topics=[topic]), 7, "stays").topics[0].error_code == 0

    def forget(later_s: float) -> None:
        server.call(quotas.forget_idle(time.monotonic() + later_s))

    def shown() -> set[str]:
        rates = series(server, "kafka_server_produce_byterate") | series(
            server, "kafka_server_controllermutation_mutations_total"
        )
        return {client_id for _, client_id in rates}

    forget(0)
    assert shown() == {"stays", "goes"}
    # A sensor is idle when its windows are over and its connection is gone.
    wait_until(lambda: rate_is_zero(server, "goes"), "the rate of the client that left is zero")
    forget(0)
    forget(3000)
    assert shown() == {"stays", "goes"}
    assert series(server, "kafka_server_controllermutation_mutations_total") == {("", "stays"): 4}
    forget(3601)
    assert shown() == {"stays"}  # whose connection is open
    assert series(server, "kafka_server_controllermutation_mutations_total") == {}


def rate_is_zero(server: KafkaServer, client_id: str) -> bool:
    return series(server, "kafka_server_produce_byterate")[("", client_id)] == 0


def test_the_configured_number_of_series_bounds_them(tmp_path: Path) -> None:
    with KafkaServer(config(tmp_path, kafkapy_metrics_max_series="20")) as server:
        host, port = server.endpoints[0].host, server.endpoints[0].port
        admin, client = Client(host, port), Client(host, port)
        admin.create_topic("t")
        alter(admin, {"client-id": None}, producer_byte_rate=1e9)
        for number in range(150):
            produce(client, "t", f"client-{number}")
        families = list(BrokerCollector(server).collect())
        (rates,) = [family for family in families if family.name == "kafka_server_produce_byterate"]
        shown = {sample.labels["client_id"] for sample in rates.samples}
        assert 100 <= len(shown) <= 120  # a hundred beside any number of other series
        assert "client-149" in shown and "client-0" not in shown  # those that came last
        (dropped,) = [family for family in families if family.name == "kafkapy_metrics_seriesdropped"]
        assert dropped.samples[0].value == 150 - len(shown)
        admin.close()
        client.close()


@pytest.mark.parametrize(
    ("entities", "tags"),
    [
        ([{"client-id": "other"}], ("", "app")),
        ([{"user": "other"}], ("alice", "")),
        ([{"user": "other", "client-id": "other"}], ("alice", "app")),
        ([{"user": "other"}, {"client-id": "other"}], ("", "app")),
    ],
    ids=str,
)
def test_a_client_without_a_quota_has_the_names_that_quotas_have(
    entities: list[dict[str, str | None]], tags: tuple[str, str]
) -> None:
    callback = DefaultQuotaCallback(BrokerConfig({}))
    for entity in entities:
        callback.update_quota(QuotaType.FETCH, entity, 1.0)
        callback.update_quota(QuotaType.FETCH, entity, 2.0)
    found = callback.quota_metric_tags(QuotaType.FETCH, KafkaPrincipal("User", "alice"), "app")
    assert (found["user"], found["client-id"]) == tags
    for entity in entities:
        callback.remove_quota(QuotaType.FETCH, entity)
        callback.remove_quota(QuotaType.FETCH, entity)
    assert callback.quota_metric_tags(QuotaType.FETCH, KafkaPrincipal("User", "alice"), "app") == {
        "user": "",
        "client-id": "app",
    }
