"""Streaming writes on a real Spark, read back by a foreign client."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.spark


@pytest.fixture
def lines(spark: Any, tmp_path: Path) -> Callable[..., Any]:
    """A streaming query's rows, a file for a micro-batch: lines(text) writes the next file, lines() is the frame."""
    folder = tmp_path / "lines"
    folder.mkdir()

    def run(text: str | None = None) -> Any:
        if text is None:
            return spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(folder))
        number = len(list(folder.iterdir()))
        (tmp_path / "next").write_text(text)
        os.utime(tmp_path / "next", (1_700_000_000 + number,) * 2)  # Spark takes them in this order
        return (tmp_path / "next").rename(folder / f"{number:04}.txt")

    return run


def finish(writer: Any, broker: Any, checkpoint: Path, topic: str, mode: str) -> None:
    """Runs a query to the end of what is there."""
    query = (
        writer.format("kafkapy")
        .outputMode(mode)
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("topic", topic)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def test_append_and_restart(lines: Any, broker: Any, topic: Any, records: Any, tmp_path: Path) -> None:
    name = topic(2)
    for start in (0, 40):
        for number in range(start, start + 40, 20):
            lines("\n".join(f"line {each}" for each in range(number, number + 20)))
        finish(lines().writeStream, broker, tmp_path / "checkpoint", name, "append")
    assert sorted(row[2] for row in records(name)) == sorted(b"line %d" % number for number in range(80))


def test_complete_writes_every_row_with_every_batch(
    lines: Any, broker: Any, topic: Any, records: Any, tmp_path: Path
) -> None:
    name = topic(1)
    lines("a\na\nb")
    lines("b\nc")
    counts = lines().groupBy("value").count().selectExpr("value AS key", "CAST(count AS STRING) AS value")
    finish(counts.writeStream, broker, tmp_path / "checkpoint", name, "complete")
    found = Counter((row[1], row[2]) for row in records(name))
    assert found == {(b"a", b"2"): 2, (b"b", b"1"): 1, (b"b", b"2"): 1, (b"c", b"1"): 1}


def test_update_mode_goes_by_foreach_batch(lines: Any, broker: Any, topic: Any, records: Any, tmp_path: Path) -> None:
    from kafkapy_spark import foreach_batch

    name = topic(1)
    lines("a\na\nb")
    lines("b\nc")
    counts = lines().groupBy("value").count().selectExpr("value AS key", "CAST(count AS STRING) AS value")
    with pytest.raises(Exception, match="Update mode"):
        finish(counts.writeStream, broker, tmp_path / "refused", name, "update")
    query = (
        counts.writeStream.outputMode("update")
        .foreachBatch(foreach_batch({"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": name}))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found = Counter((row[1], row[2]) for row in records(name))
    assert found == {(b"a", b"2"): 1, (b"b", b"1"): 1, (b"b", b"2"): 1, (b"c", b"1"): 1}


def test_a_batch_that_fails_is_written_again(lines: Any, broker: Any, topic: Any, records: Any, tmp_path: Path) -> None:
    """At least once: what the failed try has left stays, and every row is there in the end."""
    name = topic(1, max_message_bytes=2000)
    lines("\n".join([*(f"ok {number}" for number in range(50)), "x" * 3000]))
    checkpoint = tmp_path / "checkpoint"
    with pytest.raises(Exception, match="MessageTooLargeError"):
        finish(lines().writeStream, broker, checkpoint, name, "append")
    from kafkapy import KafkaAdminClient
    from kafkapy.admin import ConfigResource, ConfigResourceType

    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, {"max.message.bytes": "1000000"})])
    finish(lines().writeStream, broker, checkpoint, name, "append")
    values = [row[2] for row in records(name)]
    assert set(values) == {b"x" * 3000, *(b"ok %d" % number for number in range(50))}
    assert values.count(b"x" * 3000) == 1
