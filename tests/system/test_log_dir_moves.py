"""Partitions move between log directories while clients write and read them, and the broker is killed in the middle."""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin
import pytest
from system.raw_client import RawClient

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from kafkapy.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from kafkapy.testing.broker_process import BrokerProcess

TOPIC = "moved"
PARTITIONS = 2


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    dirs = ",".join(str(tmp_path / name) for name in ("one", "two", "three"))
    keys = {"log.dirs": dirs, "log.segment.bytes": "200000", "log.segment.delete.delay.ms": "100"}
    # scripts/tsan has the broker run with another interpreter: librdkafka does not run under the sanitizer.
    python = os.environ.get("KAFKAPY_BROKER_PYTHON", sys.executable)
    with BrokerProcess(tmp_path / "broker", keys, command=[python, "-m", "kafkapy.tools.server"]) as made:
        yield made


class Writer(threading.Thread):
    """Writes ascending numbers into each partition until it is stopped; an idempotent producer."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.acknowledged = [0] * PARTITIONS
        self.failures: list[str] = []
        self.ending = threading.Event()
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": 120_000,
                "linger.ms": 1,
                "batch.size": 50_000,
                "queue.buffering.max.messages": 1_000_000,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.max.ms": 200,
                "log_level": 0,
            }
        )

    def run(self) -> None:
        number = 0
        while not self.ending.is_set():
            for partition in range(PARTITIONS):
                value = b"%08d" % number + b"." * 200
                self._producer.produce(TOPIC, value, partition=partition, on_delivery=self._delivered)
            number += 1
            self._producer.poll(0)
            if number % 20 == 0:
                time.sleep(0.005)
        self._producer.flush(120)

    def _delivered(self, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        if error is not None:
            self.failures.append(str(error))
        else:
            self.acknowledged[message.partition() or 0] += 1


class Reader(threading.Thread):
    """Reads from the start, and notes every number that is not the next one of its partition."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.counts = [0] * PARTITIONS
        self.wrong: list[tuple[int, int, int]] = []
        self.until: list[int] | None = None
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "reader",
                "enable.auto.commit": False,
                "check.crcs": True,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 100,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self._consumer.assign([confluent_kafka.TopicPartition(TOPIC, each, 0) for each in range(PARTITIONS)])

    def run(self) -> None:
        deadline = time.monotonic() + 1000
        while time.monotonic() < deadline and (self.until is None or sum(self.counts) < sum(self.until)):
            for message in self._consumer.consume(500, timeout=0.1):
                if message.error() is None:
                    partition, value = message.partition() or 0, message.value() or b""
                    if int(value[:8]) != self.counts[partition] or message.offset() != self.counts[partition]:
                        self.wrong.append((partition, self.counts[partition], int(value[:8])))
                    self.counts[partition] += 1
        self._consumer.close()


def places(client: RawClient) -> dict[int, list[tuple[str, bool]]]:
    """Partition to its replicas: (log directory, is future)."""
    found: dict[int, list[tuple[str, bool]]] = {}
    for result in client.call(DescribeLogDirsRequest(topics=None), 4).results:
        for topic in result.topics:
            if topic.name == TOPIC:
                for each in topic.partitions:
                    found.setdefault(each.partition_index, []).append((result.log_dir, each.is_future_key))
    return found


def begin_moves(client: RawClient, chance: random.Random) -> int:
    """Has each partition moved to a directory that it is not in; 0 when a restarted broker does not serve them yet."""
    begun = 0
    directories = [result.log_dir for result in client.call(DescribeLogDirsRequest(topics=None), 4).results]
    for partition, replicas in places(client).items():
        target = chance.choice([path for path in directories if path not in {path for path, _ in replicas}])
        topic = AlterReplicaLogDirsRequest.Dir.Topic(name=TOPIC, partitions=[partition])
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDirsRequest.Dir(path=target, topics=[topic])])
        error = client.call(request, 2).results[0].partitions[0].error_code
        assert error in (ErrorCode.NONE, ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        begun += error == ErrorCode.NONE
    return begun


def connect(broker: BrokerProcess) -> RawClient:
    deadline = time.monotonic() + 30
    while True:
        try:
            return RawClient(broker.bootstrap)
        except OSError:
            if time.monotonic() > deadline:
                raise


def exercise(broker: BrokerProcess, rounds: int, kills: int) -> tuple[int, int]:
    """Moves and kills, then checks every record; (moves, records)."""
    chance = random.Random(rounds)
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([confluent_kafka.admin.NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
    writer, reader = Writer(broker.bootstrap), Reader(broker.bootstrap)
    writer.start()
    reader.start()
    moved = 0
    try:
        for kill in range(kills + 1):
            client = connect(broker)
            for _ in range(rounds):
                before = places(client)
                moved += begin_moves(client, chance)
                deadline = time.monotonic() + 30
                while time.monotonic() < deadline:
                    now = places(client)
                    if all(len(each) == 1 for each in now.values()) and now != before:
                        break
                    time.sleep(0.01)
            if kill < kills:
                begin_moves(client, chance)
                time.sleep(chance.uniform(0, 0.08))
                broker.kill()
                broker.start()
            client.close()
    finally:
        writer.ending.set()
        writer.join()
        reader.until = writer.acknowledged
        reader.join()
    assert writer.failures == []
    assert reader.wrong == []
    assert reader.counts == writer.acknowledged
    client = connect(broker)
    deadline = time.monotonic() + 30
    while any(len(each) != 1 for each in places(client).values()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert all(len(each) == 1 for each in places(client).values())
    client.close()
    return moved, sum(reader.counts)


def test_every_record_is_there_once_and_in_order(broker: BrokerProcess) -> None:
    moved, records = exercise(broker, rounds=4, kills=2)
    assert moved >= 20
    assert records > 1000


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_every_record_is_there_after_many_kills(broker: BrokerProcess) -> None:
    moved, records = exercise(broker, rounds=3, kills=20)
    assert moved >= 100
    assert records > 10_000
