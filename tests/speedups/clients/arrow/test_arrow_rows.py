"""Rows of Arrow tables become the same records in the same batches as those that are appended one by one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from kafkapy._speedups.clients.producer.produce_frame import ProduceRequestFrame
from kafkapy._speedups.clients.producer.record_accumulator import RecordAccumulator
from kafkapy._speedups.clients.producer.record_sender import RecordSender
from kafkapy._speedups.records.memory_records import iter_batches
from kafkapy.clients.network_client import request_header
from kafkapy.errors import IllegalStateError, RecordTooLargeError
from kafkapy.protocol.header import decode_request

pa = pytest.importorskip("pyarrow")
arrow = pytest.importorskip("kafkapy.arrow")

NODE = 1
LATER = 10**15
HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
TOPICS = {"a": 3, "b": 1, "c": 7}
NAMES = ("key", "value", "headers", "topic", "partition", "timestamp")


class Sender(RecordSender):
    """A producer without a network: what it would have to wait for is noted, and is there at once."""

    def __init__(self, accumulator: RecordAccumulator) -> None:
        self.accumulator = accumulator
        self.waited: list[str] = []
        self.joined: list[tuple[str, int]] = []

    def refuse(self) -> None:
        raise IllegalStateError("closed")

    def await_topic(self, topic: str, partition: int | None, deadline: float | None) -> float:
        self.waited.append(topic)
        self.accumulator.topic(topic).update([(NODE, 0)] * TOPICS[topic])
        return 0.0

    def await_room(self, room: int, deadline: float | None) -> float:
        raise AssertionError("there is room enough")

    def join_transaction(self, queue: Any) -> None:
        self.joined.append((queue.topic.name, queue.partition))
        queue.in_transaction = True


def sender(*, seed: int = 1, batch_size: int = 700, **options: Any) -> Sender:
    """Queues choose partitions for rows without keys by chance: the same for the same seed."""
    random.seed(seed)
    accumulator = RecordAccumulator(64 << 20, batch_size, 5, 1 << 20, [100], **options)
    for name, partitions in TOPICS.items():
        accumulator.topic(name).update([(NODE, 0)] * partitions)
    return Sender(accumulator)


def row_of(chosen: random.Random) -> dict[str, Any]:
    size = chosen.choice((0, 1, 7, 8, 9, 15, 16, 17, 63, 64, 100, 300, 900))
    return {
        "key": chosen.choice((None, b"", chosen.randbytes(chosen.choice((1, 2, 3, 4, 7, 8, 12, 16, 17, 40))))),
        "value": chosen.choice((None, chosen.randbytes(size), chosen.randbytes(size))),
        "headers": chosen.choice((None, [], [("h", b"1"), ("null", None), ("", b"")])),
        "topic": chosen.choice(tuple(TOPICS)),
        "partition": chosen.choice((None, None, 0)),
        "timestamp": chosen.choice((5_000, 5_001, 4_000, 2**41)),
    }


def table_of(rows: list[dict[str, Any]], kind: Any) -> Any:
    columns: dict[str, Any] = {name: [row[name] for row in rows] for name in NAMES}
    columns["headers"] = [
        None if each is None else [{"key": key, "value": value} for key, value in each] for each in columns["headers"]
    ]
    kinds = (kind, kind, HEADERS, pa.string(), pa.int32(), pa.int64())
    return pa.table({name: pa.array(values, kind) for (name, values), kind in zip(columns.items(), kinds, strict=True)})


def batches_of(accumulator: RecordAccumulator) -> Iterator[tuple[str, int, bytes]]:
    """Every batch in the order in which they are sent, as it goes over the wire."""
    while batches := accumulator.drain(NODE, 1 << 40, LATER):
        frame = ProduceRequestFrame(9, request_header(0, 9, "me"), batches, -1, 1000).to_bytes()
        request: Any = decode_request(frame[4:])[1]
        for topic in request.topic_data:
            for partition in topic.partition_data:
                yield topic.name, partition.index, bytes(partition.records)


def one_by_one(to: Sender, rows: list[dict[str, Any]], topic: str | None) -> None:
    for row in rows:
        given = (row["partition"], row["timestamp"], row["key"], row["value"], row["headers"])
        assert to.accumulator.append(topic or row["topic"], *given) is not None


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("topic", [None, "a"])
@pytest.mark.parametrize("options", [{}, {"ignore_keys": True}, {"batch_size": 64}, {"batch_size": 1 << 16}])
def test_batches_are_those_of_single_records(seed: int, topic: str | None, options: dict[str, Any]) -> None:
    chosen = random.Random(seed)
    rows = [row_of(chosen) for _ in range(700)]
    kind = chosen.choice((pa.binary(), pa.large_binary()))
    single, many = sender(seed=seed, **options), sender(seed=seed, **options)
    one_by_one(single, rows, topic)
    table = table_of(rows, kind)
    at = chosen.randrange(700)
    for part in (table.slice(0, at), table.slice(at)):
        if chosen.random() < 0.5:
            arrow.append(many, part, topic)
        else:
            future = arrow.send(many, part, topic)
            assert len(future) == part.num_rows
    for name in ("records_appended", "bytes_appended"):
        assert getattr(many.accumulator, name) == getattr(single.accumulator, name), name
    assert many.accumulator.pool.available == single.accumulator.pool.available
    found = list(batches_of(many.accumulator))
    assert found == list(batches_of(single.accumulator))
    assert sum(len(batch.decode()) for _, _, data in found for batch in iter_batches(data)) == len(rows)


def test_futures_know_where_each_row_went() -> None:
    chosen = random.Random(3)
    to = sender()
    future = arrow.send(to, table_of([row_of(chosen) for _ in range(600)], pa.binary()), "a")
    assert not future.is_done
    offsets = [0, 0, 0]
    while drained := to.accumulator.drain(NODE, 1 << 40, LATER):
        for batch in drained:
            to.accumulator.succeed(batch, offsets[batch.partition], -1)
            offsets[batch.partition] += batch.record_count
    assert sum(offsets) == 600
    places = [(at.partition, first + i) for at, first, count in future.get(1) for i in range(count)]
    assert sorted(places) == [(number, offset) for number in range(3) for offset in range(offsets[number])]


def test_topics_that_are_not_known_yet_are_waited_for() -> None:
    to = Sender(RecordAccumulator(64 << 20, 700, 5, 1 << 20, [100]))
    arrow.append(to, pa.table({"value": [b"v"] * 900, "topic": ["b", "a", "b"] * 300}))
    assert to.waited == ["b", "a"]
    assert to.accumulator.records_appended == 900


def test_partitions_join_the_transaction_once() -> None:
    to = sender()
    to.accumulator.transactional = to.accumulator.idempotent = True
    rows = {"value": [b"v"] * 900, "partition": pa.array([0, 2, 0] * 300, pa.int32())}
    arrow.append(to, pa.table(rows), "a")
    assert to.joined == [("a", 0), ("a", 2)]
    assert to.accumulator.records_appended == 900


def test_a_partition_without_room_in_its_batch_gets_the_next() -> None:
    to = sender(batch_size=1000)
    arrow.append(to, pa.table({"value": [bytes(90)] * 50}), "b")
    counts = [len(batch.decode()) for _, _, data in batches_of(to.accumulator) for batch in iter_batches(data)]
    assert counts == [9, 9, 9, 9, 9, 5]


@pytest.mark.parametrize(
    ("columns", "error", "text"),
    [
        ({"value": ["a"] * 5, "partition": [0, 0, 0, -1, 0]}, ValueError, "row 3 is for partition -1"),
        ({"value": ["a"] * 5, "timestamp": [1, 1, 1, -7, 1]}, ValueError, "row 3 has timestamp -7"),
        ({"value": ["a"] * 5, "topic": ["a", "a", "a", None, "a"]}, ValueError, "row 3 names no topic"),
        ({"value": [b"a", b"a", b"a", bytes(2 << 20), b"a"]}, RecordTooLargeError, r"max\.request\.size"),
        (
            {"value": ["a"] * 5, "headers": [[], [], [], [{"key": None, "value": b"x"}], []]},
            ValueError,
            "a header of row 3 has no name",
        ),
    ],
)
def test_a_row_that_is_no_record(columns: dict[str, Any], error: type[Exception], text: str) -> None:
    to = sender()
    with pytest.raises(error, match=text):
        arrow.append(to, pa.table(columns), None if "topic" in columns else "a")
    assert to.accumulator.records_appended == 3


def test_no_row_is_taken_that_is_not_wanted() -> None:
    to = sender()
    to.accumulator.open = False
    with pytest.raises(IllegalStateError):
        arrow.append(to, pa.table({"value": ["a"]}), "a")
    assert to.accumulator.records_appended == 0


@pytest.mark.parametrize(("saturated", "after"), [(False, [1, 10, 11]), (True, [1, 11])])
def test_the_sender_is_woken_for_a_first_and_for_a_full_batch(saturated: bool, after: list[int]) -> None:
    to = sender(batch_size=61 + 10 * 10)
    calls: list[int] = []

    def wake() -> None:
        calls.append(to.accumulator.records_appended)
        to.accumulator.wake_asked = False

    to.accumulator.wake = wake
    to.accumulator.saturated = saturated
    # Ten bytes each: the tenth fills the batch to its limit.
    arrow.append(to, pa.table({"value": [b"abc"] * 15}), "b")
    assert calls == after


def test_the_first_failure_stays() -> None:
    to = sender()
    arrow.append(to, pa.table({"value": [bytes(90)] * 50}), "b")
    assert to.accumulator.failure is None
    first, second, third = (to.accumulator.drain(NODE, 1 << 40, LATER)[0] for _ in range(3))
    to.accumulator.succeed(first, 0, -1)
    assert to.accumulator.failure is None
    of_record = ValueError("of a record")
    to.accumulator.fail(second, KeyError("of the batch"), {4: of_record, 6: ValueError("another")})
    to.accumulator.fail(third, TypeError("later"))
    assert to.accumulator.failure is of_record
