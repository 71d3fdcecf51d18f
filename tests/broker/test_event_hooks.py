"""Event hooks and metrics reporters: a plugin in a running broker hears of what clients do."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker.dynamic_changes import alter, changed
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kafkapy.broker.server import KafkaServer
from kafkapy.errors import ErrorCode
from kafkapy.plugins import PluginManager, hookimpl
from kafkapy.types import TopicPartition

TIMEOUT_S = 60


class Reporter:
    """Keeps the collectors, and whether it was closed."""

    def __init__(self) -> None:
        self.collectors: list[Any] = []
        self.closed = False

    def start(self, collectors: list[Any]) -> None:
        self.collectors = collectors

    def close(self) -> None:
        self.closed = True


class Listener:
    """A plugin that keeps each event."""

    def __init__(self) -> None:
        self.events: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        self.reporter = Reporter()

    def next(self) -> tuple[Any, ...]:
        return self.events.get(timeout=TIMEOUT_S)

    @hookimpl
    def register_metrics_reporters(self):
        return {"kept": lambda config: self.reporter}

    @hookimpl
    def topic_created(self, topic, topic_id, partitions, configs):
        self.events.put(("created", topic, topic_id, partitions, configs))

    @hookimpl
    def topic_deleted(self, topic, topic_id):
        self.events.put(("deleted", topic, topic_id))

    @hookimpl
    def segment_sealed(self, topic_partition, base_offset, next_offset, size):
        self.events.put(("sealed", topic_partition, base_offset, next_offset, size))

    @hookimpl
    def broker_stopping(self, broker):
        self.events.put(("stopping", broker))


@pytest.fixture
def listener() -> Listener:
    return Listener()


@pytest.fixture
def server(tmp_path: Path, listener: Listener, make_config: Any) -> Iterator[KafkaServer]:
    plugins = PluginManager.load()
    plugins.register(listener, "listener")
    with KafkaServer(make_config(tmp_path, **{"metric.reporters": "kept"}), plugins) as made:
        yield made


@pytest.fixture
def bootstrap(server: KafkaServer) -> str:
    return f"127.0.0.1:{server.endpoints[0].port}"


def test_a_topic_is_created_and_deleted(listener: Listener, bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = NewTopic("t", 3, 1, config={"retention.ms": "1000"})
    admin.create_topics([wanted], validate_only=True)["t"].result(TIMEOUT_S)
    admin.create_topics([wanted])["t"].result(TIMEOUT_S)
    created = listener.next()
    assert created[:2] == ("created", "t")
    assert created[3:] == (3, {"retention.ms": "1000"})
    admin.delete_topics(["t"])["t"].result(TIMEOUT_S)
    assert listener.next() == ("deleted", "t", created[2])
    assert listener.events.empty()


def test_sealed_segments_follow_one_another(listener: Listener, server: KafkaServer, bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("t", 1, 1, config={"segment.bytes": "100000"})])["t"].result(TIMEOUT_S)
    assert listener.next()[0] == "created"
    producer = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 1})
    for _ in range(12):
        producer.produce("t", b"x" * 40_000)
        producer.flush(TIMEOUT_S)
    place = TopicPartition("t", 0)
    start = 0
    for _ in range(5):
        kind, partition, base_offset, next_offset, size = listener.next()
        assert (kind, partition, base_offset, next_offset) == ("sealed", place, start, start + 2)
        assert 80_000 < size <= 100_000
        start = next_offset
    assert listener.events.empty()


def test_reporters_come_and_go_with_the_configuration(listener: Listener, server: KafkaServer, connect: Any) -> None:
    client = connect(server)
    with changed(client, {"metric.reporters": ""}):
        assert listener.reporter.closed
        assert alter(client, {"metric.reporters": "kept,nobody"}).error_code == ErrorCode.INVALID_REQUEST
        listener.reporter = Reporter()
        assert listener.reporter.collectors == []
    assert len(listener.reporter.collectors) == 1
    assert not listener.reporter.closed


def test_a_reporter_reads_the_broker_until_it_stops(listener: Listener, server: KafkaServer) -> None:
    [collector] = listener.reporter.collectors
    names = {family.name for family in collector.collect()}
    assert "kafka_server_kafkaserver_brokerstate" in names
    assert not listener.reporter.closed
    server.stop()
    assert listener.reporter.closed
    assert listener.next() == ("stopping", server)
