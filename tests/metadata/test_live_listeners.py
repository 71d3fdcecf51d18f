"""Listeners change on running brokers that share a real store: the other broker and clients see the new addresses."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker.dynamic_changes import change
from system.raw_client import RawClient
from waiting import wait_until

from kafkapy import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafkapy.broker.server import KafkaServer
from kafkapy.config.broker import BrokerConfig
from kafkapy.config.properties import Properties
from kafkapy.protocol.messages.metadata import MetadataRequest

pytestmark = pytest.mark.filterwarnings("ignore:No chroot path exists")  # the store makes it

PRESENT = "PLAINTEXT://127.0.0.1:0"
KEYS = {
    "default.replication.factor": "2",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "num.network.threads": "1",
}


@pytest.fixture(params=["etcd", "zookeeper"])
def brokers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[KafkaServer]]:
    """Brokers 1 and 2 of one cluster."""
    address, own = request.getfixturevalue(request.param), uuid.uuid4().hex
    store = {"kafkapy.etcd.endpoints": address, "kafkapy.etcd.prefix": f"/{own}"}
    if request.param == "zookeeper":
        store = {"zookeeper.connect": f"{address}/{own}"}
    made = []
    for broker_id in (1, 2):
        properties = Properties("test")
        where = {"listeners": PRESENT, "advertised.listeners": PRESENT, "log.dirs": str(tmp_path / str(broker_id))}
        for key, value in {**KEYS, **store, **where, "broker.id": str(broker_id)}.items():
            properties.set(key, value)
        made.append(KafkaServer(BrokerConfig.from_properties(properties)))
    with made[0], made[1]:
        yield made


def port(server: KafkaServer, listener: str = "PLAINTEXT") -> int:
    return next(each.port for each in server.endpoints if each.listener_name == listener)


def shown(at: int) -> dict[int, tuple[str, int]]:
    """The brokers' addresses by id, as a client hears them at that port."""
    client = RawClient(f"127.0.0.1:{at}")
    try:
        brokers = client.call(MetadataRequest(topics=[]), 12).brokers
    finally:
        client.close()
    return {each.node_id: (each.host, each.port) for each in brokers}


def changed(server: KafkaServer, keys: dict[str, Any]) -> None:
    client = RawClient(f"127.0.0.1:{port(server)}")
    change(client.call, keys, str(server.config.broker_id))
    client.close()


def extra(addition: str = ",EXTRA://127.0.0.1:0") -> dict[str, str]:
    return {
        "listeners": PRESENT + addition,
        "advertised.listeners": PRESENT + addition,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,EXTRA:PLAINTEXT",
    }


def test_other_brokers_and_clients_see_new_and_removed_listeners(brokers: list[KafkaServer]) -> None:
    first, second = brokers
    plain = {1: ("127.0.0.1", port(first)), 2: ("127.0.0.1", port(second))}
    wait_until(lambda: shown(port(second)) == plain, "both brokers are there")
    changed(first, extra())
    alone = {1: ("127.0.0.1", port(first, "EXTRA"))}
    wait_until(lambda: shown(port(first, "EXTRA")) == alone, "the listener shows the brokers that have it")
    changed(second, extra())
    both = {**alone, 2: ("127.0.0.1", port(second, "EXTRA"))}
    for server in brokers:
        wait_until(lambda server=server: shown(port(server, "EXTRA")) == both, "both brokers have the listener")
        assert shown(port(server)) == plain
    with KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{port(second, 'EXTRA')}") as admin:
        admin.create_topics({"orders": {"num_partitions": 4, "replication_factor": 2}}, wait_for_metadata=True)
        with KafkaProducer(bootstrap_servers=f"127.0.0.1:{port(second, 'EXTRA')}", acks="all") as producer:
            for partition in range(4):
                producer.send("orders", b"one", partition=partition).get(60)
    changed(first, dict.fromkeys(extra()))
    gone = {2: both[2]}
    wait_until(lambda: shown(port(second, "EXTRA")) == gone, "the other broker hears of the removed listener")
    assert shown(port(second)) == plain


def test_a_new_advertised_address_reaches_other_brokers_and_their_clients(brokers: list[KafkaServer]) -> None:
    """Replication and clients go on with the new address."""
    first, second = brokers
    bootstrap = f"127.0.0.1:{port(second)}"
    with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        wait_until(lambda: len(shown(port(second))) == 2, "both brokers are there")
        admin.create_topics({"orders": {"assignments": {0: [1, 2]}}}, wait_for_metadata=True)
        changed(first, {"advertised.listeners": f"PLAINTEXT://localhost:{port(first)}"})
        moved = {1: ("localhost", port(first)), 2: ("127.0.0.1", port(second))}
        for server in brokers:
            wait_until(lambda server=server: shown(port(server)) == moved, "clients see the new address")
        with KafkaProducer(bootstrap_servers=bootstrap, acks="all") as producer:
            producer.send("orders", b"one", partition=0).get(60)
        with KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition("orders", 0)])
            record = next(iter(consumer))
        assert record.value == b"one"
        wait_until(lambda: in_sync(admin) == [1, 2], "the follower is in sync")
        changed(first, {"advertised.listeners": None})
        back = moved | {1: ("127.0.0.1", port(first))}
        wait_until(lambda: shown(port(second)) == back, "clients see the old address again")


def test_the_address_of_another_broker_is_not_registered(
    brokers: list[KafkaServer], caplog: pytest.LogCaptureFixture
) -> None:
    """As in Kafka, the key is stored, and the broker keeps its addresses until it has others."""
    first, second = brokers
    plain = {1: ("127.0.0.1", port(first)), 2: ("127.0.0.1", port(second))}
    wait_until(lambda: shown(port(second)) == plain, "both brokers are there")
    changed(first, {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port(second)}"})
    wait_until(lambda: "could not register its new addresses" in caplog.text, "the broker says why")
    assert shown(port(first)) == shown(port(second)) == plain
    changed(first, {"advertised.listeners": f"PLAINTEXT://localhost:{port(first)}"})
    moved = plain | {1: ("localhost", port(first))}
    wait_until(lambda: shown(port(second)) == moved, "the next address is registered")


def in_sync(admin: KafkaAdminClient) -> list[int]:
    (topic,) = admin.describe_topics(["orders"])
    return sorted(topic["partitions"][0]["isr_nodes"])
