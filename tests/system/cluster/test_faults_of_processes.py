"""Three real brokers under load and faults: nothing acknowledged is lost or doubled, and replicas stay equal."""

from __future__ import annotations

from pathlib import Path

import pytest
from peers.apache_kafka import PeerMissingError
from system.cluster.chaos import TOPIC, Chaos
from system.cluster.load import (
    ConfluentLoad,
    GroupMember,
    KafkapyLoad,
    TransactionalLoad,
    check_group,
    check_numbers,
    check_transactions,
)
from system.cluster.processes import STORES, Cluster, wait_until

PARTITIONS = 3
SHORT = {
    "etcd": [
        "a killed leader",
        "a restarted broker",
        "a leader that stands still beyond its session",
        "a killed controller",
    ],
    "zookeeper": [
        "a restarted controller",
        "a killed leader with an empty disk",
        "a killed broker",
        "a controller that stands still beyond its session",
    ],
}
"""The rounds of the default tests, by store."""


def cluster_of(directory: Path, store: str, count: int = 3) -> Cluster:
    """A cluster, not started. The test is skipped where the store's server is not installed."""
    try:
        return Cluster(directory, count, store)
    except PeerMissingError as missing:
        pytest.skip(str(missing))


def under_all_loads(cluster: Cluster, rounds: int, seed: int, faults: list[str] | None = None) -> None:
    """Producers of both kinds, transactions and a group over the rounds, and then all checks."""
    topics = (TOPIC, "ours", "transactions")
    for topic in topics:
        cluster.create_topic(topic, PARTITIONS)
    loads = (
        ConfluentLoad(cluster.bootstrap, TOPIC, PARTITIONS, seed),
        KafkapyLoad(cluster.bootstrap, "ours", PARTITIONS, seed),
        TransactionalLoad(cluster.bootstrap, "transactions", PARTITIONS, seed),
    )
    members = [GroupMember(cluster.bootstrap, "transactions", "readers") for _ in range(2)]
    chaos = Chaos(cluster, list(loads), seed)
    try:
        wait_until(lambda: any(member.seen for member in members), "the group reads")
        chaos.run(rounds, faults)
    finally:
        problems = []
        for each in (*loads, *members):
            try:
                each.finish()
            except AssertionError as error:
                problems.append(str(error))
    assert not problems, problems
    check_numbers(cluster.bootstrap, loads[0])
    check_numbers(cluster.bootstrap, loads[1])
    check_transactions(cluster.bootstrap, loads[2])
    rest = GroupMember(cluster.bootstrap, "transactions", "readers")
    try:
        check_group(cluster.bootstrap, "transactions", PARTITIONS, [*members, rest])
    finally:
        rest.finish()
    cluster.wait_until_in_sync()
    cluster.stop_all()
    for topic in topics:
        for partition in range(PARTITIONS):
            replicas = cluster.log_bytes(topic, partition)
            assert len(set(replicas.values())) == 1, {broker: len(data) for broker, data in replicas.items()}
            assert len(replicas) == 3


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("store", STORES)
def test_faults_under_load_lose_and_double_nothing(tmp_path: Path, store: str) -> None:
    with cluster_of(tmp_path, store) as made:
        under_all_loads(made, len(SHORT[store]), seed=1, faults=SHORT[store])


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("count", [3, 5])
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("seed", range(5))
def test_faults_under_load_for_long(tmp_path: Path, store: str, count: int, seed: int) -> None:
    with cluster_of(tmp_path, store, count) as made:
        under_all_loads(made, 25, seed)
