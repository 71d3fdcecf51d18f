"""The coordinator of a transaction and of a group moves between brokers of kafkapy and of Apache Kafka 3.9, in the
middle of transactions (make interop-java)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from interop.conftest import JAVA, with_jars
from peers.apache_kafka import PeerMissingError
from system.cluster.processes import Cluster, wait_until

from kafkapy import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafkapy.coordinator.partitioning import partition_of

pytestmark = [*JAVA, pytest.mark.timeout(1800)]

RELEASE = "3.9"
STATE = "__transaction_state"
SOURCE = TopicPartition("transactions", 0)
MOVES = 4


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Two brokers of Apache Kafka and one of ours."""
    with_jars(RELEASE)
    try:
        keys = {"zookeeper.session.timeout.ms": "12000", "zookeeper.connection.timeout.ms": "60000"}
        made = Cluster(tmp_path, java=(2, 3), release=RELEASE, overrides=keys)
    except PeerMissingError as missing:
        pytest.skip(str(missing))
    with made:
        yield made


def moving_id(cluster: Cluster) -> str:
    """A transactional id whose coordinator, and the next one in line, are of different kinds."""
    with KafkaProducer(bootstrap_servers=cluster.bootstrap, transactional_id="first") as producer:
        producer.init_transactions()  # creates the topic
    partitions = cluster.describe([STATE])[STATE]
    for name in (f"mover-{number}" for number in range(100)):
        first, second, *_ = partitions[partition_of(name, len(partitions))]["replica_nodes"]
        if type(cluster[first]) is not type(cluster[second]):
            return name
    raise AssertionError(partitions)


def test_transactions_go_on_at_a_coordinator_of_the_other_kind(cluster: Cluster) -> None:
    cluster.create_topic("transactions", 3)
    coordinators = set()
    name = moving_id(cluster)
    with KafkaProducer(bootstrap_servers=cluster.bootstrap, transactional_id=name) as producer:
        producer.init_transactions()
        for number in range(2 * MOVES):
            producer.begin_transaction()
            for partition in range(3):
                producer.send("transactions", b"%d" % number, partition=partition)
            producer.flush()
            producer.send_offsets_to_transaction({SOURCE: OffsetAndMetadata(number)}, "mover-group")
            where = partition_of(name, len(cluster.describe([STATE])[STATE]))
            coordinator = cluster.leader(STATE, where)
            coordinators.add(type(cluster[coordinator]).__name__)
            moves = number % 2 == 1
            if moves:
                # The other kind may take over in the middle of the transaction.
                cluster[coordinator].stop()
                coordinators.add(type(cluster[cluster.leader(STATE, where)]).__name__)
            if number % 4 < 2:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
            if moves:
                cluster[coordinator].start()
                cluster.wait_until_in_sync()
    assert coordinators == {"Member", "JavaMember"}
    committed = [number for number in range(2 * MOVES) if number % 4 < 2]
    values: list[bytes] = []
    with KafkaConsumer(
        "transactions",
        bootstrap_servers=cluster.bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as reader:

        def more() -> bool:
            for records in reader.poll(500).values():
                values.extend(record.value for record in records)
            return len(values) >= 3 * len(committed)

        wait_until(more, "all committed records are there")
    assert sorted(values) == sorted(b"%d" % number for number in committed * 3)
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap, group_id="mover-group") as reader:
        assert reader.committed(SOURCE) == committed[-1]
