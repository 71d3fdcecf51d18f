"""DescribeProducers as a client sees it."""

from __future__ import annotations

from typing import Any

from waiting import wait_until

from kafkapy import KafkaProducer
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.describe_producers import DescribeProducersRequest
from kafkapy.testing import Cluster
from kafkapy.types import TopicPartition


def ask(client: Any, topic: str, partition: int = 0) -> Any:
    asked = DescribeProducersRequest.Topic(name=topic, partition_indexes=[partition])
    return client(DescribeProducersRequest(topics=[asked]), 0).topics[0].partitions[0]


def test_idempotent_producers_are_listed(client: Any, topic_name: str) -> None:
    client.create_topic(topic_name)
    assert ask(client, topic_name).active_producers == []
    client.produce(topic_name, [(77, b"a"), (78, b"b")], producer_id=4242, producer_epoch=3, base_sequence=0)
    (producer,) = ask(client, topic_name).active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (4242, 3, 1)
    assert producer.current_txn_start_offset == -1


def test_what_is_not_here_has_its_error(client: Any, topic_name: str) -> None:
    client.create_topic(topic_name)
    assert ask(client, "bad name").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert ask(client, "no-such-topic").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ask(client, topic_name, 9).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_leader_and_follower_tell_the_same() -> None:
    place = TopicPartition("t", 0)
    with Cluster(2) as cluster:
        cluster.create_topic("t", partitions=1)
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, acks="all") as producer:
            producer.send("t", b"value").get(60)
        with cluster.admin() as admin:
            (topic,) = admin.describe_topics(["t"])
            replicas = topic["partitions"][0]["replica_nodes"]
            assert len(replicas) == 2

            def told(broker: int) -> list[int]:
                return [each.producer_id for each in admin.describe_producers([place], broker)[place].active_producers]

            (producer_id,) = told(topic["partitions"][0]["leader_id"])
            wait_until(lambda: all(told(each) == [producer_id] for each in replicas), "the replicas tell the same")
