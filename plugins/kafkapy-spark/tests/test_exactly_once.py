"""Exactly-once writes on a real Spark: what readers of committed records see, and that they do not wait."""

from __future__ import annotations

import json
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import OFFSET_BEGINNING, Consumer
from confluent_kafka import TopicPartition as ForeignPartition
from kafkapy_spark.cli import main

from kafkapy.types import ListOffsetsTimestamp

pytestmark = pytest.mark.spark

PARTITIONS = 2


@pytest.fixture
def write(spark: Any, broker: Any) -> Callable[..., None]:
    """A batch write of numbers: write(topic, 0, 10, txnVersion=1)."""

    def run(topic: str, start: int, end: int, frame: Any = None, **options: object) -> None:
        rows = spark.range(start, end, 1, 2) if frame is None else frame
        (
            rows.selectExpr("CAST(id AS STRING) AS value")
            .write.format("kafkapy")
            .mode("append")
            .option("kafka.bootstrap.servers", broker.bootstrap_servers)
            .option("topic", topic)
            .option("delivery", "exactly-once")
            .options(**options)
            .save()
        )

    return run


def committed(bootstrap: str, topic: str) -> list[int]:
    """What a foreign reader of committed records gets, up to the ends of the log: no transaction is open there."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "g",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([ForeignPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
    values: list[int] = []
    positions: dict[int, int] = {}
    deadline = time.monotonic() + 60
    # Markers come a moment after the answer that a transaction is ended.
    while len(positions) < PARTITIONS or positions != ends(bootstrap, topic):
        assert time.monotonic() < deadline, "transactions are open"
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error() is not None:
            positions[message.partition()] = message.offset()
        else:
            values.append(int(message.value()))
    consumer.close()
    return sorted(values)


def ends(bootstrap: str, topic: str) -> dict[int, int]:
    from kafkapy import KafkaAdminClient, TopicPartition

    with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        found = admin.list_partition_offsets(dict.fromkeys(places, ListOffsetsTimestamp.LATEST))
    return {place.partition: each.offset for place, each in found.items()}


def txn(broker: Any, *arguments: str) -> Any:
    result = CliRunner().invoke(main, ["txn", *arguments, "-b", broker.bootstrap_servers, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def test_a_batch_write(write: Any, topic: Any, broker: Any) -> None:
    """Its sink is nobody's afterwards."""
    name = topic(PARTITIONS)
    before = {each["sink"] for each in txn(broker, "list")}
    write(name, 0, 1000)
    assert committed(broker.bootstrap_servers, name) == list(range(1000))
    write(name, 0, 0)
    assert {each["sink"] for each in txn(broker, "list")} == before


def test_a_batch_write_that_fails(write: Any, topic: Any, broker: Any, spark: Any) -> None:
    """What its tasks have sent is seen by nobody, and nobody waits for it."""
    from pyspark.sql.functions import udf

    name, bootstrap = topic(PARTITIONS), broker.bootstrap_servers

    @udf("long", useArrow=False)
    def fails(number: int) -> int:
        """At the last row, when the other task has sent its own."""
        from kafkapy import KafkaAdminClient, TopicPartition

        if number == 1999:
            places = [TopicPartition(name, at) for at in range(PARTITIONS)]
            with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
                for _ in range(1000):
                    if any(found.offset for found in admin.list_partition_offsets(dict.fromkeys(places, -1)).values()):
                        raise ValueError("bad row")
                    time.sleep(0.05)
        return number

    with pytest.raises(Exception, match="bad row"):
        write(name, 0, 0, spark.range(0, 2000, 1, 2).select(fails("id").alias("id")))
    assert committed(bootstrap, name) == []
    assert sum(ends(bootstrap, name).values()) > 0


def test_a_version_that_was_written_is_skipped(write: Any, topic: Any, broker: Any) -> None:
    name = topic(PARTITIONS)
    app = uuid.uuid4().hex
    write(name, 0, 10, txnAppId=app, txnVersion=1)
    write(name, 0, 10, txnAppId=app, txnVersion=1)
    write(name, 100, 110, txnAppId=app, txnVersion=0)
    write(name, 10, 20, txnAppId=app, txnVersion=2)
    write(name, 0, 10, txnAppId=app, txnVersion=1)
    write(name, 20, 30, txnAppId=uuid.uuid4().hex, txnVersion=1)
    assert committed(broker.bootstrap_servers, name) == list(range(30))
    [row] = [each for each in txn(broker, "list") if each["query"] == app]
    assert (row["state"], row["batch"], row["rows"], row["tasks"]) == ("done", 2, 10, 2)


@pytest.fixture
def stream(spark: Any, broker: Any, topic: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """A run of a streaming query to the end of its source: stream(source, sink, **options)."""

    def run(source: str, sink: str, fail: bool = False, **options: object) -> None:
        frame = (
            spark.readStream.format("kafkapy")
            .option("kafka.bootstrap.servers", broker.bootstrap_servers)
            .option("subscribe", source)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", 200)
            .load()
            .selectExpr("value", "assert_true(NOT startswith(CAST(value AS STRING), '7')) AS x" if fail else "1 AS x")
            .where("x IS NULL OR x = 1")
            .select("value")
        )
        query = (
            frame.writeStream.format("kafkapy")
            .option("kafka.bootstrap.servers", broker.bootstrap_servers)
            .option("topic", sink)
            .option("delivery", "exactly-once")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .options(**options)
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(200)
        finally:
            query.stop()

    yield run


def test_a_query_and_its_rewound_checkpoint(stream: Any, topic: Any, send: Any, broker: Any, tmp_path: Path) -> None:
    """The last batch is skipped: a crash may have kept Spark from knowing of it. Those before it are refused, unless
    ignoreSinkState says that they are written again, and those that follow. Batch 0 is the source's, which has no rows.
    """
    source, sink = topic(1), topic(PARTITIONS)
    send(source, [str(number) for number in range(500)])
    stream(source, sink)
    assert committed(broker.bootstrap_servers, sink) == list(range(500))
    assert rewind(tmp_path / "checkpoint", 1) == 3
    stream(source, sink)
    assert committed(broker.bootstrap_servers, sink) == list(range(500))
    assert rewind(tmp_path / "checkpoint", 2) == 2
    with pytest.raises(Exception, match=r"batch 2 of .* is not written: .* up to 3 .* ignoreSinkState=true"):
        stream(source, sink)
    assert committed(broker.bootstrap_servers, sink) == list(range(500))
    stream(source, sink, ignoreSinkState="true")
    assert committed(broker.bootstrap_servers, sink) == sorted([*range(500), *range(200, 500)])


def test_a_checkpoint_restored_from_a_backup(stream: Any, topic: Any, send: Any, broker: Any, tmp_path: Path) -> None:
    """It knows nothing of the last batch, and Spark gives its number to another one, of more rows."""
    source, sink = topic(1), topic(PARTITIONS)
    checkpoint, backup = tmp_path / "checkpoint", tmp_path / "backup"
    send(source, [str(number) for number in range(400)])
    stream(source, sink)
    shutil.copytree(checkpoint, backup)
    send(source, [str(number) for number in range(400, 450)])
    stream(source, sink)
    shutil.rmtree(checkpoint)
    shutil.copytree(backup, checkpoint)
    send(source, [str(number) for number in range(450, 500)])
    with pytest.raises(Exception, match=r"it has 100 rows; 50 rows were decided.* ignoreSinkState=true"):
        stream(source, sink)
    assert committed(broker.bootstrap_servers, sink) == list(range(450))
    rewind(checkpoint, 1, planned=True)
    stream(source, sink, ignoreSinkState="true")
    assert committed(broker.bootstrap_servers, sink) == sorted([*range(500), *range(400, 450)])


def test_a_moved_checkpoint(stream: Any, topic: Any, send: Any, broker: Any, tmp_path: Path) -> None:
    """It is the same query, and another sink unless its name is given."""
    source, sink = topic(1), topic(PARTITIONS)
    send(source, [str(number) for number in range(300)])
    stream(source, sink)
    shutil.move(tmp_path / "checkpoint", tmp_path / "moved")
    rewind(tmp_path / "moved", 1)
    moved = {"checkpointLocation": f"file:{tmp_path}/./moved/"}
    with pytest.raises(Exception, match="the checkpoint was moved, .* transactionalIdPrefix=kafkapy-spark-") as raised:
        stream(source, sink, **moved)
    [name] = set(re.findall(r"transactionalIdPrefix=(\S+) goes on", str(raised.value)))
    stream(source, sink, **moved, transactionalIdPrefix=name)
    assert committed(broker.bootstrap_servers, sink) == list(range(300))


def rewind(checkpoint: Path, batches: int, *, planned: bool = False) -> int:
    """Has the last batches forgotten; the first of them stays planned unless `planned` says that it is a batch that is
    not done yet, of which that is to be forgotten. The number of the first."""
    last = max(int(path.name) for path in (checkpoint / ("offsets" if planned else "commits")).glob("[0-9]*"))
    first = last - batches + 1
    for number in range(first, last + 1):
        for path in [checkpoint / "commits" / str(number), checkpoint / "offsets" / str(number)]:
            if path.parent.name == "commits" or number > first or planned:
                path.unlink(missing_ok=planned)
                path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    return first


def test_a_query_that_fails_and_is_started_again(stream: Any, topic: Any, send: Any, broker: Any) -> None:
    """Nobody waits for what its tasks have left."""
    source, sink = topic(1), topic(PARTITIONS)
    send(source, [str(number) for number in range(300, 900)])
    with pytest.raises(Exception, match="terminated with exception"):
        stream(source, sink, fail=True)
    assert committed(broker.bootstrap_servers, sink) == list(range(300, 700))
    stream(source, sink)
    assert committed(broker.bootstrap_servers, sink) == list(range(300, 900))


def test_what_is_refused(stream: Any, write: Any, topic: Any, spark: Any, broker: Any) -> None:
    source, sink = topic(1), topic(PARTITIONS)
    # Spark's own word: a batch could be repeated with other offsets.
    with pytest.raises(Exception, match="does not support async progress tracking"):
        stream(source, sink, asyncProgressTrackingEnabled="true")
    with pytest.raises(Exception, match="txnAppId and txnVersion go together"):
        write(sink, 0, 10, txnAppId="app")
