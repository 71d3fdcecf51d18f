"""The Java console tools and perf tools of Apache Kafka 3.9 and 4.x against kafkapy (make interop-java)."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from interop.conftest import JAVA
from interop.conftest import run_java as run

pytestmark = JAVA


def create_topic(version: str, broker: Any, topic: str, *options: str) -> None:
    run(
        version, "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", broker.bootstrap,
        "--create", "--topic", topic, "--replication-factor", "1", *options,
    )  # fmt: skip


def console_producer(version: str) -> str:
    return "kafka.tools.ConsoleProducer" if version.startswith("3") else "org.apache.kafka.tools.ConsoleProducer"


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_console_producer_to_console_consumer(version: str, broker: Any, codec: str, acks: str) -> None:
    topic = f"console-{version}-{codec}-{acks}"
    create_topic(version, broker, topic, "--partitions", "1")
    lines = [f"h1:v{n},h2:x\tkey-{n}\tvalue number {n} {'é' * n}" for n in range(200)]
    run(
        version, console_producer(version), "--bootstrap-server", broker.bootstrap, "--topic", topic,
        "--compression-codec", codec, "--producer-property", f"acks={acks}",
        "--property", "parse.key=true", "--property", "parse.headers=true",
        data="\n".join(lines) + "\n",
    )  # fmt: skip
    out = run(
        version, "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", broker.bootstrap,
        "--topic", topic, "--partition", "0", "--offset", "earliest", "--max-messages", "200", "--timeout-ms", "30000",
        "--property", "print.key=true", "--property", "print.headers=true",
    )  # fmt: skip
    assert out.splitlines() == lines


def test_topic_command_lists_describes_alters_and_deletes(version: str, broker: Any) -> None:
    topic = f"described-{version}"
    create_topic(version, broker, topic, "--partitions", "3", "--config", "retention.ms=12345")
    tool = ("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", broker.bootstrap)
    described = run(version, *tool, "--describe", "--topic", topic)
    assert "PartitionCount: 3" in described
    assert "retention.ms=12345" in described
    assert described.count("Leader: 1") == 3
    run(version, *tool, "--alter", "--topic", topic, "--partitions", "5")
    assert "PartitionCount: 5" in run(version, *tool, "--describe", "--topic", topic)
    assert topic in run(version, *tool, "--list").splitlines()
    run(version, *tool, "--delete", "--topic", topic)
    assert topic not in run(version, *tool, "--list").splitlines()


def test_config_command_shows_topic_and_broker_configs(version: str, broker: Any) -> None:
    topic = f"configured-{version}"
    create_topic(version, broker, topic, "--config", "max.message.bytes=54321")
    tool = ("kafka.admin.ConfigCommand", "--bootstrap-server", broker.bootstrap)
    shown = run(version, *tool, "--describe", "--entity-type", "topics", "--entity-name", topic, "--all")
    assert re.search(r"max.message.bytes=54321 .*DYNAMIC_TOPIC_CONFIG:max.message.bytes=54321", shown)
    assert re.search(r"retention.ms=604800000 ", shown)
    run(
        version, *tool, "--alter", "--entity-type", "topics", "--entity-name", topic, "--add-config", "retention.ms=777"
    )
    assert "retention.ms=777" in run(version, *tool, "--describe", "--entity-type", "topics", "--entity-name", topic)
    assert "log.segment.bytes=1073741824" in run(
        version, *tool, "--describe", "--entity-type", "brokers", "--entity-name", "1", "--all"
    )


def test_producer_perf_tool(version: str, broker: Any) -> None:
    topic = f"perf-{version}"
    create_topic(version, broker, topic, "--partitions", "4")
    out = run(
        version, "org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--num-records", "100000",
        "--record-size", "200", "--throughput", "-1",
        "--producer-props", f"bootstrap.servers={broker.bootstrap}", "acks=all", "compression.type=lz4",
    )  # fmt: skip
    assert "100000 records sent" in out
    offsets = run(
        version, "org.apache.kafka.tools.GetOffsetShell", "--bootstrap-server", broker.bootstrap, "--topic", topic
    )
    assert sum(int(line.rpartition(":")[2]) for line in offsets.split()) == 100_000


def test_delete_records_and_log_dirs_tools(version: str, broker: Any, tmp_path: Any) -> None:
    topic = f"deleted-{version}"
    create_topic(version, broker, topic, "--partitions", "1")
    run(
        version, console_producer(version), "--bootstrap-server", broker.bootstrap, "--topic", topic,
        data="\n".join(map(str, range(50))) + "\n",
    )  # fmt: skip
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0, "offset": 30}], "version": 1}))
    main = "org.apache.kafka.tools.DeleteRecordsCommand"
    out = run(version, main, "--bootstrap-server", broker.bootstrap, "--offset-json-file", str(plan))
    assert "low_watermark: 30" in out
    out = run(
        version, "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", broker.bootstrap,
        "--topic", topic, "--partition", "0", "--offset", "earliest", "--max-messages", "20", "--timeout-ms", "30000",
    )  # fmt: skip
    assert out.split() == [str(n) for n in range(30, 50)]
    described = run(
        version, "org.apache.kafka.tools.LogDirsCommand", "--bootstrap-server", broker.bootstrap,
        "--describe", "--topic-list", topic,
    )  # fmt: skip
    assert f'"partition":"{topic}-0"' in described


def test_config_command_sets_and_shows_quotas(version: str, broker: Any) -> None:
    tool = ("kafka.admin.ConfigCommand", "--bootstrap-server", broker.bootstrap)
    user, client = ("--entity-type", "users", "--entity-name", f"u-{version}"), ("--entity-type", "clients")
    run(version, *tool, *user, "--alter", "--add-config", "producer_byte_rate=1048576,request_percentage=150.5")
    run(version, *tool, *user, *client, "--entity-default", "--alter", "--add-config", "consumer_byte_rate=2048")
    described = run(version, *tool, *user, "--describe")
    assert "producer_byte_rate=1048576.0" in described and "request_percentage=150.5" in described
    both = run(version, *tool, *user, *client, "--entity-default", "--describe")
    assert "consumer_byte_rate=2048.0" in both and "the default client-id" in both
    run(version, *tool, *user, "--alter", "--delete-config", "producer_byte_rate,request_percentage")
    assert "producer_byte_rate" not in run(version, *tool, *user, "--describe")
    ip = ("--entity-type", "ips", "--entity-name", "10.2.3.4")
    run(version, *tool, *ip, "--alter", "--add-config", "connection_creation_rate=50")
    assert "connection_creation_rate=50.0" in run(version, *tool, *ip, "--describe")
    run(version, *tool, *client, "--entity-name", "c", "--alter", "--add-config", "controller_mutation_rate=2.5")
    assert "controller_mutation_rate=2.5" in run(version, *tool, *client, "--entity-name", "c", "--describe")
    bounded = (*client, "--entity-name", "c")
    for entity, key in ((ip, "connection_creation_rate"), (bounded, "controller_mutation_rate")):
        run(version, *tool, *entity, "--alter", "--delete-config", key)
        assert key not in run(version, *tool, *entity, "--describe")
