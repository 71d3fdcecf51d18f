"""Batch reads on a real Spark."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kafkapy import KafkaProducer

pytestmark = pytest.mark.spark

SCHEMA = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
)


def values(frame: Any) -> list[str]:
    return sorted(bytes(row.value).decode() for row in frame.select("value").collect())


def test_the_schema_is_that_of_sparks_own_source(read: Callable[..., Any], topic: Callable[..., str]) -> None:
    """Acceptance 1 and 8."""
    name = topic()
    frame = read(name)
    assert frame.schema.simpleString() == SCHEMA
    assert all(field.nullable for field in frame.schema.fields)
    with_headers = read(name, includeHeaders=True).schema
    assert with_headers.fieldNames()[-1] == "headers"
    assert with_headers["headers"].dataType.simpleString() == "array<struct<key:string,value:binary>>"
    assert frame.collect() == []


def test_every_column(read: Callable[..., Any], topic: Callable[..., str], producer: KafkaProducer) -> None:
    """Acceptance 8."""
    name = topic(2)
    headers = [("a", b"1"), ("a", None), ("", b"")]
    producer.send(name, b"value", key=b"key", partition=1, headers=headers, timestamp_ms=1_700_000_000_123)
    producer.send(name, None, key=b"", partition=1, timestamp_ms=1_700_000_000_124)
    producer.send(name, b"", key=None, partition=0, timestamp_ms=0)
    producer.flush()
    rows = read(name, includeHeaders=True).orderBy("partition", "offset").collect()
    found = [
        (row.key, row.value, row.topic, row.partition, row.offset, row.timestampType, row.headers) for row in rows
    ]
    assert found == [
        (None, bytearray(), name, 0, 0, 0, None),
        (bytearray(b"key"), bytearray(b"value"), name, 1, 0, 0, [("a", b"1"), ("a", None), ("", b"")]),
        (bytearray(), None, name, 1, 1, 0, None),
    ]
    times = read(name).selectExpr("unix_micros(timestamp) AS at").orderBy("at").collect()
    assert [row.at for row in times] == [0, 1_700_000_000_123_000, 1_700_000_000_124_000]


def test_append_time(read: Callable[..., Any], topic: Callable[..., str], send: Callable[..., None]) -> None:
    name = topic(message_timestamp_type="LogAppendTime")
    send(name, ["x"])
    row = read(name).collect()[0]
    assert row.timestampType == 1
    assert abs(row.timestamp.timestamp() - datetime.now(UTC).timestamp()) < 86_400


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_codecs(codec: str, read: Callable[..., Any], topic: Callable[..., str], broker: Any) -> None:
    """Acceptance 9."""
    name = topic()
    sent = [f"{number}-{'x' * 50}" for number in range(500)]
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers, compression_type=codec) as producer:
        for value in sent:
            producer.send(name, value.encode())
    assert values(read(name)) == sorted(sent)


def test_a_schema_chooses_columns(
    read: Callable[..., Any], topic: Callable[..., str], send: Callable[..., None]
) -> None:
    """Acceptance 12."""
    name = topic()
    send(name, ["a", "b"])
    frame = read(name, "value string, offset bigint")
    assert [tuple(row) for row in frame.orderBy("offset").collect()] == [("a", 0), ("b", 1)]
    assert read(name, "offset bigint").count() == 2
    assert [row.topic for row in read(name, "topic string").collect()] == [name, name]
    headers = read(name, "headers array<struct<key:string,value:binary>>, timestampType int").collect()
    assert [tuple(row) for row in headers] == [(None, 0), (None, 0)]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("value int", "The schema's column value is int; it can be binary or string"),
        ("Value binary", "The schema has a column Value; a Kafka source has key, value, topic"),
        ("offset int", "The schema's column offset is int; it can be bigint"),
    ],
)
def test_schemas_that_do_not_fit(
    schema: str, message: str, read: Callable[..., Any], topic: Callable[..., str]
) -> None:
    with pytest.raises(Exception) as raised:
        read(topic(), schema).collect()
    assert message in str(raised.value)


def test_several_topics_and_patterns(
    read: Callable[..., Any], topic: Callable[..., str], send: Callable[..., None]
) -> None:
    one, two = topic(2), topic()
    send(one, ["a"], 0)
    send(one, ["b"], 1)
    send(two, ["c"])
    assert values(read(f"{one}, {two}")) == ["a", "b", "c"]
    assert values(read("", subscribePattern=f"{one}|{two}x")) == ["a", "b"]
    assert values(read("", assign=json.dumps({one: [1], two: [0]}))) == ["b", "c"]


def test_offsets_and_times(
    read: Callable[..., Any], topic: Callable[..., str], producer: KafkaProducer
) -> None:
    name = topic(2)
    for number in range(10):
        producer.send(name, str(number).encode(), partition=number % 2, timestamp_ms=1000 + number)
    producer.flush()

    def between(**options: object) -> list[str]:
        return values(read(name, **options))

    each = [str(number) for number in range(10)]
    assert between(startingOffsets="earliest", endingOffsets="latest") == each
    start, end = json.dumps({name: {"0": 1, "1": -2}}), json.dumps({name: {"0": 3, "1": -1}})
    assert between(startingOffsets=start, endingOffsets=end) == ["1", "2", "3", "4", "5", "7", "9"]
    assert between(startingTimestamp=1003, endingTimestamp=1007) == ["3", "4", "5", "6"]
    by_time = json.dumps({name: {"0": 1008, "1": 1009}})
    assert between(startingOffsetsByTimestamp=by_time) == ["8", "9"]
    assert between(startingTimestamp=5000, startingOffsetsByTimestampStrategy="latest") == []
    with pytest.raises(Exception, match="No offset matched from request of topic-partition"):
        between(startingTimestamp=5000)
    with pytest.raises(Exception, match="Partitions specified for Kafka start offsets don't match what are assigned"):
        between(startingOffsets=json.dumps({name: {"0": 1}}))


def test_many_partitions_in_few_tasks(
    read: Callable[..., Any], topic: Callable[..., str], send: Callable[..., None]
) -> None:
    """Acceptance 16."""
    name = topic(100)
    for partition in range(100):
        send(name, [f"{partition}"], partition)
    frame = read(name, maxTasks=3, rowsPerTask=10)
    assert frame.rdd.getNumPartitions() == 3
    assert frame.count() == 100 == frame.select("partition").distinct().count()
    assert read(name, minPartitions=2).rdd.getNumPartitions() == 100


def test_a_partition_in_several_tasks(
    read: Callable[..., Any], topic: Callable[..., str], send: Callable[..., None]
) -> None:
    """Acceptance 11."""
    name = topic()
    send(name, [str(number) for number in range(1000)])
    for options in ({"minPartitions": 7}, {"maxRecordsPerPartition": 150}, {"maxTasks": 7, "rowsPerTask": 10}):
        frame = read(name, "offset bigint", **options)
        assert frame.rdd.getNumPartitions() == 7
        assert sorted(row.offset for row in frame.collect()) == list(range(1000))


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_transactions(isolation: str, read: Callable[..., Any], topic: Callable[..., str], broker: Any) -> None:
    """Acceptance 10."""
    name = topic()
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id=f"{name}-{isolation}") as producer:
        producer.init_transactions()
        for outcome in ("aborted", "committed", "aborted"):
            producer.begin_transaction()
            for number in range(3):
                producer.send(name, f"{outcome}{number}".encode())
            producer.flush()
            if outcome == "aborted":
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    found = values(read(name, kafka__isolation__level=isolation))
    committed = [f"committed{number}" for number in range(3)]
    assert found == (
        committed if isolation == "read_committed" else sorted([f"aborted{n}" for n in range(3)] * 2 + committed)
    )


def test_lost_records(
    read: Callable[..., Any], topic: Callable[..., str], send: Callable[..., None], broker: Any
) -> None:
    """Acceptance 15."""
    from kafkapy import KafkaAdminClient, TopicPartition

    name = topic(2)
    send(name, [str(number) for number in range(10)], 0)
    send(name, ["x"], 1)
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_records({TopicPartition(name, 0): 6})
    start = json.dumps({name: {"0": 2, "1": 0}})
    with pytest.raises(Exception, match="Cannot fetch offsets 2 to 6 of .*failOnDataLoss"):
        read(name, startingOffsets=start).collect()
    assert values(read(name, startingOffsets=start, failOnDataLoss=False)) == ["6", "7", "8", "9", "x"]
    end = json.dumps({name: {"0": 20, "1": -1}})
    with pytest.raises(Exception, match="before the ending offset 20.*failOnDataLoss"):
        read(name, endingOffsets=end).collect()
    assert values(read(name, endingOffsets=end, failOnDataLoss=False)) == ["6", "7", "8", "9", "x"]


@pytest.mark.parametrize("pushed", [False, True])
def test_filters(
    pushed: bool, spark: Any, read: Callable[..., Any], topic: Callable[..., str], producer: KafkaProducer
) -> None:
    """Acceptance 13: the same rows with and without push-down, and fewer that are read with it."""
    name = topic(2)
    for number in range(20):
        producer.send(name, str(number).encode(), partition=number % 2, timestamp_ms=1_700_000_000_000 + number)
    producer.flush()
    spark.conf.set("spark.sql.python.filterPushdown.enabled", pushed)
    try:
        for condition, expected in {
            "offset >= 8": ["16", "17", "18", "19"],
            "partition = 1 AND offset < 2": ["1", "3"],
            "offset IN (1, 3)": ["2", "3", "6", "7"],
            f"topic = '{name}' AND partition IN (0, 5) AND offset = 4": ["8"],
            "topic = 'other'": [],
            "timestamp >= timestamp_millis(1700000000017)": ["17", "18", "19"],
            "partition IS NULL OR offset = 0": ["0", "1"],
        }.items():
            frame = read(name, "value binary, topic string, partition int, offset bigint, timestamp timestamp")
            frame = frame.where(condition)
            assert values(frame) == sorted(expected), condition
        empty = read(name).where("topic = 'other'")
        assert empty.count() == 0
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", False)


def connections(port: int) -> int:
    """Connections that are open to that port of this machine."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[2].endswith(f":{port:04X}") and row[3] == "01" for row in rows)


def test_limit_closes_connections(
    read: Callable[..., Any], topic: Callable[..., str], send: Callable[..., None], broker: Any
) -> None:
    """Acceptance 14. A task that reads all keeps its consumer for the next one; one that is stopped early does not."""
    name = topic()
    send(name, [b"x" * 100] * 50_000)
    port = int(broker.bootstrap_servers.rpartition(":")[2])
    before = connections(port)
    assert before
    assert len(read(name, "value binary", kafka__client__id="stopped").limit(5).collect()) == 5
    deadline = time.monotonic() + 60
    while connections(port) > before:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert read(name, "value binary").count() == 50_000


def test_sql(spark: Any, topic: Callable[..., str], send: Callable[..., None], broker: Any) -> None:
    """Acceptance 4."""
    name = topic()
    send(name, ["a", "b"])
    view = f"v_{name.replace('-', '_')}"
    spark.sql(
        f"CREATE TEMPORARY VIEW {view} USING kafkapy OPTIONS "
        f"(`kafka.bootstrap.servers` '{broker.bootstrap_servers}', subscribe '{name}')"
    )
    assert values(spark.sql(f"SELECT value FROM {view} WHERE offset >= 1")) == ["b"]


def test_sql_tables(spark: Any, topic: Callable[..., str], send: Callable[..., None], broker: Any) -> None:
    """Acceptance 4. Spark keeps a table's options for itself: they are in the queries."""
    name = topic()
    table = f"t_{name.replace('-', '_')}"
    options = f"`kafka.bootstrap.servers` = '{broker.bootstrap_servers}', subscribe = '{name}'"
    spark.sql(f"CREATE TABLE {table} USING kafkapy OPTIONS ({options}, includeHeaders = 'true')")
    try:
        assert spark.table(table).columns[-1] == "headers"
        with pytest.raises(Exception, match="a query has to name them: SELECT"):
            spark.table(table).collect()
        send(name, ["a", "b"])
        spark.sql(f"CREATE VIEW {table}_view AS SELECT value FROM {table} WITH ({options}) WHERE offset >= 1")
        assert values(spark.table(f"{table}_view")) == ["b"]
        send(name, ["c"])
        assert values(spark.sql(f"SELECT * FROM {table}_view")) == ["b", "c"]
    finally:
        spark.sql(f"DROP VIEW IF EXISTS {table}_view")
        spark.sql(f"DROP TABLE {table}")


def test_names_of_options_are_case_insensitive(
    spark: Any, topic: Callable[..., str], send: Callable[..., None], broker: Any
) -> None:
    """Acceptance 6."""
    name = topic()
    send(name, ["a", "b", "c"])
    options = {
        "KAFKA.BOOTSTRAP.SERVERS": broker.bootstrap_servers,
        "SuBsCrIbE": name,
        "STARTINGOFFSETS": json.dumps({name: {"0": 1}}),
        "MaxRecordsPerPartition": "1",
    }
    frame = spark.read.format("kafkapy").options(**options).load()
    assert values(frame) == ["b", "c"] and frame.rdd.getNumPartitions() == 2


def test_refusals_reach_the_user(read: Callable[..., Any]) -> None:
    with pytest.raises(Exception, match="starting offset can't be latest for batch queries on Kafka"):
        read("t", startingOffsets="latest").collect()
    with pytest.raises(Exception, match="does not host topic nowhere"):
        read("nowhere", fetchOffset__numRetries=1).collect()
