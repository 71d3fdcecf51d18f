"""Topics of a consumer that is in no group: all their partitions are its own, and patterns follow them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from clients.consumer.fetching import T0, WAIT_MS, read
from clients.consumer.scripted_cluster import ScriptedCluster

from kafkapy import KafkaConsumer
from kafkapy.errors import ErrorCode, TopicAuthorizationFailedError
from kafkapy.types import TopicPartition


def test_all_partitions_of_a_subscription_without_a_group(consume: Callable[..., KafkaConsumer]) -> None:
    with ScriptedCluster() as cluster:
        topic = cluster.add_topic("t", 2)
        for log in topic.logs:
            log.append(2)
        consumer = consume(cluster, metadata_max_age_ms=200)
        consumer.subscribe(["t"])
        assert len(read(consumer, 4)) == 4
        assert consumer.assignment() == {T0, TopicPartition("t", 1)}
        assert consumer.subscription() == {"t"}
        topic.logs.append(type(topic[0])((1, 0), replicas=[1]))
        topic[2].append(1)
        assert read(consumer, 1) == [("t", 2, 0)]


def test_a_pattern_follows_the_topics(consume: Callable[..., KafkaConsumer]) -> None:
    with ScriptedCluster() as cluster:
        cluster.add_topic("orders-a")[0].append(1)
        cluster.add_topic("other")[0].append(1)
        consumer = consume(cluster, metadata_max_age_ms=200)
        consumer.subscribe(pattern="orders")
        assert read(consumer, 1) == [("orders-a", 0, 0)]
        cluster.add_topic("orders-b")[0].append(1)
        assert read(consumer, 1) == [("orders-b", 0, 0)]
        assert consumer.subscription() == {"orders-a", "orders-b"}
        consumer.unsubscribe()
        assert consumer.subscription() is None
        assert consumer.assignment() == set()


@pytest.mark.parametrize("allowed", [True, False])
def test_topics_are_created_where_both_sides_allow_it(consume: Callable[..., KafkaConsumer], allowed: bool) -> None:
    with ScriptedCluster() as cluster:
        cluster.auto_create = True
        consumer = consume(cluster, allow_auto_create_topics=allowed)
        consumer.subscribe(["new"])
        consumer.poll(300)
        assert ("new" in cluster.topics) is allowed


def test_a_topic_that_may_not_be_seen_is_told(consume: Callable[..., KafkaConsumer]) -> None:
    with ScriptedCluster() as cluster:
        cluster.add_topic("secret").error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        consumer = consume(cluster)
        consumer.subscribe(["secret"])
        with pytest.raises(TopicAuthorizationFailedError, match="secret"):
            consumer.poll(WAIT_MS)


def test_questions_about_topics(consume: Callable[..., KafkaConsumer]) -> None:
    with ScriptedCluster() as cluster:
        cluster.add_topic("a", 3)
        cluster.add_topic("b")
        consumer = consume(cluster, allow_auto_create_topics=False)
        assert consumer.topics() == {"a", "b"}
        assert consumer.partitions_for_topic("a") == {0, 1, 2}
        assert consumer.partitions_for_topic("nowhere") == set()
