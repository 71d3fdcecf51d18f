"""Brokers of Apache Kafka 3.9 and of kafkapy in one cluster on one ZooKeeper, with either kind as the controller
(make interop-java)."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from interop.conftest import JAVA, run_java, with_jars
from peers.apache_kafka import PeerMissingError, java
from system.cluster.chaos import TOPIC, Chaos
from system.cluster.load import (
    ConfluentLoad,
    GroupMember,
    TransactionalLoad,
    check_group,
    check_numbers,
    check_transactions,
)
from system.cluster.processes import Cluster, wait_until

from kafkapy.admin import ConfigResource

pytestmark = [*JAVA, pytest.mark.timeout(1200)]

PARTITIONS = 3
RELEASE = "3.9"
TOPICS = "org.apache.kafka.tools.TopicCommand"
VERIFY = "org.apache.kafka.tools.ReplicaVerificationTool"


@pytest.fixture(params=[(1, 2), (1,)], ids=["two Java brokers", "one Java broker"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """Three brokers; the first one is Apache Kafka, and with it perhaps the second."""
    with_jars(RELEASE)
    try:
        made = Cluster(
            tmp_path, java=request.param, release=RELEASE, overrides={"zookeeper.session.timeout.ms": "6000"}
        )
    except PeerMissingError as missing:
        pytest.skip(str(missing))
    with made:
        yield made


def kinds(cluster: Cluster) -> dict[str, int]:
    """One broker of each kind."""
    return {type(member).__name__: member.broker_id for member in cluster.members.values()}


def make_controller(cluster: Cluster, broker_id: int) -> None:
    """Restart controllers until the broker is one."""
    for _ in range(20):
        present = cluster.controller()
        if present == broker_id:
            return
        cluster[present].stop()
        wait_until(lambda present=present: cluster.controller() != present, "another controller is elected")
        cluster[present].start()
        cluster.wait_for_brokers()
    raise AssertionError(f"broker {broker_id} never became the controller")


def described(cluster: Cluster, broker_id: int) -> str:
    """All topics as Kafka's tool shows them from one broker."""
    return run_java(RELEASE, TOPICS, "--bootstrap-server", cluster[broker_id].bootstrap, "--describe")


def check_replicas(cluster: Cluster, topic: str) -> None:
    """Kafka's verification tool finds no lag and no difference."""
    command = java(
        RELEASE, VERIFY, "--broker-list", cluster.bootstrap, "--topics-include", topic, "--time", "-2",
        "--report-interval-ms", "1000",
    )  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as tool:
        lines: list[str] = []
        assert tool.stdout is not None
        reader = threading.Thread(target=lambda: lines.extend(tool.stdout), daemon=True)  # type: ignore[arg-type]
        reader.start()
        try:
            wait_until(
                lambda: any("max lag is 0 " in line for line in list(lines)), "the tool finds the replicas equal"
            )
        finally:
            tool.kill()
    assert not any("differ" in line.lower() or "mismatch" in line.lower() for line in lines), lines


@pytest.mark.parametrize("controller", ["JavaMember", "Member"])
def test_topics_configurations_groups_and_transactions(cluster: Cluster, controller: str) -> None:
    make_controller(cluster, kinds(cluster)[controller])
    cluster.create_topic(TOPIC, PARTITIONS)
    cluster.create_topic("transactions", PARTITIONS)
    loads = (
        ConfluentLoad(cluster.bootstrap, TOPIC, PARTITIONS),
        TransactionalLoad(cluster.bootstrap, "transactions", PARTITIONS),
    )
    members = [GroupMember(cluster.bootstrap, "transactions", "readers") for _ in range(2)]
    try:
        wait_until(lambda: loads[0].confirmed > 500 and loads[1].confirmed > 20, "both loads make progress")
        with cluster.admin() as admin:
            admin.alter_configs([ConfigResource("topic", TOPIC, {"retention.ms": "123456789"})])
        for member in cluster.members.values():
            text = f"broker {member.broker_id} knows the configuration"
            wait_until(lambda member=member: "retention.ms=123456789" in described(cluster, member.broker_id), text)
        with cluster.admin() as admin:
            admin.create_partitions({TOPIC: PARTITIONS + 2})
            admin.create_topics({"short-lived": {"num_partitions": 4, "replication_factor": 2}})
            admin.delete_topics(["short-lived"])
    finally:
        for each in (*loads, *members):
            each.finish()
    cluster.wait_until_in_sync()
    wait_until(
        lambda: len({described(cluster, broker) for broker in cluster.members}) == 1, "all brokers tell the same"
    )
    assert "short-lived" not in described(cluster, 1)
    check_numbers(cluster.bootstrap, loads[0])
    check_transactions(cluster.bootstrap, loads[1])
    rest = GroupMember(cluster.bootstrap, "transactions", "readers")
    try:
        check_group(cluster.bootstrap, "transactions", PARTITIONS, [*members, rest])
    finally:
        rest.finish()
    check_replicas(cluster, TOPIC)


def test_faults_of_either_kind_lose_and_double_nothing(cluster: Cluster) -> None:
    for topic in (TOPIC, "transactions"):
        cluster.create_topic(topic, PARTITIONS)
    loads = (
        ConfluentLoad(cluster.bootstrap, TOPIC, PARTITIONS),
        TransactionalLoad(cluster.bootstrap, "transactions", PARTITIONS),
    )
    chaos = Chaos(cluster, list(loads), seed=1)
    faults = ["a killed controller", "a killed leader", "a restarted controller", "a killed leader with an empty disk"]
    try:
        chaos.run(8, faults)
    finally:
        for each in loads:
            each.finish()
    check_numbers(cluster.bootstrap, loads[0])
    check_transactions(cluster.bootstrap, loads[1])
    cluster.wait_until_in_sync()
    cluster.stop_all()
    for partition in range(PARTITIONS):
        assert len(set(cluster.log_bytes(TOPIC, partition).values())) == 1
