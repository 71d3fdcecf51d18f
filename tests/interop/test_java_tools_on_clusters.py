"""Kafka's own tools on a cluster of three brokers: what they do, and what they say, is as on a cluster of Apache Kafka
3.9 (make interop-java; KAFKAPY_INTEROP_PEER=3.9 runs the same against Apache Kafka)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from interop.conftest import JAVA, PEER
from interop.mixed import mixed_cluster
from interop.tool_runner import ToolRunner
from system.cluster.processes import Cluster, wait_until

from kafkapy import KafkaConsumer, KafkaProducer

pytestmark = [*JAVA, pytest.mark.timeout(1800)]

TOOLS = "org.apache.kafka.tools"
TOPIC = f"{TOOLS}.TopicCommand"
REASSIGN = f"{TOOLS}.reassign.ReassignPartitionsCommand"
ELECT = f"{TOOLS}.LeaderElectionCommand"
CLUSTER = f"{TOOLS}.ClusterTool"
LOG_DIRS = f"{TOOLS}.LogDirsCommand"
TRANSACTIONS = f"{TOOLS}.TransactionsCommand"
CONFIGS = "kafka.admin.ConfigCommand"
BROKERS = [1, 2, 3]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    java = tuple(BROKERS) if PEER else ()
    keys = {"min.insync.replicas": "1"}
    with mixed_cluster(tmp_path_factory.mktemp("tools"), "3.9", java, overrides=keys) as made:
        yield made


@pytest.fixture(scope="module")
def tools(cluster: Cluster, version: str) -> Iterator[ToolRunner]:
    with ToolRunner(version, cluster.bootstrap) as runner:
        yield runner


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return "".join(c if c.isalnum() else "-" for c in request.node.name)


def create(cluster: Cluster, tools: ToolRunner, topic: str, assignment: list[list[int]]) -> None:
    """A topic with these replicas, made by kafka-topics."""
    text = ",".join(":".join(map(str, replicas)) for replicas in assignment)
    assert f"Created topic {topic}." in tools.done(TOPIC, "--create", "--topic", topic, "--replica-assignment", text)
    cluster.wait_until_in_sync([topic])


def shown(text: str) -> list[tuple[int, int, list[int], list[int]]]:
    """(partition, leader, replicas, ISR) of the lines of kafka-topics --describe."""
    found = re.findall(r"Partition: (\d+)\tLeader: (\S+)\tReplicas: (\S*)\tIsr: (\S*)", text)
    return [
        (int(number), -1 if leader == "none" else int(leader), numbers(replicas), sorted(numbers(isr)))
        for number, leader, replicas, isr in found
    ]


def numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",") if each]


def fill(cluster: Cluster, topic: str, partitions: int, size: int = 1000, count: int = 30) -> None:
    with KafkaProducer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
        for number in range(count):
            producer.send(topic, b"x" * size, partition=number % partitions)
        producer.flush()


def test_topics(cluster: Cluster, tools: ToolRunner, topic: str) -> None:
    create(cluster, tools, topic, [[1, 2, 3], [2, 3, 1]])
    said = tools.done(TOPIC, "--describe", "--topic", topic)
    assert re.search(rf"Topic: {topic}\tTopicId: \S{{22}}\tPartitionCount: 2\tReplicationFactor: 3\tConfigs: ", said)
    assert shown(said) == [(0, 1, [1, 2, 3], BROKERS), (1, 2, [2, 3, 1], BROKERS)]
    assert "Elr" not in said or "Elr: N/A" in said
    tools.done(TOPIC, "--alter", "--topic", topic, "--partitions", "3")
    cluster.wait_until_in_sync([topic])
    assert len(shown(tools.done(TOPIC, "--describe", "--topic", topic))) == 3
    code, said = tools(TOPIC, "--alter", "--topic", topic, "--partitions", "2")
    assert (code, "InvalidPartitionsException" in said or "The topic currently has 3 partition" in said) == (1, True)
    code, said = tools(TOPIC, "--create", "--topic", f"{topic}-many", "--replication-factor", "4")
    assert code == 1
    assert "Replication factor: 4 larger than available brokers: 3." in said, said
    code, said = tools(TOPIC, "--create", "--topic", topic)
    assert (code, f"Topic '{topic}' already exists." in said) == (1, True), said
    for filters in ("--under-replicated-partitions", "--unavailable-partitions", "--under-min-isr-partitions"):
        assert shown(tools.done(TOPIC, "--describe", "--topic", topic, filters)) == []
    cluster[3].stop()
    try:
        wait_until(
            lambda: all(3 not in each["isr_nodes"] for each in cluster.describe([topic])[topic]), "the ISRs shrink"
        )
        said = tools.done(TOPIC, "--describe", "--topic", topic, "--under-replicated-partitions")
        assert [isr for *_, isr in shown(said)] == [[1, 2]] * 3
    finally:
        cluster[3].start()
        cluster.wait_until_in_sync()
    tools.done(TOPIC, "--delete", "--topic", topic)
    wait_until(lambda: topic not in cluster.describe(), "the topic is deleted")
    assert topic not in tools.done(TOPIC, "--list").splitlines()


def test_reassign_partitions(cluster: Cluster, tools: ToolRunner, topic: str, tmp_path: Path) -> None:
    create(cluster, tools, topic, [[1, 2], [1, 2]])
    fill(cluster, topic, 2, size=100_000, count=100)  # some Fetch answers for each partition
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    said = tools.done(
        REASSIGN, "--topics-to-move-json-file", str(topics), "--broker-list", "2,3", "--generate"
    ).splitlines()
    present, proposed = (json.loads(line) for line in said if line.startswith("{"))
    assert [each["replicas"] for each in present["partitions"]] == [[1, 2], [1, 2]]
    assert all(sorted(each["replicas"]) == [2, 3] for each in proposed["partitions"])
    plan = tmp_path / "plan.json"
    moved = [{"topic": topic, "partition": number, "replicas": [3, 2]} for number in range(2)]
    plan.write_text(json.dumps({"version": 1, "partitions": moved}))
    file = ("--reassignment-json-file", str(plan))
    # So slow that it is still under way when the tool asks again.
    said = tools.done(REASSIGN, *file, "--execute", "--throttle", "1000")
    assert "The inter-broker throttle limit was set to 1000 B/s" in said
    assert f"Successfully started partition reassignments for {topic}-0,{topic}-1" in said
    said = tools.done(REASSIGN, "--list")
    assert f"{topic}-0: replicas: 3,2,1. adding: 3. removing: 1." in said, said
    said = tools.done(REASSIGN, *file, "--verify")
    assert f"Reassignment of partition {topic}-0 is still in progress." in said
    code, said = tools(REASSIGN, *file, "--execute")
    assert (code, "Cannot execute because there is an existing partition assignment" in said) == (1, True), said
    configured = tools.done(CONFIGS, "--describe", "--entity-type", "topics", "--entity-name", topic)
    assert "leader.replication.throttled.replicas=0:1,0:2,1:1,1:2" in configured, configured
    assert "follower.replication.throttled.replicas=0:3,1:3" in configured, configured
    said = tools.done(REASSIGN, *file, "--cancel")
    assert f"Successfully cancelled partition reassignments for: {topic}-0,{topic}-1" in said, said
    assert "No partition reassignments found." in tools.done(REASSIGN, "--list")
    assert [sorted(each["replica_nodes"]) for each in cluster.describe([topic])[topic]] == [[1, 2], [1, 2]]
    code, said = tools(REASSIGN, *file, "--cancel")
    assert "None of the specified partition reassignments are active." in said
    # Now it goes through, and --verify takes the throttles away.
    tools.done(REASSIGN, *file, "--execute", "--throttle", "100000000")

    def complete() -> bool:
        return f"Reassignment of partition {topic}-1 is completed." in tools.done(REASSIGN, *file, "--verify")

    wait_until(complete, "the partitions have moved")
    assert [each["replica_nodes"] for each in cluster.describe([topic])[topic]] == [[3, 2], [3, 2]]
    configured = tools.done(CONFIGS, "--describe", "--entity-type", "topics", "--entity-name", topic)
    assert "throttled" not in configured
    configured = tools.done(CONFIGS, "--describe", "--entity-type", "brokers", "--entity-name", "1")
    assert "throttled.rate" not in configured
    unknown = [{"topic": topic, "partition": 0, "replicas": [3, 9]}]
    plan.write_text(json.dumps({"version": 1, "partitions": unknown}))
    code, said = tools(REASSIGN, *file, "--execute")
    assert (code, "Unknown broker id 9" in said) == (1, True), said


def test_leader_election(cluster: Cluster, tools: ToolRunner, topic: str) -> None:
    create(cluster, tools, topic, [[1, 2], [2, 1]])
    one = ("--topic", topic, "--partition", "0")
    said = tools.done(ELECT, "--election-type", "preferred", *one)
    assert f"Valid replica already elected for partitions {topic}-0" in said
    cluster[1].stop()
    wait_until(lambda: cluster.leader(topic) == 2, "the other replica leads")
    code, said = tools(ELECT, "--election-type", "preferred", *one)
    assert (code, "PreferredLeaderNotAvailableException" in said) == (1, True), said
    cluster[1].start()
    cluster.wait_until_in_sync()
    if cluster.leader(topic) == 2:  # or the controller's balance was faster
        said = tools.done(ELECT, "--election-type", "preferred", *one)
        assert f"completed leader election (PREFERRED) for partitions {topic}-0".lower() in said.lower(), said
    assert cluster.leader(topic) == 1
    # The last member of the ISR is dead: only the unclean election helps.
    cluster[2].stop()
    wait_until(lambda: cluster.describe([topic])[topic][0]["isr_nodes"] == [1], "the ISR shrinks")
    cluster[1].kill()
    cluster[2].start()
    wait_until(lambda: cluster.describe([topic])[topic][0]["leader_id"] == -1, "the partition has no leader")
    said = tools.done(TOPIC, "--describe", "--topic", topic, "--unavailable-partitions")
    assert [(number, leader) for number, leader, *_ in shown(said)] == [(0, -1), (1, -1)]
    code, said = tools(ELECT, "--election-type", "preferred", *one)
    assert (code, "could not be elected" in said) == (1, True), said
    said = tools.done(ELECT, "--election-type", "unclean", *one)
    assert f"completed leader election (UNCLEAN) for partitions {topic}-0".lower() in said.lower(), said
    assert cluster.leader(topic) == 2
    cluster[1].start()
    cluster.wait_until_in_sync()
    code, said = tools(ELECT, "--election-type", "preferred", "--topic", topic, "--partition", "7")
    assert (code, "1 replica(s) could not be elected" in said) == (1, True), said


def test_configs(cluster: Cluster, tools: ToolRunner, topic: str) -> None:
    create(cluster, tools, topic, [[1, 2, 3]])
    of_topic = ("--entity-type", "topics", "--entity-name", topic)
    said = tools.done(
        CONFIGS, "--alter", *of_topic, "--add-config", "retention.ms=123456,cleanup.policy=[compact,delete]"
    )
    assert f"Completed updating config for topic {topic}." in said
    said = tools.done(CONFIGS, "--describe", *of_topic)
    assert "retention.ms=123456 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=123456}" in said
    assert "cleanup.policy=compact,delete" in said
    tools.done(CONFIGS, "--alter", *of_topic, "--delete-config", "retention.ms")
    assert "retention.ms" not in tools.done(CONFIGS, "--describe", *of_topic)
    code, said = tools(CONFIGS, "--alter", *of_topic, "--add-config", "retention.ms=soon")
    assert code == 1
    assert re.search(r"InvalidConfigurationException: Invalid value '?soon'? for configuration retention\.ms", said), (
        said
    )
    default = ("--entity-type", "brokers", "--entity-default")
    said = tools.done(CONFIGS, "--alter", *default, "--add-config", "log.cleaner.backoff.ms=20001")
    assert "Completed updating default config for brokers in the cluster." in said
    for broker in BROKERS:
        of_broker = ("--entity-type", "brokers", "--entity-name", str(broker))
        wait_until(
            lambda of_broker=of_broker: (
                "DYNAMIC_DEFAULT_BROKER_CONFIG:log.cleaner.backoff.ms=20001"
                in tools.done(CONFIGS, "--describe", "--all", *of_broker)
            ),
            f"broker {broker} knows the default",
        )
    tools.done(CONFIGS, "--alter", *default, "--delete-config", "log.cleaner.backoff.ms")


def test_cluster_tool(cluster: Cluster, tools: ToolRunner) -> None:
    said = tools.done(CLUSTER, "cluster-id")
    with cluster.admin() as admin:
        assert said.strip().endswith(f"Cluster ID: {admin.describe_cluster()['cluster_id']}")
    # Brokers of a ZooKeeper cluster cannot be unregistered.
    said = tools.done(CLUSTER, "unregister", "--id", "7")
    assert "The target cluster does not support the broker unregistration API." in said


def test_log_dirs(cluster: Cluster, tools: ToolRunner, topic: str) -> None:
    create(cluster, tools, topic, [[1, 2], [2, 3]])
    fill(cluster, topic, 2)
    cluster.wait_until_in_sync([topic])
    said = tools.done(LOG_DIRS, "--describe", "--broker-list", "1,2,3", "--topic-list", topic)
    found: dict[str, Any] = json.loads(next(line for line in said.splitlines() if line.startswith("{")))
    places = {
        each["broker"]: {one["partition"] for dirs in each["logDirs"] for one in dirs["partitions"]}
        for each in found["brokers"]
    }
    assert places == {1: {f"{topic}-0"}, 2: {f"{topic}-0", f"{topic}-1"}, 3: {f"{topic}-1"}}
    for each in found["brokers"]:
        for dirs in each["logDirs"]:
            assert dirs["error"] is None
            for one in dirs["partitions"]:
                assert (one["size"] > 1000, one["offsetLag"], one["isFuture"]) == (True, 0, False)
    code, said = tools(LOG_DIRS, "--describe", "--broker-list", "1,9")
    assert (code != 0, "9" in said) == (True, True), said


def test_transactions(cluster: Cluster, tools: ToolRunner, topic: str) -> None:
    create(cluster, tools, topic, [[1, 2, 3], [2, 3, 1]])
    name = f"id-of-{topic}"
    with KafkaProducer(bootstrap_servers=cluster.bootstrap, transactional_id=name) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for partition in range(2):
            producer.send(topic, b"open", partition=partition)
        producer.flush()
        listed = [line.split() for line in tools.done(TRANSACTIONS, "list").splitlines()]
        row = next(line for line in listed if line and line[0] == name)
        assert row[-1] == "Ongoing"
        said = tools.done(TRANSACTIONS, "describe", "--transactional-id", name)
        assert "Ongoing" in said
        assert all(f"{topic}-{partition}" in said for partition in range(2))
        for partition in range(2):
            said = tools.done(TRANSACTIONS, "describe-producers", "--topic", topic, "--partition", str(partition))
            assert row[2] in said, (row, said)
        assert name not in tools.done(TRANSACTIONS, "find-hanging", "--broker-id", "1")
        producer.commit_transaction()
    said = tools.done(TRANSACTIONS, "describe", "--transactional-id", name)
    assert "CompleteCommit" in said or "PrepareCommit" in said
    # An open transaction can be ended from outside.
    with KafkaProducer(bootstrap_servers=cluster.bootstrap, transactional_id=f"{name}-2") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        offset = producer.send(topic, b"aborted", partition=0).get(60).offset
        tools.done(TRANSACTIONS, "abort", "--topic", topic, "--partition", "0", "--start-offset", str(offset))
        with KafkaConsumer(topic, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest",
                           isolation_level="read_committed") as reader:  # fmt: skip
            values: list[bytes] = []

            def both() -> bool:
                for records in reader.poll(500).values():
                    values.extend(record.value for record in records)
                return len(values) >= 2

            wait_until(both, "the committed records are there")
        assert values == [b"open", b"open"]
