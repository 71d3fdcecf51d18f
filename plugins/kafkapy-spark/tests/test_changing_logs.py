"""Logs that change under a read: compaction, and retention while a task reads."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from kafkapy_spark import executor_reader
from kafkapy_spark.data_loss import DataLossError
from kafkapy_spark.executor_reader import ReadPlan, read_task
from kafkapy_spark.planning import OffsetRange, pack

from kafkapy import KafkaAdminClient, KafkaProducer, testing
from kafkapy.types import TopicPartition

SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in (("key", "string"), ("value", "string"), ("offset", "long"))
        ],
    }
)


@pytest.fixture(autouse=True)
def _close_idle() -> Iterator[None]:
    yield
    for readers in executor_reader._idle.values():
        for reader in readers:
            reader.close()
    executor_reader._idle.clear()


def plan(bootstrap: str, fail: bool = True, **configs: str) -> ReadPlan:
    kafka = {"bootstrap.servers": bootstrap, **{name.replace("_", "."): value for name, value in configs.items()}}
    return ReadPlan(kafka, SCHEMA, fail, 20_000)


def rows(read: ReadPlan, *ranges: OffsetRange) -> list[tuple[str, str, int]]:
    found = [row for batch in read_task(read, ranges) for row in batch.to_pylist()]
    return [(row["key"], row["value"], row["offset"]) for row in found]


def test_a_compacted_topic() -> None:
    """Acceptance 10: gaps are no loss, wherever ranges begin and end, and each record that is left is read once."""
    at = TopicPartition("compacted", 0)
    with testing.Broker(
        log_cleaner_backoff_ms=50, log_cleaner_min_cleanable_ratio=0.01, log_segment_bytes=1 << 20
    ) as broker:
        broker.create_topic("compacted", 1, {"cleanup.policy": "compact", "segment.bytes": "4096"})
        with KafkaProducer(bootstrap_servers=broker.bootstrap_servers, batch_size=512) as producer:
            for number in range(2000):
                producer.send("compacted", b"%d" % number, key=b"%d" % (number % 7))
                if number % 50 == 0:
                    producer.flush()
        read = plan(broker.bootstrap_servers)
        whole = OffsetRange(at, 0, 2000)
        deadline = time.monotonic() + 120
        while len(left := rows(read, whole)) > 1000:
            assert time.monotonic() < deadline, f"{len(left)} of 2000 records after two minutes"
            time.sleep(0.2)
        # The cleaner goes on: what a later read finds is a part of what an earlier one found.
        parts = [rows(read, *task) for task in pack([whole], 23)]
        again = [row for part in parts for row in part]
    assert set(again) <= set(left) and len(again) == len(set(again))
    assert {key: value for key, value, _ in again} == {str(number % 7): str(number) for number in range(1993, 2000)}
    assert [offset for _, _, offset in again] == sorted(offset for _, _, offset in again)
    assert all(value == str(offset) for _, value, offset in again)


@pytest.mark.parametrize("fail", [True, False])
def test_retention_while_a_task_reads(
    fail: bool, topic: Callable[..., str], producer: KafkaProducer, broker: Any
) -> None:
    """Acceptance 15: records that go while a task is on its way to them."""
    name = topic()
    count, kept = 40_000, 39_990
    for number in range(count):
        producer.send(name, b"%0100d" % number, partition=0)
    producer.flush()
    read = plan(broker.bootstrap_servers, fail, max_partition_fetch_bytes="20000", fetch_max_bytes="20000")
    batches = read_task(read, (OffsetRange(TopicPartition(name, 0), 0, count),))
    offsets = next(batches).column(2).to_pylist()
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_records({TopicPartition(name, 0): kept})
    if fail:
        with pytest.raises(DataLossError, match=f"Cannot fetch offsets .* to {kept} of {name}-0"):
            list(batches)
        return
    offsets += [offset for batch in batches for offset in batch.column(2).to_pylist()]
    assert offsets == sorted(set(offsets))
    assert offsets[0] == 0 and offsets[-10:] == list(range(kept, count))
    assert len(offsets) < count
