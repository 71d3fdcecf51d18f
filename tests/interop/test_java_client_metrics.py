"""Client metrics (KIP-714) of Apache Kafka 4.4: its tool on both brokers, and the pushes of its clients on kafkapy."""

from __future__ import annotations

import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clients.test_telemetry import REQUIRED
from interop.conftest import JAVA, make_broker, with_jars
from interop.tool_runner import ToolRunner
from peers.apache_kafka import ApacheKafka, compiled, free_port, jars
from prometheus_client.parser import text_string_to_metric_families
from waiting import wait_until

from kafkapy import KafkaAdminClient
from kafkapy.admin import NewTopic

pytestmark = [*JAVA, pytest.mark.timeout(900)]

TOOL = "org.apache.kafka.tools.ClientMetricsCommand"
PUSHER = Path(__file__).parent / "java" / "MetricsPusher.java"
COMMANDS: list[tuple[str, ...]] = [
    ("--list",),
    ("--describe",),
    ("--describe", "--name", "nothing"),
    ("--delete", "--name", "nothing"),
    ("--alter", "--name", "a", "--metrics", "org.apache.kafka.producer.,org.apache.kafka.consumer."),
    ("--list",),
    ("--describe", "--name", "a"),
    ("--alter", "--name", "a", "--interval", "5000"),
    ("--describe", "--name", "a"),
    ("--alter", "--name", "a", "--match", "client_id=orders.*,client_software_name=apache-kafka-java"),
    ("--describe",),
    ("--alter", "--name", "a", "--metrics", "", "--match", ""),
    ("--describe", "--name", "a"),
    ("--alter", "--name", "a", "--metrics", "*", "--interval", "100", "--match", "client_source_port=9092"),
    ("--describe", "--name", "a"),
    ("--delete", "--name", "a"),
    ("--delete", "--name", "a"),
    ("--list",),
    ("--alter", "--generate-name", "--metrics", "org.apache.kafka.producer.", "--interval", "1000"),
    ("--describe",),
    ("--alter", "--name", "b", "--interval", "99"),
    ("--alter", "--name", "b", "--interval", "3600001"),
    ("--alter", "--name", "b", "--interval", "0"),
    ("--alter", "--name", "b", "--interval", "-1"),
    ("--alter", "--name", "b", "--interval", "x"),
    ("--alter", "--name", "b", "--match", "client_id"),
    ("--alter", "--name", "b", "--match", "client_id=[a"),
    ("--alter", "--name", "b", "--match", "no_such=a"),
    ("--alter", "--name", "b", "--match", "client_id=a,client_id=b"),
    ("--alter", "--name", "b", "--match", "client_id=a=b"),
    ("--describe", "--name", "b"),
    ("--alter", "--name", "b", "--match", "client_id="),
    ("--alter", "--name", "b"),
    ("--alter", "--name", "with space", "--metrics", "m"),
    ("--alter", "--name", "n" * 300, "--metrics", "m"),
    ("--alter", "--name", "", "--metrics", "m"),
    ("--alter", "--metrics", "m"),
    ("--alter", "--name", "a", "--generate-name", "--metrics", "m"),
    ("--delete",),
    ("--delete", "--name", "a", "--metrics", "m"),
    ("--describe", "--name", "a", "--interval", "5"),
    ("--list", "--name", "a"),
    ("--list", "--describe"),
    (),
]
_GENERATED = re.compile(r"\b[A-Za-z0-9_-]{22}(?= are:|\.$|$)", re.MULTILINE)
_LOGGED = re.compile(r"^(\[.*|\tat .*|Caused by: .*|\t\.\.\. .*|java\.\S+(Exception|Error)\b.*|org\.apache\.\S+: .*)$")


def told(code: int, text: str) -> tuple[int, list[str]]:
    """What the tool says itself, without its log; the order of resources is that of a hash table."""
    lines = [_GENERATED.sub("<id>", line) for line in text.splitlines() if not _LOGGED.match(line)]
    return code, sorted(line for line in lines if line)


def test_the_tool_says_the_same_on_both(tmp_path: Path) -> None:
    ours, apache = make_broker(tmp_path / "kafkapy"), ApacheKafka(with_jars("4.x"), tmp_path / "apache")
    try:
        with ToolRunner("4.x", ours.start().bootstrap) as on_ours, ToolRunner("4.x", apache.start().bootstrap) as on_it:
            different, codes = [], set()
            for arguments in COMMANDS:
                answers = told(*on_ours(TOOL, *arguments)), told(*on_it(TOOL, *arguments))
                codes.add(answers[1][0])
                if answers[0] != answers[1]:
                    different.append((arguments, *answers))
            assert different == []
            assert codes == {0, 1}
    finally:
        ours.stop()
        ours.remove()
        apache.remove()


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, str]]:
    """A broker that wants everything every 100 ms, and the address of its metrics."""
    listener = f"127.0.0.1:{free_port()}"
    running = make_broker(tmp_path_factory.mktemp("broker"), **{"metrics.listeners": listener})
    running.start()
    with ToolRunner("4.x", running.bootstrap) as tool:
        tool.done(TOOL, "--alter", "--name", "all", "--metrics", "*", "--interval", "100")
    with KafkaAdminClient(bootstrap_servers=running.bootstrap) as admin:
        admin.create_topics([NewTopic("pushed", 2, 1)])
    yield running, f"http://{listener}/metrics"
    running.stop()
    running.remove()


def shown(address: str, instance_id: str) -> dict[str, dict[str, str]]:
    """The metrics of a client without `kafka_client_`, and the labels of one sample of each."""
    with urllib.request.urlopen(address, timeout=60) as response:
        families = list(text_string_to_metric_families(response.read().decode()))
    return {
        sample.name.removeprefix("kafka_client_"): sample.labels
        for family in families
        for sample in family.samples
        if sample.name.startswith("kafka_client_") and sample.labels["client_instance_id"] == instance_id
    }


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_java_clients_push_the_standard_metrics(measured: tuple[Any, str], protocol: str) -> None:
    broker, address = measured
    libs = jars(with_jars("4.x"))
    pusher = subprocess.Popen(
        ["java", "-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp",
         f"{compiled(PUSHER, libs)}:{libs}/*", "MetricsPusher", broker.bootstrap, "pushed", protocol],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert pusher.stdin is not None
    assert pusher.stdout is not None
    try:
        ids = {kind: pusher.stdout.readline().strip() for kind in ("producer", "consumer")}
        for kind, instance_id in ids.items():
            wait_until(
                lambda kind=kind, instance_id=instance_id: shown(address, instance_id).keys() >= REQUIRED[kind],
                f"the {kind} {instance_id} shows {REQUIRED[kind]}",
            )
        labels = shown(address, ids["consumer"])["consumer_coordinator_assigned_partitions"]
        assert labels["client_id"] == "java-consumer"
        assert labels["client_software_name"] == "apache-kafka-java"
        assert labels["client_software_version"] == "4.4.0"
        assert labels["group_id"] == f"java-group-{protocol}"
        assert labels["group_member_id"]
        node = shown(address, ids["producer"])["producer_node_request_latency_avg"]
        assert node["node_id"] == "node-1"
        promtool = shutil.which("promtool")
        if promtool is not None:
            with urllib.request.urlopen(address, timeout=60) as response:
                done = subprocess.run([promtool, "check", "metrics"], input=response.read(), capture_output=True)
            assert done.returncode in (0, 3), done.stderr  # 3: complaints about Kafka's names
        pusher.communicate("end\n", timeout=120)
        assert pusher.returncode == 0
    finally:
        pusher.kill()
        pusher.wait()
