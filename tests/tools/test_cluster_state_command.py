"""kafkapy cluster health, under-replicated, leaders and elect on a cluster whose brokers stop and come back."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tools.conftest import CommandLine

from kafkapy.testing.cluster import Cluster

Name = Callable[[], str]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3, auto_create_topics_enable=False, leader_imbalance_check_interval_seconds=3600) as made:
        with made.admin() as admin:
            admin.create_topics(
                {
                    "orders": {"assignments": {0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]}},
                    "single": {"assignments": {0: [3]}},
                }
            )
        made.wait_until_in_sync()
        yield made


@pytest.fixture
def kafkapy(cluster: Cluster) -> CommandLine:
    return CommandLine(cluster.bootstrap_servers)


def test_a_healthy_cluster_is_healthy(kafkapy: CommandLine) -> None:
    values = {row["measure"]: row["value"] for row in kafkapy.rows("cluster", "health")}
    assert (values["live_brokers"], values["dead_brokers"], values["partitions"]) == ("1,2,3", "-", "4")
    assert (values["without_leader"], values["under_replicated"], values["reassigning"]) == ("0", "0", "0")
    assert kafkapy.json("cluster", "health")["healthy"] is True
    assert kafkapy.rows("cluster", "under-replicated") == []


def test_leaders_are_counted_per_broker(kafkapy: CommandLine) -> None:
    rows = kafkapy.rows("cluster", "leaders")
    assert [(row["broker"], row["leaders"], row["preferred"], row["replicas"]) for row in rows] == [
        ("1", "1", "1", "3"),
        ("2", "1", "1", "3"),
        ("3", "2", "2", "4"),
    ]


def test_a_stopped_broker_shows_until_it_is_back_and_leads_again(cluster: Cluster, kafkapy: CommandLine) -> None:
    cluster.stop_broker(3)
    cluster.wait_for_brokers()
    rest = CommandLine(cluster.bootstrap_servers)
    said = rest.failure("cluster", "health")
    assert said == (
        "The cluster is not healthy: broker 3 is dead, 1 partition is without a leader, 3 partitions are "
        "under-replicated."
    )
    rows = {(row["topic"], row["partition"]): row for row in rest.rows("cluster", "under-replicated")}
    assert rows["single", "0"]["state"] == "no leader"
    assert {rows["orders", str(number)]["state"] for number in range(3)} == {"at min ISR"}
    assert {rows["orders", str(number)]["missing"] for number in range(3)} == {"3"}
    assert list(rest.rows("cluster", "under-replicated", "--under-min-isr")[0].values())[:3] == [
        "single",
        "0",
        "no leader",
    ]
    said = rest.failure("cluster", "elect", "orders:2")
    assert said.startswith("1 of 1 elections failed: orders-2: ")
    cluster.start_broker(3)
    cluster.wait_until_in_sync()
    assert kafkapy.rows("cluster", "leaders")[2]["led_elsewhere"] == "1"
    assert kafkapy.rows("cluster", "elect") == [{"topic": "orders", "partition": "2", "outcome": "elected"}]
    assert kafkapy.rows("cluster", "leaders")[2]["led_elsewhere"] == "0"
    assert kafkapy.rows("cluster", "elect", "orders:2")[0]["outcome"] == "leads already"


def test_an_unclean_election_needs_names(kafkapy: CommandLine) -> None:
    assert "needs the topics" in kafkapy.failure("cluster", "elect", "--unclean", code=2)
