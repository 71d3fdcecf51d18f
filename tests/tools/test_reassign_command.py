"""kafkapy topics reassign, and kafkapy cluster drain, on a cluster of brokers: plans, moves, throttles, errors."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tools.conftest import CommandLine
from waiting import wait_until

from kafkapy import KafkaConsumer, KafkaProducer
from kafkapy.admin import ConfigResource, KafkaAdminClient
from kafkapy.testing.cluster import Cluster
from kafkapy.types import TopicPartition

Name = Callable[[], str]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(4, racks=True, auto_create_topics_enable=False) as made:
        yield made


@pytest.fixture(scope="module")
def admin(cluster: Cluster) -> Iterator[KafkaAdminClient]:
    with cluster.admin() as client:
        yield client


@pytest.fixture(scope="module")
def kafkapy(cluster: Cluster) -> CommandLine:
    return CommandLine(cluster.bootstrap_servers)


@pytest.fixture
def topic(cluster: Cluster, admin: KafkaAdminClient, name: Name) -> str:
    """Two partitions on the brokers 1 and 2, with 100 records each."""
    made = name()
    admin.create_topics({made: {"assignments": {0: [1, 2], 1: [2, 1]}}})
    cluster.wait_until_in_sync([made])
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, acks="all") as producer:
        for number in range(200):
            producer.send(made, b"%d" % number * 20, partition=number % 2)
    return made


def replicas(admin: KafkaAdminClient, topic: str) -> dict[int, list[int]]:
    """The replicas of each partition."""
    (found,) = admin.describe_topics([topic])
    return {each["partition_index"]: each["replica_nodes"] for each in found["partitions"]}


def throttles(admin: KafkaAdminClient, topic: str, brokers: range = range(1, 5)) -> list[str]:
    """The keys of throttles that are set on a topic and on brokers."""
    resources = [ConfigResource("topic", topic), *(ConfigResource("broker", str(each)) for each in brokers)]
    found = admin.describe_configs(resources)
    return [key for names in found.values() for keys in names.values() for key in keys if "throttled" in key]


def records(cluster: Cluster, topic: str) -> int:
    with KafkaConsumer(topic, bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        ends = consumer.end_offsets([TopicPartition(topic, 0), TopicPartition(topic, 1)])
        seen = 0
        while seen < sum(ends.values()):
            seen += sum(map(len, consumer.poll(1000).values()))
    return seen


def test_a_plan_is_shown_and_changes_nothing(kafkapy: CommandLine, admin: KafkaAdminClient, topic: str) -> None:
    rows = kafkapy.rows("topics", "reassign", topic, "--brokers", "3,4")
    assert [(row["partition"], row["replicas"]) for row in rows] == [("0", "1,2"), ("1", "2,1")]
    assert sorted(row["adding"] for row in rows) == ["3,4", "4,3"]
    assert all(int(row["bytes"]) > 0 for row in rows)
    wait_until(lambda: replicas(admin, topic) == {0: [1, 2], 1: [2, 1]}, "all brokers know the replicas")
    plan = kafkapy.json("topics", "reassign", topic, "--brokers", "3,4")
    assert [(each["topic"], each["partition"]) for each in plan["partitions"]] == [(topic, 0), (topic, 1)]
    assert sorted(each["replicas"] for each in plan["partitions"]) == [[3, 4], [4, 3]]
    assert (
        kafkapy.done("topics", "reassign", topic, "--brokers", "1,2")
        == "Nothing to move: the replicas are as wanted.\n"
    )


def test_replicas_move_with_a_throttle_that_is_gone_at_the_end(
    kafkapy: CommandLine, cluster: Cluster, admin: KafkaAdminClient, topic: str
) -> None:
    said = kafkapy.done("topics", "reassign", topic, "--brokers", "3,4", "--execute", "--throttle", "100MB")
    assert said.startswith("Reassignment complete: 2 partitions change, 4 replicas with ")
    wait_until(lambda: sorted(replicas(admin, topic).values()) == [[3, 4], [4, 3]], "all brokers know the replicas")
    wait_until(lambda: throttles(admin, topic) == [], "no throttle is left")
    cluster.wait_until_in_sync([topic])
    assert records(cluster, topic) == 200


def test_a_replication_factor_grows_and_shrinks(
    kafkapy: CommandLine, cluster: Cluster, admin: KafkaAdminClient, topic: str
) -> None:
    kafkapy.done("topics", "reassign", topic, "-r", "3", "--execute")
    wait_until(lambda: [len(each) for each in replicas(admin, topic).values()] == [3, 3], "three replicas each")
    cluster.wait_until_in_sync([topic])
    said = kafkapy.done("topics", "reassign", topic, "-r", "1", "--execute")
    assert said == "Reassignment complete: 2 partitions change, without data to copy.\n"
    wait_until(lambda: replicas(admin, topic) == {0: [1], 1: [2]}, "all brokers know the replicas")


def test_a_plan_file_is_carried_out_and_verified(
    kafkapy: CommandLine, admin: KafkaAdminClient, topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 1, "replicas": [3, 1]}]}))
    said = kafkapy.failure("topics", "reassign", "--file", str(file), "--verify")
    assert said == "0 partitions are moving and 1 differ from the plan, of 1."
    kafkapy.done("topics", "reassign", "--file", str(file), "--execute")
    rows = kafkapy.rows("topics", "reassign", "--file", str(file), "--verify")
    assert rows == [{"topic": topic, "partition": "1", "replicas": "3,1", "wanted": "3,1", "state": "complete"}]
    wait_until(lambda: replicas(admin, topic) == {0: [1, 2], 1: [3, 1]}, "all brokers know the replicas")


def test_a_running_reassignment_is_shown_and_cancelled(
    kafkapy: CommandLine, cluster: Cluster, admin: KafkaAdminClient, topic: str
) -> None:
    """The throttle makes the copy slow."""
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, acks="all") as producer:
        for _ in range(40):
            producer.send(topic, bytes(100_000), partition=0)
    arguments = ("topics", "reassign", f"{topic}:0", "--replicas", "3,4")
    kafkapy.done(*arguments, "--execute", "--no-wait", "--throttle", "1kB")
    (row,) = kafkapy.rows("topics", "reassign", "--status", f"{topic}:0")
    assert (row["adding"], row["removing"]) == ("3,4", "1,2")
    assert int(row["bytes"]) > 8_000_000
    wait_until(lambda: throttles(admin, topic), "a throttle is set")
    said = kafkapy.done("topics", "reassign", f"{topic}:0", "--cancel")
    assert said == "1 reassignment cancelled; new replicas are deleted.\n"
    wait_until(lambda: replicas(admin, topic)[0] == [1, 2], "the replicas from before")
    wait_until(lambda: throttles(admin, topic) == [], "no throttle is left")
    assert kafkapy.done("topics", "reassign", "--cancel") == "No reassignment is running.\n"


def test_wrong_reassignments_are_one_sentence(kafkapy: CommandLine, topic: str, tmp_path: Path) -> None:
    reassign = ("topics", "reassign")
    said = kafkapy.failure(*reassign, topic, "-r", "5")
    assert said == f"Partition {topic}-0 needs 5 replicas, but only 4 brokers are available: 1, 2, 3, 4."
    assert (
        kafkapy.failure(*reassign, topic, "--brokers", "1,9") == "The cluster has no live broker 9; it has 1, 2, 3, 4."
    )
    assert "has no partition 7" in kafkapy.failure(*reassign, f"{topic}:7", "--replicas", "1")
    assert "exclude each other" in kafkapy.failure(*reassign, topic, "--execute", "--cancel", code=2)
    assert "Name topics" in kafkapy.failure(*reassign, code=2)
    assert "is not a rate" in kafkapy.failure(*reassign, topic, "--throttle", "fast", code=2)
    file = tmp_path / "plan.json"
    file.write_text('{"partitions": 3}')
    assert "is not a plan" in kafkapy.failure(*reassign, "--file", str(file))


def test_a_broker_is_drained(kafkapy: CommandLine, cluster: Cluster, admin: KafkaAdminClient, topic: str) -> None:
    rows = [row for row in kafkapy.rows("cluster", "drain", "1") if row["topic"] == topic]
    assert [(row["replicas"], row["adding"]) for row in rows] in (
        [("1,2", "3"), ("2,1", "4")],
        [("1,2", "4"), ("2,1", "3")],
    )
    said = kafkapy.done("cluster", "drain", "1", "--execute")
    assert said.endswith("Broker 1 holds no replica.\n")

    def holds_some() -> bool:
        found = admin.describe_topics()
        return any(1 in each["replica_nodes"] for told in found for each in told["partitions"])

    wait_until(lambda: not holds_some(), "all brokers know that the broker holds none")
    assert records(cluster, topic) == 200
    assert kafkapy.failure("cluster", "drain", "9").startswith(
        "The cluster has no broker 9, and no replica of it; it has 1"
    )
