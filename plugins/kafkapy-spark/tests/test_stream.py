"""Streaming reads on a real Spark."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafkapy_spark.checkpoint import done_offsets

from kafkapy import KafkaAdminClient, TopicPartition

pytestmark = pytest.mark.spark


class Query:
    """A streaming query into a memory table that is started, stopped and started again on one checkpoint."""

    def __init__(self, spark: Any, broker: Any, topic: str, checkpoint: Path, **options: object) -> None:
        self.spark, self.broker, self.topic, self.checkpoint = spark, broker, topic, checkpoint
        self.options = {name.replace("__", "."): value for name, value in options.items()}
        self.batches: list[list[str]] = []
        self.at_batch: Callable[[int], None] | None = None

    def start(self, trigger: dict[str, Any] | None = None, fail: bool = False) -> Any:
        def sink(frame: Any, batch_id: int) -> None:
            if fail:
                raise RuntimeError("the sink fails")
            if self.at_batch is not None:
                self.at_batch(batch_id)
            self.batches.append([row.value for row in frame.select("value").collect()])

        frame = (
            self.spark.readStream.format("kafkapy")
            .option("kafka.bootstrap.servers", self.broker.bootstrap_servers)
            .option("subscribe", self.topic)
            .options(**self.options)
            .schema("value string, partition int, offset bigint")
            .load()
        )
        writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(self.checkpoint))
        return writer.queryName(f"q{uuid.uuid4().hex}").trigger(**(trigger or {"processingTime": "0 seconds"})).start()

    def run(self, trigger: dict[str, Any] | None = None) -> list[str]:
        """Everything that one run to the end brings."""
        self.batches.clear()
        query = self.start(trigger or {"availableNow": True})
        assert query.awaitTermination(120)
        return self.values

    @property
    def values(self) -> list[str]:
        return sorted((value for batch in self.batches for value in batch), key=int)

    def offsets(self) -> dict[str, dict[str, int]]:
        """The last offsets in the checkpoint."""
        last = max((self.checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
        found: dict[str, dict[str, int]] = json.loads(last.read_text().splitlines()[-1])
        return found


@pytest.fixture
def query(spark: Any, broker: Any, tmp_path: Path) -> Callable[..., Query]:
    return lambda topic, **options: Query(spark, broker, topic, tmp_path / "checkpoint", **options)


def numbers(*between: int) -> list[str]:
    return [str(number) for number in range(*between)]


def wait_for(condition: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def test_available_now_and_restarts(
    query: Callable[..., Query], topic: Callable[..., str], send: Callable[..., None], broker: Any
) -> None:
    """Acceptance 18: batches of limited size, a restart that goes on, and new partitions from their beginning."""
    name = topic(2)
    send(name, numbers(0, 10), 0)
    send(name, numbers(10, 15), 1)
    reading = query(name, startingOffsets="earliest", maxOffsetsPerTrigger=6)
    assert reading.run() == numbers(0, 15)
    assert [len(batch) for batch in reading.batches] == [0, 6, 6, 3]  # the first one pins the start
    assert reading.offsets() == {name: {"0": 10, "1": 5}}
    assert done_offsets(reading.checkpoint) == (3, [{TopicPartition(name, 0): 10, TopicPartition(name, 1): 5}])
    assert reading.run() == []
    send(name, numbers(15, 17), 1)
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_partitions({name: 3})
    send(name, numbers(17, 20), 2)
    assert reading.run() == numbers(15, 20)
    assert reading.offsets() == {name: {"0": 10, "1": 7, "2": 3}}


def test_available_now_ends_where_the_topic_ended(
    query: Callable[..., Query], topic: Callable[..., str], send: Callable[..., None]
) -> None:
    """Acceptance 18: what comes while a run reads is for the next one."""
    name = topic()
    send(name, numbers(0, 6))
    reading = query(name, startingOffsets="earliest", maxOffsetsPerTrigger=2)
    reading.at_batch = lambda batch: send(name, numbers(6 + batch, 7 + batch))
    assert reading.run() == numbers(0, 6)
    reading.at_batch = None
    assert reading.run() == numbers(6, 10)


def test_a_start_at_the_end_is_pinned(
    query: Callable[..., Query], topic: Callable[..., str], send: Callable[..., None]
) -> None:
    """Acceptance 17: what comes after a query's start is read, also when its first batch with records fails."""
    name = topic()
    send(name, numbers(0, 10))
    reading = query(name)
    started = reading.start(fail=True)
    wait_for(lambda: (reading.checkpoint / "offsets" / "0").exists(), "the first batch")
    send(name, numbers(10, 12))
    with pytest.raises(Exception, match="the sink fails"):
        started.awaitTermination(60)
    send(name, numbers(12, 15))
    assert reading.run() == numbers(10, 15)


def test_a_checkpoint_of_sparks_own_source(
    query: Callable[..., Query], topic: Callable[..., str], send: Callable[..., None]
) -> None:
    """Acceptance 21: a checkpoint goes on under the other format; Spark's source writes its JSON without blanks, and a
    file with the first offsets."""
    name = topic(2)
    send(name, numbers(0, 4), 0)
    send(name, numbers(4, 6), 1)
    reading = query(name, startingOffsets="earliest")
    assert reading.run() == numbers(0, 6)
    for path in (reading.checkpoint / "offsets").glob("[0-9]*"):
        lines = path.read_text().splitlines()
        offsets = json.loads(lines[-1])
        backwards = {topic: dict(reversed(each.items())) for topic, each in offsets.items()}
        path.write_text("\n".join([*lines[:-1], json.dumps(backwards, separators=(",", ":"))]))
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    (reading.checkpoint / "sources" / "0").mkdir(parents=True)
    (reading.checkpoint / "sources" / "0" / "0").write_text(f'v1\n{{"{name}":{{"0":0,"1":0}}}}')
    send(name, numbers(6, 8), 1)
    assert reading.run() == numbers(6, 8)
    assert reading.offsets() == {name: {"0": 4, "1": 4}}


def test_once_reads_all(
    query: Callable[..., Query], topic: Callable[..., str], send: Callable[..., None]
) -> None:
    """Acceptance 18: a trigger of one batch takes everything, limits or not."""
    name = topic()
    send(name, numbers(0, 20))
    reading = query(name, startingOffsets="earliest", maxOffsetsPerTrigger=3)
    assert reading.run({"once": True}) == numbers(0, 20)
    send(name, numbers(20, 22))
    assert reading.run({"once": True}) == numbers(20, 22)


def test_least_offsets_and_delay(
    query: Callable[..., Query], topic: Callable[..., str], send: Callable[..., None]
) -> None:
    """Acceptance 19. The first batch with records is not held back, as with Spark's own source."""
    name = topic()
    send(name, numbers(0, 1))
    reading = query(name, startingOffsets="earliest", minOffsetsPerTrigger=5, maxTriggerDelay="10m", idlePollMs=0)
    running = reading.start()
    try:
        wait_for(lambda: reading.values == numbers(0, 1), "the first batch")
        send(name, numbers(1, 4))
        time.sleep(1)
        assert reading.values == numbers(0, 1)
        send(name, numbers(4, 6))
        wait_for(lambda: reading.values == numbers(0, 6), "five more")
    finally:
        running.stop()
    assert reading.batches[-1] == numbers(1, 6)


def test_lost_partitions(
    query: Callable[..., Query], topic: Callable[..., str], send: Callable[..., None], broker: Any
) -> None:
    """Acceptance 10: a topic deleted and created again under a checkpoint is data loss."""
    name = topic()
    send(name, numbers(0, 10))
    assert query(name, startingOffsets="earliest").run() == numbers(0, 10)
    broker.delete_topic(name)
    broker.create_topic(name, 1)
    send(name, numbers(0, 3))
    with pytest.raises(Exception, match="offset was changed from 10 to 3.*failOnDataLoss"):
        query(name, fetchOffset__retryIntervalMs=10).run()
    assert query(name, fetchOffset__retryIntervalMs=10, failOnDataLoss=False).run() == []


def test_ends_are_refused(query: Callable[..., Query], topic: Callable[..., str]) -> None:
    """Acceptance 5, and nothing else is said."""
    with pytest.raises(Exception, match="ending offset not valid in streaming queries") as raised:
        query(topic(), endingOffsets="latest").run()
    assert "UnboundLocalError" not in str(raised.value)
