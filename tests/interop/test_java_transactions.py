"""Java's transactional producer and kafka-transactions, of Apache Kafka 3.9 and 4.x, against kafkapy.
Run with make interop-java.

4.x finds transaction.version 2 in ApiVersions and follows it; 3.9 names its partitions itself. Neither may see a
difference but in the epochs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from broker.conftest import Client
from interop.conftest import JAVA, make_broker
from interop.conftest import run_java as run
from interop.test_java_tools import create_topic

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkapy.protocol.messages.list_offsets import ListOffsetsRequest

pytestmark = JAVA

TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
COMMITTED, EVERYTHING = 1, 0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A broker that takes what no coordinator knows of, so that there is something hanging to be found."""
    running = make_broker(tmp_path_factory.mktemp("java"), **{"transaction.partition.verification.enable": "false"})
    running.start()
    yield running
    running.stop()
    running.remove()


def connect(broker: Any) -> Client:
    host, port = broker.bootstrap.split(":")
    return Client(host, int(port))


def end_of(client: Client, topic: str, partition: int, isolation: int) -> int:
    asked = ListOffsetsRequest.Topic.Partition(partition_index=partition, timestamp=-1)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[ListOffsetsRequest.Topic(name=topic, partitions=[asked])],
    )
    found = client(request, 5).topics[0].partitions[0]
    assert found.error_code == ErrorCode.NONE
    return int(found.offset)


def table(output: str) -> list[dict[str, str]]:
    """The rows of what kafka-transactions prints, by its column names."""
    head, *rows = [line.split() for line in output.splitlines() if line.strip()]
    return [dict(zip(head, row, strict=False)) for row in rows]


def test_a_producer_with_many_transactions(version: str, broker: Any) -> None:
    topic, name = f"many-{version}", f"perf-{version}"
    create_topic(version, broker, topic, "--partitions", "3")
    out = run(
        version, "org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--num-records", "20000",
        "--record-size", "100", "--throughput", "10000", "--transactional-id", name, "--transaction-duration-ms", "100",
        "--producer-props", f"bootstrap.servers={broker.bootstrap}",
    )  # fmt: skip
    assert "20000 records sent" in out
    client = connect(broker)
    ends = [end_of(client, topic, number, EVERYTHING) for number in range(3)]
    assert [end_of(client, topic, number, COMMITTED) for number in range(3)] == ends
    assert sum(ends) > 20000, "markers have offsets as well"
    read = run(
        version, "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", broker.bootstrap,
        "--topic", topic, "--from-beginning", "--isolation-level", "read_committed", "--timeout-ms", "8000",
    )  # fmt: skip
    assert len(read.splitlines()) == 20000
    tool = (TRANSACTIONS, "--bootstrap-server", broker.bootstrap)
    [described] = table(run(version, *tool, "describe", "--transactional-id", name))
    assert described["TransactionState"] == "CompleteCommit"
    epoch = int(described["ProducerEpoch"])
    assert (epoch >= 10) if version.startswith("4") else (epoch == 0), "an epoch for each transaction since 4.0"
    listed = {row["TransactionalId"]: row["TransactionState"] for row in table(run(version, *tool, "list"))}
    assert listed[name] == "CompleteCommit"
    if version.startswith("4"):
        filtered = run(version, *tool, "list", "--transactional-id-pattern", "perf-4.*")
        assert {row["TransactionalId"] for row in table(filtered)} == {name}


def test_hanging_transactions_are_found_and_aborted(version: str, broker: Any) -> None:
    topic = f"hanging-{version}"
    create_topic(version, broker, topic)
    client = connect(broker)
    client.coordinate_transactions(f"of-{topic}")
    known = client(InitProducerIdRequest(transactional_id=f"of-{topic}", transaction_timeout_ms=60_000), 4)
    long_ago = time.time_ns() // 1_000_000 - 3_600_000
    client.produce(
        topic,
        [(long_ago, b"left behind")],
        transactional_id=f"of-{topic}",
        producer_id=known.producer_id,
        producer_epoch=known.producer_epoch,
        base_sequence=0,
        transactional=True,
    )
    assert (end_of(client, topic, 0, COMMITTED), end_of(client, topic, 0, EVERYTHING)) == (0, 1)
    tool = (TRANSACTIONS, "--bootstrap-server", broker.bootstrap)
    producers = table(run(version, *tool, "describe-producers", "--topic", topic, "--partition", "0"))
    assert [row["ProducerId"] for row in producers] == [str(known.producer_id)]
    found = table(run(version, *tool, "find-hanging", "--broker-id", "1", "--topic", topic))
    assert [(row["Topic"], row["Partition"], row["ProducerId"]) for row in found] == [
        (topic, "0", str(known.producer_id))
    ]
    run(version, *tool, "abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
    assert end_of(client, topic, 0, COMMITTED) == end_of(client, topic, 0, EVERYTHING) == 2
    assert table(run(version, *tool, "find-hanging", "--broker-id", "1", "--topic", topic)) == []


def test_features_are_described(version: str, broker: Any) -> None:
    said = run(version, "org.apache.kafka.tools.FeatureCommand", "--bootstrap-server", broker.bootstrap, "describe")
    [line] = [line for line in said.splitlines() if "transaction.version" in line]
    assert "FinalizedVersionLevel: 2" in line
