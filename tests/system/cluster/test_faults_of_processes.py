"""Real brokers under load and faults: nothing acknowledged is lost or doubled, and replicas stay equal.

The brokers and the store are processes, where it matters in network namespaces and with small disks of their own. A
round is one fault; it ends when all replicas are in sync and all loads have gone on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
from system.cluster.network import Network, NetworkRefusedError
from system.cluster.processes import STORES, Cluster, hosts, wait_until
from system.disks import DiskRefusedError

PARTITIONS = 3
DISK_SIZE = "192m"
PROCESSES = {
    "etcd": [
        "a killed leader",
        "a restarted broker",
        "a leader that stands still beyond its session",
        "a killed store",
        "all brokers killed",
    ],
    "zookeeper": [
        "a restarted controller",
        "a killed leader with an empty disk",
        "a controller that stands still beyond its session",
        "a store that stands still beyond all sessions",
        "a killed controller",
    ],
}
NETWORKS_AND_DISKS = {
    "etcd": [
        "a leader cut off from its followers",
        "a leader that no follower hears",
        "a leader cut off from the store",
        "a leader with a full disk",
        "several faults at once",
    ],
    "zookeeper": [
        "a broker that the store does not hear",
        "a leader that reaches clients only",
        "a leader with a slow disk",
        "a controller cut off from the brokers",
        "a broker whose disks are all full",
    ],
}
"""The rounds of the default tests, by store."""


@contextmanager
def cluster_of(directory: Path, store: str, count: int = 3, whole_hosts: bool = False) -> Iterator[Cluster]:
    """A running cluster; with `whole_hosts` each broker has a network namespace and disks of its own.

    The test is skipped where the store's server is not installed, or the machine permits no such hosts.
    """
    try:
        if whole_hosts:
            with (
                Network(hosts(count)) as network,
                Cluster(directory, count, store, network=network, disk_size=DISK_SIZE) as cluster,
            ):
                yield cluster
        else:
            with Cluster(directory, count, store) as cluster:
                yield cluster
    except (PeerMissingError, NetworkRefusedError, DiskRefusedError) as refused:
        pytest.skip(str(refused))


def under_all_loads(cluster: Cluster, rounds: int, seed: int, faults: Sequence[str] | None = None) -> None:
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


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("store", ["zookeeper", pytest.param("etcd", marks=pytest.mark.soak)])
def test_faults_of_processes_lose_and_double_nothing(tmp_path: Path, store: str) -> None:
    with cluster_of(tmp_path, store) as made:
        under_all_loads(made, len(PROCESSES[store]), seed=1, faults=PROCESSES[store])


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("store", [pytest.param("zookeeper", marks=pytest.mark.soak), "etcd"])
def test_faults_of_networks_and_disks_lose_and_double_nothing(tmp_path: Path, store: str) -> None:
    with cluster_of(tmp_path, store, whole_hosts=True) as made:
        under_all_loads(made, len(NETWORKS_AND_DISKS[store]), seed=1, faults=NETWORKS_AND_DISKS[store])


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("count", [3, 5])
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("seed", range(5))
def test_faults_under_load_for_long(tmp_path: Path, store: str, count: int, seed: int) -> None:
    with cluster_of(tmp_path, store, count, whole_hosts=True) as made:
        under_all_loads(made, 25, seed)
