"""replay and mirror on Spark: records arrive with what they had."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from click.testing import CliRunner
from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as ConfluentPartition
from kafkapy_spark.cli import main
from kafkapy_spark.jobs.archive import archive
from kafkapy_spark.jobs.mirror import mirror
from kafkapy_spark.jobs.replay import replay

from kafkapy import KafkaProducer
from kafkapy.errors import IllegalArgumentError

pytestmark = pytest.mark.spark

START_MS = 1_793_534_400_000
"""2026-11-01T12:00Z"""
DAY_MS = 86_400_000
Row = tuple[Any, ...]


@pytest.fixture
def filled(producer: KafkaProducer, topic: Callable[..., str]) -> Callable[..., str]:
    """A topic of three partitions with so many records, of three days."""

    def make(count: int) -> str:
        name = topic(3)
        futures = [
            producer.send(
                name,
                b"value %d" % number if number % 7 else None,
                key=b"k%d" % (number % 11) if number % 5 else None,
                headers=[("h", b"%d" % number), ("none", None)] if number % 3 == 0 else None,
                partition=number % 3,
                timestamp_ms=START_MS + number % 3 * DAY_MS + number,
            )
            for number in range(count)
        ]
        for future in futures:
            future.get(60)
        return name

    return make


@pytest.fixture
def kafka(broker: Any) -> dict[str, str]:
    return {"bootstrap.servers": broker.bootstrap_servers}


def records(kafka: dict[str, str], topic: str, committed: bool = False) -> list[Row]:
    """(partition, key, value, timestamp, headers) in the order of each partition, as another client reads them."""
    level = "read_committed" if committed else "read_uncommitted"
    consumer = Consumer(kafka | {"group.id": "replay-test", "isolation.level": level, "enable.partition.eof": True})
    try:
        rows: list[Row] = []
        for number in sorted(consumer.list_topics(topic).topics[topic].partitions):
            first, _ = consumer.get_watermark_offsets(ConfluentPartition(topic, number))
            consumer.assign([ConfluentPartition(topic, number, first)])
            while (message := consumer.poll(10)) is not None and message.error() is None:
                rows.append((number, message.key(), message.value(), message.timestamp()[1], message.headers()))
            assert message is not None and message.error().code() == KafkaError._PARTITION_EOF
        return rows
    finally:
        consumer.close()


# --- replay -----------------------------------------------------------------------------------------------------------


def test_an_archive_is_replayed_as_it_was(
    spark: Any, kafka: dict[str, str], filled: Callable[..., str], topic: Callable[..., str], tmp_path: Path
) -> None:
    """Keys, headers, partitions, timestamps, and the order in each partition."""
    source, target = filled(300), topic(3)
    path = str(tmp_path / "archive")
    archive(spark, source, path, kafka=kafka, target_file_bytes=2000)
    summary = replay(spark, path, target, kafka=kafka)
    expected = records(kafka, source)
    assert len(expected) == 300 and records(kafka, target) == expected
    assert summary.rows == 300 and summary.bytes == sum(len(row[1] or b"") + len(row[2] or b"") for row in expected)

    later = topic(3)
    since, until = START_MS + DAY_MS, START_MS + DAY_MS + 100
    result = CliRunner().invoke(
        main,
        ["replay", path, later, "-b", kafka["bootstrap.servers"], "--since", "2026-11-02T12:00:00",
         "--until", "2026-11-02T12:00:00.100", "--json"],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    chosen = [row for row in expected if since <= row[3] < until]
    assert 0 < len(chosen) < 100 and records(kafka, later) == chosen
    assert json.loads(result.stdout)["rows"] == len(chosen)

    anew = topic(2)
    replay(spark, path, anew, kafka=kafka, keep_partitions=False, keep_timestamps=False, in_order=False)
    found = records(kafka, anew)
    assert sorted(map(str, (row[1:3] for row in found))) == sorted(map(str, (row[1:3] for row in expected)))
    assert {row[0] for row in found} == {0, 1} and min(row[3] for row in found) > START_MS + 3 * DAY_MS


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_tables_are_replayed_without_a_jar(
    spark: Any, kafka: dict[str, str], filled: Callable[..., str], topic: Callable[..., str], tmp_path: Path, form: str
) -> None:
    """Files that are no part of the table are not read."""
    source, target = filled(60), topic(3)
    catalog, where = {}, str(tmp_path / "table")
    if form == "iceberg":
        catalog = {"name": "test", "type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db",
                   "warehouse": f"file://{tmp_path}/wh"}  # fmt: skip
        pytest.importorskip("pyiceberg.catalog").load_catalog(**catalog).create_namespace("ns")
        where = "ns.t"
    else:
        pytest.importorskip("deltalake")
    archive(spark, source, where, kafka=kafka, format=form, layout="daily", catalog=catalog)
    for path in [*tmp_path.rglob("*.parquet")]:
        path.with_name("orphan.parquet").write_bytes(path.read_bytes())
    replay(spark, where, target, kafka=kafka, format=form, catalog=catalog)
    assert records(kafka, target) == records(kafka, source)


def test_the_rate_is_that_of_all_tasks(
    spark: Any, kafka: dict[str, str], filled: Callable[..., str], topic: Callable[..., str]
) -> None:
    """By the times at which the broker got the records: no second has more than the rate, and a second's burst."""
    source, target = filled(240), topic(1, message_timestamp_type="LogAppendTime")
    frame = (
        spark.read.format("kafkapy").option("kafka.bootstrap.servers", kafka["bootstrap.servers"])
        .option("subscribe", source).load()
    )  # fmt: skip
    summary = replay(spark, frame, target, kafka={**kafka, "linger.ms": "0"}, rows_per_second=80, keep_partitions=False)
    times = sorted(row[3] for row in records(kafka, target))
    assert len(times) == 240 == summary.rows
    for at, first in enumerate(times):
        assert sum(first <= time < first + 1000 for time in times[at:]) <= 160 + 2 * 8
    assert times[-1] - times[0] >= 1000 * (240 / 80 - 1.5)


def test_what_cannot_be_replayed(spark: Any, kafka: dict[str, str]) -> None:
    with pytest.raises(IllegalArgumentError, match="no column value to replay"):
        replay(spark, spark.range(3), "t", kafka=kafka)


# --- mirror -----------------------------------------------------------------------------------------------------------


def test_runs_of_a_mirror_go_on(
    spark: Any, kafka: dict[str, str], filled: Callable[..., str], topic: Callable[..., str], tmp_path: Path,
    producer: KafkaProducer,
) -> None:  # fmt: skip
    source, target = filled(90), topic(3)
    options: dict[str, Any] = {"kafka": kafka, "checkpoint": str(tmp_path / "checkpoint")}
    summary = mirror(spark, source, target, **options)
    assert records(kafka, target) == records(kafka, source)
    assert (summary.rows, summary.batches, summary.delivery) == (90, 1, "at-least-once")
    assert summary.bytes == sum(len(row[1] or b"") + len(row[2] or b"") for row in records(kafka, source))
    producer.send(source, b"new", partition=1)
    producer.flush()
    assert mirror(spark, source, target, **options).rows == 1
    assert records(kafka, target) == records(kafka, source)


def test_sql_between(
    spark: Any, kafka: dict[str, str], filled: Callable[..., str], topic: Callable[..., str], tmp_path: Path
) -> None:
    """A stream that is filtered, changed and partitioned anew; exactly once."""
    source, target = filled(90), topic(2)
    sql = """
        select key, upper(string(value)) value, partition, timestamp
        from records where key is not null and value is not null
    """
    result = CliRunner().invoke(
        main,
        ["mirror", source, target, "-b", kafka["bootstrap.servers"], "--sql", sql, "--new-partitions",
         "--delivery", "exactly-once", "--checkpoint", str(tmp_path / "checkpoint"), "--json"],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    expected = [(row[1], row[2].upper(), row[3]) for row in records(kafka, source) if row[1] and row[2]]
    found = records(kafka, target, committed=True)
    assert sorted(row[1:4] for row in found) == sorted(expected)
    assert {row[0] for row in found} == {0, 1}
    by_key = {}
    for row in found:
        assert by_key.setdefault(row[1], row[0]) == row[0]
    assert not [table for table in spark.catalog.listTables() if table.name == "records"]


def test_a_batch_to_topics_that_sql_names(
    spark: Any, kafka: dict[str, str], filled: Callable[..., str], topic: Callable[..., str]
) -> None:
    source, even, odd = filled(60), topic(3), topic(3)
    sql = f"select *, if(offset % 2 = 0, '{even}', '{odd}') topic from (select * except (topic) from records)"
    summary = mirror(spark, source, kafka=kafka, sql=sql, mode="batch")
    assert summary.rows == 60 and summary.batches is None
    both = [*records(kafka, even), *records(kafka, odd)]
    assert len(records(kafka, even)) == 30 and sorted(map(str, both)) == sorted(map(str, records(kafka, source)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs a checkpoint"),
        ({"mode": "sometimes"}, "The mode is sometimes"),
        ({"delivery": "maybe"}, "The delivery is maybe"),
        ({"mode": "batch", "interval": "1 second"}, "for the mode continuous"),
        ({"mode": "batch", "target": None}, "would go where they are"),
    ],
)
def test_what_a_mirror_refuses(kafka: dict[str, str], options: dict[str, Any], message: str) -> None:
    with pytest.raises(IllegalArgumentError, match=message):
        mirror(None, "s", **{"target": "t", "kafka": kafka, **options})  # type: ignore[arg-type]
