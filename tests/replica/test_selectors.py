"""Selectors of consumers' replicas: the rules of the built-in ones, and who is throttled."""

from __future__ import annotations

import pytest

from kafkapy.config.broker import BrokerConfig
from kafkapy.errors import ConfigError
from kafkapy.plugins import PluginManager
from kafkapy.replica.selectors import ConsumerView, LeaderSelector, RackAwareReplicaSelector, ReplicaView
from kafkapy.replica.throttles import names_replica
from kafkapy.types import TopicPartition

P0 = TopicPartition("t", 0)
LEADER = ReplicaView(1, "a", 10, 0)


def chosen(rack: str, *followers: ReplicaView) -> int | None:
    consumer = ConsumerView("c", rack, "User:ANONYMOUS", "127.0.0.1", "PLAINTEXT")
    return RackAwareReplicaSelector().select(P0, consumer, [LEADER, *followers], LEADER)


def test_the_most_caught_up_replica_of_the_rack_is_chosen() -> None:
    assert chosen("b") is None
    assert chosen("", ReplicaView(2, "", 10, 0), ReplicaView(3, None, 10, 0)) is None
    assert chosen("a", ReplicaView(2, "a", 10, 0)) is None  # the leader is as near
    near, nearer, newest = ReplicaView(2, "b", 8, 1), ReplicaView(3, "b", 9, 50), ReplicaView(4, "b", 9, 40)
    assert chosen("b", near, ReplicaView(5, "c", 10, 0)) == 2
    assert chosen("b", near, nearer) == 3
    assert chosen("b", newest, nearer, near) == 4
    assert chosen("b", newest, newest._replace(broker_id=6)) == 6


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (None, LeaderSelector),
        ("leader", LeaderSelector),
        ("org.apache.kafka.common.replica.LeaderSelector", LeaderSelector),
        ("rack_aware", RackAwareReplicaSelector),
        ("org.apache.kafka.common.replica.RackAwareReplicaSelector", RackAwareReplicaSelector),
    ],
)
def test_selectors_are_found_by_their_names(name: str | None, kind: type) -> None:
    values = {} if name is None else {"replica.selector.class": name}
    assert type(PluginManager.load().create_replica_selector(BrokerConfig(values))) is kind


def test_an_unknown_selector_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"replica\.selector\.class"):
        PluginManager.load().create_replica_selector(BrokerConfig({"replica.selector.class": "com.example.Nearest"}))


@pytest.mark.parametrize(
    ("listed", "named"),
    [
        ((), False),
        (("*",), True),
        (("0:1",), True),
        (("1:1", " 0:1 "), True),
        (("1:1", "0:2", "0:11", "10:1"), False),
        (("",), False),
    ],
)
def test_throttled_replicas_are_pairs_of_partition_and_broker(listed: tuple[str, ...], named: bool) -> None:
    assert names_replica(listed, 0, 1) is named
