"""What a task reads, without Spark around it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
from kafkapy_spark import executor_reader
from kafkapy_spark.data_loss import DataLossError
from kafkapy_spark.executor_reader import BATCH_ROWS, ReadPlan, read_task
from kafkapy_spark.planning import OffsetRange, Task

from kafkapy import KafkaAdminClient, KafkaProducer
from kafkapy.errors import KafkaTimeoutError, OffsetOutOfRangeError
from kafkapy.types import TopicPartition

HEADERS = {
    "type": "array",
    "containsNull": True,
    "elementType": {
        "type": "struct",
        "fields": [
            {"name": "key", "type": "string", "nullable": True, "metadata": {}},
            {"name": "value", "type": "binary", "nullable": True, "metadata": {}},
        ],
    },
}


def schema(**columns: Any) -> str:
    """Spark's JSON of a schema."""
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns.items()]
    return json.dumps({"type": "struct", "fields": fields})


@pytest.fixture
def plan(broker: Any) -> Callable[..., ReadPlan]:
    def make(fail_on_data_loss: bool = True, poll_timeout_ms: int = 20_000, configs: Any = None, **columns: Any) -> Any:
        kafka = {"bootstrap.servers": broker.bootstrap_servers, **(configs or {})}
        return ReadPlan(kafka, schema(**columns), fail_on_data_loss, poll_timeout_ms)

    return make


@pytest.fixture(autouse=True)
def idle() -> Any:
    """The consumers that wait for the next task; closed after the test."""
    yield executor_reader._idle
    for readers in executor_reader._idle.values():
        for reader in readers:
            reader.close()
    executor_reader._idle.clear()


def one(topic: str, start: int, end: int, partition: int = 0) -> Task:
    return (OffsetRange(TopicPartition(topic, partition), start, end),)


def table(plan: ReadPlan, task: Task) -> pa.Table:
    return pa.Table.from_batches(list(read_task(plan, task)))


def test_types_are_those_that_spark_takes(
    plan: Callable[..., ReadPlan], topic: Callable[..., str], producer: KafkaProducer
) -> None:
    """Acceptance 8: what Spark compares a first batch's schema with."""
    name = topic()
    producer.send(name, b"v", key=b"k", headers=[("h", b"1"), ("g", None)], timestamp_ms=1_700_000_000_123)
    producer.send(name, None, timestamp_ms=0)
    producer.flush()
    read = plan(
        key="binary",
        value="string",
        topic="string",
        partition="integer",
        offset="long",
        timestamp="timestamp",
        timestampType="integer",
        headers=HEADERS,
    )
    batches = list(read_task(read, one(name, 0, 2)))
    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    assert batches[0].schema == pa.schema(
        {
            "key": pa.binary(),
            "value": pa.string(),
            "topic": pa.string(),
            "partition": pa.int32(),
            "offset": pa.int64(),
            "timestamp": pa.timestamp("us", tz="UTC"),
            "timestampType": pa.int32(),
            "headers": pa.list_(pa.field("element", header)),
        }
    )
    for batch in batches:
        batch.validate(full=True)
    rows = pa.Table.from_batches(batches).set_column(
        5, "timestamp", pa.Table.from_batches(batches)["timestamp"].cast(pa.int64())
    )
    assert rows.to_pylist() == [
        {
            "key": b"k", "value": "v", "topic": name, "partition": 0, "offset": 0, "timestamp": 1_700_000_000_123_000,
            "timestampType": 0, "headers": [{"key": "h", "value": b"1"}, {"key": "g", "value": None}],
        },
        {
            "key": None, "value": None, "topic": name, "partition": 0, "offset": 1, "timestamp": 0,
            "timestampType": 0, "headers": None,
        },
    ]  # fmt: skip
    columns = [field.name for field in batches[0].schema]
    reverse = schema(**{name: json.loads(read.schema_json)["fields"][at]["type"]
                        for at, name in reversed(list(enumerate(columns)))})  # fmt: skip
    again = table(ReadPlan(read.kafka, reverse, True, 20_000), one(name, 0, 2))
    assert again.column_names == columns[::-1]


def test_exactly_the_range(plan: Callable[..., ReadPlan], topic: Callable[..., str], send: Callable[..., None]) -> None:
    one_topic, other = topic(2), topic()
    for partition in range(2):
        send(one_topic, [f"{partition}-{number}" for number in range(100)], partition)
    send(other, [f"o-{number}" for number in range(50)])
    task = (
        *one(one_topic, 10, 15, 0),
        *one(one_topic, 0, 3, 1),
        *one(other, 49, 50),
    )
    found = table(plan(topic="string", value="string", offset="long"), task)
    assert sorted(found["value"].to_pylist()) == sorted(
        [f"0-{number}" for number in range(10, 15)] + ["1-0", "1-1", "1-2", "o-49"]
    )
    topics = [name for name, value in zip(*(found[c].to_pylist() for c in ("topic", "value")), strict=True)]
    assert topics.count(other) == 1 and topics.count(one_topic) == 8


def test_batches_are_bounded_and_in_order(
    plan: Callable[..., ReadPlan], topic: Callable[..., str], send: Callable[..., None]
) -> None:
    name = topic()
    count = 3 * BATCH_ROWS + 5
    send(name, [b"x"] * count)
    batches = list(read_task(plan(offset="long"), one(name, 0, count)))
    assert max(batch.num_rows for batch in batches) <= BATCH_ROWS
    assert pa.Table.from_batches(batches)["offset"].to_pylist() == list(range(count))


def test_memory_is_not_used_again_while_a_part_of_a_batch_is_held(
    plan: Callable[..., ReadPlan], topic: Callable[..., str], producer: KafkaProducer
) -> None:
    """Buffers go back for a later batch once nothing refers to them: no batch, no slice of a column."""
    name = topic()
    count = 6 * BATCH_ROWS
    for number in range(count):
        producer.send(name, b"%0100d" % number, key=b"%08d" % number, headers=[("h", b"%012d" % number)])
    producer.flush()
    read = plan(key="string", value="binary", offset="long", headers=HEADERS)

    def address(batch: pa.RecordBatch) -> int:
        return int(batch.column(1).buffers()[2].address)

    # Dropped, one after the other: the memory of one becomes that of another.
    addresses = [address(batch) for batch in read_task(read, one(name, 0, count))]
    assert len(set(addresses)) < len(addresses)

    held: list[tuple[int, list[Any]]] = []
    addresses = []
    at = 0
    for batch in read_task(read, one(name, 0, count)):
        addresses.append(address(batch))
        rows = batch.num_rows
        parts = [batch.column(column).slice(rows // 2, 50) for column in range(3)]
        parts.append(batch.column(3).values.field(1).slice(rows // 2, 50))
        held.append((at + rows // 2, parts))
        at += rows
        del batch, parts
    assert at == count and len(set(addresses)) == len(addresses)
    for first, (keys, values, offsets, headers) in held:
        numbers = range(first, first + len(keys))
        assert keys.to_pylist() == [f"{number:08}" for number in numbers]
        assert values.to_pylist() == [b"%0100d" % number for number in numbers]
        assert offsets.to_pylist() == list(numbers)
        assert headers.to_pylist() == [b"%012d" % number for number in numbers]


def test_consumers_are_used_again(
    plan: Callable[..., ReadPlan], topic: Callable[..., str], send: Callable[..., None], idle: Any
) -> None:
    name = topic(2)
    send(name, ["a"] * 5, 0)
    send(name, ["b"] * 5, 1)
    read = plan(value="string")
    assert table(read, one(name, 0, 3)).num_rows == 3
    ((reader,),) = idle.values()
    for task, expected in (
        (one(name, 2, 5), ["a"] * 3),
        (one(name, 0, 5, 1), ["b"] * 5),
        ((*one(name, 0, 2), *one(name, 4, 5, 1)), ["a", "a", "b"]),
    ):
        assert sorted(table(read, task)["value"].to_pylist()) == expected
        assert list(idle.values()) == [[reader]]


def test_few_consumers_wait_for_tasks(
    plan: Callable[..., ReadPlan], topic: Callable[..., str], send: Callable[..., None], idle: Any
) -> None:
    """A worker that serves many users' queries keeps the connections of the last ones only."""
    name = topic()
    send(name, ["a"] * 5)
    threads = threading.active_count()
    for number in range(5):
        read = plan(value="string", configs={"client.id": f"c{number}"})
        assert table(read, one(name, 0, 5)).num_rows == 5
    assert [json.loads(key)["client.id"] for key in idle] == ["c3", "c4"]
    assert all(len(readers) == 1 for readers in idle.values())
    assert threading.active_count() <= threads + 2 * executor_reader.MAX_IDLE_CONSUMERS
    assert table(plan(value="string", configs={"client.id": "c3"}), one(name, 0, 5)).num_rows == 5
    assert [json.loads(key)["client.id"] for key in idle] == ["c4", "c3"]


def test_a_task_that_ends_early_closes_its_connections(
    plan: Callable[..., ReadPlan], topic: Callable[..., str], send: Callable[..., None], idle: Any
) -> None:
    """Acceptance 14: what LIMIT does to a task."""
    name = topic()
    send(name, [b"x"] * 2 * BATCH_ROWS)
    threads = set(threading.enumerate())
    batches = read_task(plan(value="binary"), one(name, 0, 2 * BATCH_ROWS))
    assert next(batches).num_rows
    assert set(threading.enumerate()) > threads
    batches.close()  # type: ignore[attr-defined]
    assert not any(idle.values())
    deadline = time.monotonic() + 20
    while set(threading.enumerate()) - threads:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_lost_records(
    plan: Callable[..., ReadPlan], topic: Callable[..., str], send: Callable[..., None], broker: Any
) -> None:
    """Acceptance 15."""
    name = topic()
    send(name, [str(number) for number in range(10)])
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_records({TopicPartition(name, 0): 6})
    with pytest.raises(DataLossError, match=f"Cannot fetch offsets 2 to 6 of {name}-0"):
        table(plan(value="string"), one(name, 2, 10))
    lenient = plan(fail_on_data_loss=False, value="string")
    assert table(lenient, one(name, 2, 10))["value"].to_pylist() == ["6", "7", "8", "9"]
    assert list(read_task(lenient, one(name, 2, 4))) == []
    assert list(read_task(lenient, one(name, 20, 30))) == []
    assert table(lenient, one(name, 9, 10))["value"].to_pylist() == ["9"]


def test_brokers_that_disagree_about_a_range_do_not_hold_up_a_task_for_ever(
    plan: Callable[..., ReadPlan],
    topic: Callable[..., str],
    send: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An offset is out of range for a fetch, and in range by the offsets that are listed."""
    name = topic()
    send(name, ["a"] * 3)
    asked = []

    def end_offsets(self: Any, partitions: Any, timeout_ms: int | None = None) -> dict[TopicPartition, int]:
        asked.append(time.monotonic())
        return dict.fromkeys(partitions, 50)

    monkeypatch.setattr(executor_reader.RangeReader, "end_offsets", end_offsets)
    with pytest.raises(OffsetOutOfRangeError):
        list(read_task(plan(poll_timeout_ms=400, value="string"), one(name, 20, 30)))
    assert 2 <= len(asked) <= 10
    assert asked[-1] - asked[0] >= 0.3


def test_nothing_comes(plan: Callable[..., ReadPlan], topic: Callable[..., str], send: Callable[..., None]) -> None:
    name = topic()
    send(name, ["a"])
    read = plan(poll_timeout_ms=200, value="string")
    batches = read_task(read, one(name, 0, 5))
    assert next(batches).num_rows == 1
    with pytest.raises(KafkaTimeoutError, match=f"Cannot fetch record for offset 1 of {name}-0 in 200 milliseconds"):
        next(batches)


def test_records_of_aborted_transactions_and_markers(
    plan: Callable[..., ReadPlan], topic: Callable[..., str], broker: Any
) -> None:
    """Acceptance 10: a range may end with what nobody sees."""
    name = topic()
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id=name) as producer:
        producer.init_transactions()
        for value in ("committed", "aborted"):
            producer.begin_transaction()
            producer.send(name, value.encode())
            producer.flush()
            if value == "committed":
                producer.commit_transaction()
            else:
                producer.abort_transaction()
    committed = plan(configs={"isolation.level": "read_committed"}, value="string")
    assert table(committed, one(name, 0, 4))["value"].to_pylist() == ["committed"]
    assert table(plan(value="string"), one(name, 0, 4))["value"].to_pylist() == ["committed", "aborted"]
    assert list(read_task(committed, one(name, 2, 4))) == []
