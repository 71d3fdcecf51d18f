"""Three brokers replicate in this process: coordinators move with the partitions of their topics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkapy import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafkapy.coordinator.partitioning import partition_of
from kafkapy.metadata.topic_names import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from kafkapy.testing.cluster import Cluster

WITHIN_S = 90
PARTITIONS = 3


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(
        3,
        offsets_topic_num_partitions=PARTITIONS,
        transaction_state_log_num_partitions=PARTITIONS,
        num_partitions=3,
        group_initial_rebalance_delay_ms=0,
    ) as running:
        yield running


def eventually(ask: Callable[[], Any], wanted: Callable[[Any], bool]) -> Any:
    deadline = time.monotonic() + WITHIN_S
    while not wanted(answer := ask()):
        if time.monotonic() > deadline:
            raise AssertionError(answer)
        time.sleep(0.02)
    return answer


def coordinator(cluster: Cluster, topic: str, key: str) -> int:
    """The broker that leads the key's partition of an internal topic, as a broker sees it."""
    cache = next(iter(cluster.brokers.values())).server.context.metadata_cache
    found = eventually(
        lambda: cache.partition(topic, partition_of(key, PARTITIONS)),
        lambda each: each is not None and each.leader in cluster.brokers,
    )
    return int(found.leader)


def read_committed(cluster: Cluster, topic: str, count: int) -> list[bytes]:
    """The records of committed transactions, once there are so many."""
    values: list[bytes] = []
    with KafkaConsumer(
        topic,
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        enable_auto_commit=False,
    ) as consumer:

        def more() -> int:
            for records in consumer.poll(200).values():
                values.extend(record.value for record in records)
            return len(values)

        eventually(more, lambda found: found >= count)
    return sorted(values)


@pytest.mark.parametrize("session_ends", [False, True])
def test_a_transaction_goes_on_when_its_coordinator_goes(cluster: Cluster, session_ends: bool) -> None:
    """Gracefully, or because the metadata store has not heard of the broker."""
    cluster.create_topic("target", 3)
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="t") as producer:
        producer.init_transactions()
        for number in range(3):
            producer.begin_transaction()
            for partition in range(3):
                producer.send("target", b"%d" % number, partition=partition)
            producer.flush()
            if number == 1:
                moved = coordinator(cluster, TRANSACTION_STATE_TOPIC, "t")
                if session_ends:
                    cluster.expire_session(moved)
                else:
                    cluster.stop_broker(moved)
            producer.commit_transaction()
    assert read_committed(cluster, "target", 9) == sorted([b"0", b"1", b"2"] * 3)


def test_a_group_keeps_its_offsets_and_its_members_when_its_coordinator_stops(cluster: Cluster) -> None:
    cluster.create_topic("source", 3)
    servers = cluster.bootstrap_servers
    with KafkaProducer(bootstrap_servers=servers, acks="all") as producer:
        for value in range(30):
            producer.send("source", b"%d" % value, partition=value % 3)
    with KafkaConsumer(
        "source",
        bootstrap_servers=servers,
        group_id="group",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=30_000,
    ) as consumer:
        taken: list[bytes] = []

        def more() -> int:
            for records in consumer.poll(200).values():
                taken.extend(record.value for record in records)
            return len(taken)

        eventually(more, lambda found: found >= 30)
        consumer.commit()
        stopped = coordinator(cluster, GROUP_METADATA_TOPIC, "group")
        cluster.stop_broker(stopped)
        parts = [TopicPartition("source", each) for each in range(3)]
        eventually(lambda: [consumer.committed(part) for part in parts], lambda offsets: offsets == [10, 10, 10])
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, acks="all") as producer:
            for value in range(30, 60):
                producer.send("source", b"%d" % value, partition=value % 3)
        eventually(more, lambda found: found >= 60)
        eventually(lambda: _committed(consumer), lambda done: done)
        assert [consumer.committed(part) for part in parts] == [20, 20, 20]
    assert sorted(taken) == sorted(b"%d" % value for value in range(60)), "no record twice"
    cluster.start_broker(stopped)
    cluster.wait_until_in_sync([GROUP_METADATA_TOPIC])
    for broker in cluster.brokers.values():
        runtime = broker.server.context.coordinators.group.runtime
        cache = broker.server.context.metadata_cache
        led = {
            number
            for number, each in cache.snapshot.topics[GROUP_METADATA_TOPIC].partitions.items()
            if each.leader == broker.server.context.node_id
        }
        eventually(lambda runtime=runtime: set(runtime.shards()), led.__eq__)  # type: ignore[misc]


def _committed(consumer: KafkaConsumer) -> bool:
    try:
        consumer.commit({part: OffsetAndMetadata(20) for part in consumer.assignment()})
    except Exception:
        consumer.poll(50)
        return False
    return True
