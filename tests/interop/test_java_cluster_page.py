"""docs/cluster.md: a cluster of Apache Kafka 3.9 becomes one of kafkapy, broker by broker, by the page's commands and
without a stop for clients (make interop-java)."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from interop.conftest import JAVA
from interop.mixed import check_descriptions, mixed_cluster
from system.cluster.load import (
    ConfluentLoad,
    GroupMember,
    TransactionalLoad,
    check_group,
    check_numbers,
    check_transactions,
)
from system.cluster.processes import CLEAN, Cluster, Member, wait_until
from tools.conftest import CommandLine
from tools.test_cluster_page import FROM_KAFKA, blocks

pytestmark = [*JAVA, pytest.mark.timeout(1800)]

PARTITIONS = 3


def follow(cluster: Cluster, text: str, old: int, new: int) -> None:
    """Run the lines of a block, with other brokers in the places of 1 and 4."""
    kafkapy = CommandLine(cluster.bootstrap)
    for line in text.splitlines():
        words = [{"1": str(old), "4": str(new)}.get(word, word) for word in shlex.split(line)]
        assert words.pop(0) == "kafkapy", line
        if words[:2] == ["cluster", "health"]:
            wait_until(lambda words=words: kafkapy(*words).exit_code == 0, line)
        said = kafkapy.done(*words)
        if words[:2] == ["cluster", "brokers"]:
            rows = [row.split("\t")[0] for row in said.splitlines()[1:]]
            assert str(new) in rows, said


def test_from_apache_kafka_to_kafkapy(tmp_path: Path) -> None:
    started, moved = (text for title, text in blocks("sh") if title == FROM_KAFKA)
    with mixed_cluster(tmp_path, "3.9", (1, 2, 3)) as cluster:
        for topic in ("numbers", "transactions"):
            cluster.create_topic(topic, PARTITIONS)
        loads = (
            ConfluentLoad(cluster.bootstrap, "numbers", PARTITIONS),
            TransactionalLoad(cluster.bootstrap, "transactions", PARTITIONS),
        )
        members = [GroupMember(cluster.bootstrap, "transactions", "readers") for _ in range(2)]

        def goes_on(when: str) -> None:
            before = [load.confirmed for load in loads]
            wait_until(lambda: all(load.confirmed > count for load, count in zip(loads, before, strict=True)), when)

        try:
            goes_on("the loads have begun")
            for old in (1, 2):
                new = cluster.add().broker_id
                follow(cluster, started, old, new)
                follow(cluster, moved, old, new)
                assert not [
                    topic
                    for topic, partitions in cluster.describe().items()
                    if any(old in each["replica_nodes"] for each in partitions)
                ]
                assert cluster[old].stop(120) in CLEAN
                goes_on(f"broker {new} is in the place of broker {old}")
            # The third one hands its directory over.
            java = cluster[3]
            assert java.stop(120) in CLEAN
            ours = Member(3, java.data_dir, java.overrides)
            ours.port = java.port
            cluster.members[3] = ours
            ours.start()
            wait_until(lambda: CommandLine(cluster.bootstrap)("cluster", "health").exit_code == 0, "all is in sync")
            goes_on("no Java broker is left")
        finally:
            for each in (*loads, *members):
                each.finish()
        assert {type(member) for member in cluster.live} == {Member}
        cluster.wait_until_in_sync()
        check_numbers(cluster.bootstrap, loads[0])
        check_transactions(cluster.bootstrap, loads[1])
        rest = GroupMember(cluster.bootstrap, "transactions", "readers")
        try:
            check_group(cluster.bootstrap, "transactions", PARTITIONS, [*members, rest])
        finally:
            rest.finish()
        check_descriptions(cluster)
