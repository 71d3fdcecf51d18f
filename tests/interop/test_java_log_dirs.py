"""Log directories by the Java tools of Apache Kafka: kafka-log-dirs, and moves by the Admin client, which is what
kafka-reassign-partitions asks for them (make interop-java)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from interop.conftest import JAVA, make_broker
from interop.conftest import run_java as run

pytestmark = JAVA

SOURCE = Path(__file__).parent / "java" / "MoveReplicas.java"
RECORDS = 8000


@pytest.fixture(scope="module")
def dirs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    root = tmp_path_factory.mktemp("disks")
    return [root / "one", root / "two"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, dirs: list[Path]) -> Iterator[Any]:
    running = make_broker(tmp_path_factory.mktemp("java"), **{"log.dirs": ",".join(map(str, dirs))})
    running.start()
    yield running
    running.stop()
    running.remove()


def described(version: str, broker: Any, topic: str) -> dict[str, str]:
    """Partition to directory, as kafka-log-dirs.sh shows it."""
    out = run(
        version, "org.apache.kafka.tools.LogDirsCommand", "--describe", "--bootstrap-server", broker.bootstrap,
        "--topic-list", topic,
    )  # fmt: skip
    (shown,) = json.loads(next(line for line in out.splitlines() if line.startswith("{")))["brokers"]
    for directory in shown["logDirs"]:
        assert directory["error"] is None
        assert not any(each["isFuture"] for each in directory["partitions"])
    return {
        each["partition"]: directory["logDir"] for directory in shown["logDirs"] for each in directory["partitions"]
    }


def test_the_java_admin_client_moves_replicas_and_every_record_is_there(
    version: str, broker: Any, dirs: list[Path]
) -> None:
    topic = f"moved-{version}"
    tool = "org.apache.kafka.tools.TopicCommand"
    server = ("--bootstrap-server", broker.bootstrap)
    run(version, tool, *server, "--create", "--topic", topic, "--partitions", "2", "--config", "segment.bytes=1048576")
    producer = "kafka.tools.ConsoleProducer" if version.startswith("3") else "org.apache.kafka.tools.ConsoleProducer"
    lines = [f"key-{n}\tvalue {n} {'.' * 300}" for n in range(RECORDS)]
    run(version, producer, *server, "--topic", topic, "--property", "parse.key=true", data="\n".join(lines) + "\n")
    partitions = [f"{topic}-0", f"{topic}-1"]
    assert set(described(version, broker, topic)) == set(partitions)
    for target in (*dirs, dirs[0]):
        out = run(version, str(SOURCE), broker.bootstrap, "1", str(target), *partitions)
        assert sorted(out.split()[2::3]) == [str(target)] * 2, out
        assert described(version, broker, topic) == dict.fromkeys(partitions, str(target))
    out = run(version, str(SOURCE), broker.bootstrap, "1", "/nowhere", partitions[0])
    assert "LogDirNotFoundException" in out
    out = run(
        version, "org.apache.kafka.tools.consumer.ConsoleConsumer", *server, "--topic", topic, "--from-beginning",
        "--max-messages", str(RECORDS), "--timeout-ms", "60000", "--property", "print.key=true",
    )  # fmt: skip
    assert sorted(out.splitlines()) == sorted(lines)
