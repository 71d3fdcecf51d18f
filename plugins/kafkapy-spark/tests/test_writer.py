"""Batch writes on a real Spark, read back by a foreign client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafkapy.connector import partition_for_key

pytestmark = pytest.mark.spark


@pytest.fixture
def write(broker: Any) -> Callable[..., None]:
    """A batch write: write(frame, topic=None, mode="append", **options). Names of options have __ for dots."""

    def run(frame: Any, topic: str | None = None, mode: str = "append", **options: object) -> None:
        writer = frame.write.format("kafkapy").mode(mode).option("kafka.bootstrap.servers", broker.bootstrap_servers)
        if topic is not None:
            writer = writer.option("topic", topic)
        writer.options(**{name.replace("__", "."): value for name, value in options.items()}).save()

    return run


def by_value(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """(partition, key, value, headers) of records, null values first."""
    return sorted((row[:4] for row in rows), key=lambda row: row[2] or b"")


def test_rows_become_records(spark: Any, write: Any, topic: Any, records: Any) -> None:
    name, other = topic(3), topic(1)
    frame = spark.createDataFrame(
        [
            (b"k1", "v1", name, None, [("h", b"1"), ("h", None)]),
            (None, "", name, 2, None),
            (b"", "äöü", other, None, []),
            (b"k2", None, other, 0, [("", b"")]),
        ],
        "key binary, value string, topic string, partition int, headers array<struct<key: string, value: binary>>",
    )
    write(frame)
    keyed = (partition_for_key(b"k1", 3), b"k1", b"v1", [("h", b"1"), ("h", None)])
    assert by_value(records(name)) == [(2, None, b"", []), keyed]
    assert by_value(records(other)) == [(0, b"k2", None, [("", b"")]), (0, b"", "äöü".encode(), [])]


def test_many_tasks_and_rows(spark: Any, write: Any, topic: Any, records: Any) -> None:
    name = topic(4)
    frame = spark.range(0, 30_000, 1, 3).selectExpr("CAST(id % 100 AS STRING) AS key", "CAST(id AS STRING) AS value")
    write(frame, name, kafka__compression__type="zstd")
    found = records(name)
    assert sorted(int(row[2]) for row in found) == list(range(30_000))
    assert all(row[0] == partition_for_key(row[1], 4) for row in found)


def test_a_read_can_be_written(spark: Any, write: Any, read: Any, send: Any, topic: Any, records: Any) -> None:
    """All columns of a source: partition and timestamp go along, offset and timestampType do not."""
    name, copy = topic(2), topic(2)
    send(name, [b"a", b"b"], 1)
    write(read(name, includeHeaders=True), copy)
    assert records(copy) == records(name) != []
    write(read(name), copy, timestampColumn=False)
    assert [row[:4] for row in records(copy)] == [row[:4] for row in records(name)] * 2
    assert [row[4] for row in records(copy)[:2]] == [row[4] for row in records(name)] != [
        row[4] for row in records(copy)[2:]
    ]


def test_errors_come_when_a_write_is_planned(spark: Any, write: Any, topic: Any, records: Any) -> None:
    name = topic()
    frame = spark.range(3).selectExpr("CAST(id AS STRING) AS value", "id AS key")
    with pytest.raises(Exception, match="key attribute unsupported type bigint. key must be a"):
        write(frame, name)
    frame = frame.select("value")
    with pytest.raises(Exception, match="topic option required when no 'topic' attribute is present"):
        write(frame)
    with pytest.raises(Exception, match="Kafka option 'key.serializer' is not supported as keys are serialized with"):
        write(frame, name, kafka__key__serializer="x")
    with pytest.raises(Exception, match="Save mode Overwrite not allowed for Kafka"):
        write(frame, name, mode="overwrite")
    assert records(name) == []


def test_a_task_that_loses_a_record_fails(spark: Any, write: Any, topic: Any) -> None:
    name = topic(1, max_message_bytes=2000)
    frame = spark.range(0, 100, 1, 2).selectExpr("IF(id = 77, repeat('x', 3000), 'y') AS value")
    with pytest.raises(Exception, match="MessageTooLargeError"):
        write(frame, name)
    with pytest.raises(Exception, match="null topic present in the data. Use the topic option for setting a topic."):
        write(frame.selectExpr("value", "CAST(NULL AS STRING) AS topic"))
