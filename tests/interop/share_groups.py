"""Share groups for tests: brokers of both kinds whose locks and heartbeats are short, topics, and workers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from interop.conftest import JAVA, with_jars
from peers.apache_kafka import ApacheKafka, compiled, jars
from waiting import wait_until

from kafkapy import ConsumerRecord, KafkaAdminClient, KafkaProducer, KafkaShareConsumer
from kafkapy.admin import ConfigResource
from kafkapy.errors import GroupIdNotFoundError
from kafkapy.testing.broker_process import BrokerProcess

RELEASE = "4.x"
LOCK_MS = 2000
KEYS = {
    "offsets.topic.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "4",
    "group.share.heartbeat.interval.ms": "300",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.session.timeout.ms": "3000",
    "group.share.min.session.timeout.ms": "1000",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "30000",
}
WORKER = Path(__file__).parent / "share_worker.py"
JAVA_WORKER = Path(__file__).parent / "java" / "ShareWorker.java"


def needs_java(test: Callable[..., Any]) -> Callable[..., Any]:
    """Marks a test that runs Kafka's own programs."""
    for mark in JAVA:
        test = mark(test)
    return test


def share_broker(kind: str, folder: Path, **overrides: str) -> Any:
    """A broker with share groups, not started."""
    if kind == "kafkapy":
        return BrokerProcess(folder, KEYS | overrides)
    with_jars(RELEASE)
    return ApacheKafka(RELEASE, folder, KEYS | overrides)


def configure(admin: KafkaAdminClient, group: str, **keys: Any) -> None:
    """Sets configurations of a share group: `share_auto_offset_reset="earliest"`."""
    wanted = {name.replace("_", "."): str(value) for name, value in keys.items()}
    outcomes = admin.alter_configs([ConfigResource("GROUP", group, wanted)], raise_on_unknown=False)
    assert set(outcomes["group"].values()) == {"OK"}, outcomes


def fill(bootstrap: str, topic: str, values: Iterable[bytes], partitions: int = 1, **keywords: Any) -> int:
    """Sends records to the partitions in turn; returns how many."""
    count = 0
    with KafkaProducer(bootstrap_servers=bootstrap, **keywords) as producer:
        for count, value in enumerate(values, 1):
            producer.send(topic, value, partition=(count - 1) % partitions)
        producer.flush()
    return count


def read(consumer: KafkaShareConsumer, count: int = 1) -> list[ConsumerRecord]:
    """The records of the polls until there are so many; in explicit mode of one poll."""
    found: list[ConsumerRecord] = []

    def got() -> bool:
        found.extend(consumer.poll_batch(timeout_ms=300))
        return len(found) >= count

    wait_until(got, f"{count} records")
    return found


def lag(admin: KafkaAdminClient, group: str) -> int | None:
    """The group's lag, None while the group or the lag of one partition is not known."""
    try:
        found = admin.list_share_group_offsets(group)[group]
    except GroupIdNotFoundError:
        return None
    lags = [each.lag for each in found.values()]
    return sum(each or 0 for each in lags) if lags and None not in lags else None


def start_worker(bootstrap: str, group: str, topic: str, file: Path, way: str = "poll") -> subprocess.Popen[bytes]:
    """A worker with our client in a process of its own."""
    root = Path(__file__).parents[2]
    command = [sys.executable, str(WORKER), bootstrap, group, topic, str(file), way]
    return subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(root)})


def java_worker(bootstrap: str, group: str, topic: str, kind: str = "ACCEPT", idle_ms: int = 5000) -> list[str]:
    """The command line of a worker with Kafka's client."""
    libs = jars(RELEASE)
    path = f"{compiled(JAVA_WORKER, libs)}:{libs}/*"
    quiet = ["-XX:TieredStopAtLevel=1", "-Xmx128m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    return ["java", *quiet, "-cp", path, "ShareWorker", bootstrap, group, topic, kind, str(idle_ms)]


def lines_of(text: str) -> list[tuple[int, int, int]]:
    """(partition, offset, delivery count) of a worker's lines; the last one may be cut."""
    found = []
    for line in text.splitlines():
        parts = line.split()
        if len(parts) == 3:
            found.append((int(parts[0]), int(parts[1]), int(parts[2])))
    return found
