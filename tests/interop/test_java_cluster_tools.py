"""Apache Kafka's own tools for what is about a whole cluster, or several brokers: they end as they do on Apache Kafka
with one broker (make interop-java; KAFKAPY_INTEROP_PEER=4.x runs the same against Apache Kafka)."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from interop.conftest import JAVA, make_broker
from peers.apache_kafka import java

pytestmark = JAVA

TOOLS = "org.apache.kafka.tools"
TOPIC = f"{TOOLS}.TopicCommand"
REASSIGN = f"{TOOLS}.reassign.ReassignPartitionsCommand"
ELECT = f"{TOOLS}.LeaderElectionCommand"
FEATURES = f"{TOOLS}.FeatureCommand"
CLUSTER = f"{TOOLS}.ClusterTool"
QUORUM = f"{TOOLS}.MetadataQuorumCommand"
CONFIGS = "kafka.admin.ConfigCommand"


class Done(NamedTuple):
    """How a tool ended."""

    code: int
    text: str
    """What it wrote, on both outputs."""


class Tools:
    """Kafka's tools of one release, pointed at one broker."""

    def __init__(self, version: str, broker: Any) -> None:
        self.version = version
        self.broker = broker

    def __call__(self, main: str, *arguments: str) -> Done:
        server = ("--bootstrap-server", self.broker.bootstrap)
        # The subcommands of some tools take the server behind them, those of others before.
        placed = (*arguments, *server) if main == CLUSTER else (*server, *arguments)
        done = subprocess.run(
            java(self.version, main, *placed, options=("-Xmx256m",)), capture_output=True, text=True, timeout=180
        )
        return Done(done.returncode, done.stdout + done.stderr)

    def done(self, main: str, *arguments: str) -> str:
        """What the tool wrote; it has to end well."""
        code, text = self(main, *arguments)
        assert code == 0, text[-3000:]
        return text


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


@pytest.fixture
def tools(version: str, broker: Any) -> Tools:
    return Tools(version, broker)


def plan(path: Path, topic: str, replicas: list[int], directory: Path | None = None) -> str:
    """A file for kafka-reassign-partitions about both partitions of a topic."""
    moved = {} if directory is None else {"log_dirs": [str(directory)] * len(replicas)}
    partitions = [{"topic": topic, "partition": index, "replicas": replicas} | moved for index in range(2)]
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return str(path)


def test_reassign_partitions_moves_replicas_between_log_directories(
    tools: Tools, dirs: list[Path], tmp_path: Path
) -> None:
    topic = f"moved-{tools.version}"
    tools.done(TOPIC, "--create", "--topic", topic, "--partitions", "2")
    for directory in (*dirs, dirs[0]):
        file = plan(tmp_path / "plan.json", topic, [1], directory)
        said = tools.done(REASSIGN, "--reassignment-json-file", file, "--execute")
        assert f"Successfully started partition reassignments for {topic}-0,{topic}-1" in said
        deadline = time.monotonic() + 120
        while True:
            said = tools.done(REASSIGN, "--reassignment-json-file", file, "--verify")
            assert f"Reassignment of partition {topic}-0 is complete" in said
            if "is still in progress" not in said:
                break
            assert time.monotonic() < deadline, said
        assert (directory / f"{topic}-0").is_dir()
        assert (directory / f"{topic}-1").is_dir()


def test_reassign_partitions_to_what_there_is_and_is_not(tools: Tools, tmp_path: Path) -> None:
    topic = f"assigned-{tools.version}"
    tools.done(TOPIC, "--create", "--topic", topic, "--partitions", "2")
    assert "No partition reassignments found." in tools.done(REASSIGN, "--list")
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    said = tools.done(REASSIGN, "--topics-to-move-json-file", str(topics), "--broker-list", "1", "--generate")
    assert said.count('"replicas":[1]') == 4
    same = plan(tmp_path / "same.json", topic, [1])
    assert "Successfully started" in tools.done(REASSIGN, "--reassignment-json-file", same, "--execute")
    said = tools.done(REASSIGN, "--reassignment-json-file", same, "--cancel")
    assert "None of the specified partition reassignments are active." in said
    elsewhere = plan(tmp_path / "elsewhere.json", topic, [2])
    code, said = tools(REASSIGN, "--reassignment-json-file", elsewhere, "--execute")
    assert (code, "Unknown broker id 2" in said) == (1, True), said


def test_leader_election(tools: Tools) -> None:
    topic = f"elected-{tools.version}"
    tools.done(TOPIC, "--create", "--topic", topic, "--partitions", "2")
    for kind in ("preferred", "unclean"):
        said = tools.done(ELECT, "--election-type", kind, "--topic", topic, "--partition", "1")
        assert f"Valid replica already elected for partitions {topic}-1" in said
    tools.done(ELECT, "--election-type", "preferred", "--all-topic-partitions")
    code, said = tools(ELECT, "--election-type", "preferred", "--topic", topic, "--partition", "7")
    assert (code, "1 replica(s) could not be elected" in said) == (1, True), said


def test_features(tools: Tools) -> None:
    lines = tools.done(FEATURES, "describe").splitlines()
    assert any("group.version" in line and "FinalizedVersionLevel: 1" in line for line in lines), lines
    # Releases before 4.0 know the levels of metadata.version only.
    if not tools.version.startswith("3"):
        said = tools.done(FEATURES, "upgrade", "--feature", "group.version=1")
        assert "group.version was upgraded to 1." in said
        code, said = tools(FEATURES, "upgrade", "--feature", "group.version=7")
        assert (code, "Could not upgrade group.version to 7." in said) == (1, True), said


def test_cluster_and_quorum(tools: Tools) -> None:
    said = tools.done(CLUSTER, "cluster-id")
    cluster_id = said.partition("Cluster ID: ")[2].split()[0]
    said = tools.done(QUORUM, "describe", "--status")
    facts = {line.partition(":")[0]: line.partition(":")[2].strip() for line in said.splitlines()}
    assert (facts["ClusterId"], facts["LeaderId"], facts["MaxFollowerLag"]) == (cluster_id, "1", "0")
    said = tools.done(QUORUM, "describe", "--replication")
    assert len([line for line in said.splitlines() if line.startswith("1") and line.rstrip().endswith("Leader")]) == 1
    code, said = tools(CLUSTER, "unregister", "--id", "7")
    assert (code, "BrokerIdNotRegisteredException" in said) == (1, True), said
    if not tools.version.startswith("3"):
        said = tools.done(CLUSTER, "list-endpoints")
        assert len([line for line in said.splitlines() if "127.0.0.1" in line]) == 1


def test_a_plain_topic_has_no_configuration_of_its_own(tools: Tools) -> None:
    topic = f"plain-{tools.version}"
    tools.done(TOPIC, "--create", "--topic", topic)
    said = tools.done(TOPIC, "--describe", "--topic", topic)
    shown = next(line for line in said.splitlines() if "Configs:" in line).partition("Configs:")[2].strip()
    # With eligible leader replicas Apache Kafka sets that one for the cluster.
    assert shown in ("", "min.insync.replicas=1")
    assert f"Dynamic configs for topic {topic} are:" in tools.done(CONFIGS, "--describe", "--entity-type", "topics")


def test_groups_have_configuration(tools: Tools) -> None:
    if tools.version.startswith("3"):
        pytest.skip("kafka-configs knows groups since 4.0")
    group = f"configured-{tools.version}"
    entity = ("--entity-type", "groups", "--entity-name", group)
    tools.done(CONFIGS, "--alter", *entity, "--add-config", "consumer.session.timeout.ms=50000")
    assert "consumer.session.timeout.ms=50000" in tools.done(CONFIGS, "--describe", *entity)
    said = tools.done(CONFIGS, "--describe", "--entity-type", "groups")
    assert f"Dynamic configs for group {group} are:" in said
