"""The template's assignor keeps topics whole."""

from __future__ import annotations

from kafkapy_template import plugin

from kafkapy.clients.consumer.membership.protocol import Subscription
from kafkapy.plugins import PluginManager
from kafkapy.types import TopicPartition


def test_topics_are_dealt_out_whole() -> None:
    manager = PluginManager()
    manager.register(plugin, "template")
    assignor = manager.partition_assignors["whole-topics"]()
    topics = {"a": [frozenset[str]()] * 2, "b": [frozenset[str]()], "c": [frozenset[str]()]}
    members = {"m1": Subscription(("a", "b", "c")), "m2": Subscription(("a", "b"))}
    assert assignor.assign_partitions(topics, members) == {
        "m1": [TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("c", 0)],
        "m2": [TopicPartition("b", 0)],
    }
