"""Brokers of one release of Apache Kafka and of kafkapy in one cluster on one ZooKeeper, with either kind as the
controller (make interop-java)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from interop.conftest import JAVA
from interop.mixed import (
    RELEASES,
    check_descriptions,
    check_replicas,
    kinds,
    make_controller,
    mixed_cluster,
    topic_config,
)
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

pytestmark = [*JAVA, pytest.mark.timeout(1800)]

PARTITIONS = 3
CLUSTERS = [("3.9", (1, 2)), *((release, (1,)) for release in RELEASES)]
"""(release, ids of its brokers) of clusters of three."""


@pytest.fixture(params=CLUSTERS, ids=lambda each: f"{each[0]} on {len(each[1])}")
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    with mixed_cluster(tmp_path, *request.param) as made:
        yield made


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
            wait_until(
                lambda member=member: topic_config(cluster, member.broker_id, TOPIC, "retention.ms") == "123456789",
                text,
            )
        with cluster.admin() as admin:
            admin.create_partitions({TOPIC: PARTITIONS + 2})
            admin.create_topics({"short-lived": {"num_partitions": 4, "replication_factor": 2}})
            admin.delete_topics(["short-lived"])
    finally:
        for each in (*loads, *members):
            each.finish()
    cluster.wait_until_in_sync()
    assert "short-lived" not in check_descriptions(cluster)
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
