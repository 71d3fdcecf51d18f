"""kafkapy.testing.Cluster: several brokers in one process, which stop, come back, grow, and lose sessions and disks."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from kafkapy import KafkaConsumer, KafkaProducer
from kafkapy.errors import IllegalStateError, KafkaTimeoutError
from kafkapy.testing import Cluster
from kafkapy.types import TopicPartition


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3) as made:
        yield made


def send(cluster: Cluster, topic: str, values: list[bytes]) -> None:
    """Send to partition 0 with acks=all, and wait for the acknowledgements."""
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, acks="all") as producer:
        for future in [producer.send(topic, value, partition=0) for value in values]:
            future.get(60)


def received(cluster: Cluster, topic: str) -> list[bytes | None]:
    """All records of partition 0."""
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        end = consumer.end_offsets([partition])[partition]
        seen: list[bytes | None] = []
        while consumer.position(partition) < end:
            for found in consumer.poll(1000).values():
                seen += [record.value for record in found]
        return seen


def leader(cluster: Cluster, topic: str) -> int:
    with cluster.admin() as admin:
        (found,) = admin.describe_topics([topic])
    return int(found["partitions"][0]["leader_id"])


def test_records_survive_each_broker_in_turn(cluster: Cluster) -> None:
    cluster.create_topic("orders", partitions=1)
    values = [b"first"]
    send(cluster, "orders", values)
    for number in range(3):
        broker = leader(cluster, "orders")
        cluster.stop_broker(broker)
        values.append(b"%d" % number)
        send(cluster, "orders", values[-1:])
        assert received(cluster, "orders") == values
        cluster.start_broker(broker, wipe=number == 1)
        cluster.wait_until_in_sync()
    assert received(cluster, "orders") == values


def test_a_broker_whose_session_ended_joins_again(cluster: Cluster) -> None:
    cluster.create_topic("orders", partitions=3)
    controller = cluster.controller_id
    cluster.expire_session(controller)
    cluster.wait_for_brokers()
    cluster.wait_until_in_sync()
    send(cluster, "orders", [b"a", b"b"])
    assert received(cluster, "orders") == [b"a", b"b"]


def test_a_cluster_grows(cluster: Cluster) -> None:
    assert cluster.add_broker() == 4
    cluster.create_topic("wide", partitions=1, replication_factor=4)
    send(cluster, "wide", [b"a"])
    assert sorted(cluster.brokers) == [1, 2, 3, 4]


def test_overrides_and_racks_reach_every_broker() -> None:
    with Cluster(2, racks=True, num_partitions=5) as cluster:
        with cluster.admin() as admin:
            assert {each["rack"] for each in admin.describe_cluster()["brokers"]} == {"rack-1", "rack-2"}
            admin.create_topics({"orders": {}})
            cluster.wait_until_in_sync(["orders"])
            (found,) = admin.describe_topics(["orders"])
        assert [len(each["replica_nodes"]) for each in found["partitions"]] == [2] * 5


def test_misuse_and_waits_that_end_are_errors(cluster: Cluster) -> None:
    with pytest.raises(IllegalStateError, match="broker 1 is running"):
        cluster.start_broker(1)
    cluster.create_topic("orders")
    cluster.stop_broker(2)
    with pytest.raises(KafkaTimeoutError, match=r"ISR \[.*\] of \["):
        cluster.wait_until_in_sync(timeout_s=0.2)
    with pytest.raises(KeyError):
        cluster.stop_broker(2)
    with pytest.raises(ValueError, match="needs a broker"):
        Cluster(0)
    stopped = Cluster(1)
    with pytest.raises(IllegalStateError, match="not running"):
        _ = stopped.bootstrap_servers


def test_all_brokers_stop_without_an_error_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with Cluster(3) as cluster:
        cluster.create_topic("orders", partitions=6)
        with caplog.at_level(logging.INFO, "kafka.server.KafkaServer"):
            cluster.stop()
    told = [(record.levelno, record.getMessage()) for record in caplog.records]
    assert [text for level, text in told if level > logging.WARNING] == []
    # The last one asks nobody.
    assert [text for _, text in told if "other broker is registered" in text] == [
        "No other broker is registered that partitions could move to"
    ]
    assert not [text for _, text in told if "although it still leads" in text or "must still move" in text]
