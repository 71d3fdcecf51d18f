"""Batch writes on a real Spark, read back by a foreign client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafkapy._speedups.murmur2 import partition_for_key

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
