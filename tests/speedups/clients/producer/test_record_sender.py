"""The way of a record from send() into the accumulator: what is called with what, and what each refusal asks for."""

from __future__ import annotations

import time
from typing import Any

import pytest

from kafkapy._speedups.clients.producer.record_accumulator import RecordAccumulator
from kafkapy._speedups.clients.producer.record_future import failed_future
from kafkapy._speedups.clients.producer.record_sender import RecordSender, deliver_to
from kafkapy.errors import IllegalStateError, KafkaError, KafkaTimeoutError, NotEnoughReplicasError

NODE = 1
LATER = 10**15


class Sender(RecordSender):
    """Keeps what it is asked for, and mends it."""

    def __init__(self, memory: int = 1 << 20, **options: Any) -> None:
        self.accumulator = RecordAccumulator(memory, 1000, 5, 1 << 20, [1], **options)
        self.asked: list[tuple[Any, ...]] = []

    def refuse(self) -> None:
        self.asked.append(("refuse",))
        raise IllegalStateError("closed")

    def await_topic(self, topic: str, partition: int | None, deadline: Any) -> Any:
        self.asked.append(("topic", topic, partition, deadline))
        if len(self.asked) >= 2:
            self.accumulator.topic(topic).update([(NODE, 0)] * 3)
        return len(self.asked)

    def join_transaction(self, queue: Any) -> None:
        self.asked.append(("join", queue))
        queue.in_transaction = True

    def await_room(self, room: int, deadline: Any) -> Any:
        self.asked.append(("room", room, deadline))
        for batch in self.accumulator.take_all():
            self.accumulator.fail(batch, KafkaError("gone"))
        return len(self.asked)

    def send_intercepted(self, *arguments: Any) -> Any:
        self.asked.append(arguments)
        topic, value, key, headers, partition, timestamp_ms, _ = arguments
        return self.send_plain(topic, value, key, headers, partition, timestamp_ms)

    def known(self, partitions: int = 1) -> Sender:
        self.accumulator.topic("t").update([(NODE, 0)] * partitions)
        return self

    def sent(self) -> list[tuple[Any, ...]]:
        """Key, value, headers and time of every record."""
        from kafkapy._speedups.clients.producer.produce_frame import ProduceRequestFrame
        from kafkapy._speedups.records.memory_records import iter_batches
        from kafkapy.clients.network_client import request_header
        from kafkapy.protocol.header import decode_request

        batches = self.accumulator.drain(NODE, 1 << 20, LATER)
        frame = ProduceRequestFrame(9, request_header(0, 9, "me"), batches, -1, 1000).to_bytes()
        _, request = decode_request(frame[4:])
        found = []
        for topic in request.topic_data:
            for partition in topic.partition_data:
                (batch,) = iter_batches(bytes(partition.records))
                found += [(each.key, each.value, list(each.headers), each.timestamp) for each in batch.decode()]
        return found


def test_a_record_is_what_was_given() -> None:
    sender = Sender().known()
    sender.send("t", b"v", b"k", [("h", b"1")], 0, 0)
    sender.send("t", timestamp_ms=5)
    sender.send_plain("t", b"w", headers=(), timestamp_ms=6)
    sender.send("t", b"x", headers=iter([("i", None)]), timestamp_ms=7)
    assert sender.sent() == [
        (b"k", b"v", [("h", b"1")], 0),
        (None, None, [], 5),
        (None, b"w", [], 6),
        (None, b"x", [("i", None)], 7),
    ]
    assert sender.asked == []


def test_without_a_time_it_is_now() -> None:
    sender = Sender().known()
    before = int(time.time() * 1000)
    sender.send("t", b"v")
    sender.send_plain("t", b"v")
    sender.send_many("t", [b"v", b"v"])
    times = [timestamp for *_, timestamp in sender.sent()]
    assert len(times) == 4
    assert times[2] == times[3]
    assert all(before - 1 <= each <= time.time() * 1000 + 1 for each in times)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"topic": b"t"}, TypeError, "a topic is a str, not bytes"),
        ({"timestamp_ms": -1}, ValueError, "timestamp -1 is negative"),
        ({"partition": -1}, ValueError, "partition -1 is negative"),
        ({"partition": -(2**31)}, ValueError, "is negative"),
    ],
)
def test_what_no_record_can_be(arguments: dict[str, Any], error: type[Exception], text: str) -> None:
    sender = Sender().known()
    with pytest.raises(error, match=text):
        sender.send(**{"topic": "t", "value": b"v", **arguments})
    assert (sender.asked, sender.accumulator.incomplete) == ([], set())


def test_a_topic_may_be_a_kind_of_text() -> None:
    class Name(str):
        def __str__(self) -> str:
            return "another"

    sender = Sender().known()
    assert sender.send(Name("t"), b"v").topic_partition.topic == "t"
    assert sender.asked == []


def test_serializers_get_the_topic_and_the_headers() -> None:
    sender = Sender().known()
    seen: list[Any] = []
    sender.key_serializer = lambda *given: seen.append(given) or b"key"
    sender.value_serializer = lambda *given: seen.append(given) or b"value"
    sender.send("t", "v", "k", [("h", b"1")], timestamp_ms=1)
    sender.send("t", "v", "k", iter([("h", b"1")]), timestamp_ms=1)
    sender.send("t", "v", "k", [], timestamp_ms=1)
    assert seen == [
        *(("t", [("h", b"1")], "k"), ("t", [("h", b"1")], "v")) * 2,
        ("t", None, "k"),
        ("t", None, "v"),
    ]
    assert sender.sent() == [(b"key", b"value", [("h", b"1")], 1)] * 2 + [(b"key", b"value", [], 1)]


# --- refusals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("partition", [None, 2])
def test_a_topic_is_waited_for_with_one_deadline(partition: int | None) -> None:
    sender = Sender()
    future = sender.send("t", b"v", partition=partition)
    assert sender.asked == [("topic", "t", partition, None), ("topic", "t", partition, 1)]
    assert future.topic_partition.partition in ([2] if partition == 2 else [0, 1, 2])


def test_a_partitioner_is_asked_once_the_topic_is_known() -> None:
    sender = Sender()
    sender.accumulator.topic("t")
    seen: list[Any] = []
    sender.key_serializer = lambda topic, headers, key: b"raw key"
    sender.partitioner = lambda *given: seen.append(given) or 0
    assert sender.send("t", b"v", "key").topic_partition.partition == 0
    assert sender.asked == [("topic", "t", None, None), ("topic", "t", None, 1)]
    assert seen == [("t", "key", b"raw key", b"v", b"v")]
    sender.send("t", b"v", "key", partition=1)
    assert len(seen) == 1
    sender.partitioner = lambda *given: -1
    with pytest.raises(ValueError, match="the partitioner has chosen partition -1 of t"):
        sender.send("t", b"v")
    sender.partitioner = lambda *given: 5
    sender.asked.clear()

    def await_topic(topic: str, partition: int | None, deadline: Any) -> Any:
        assert (topic, partition, deadline) == ("t", 5, None)
        raise KafkaTimeoutError("no such partition")

    sender.await_topic = await_topic  # type: ignore[method-assign]
    with pytest.raises(KafkaTimeoutError, match="no such partition"):
        sender.send("t", b"v")


def test_a_closed_producer_refuses_before_it_waits() -> None:
    for partitioner in (None, lambda *given: 0):
        sender = Sender()
        sender.partitioner = partitioner
        sender.accumulator.open = False
        with pytest.raises(IllegalStateError, match="closed"):
            sender.send("t", b"v")
        assert sender.asked == [("refuse",)]


def test_a_partition_joins_the_transaction_with_its_record() -> None:
    sender = Sender().known(2)
    sender.accumulator.transactional = True
    sender.send("t", b"v", partition=1)
    sender.send("t", b"v", partition=1)
    assert sender.asked == [("join", sender.accumulator.queue("t", 1))]
    assert sender.accumulator.queue("t", 1).batches[0].record_count == 2


@pytest.mark.parametrize(
    ("key", "value", "headers", "room"),
    [
        (None, bytes(950), None, 1057),
        (bytes(10), bytes(950), None, 1067),
        (bytes(950), None, None, 1057),
        (bytes(950), b"", None, 1057),
        (None, bytes(950), [("h", b"12345")], 1065),
        (None, bytes(500), None, 1000),
    ],
)
def test_room_is_waited_for_as_much_as_the_record_may_need(key: Any, value: Any, headers: Any, room: int) -> None:
    sender = Sender(memory=1100).known(2)
    sender.send("t", b"v", partition=0)
    future = sender.send("t", value, key, headers, partition=1)
    assert sender.asked == [("room", room, None)]
    assert not future.is_done


# --- many ---------------------------------------------------------------------------------------------------------


def test_many_records_have_one_future() -> None:
    sender = Sender().known(3)
    future = sender.send_many("t", [b"a", b"b", b"c"], [b"1", None, b"3"], [("h", b"x")], 0, 9)
    assert len(future) == 3
    assert sender.sent() == [
        (b"1", b"a", [("h", b"x")], 9),
        (None, b"b", [("h", b"x")], 9),
        (b"3", b"c", [("h", b"x")], 9),
    ]
    assert len(sender.send_many("t", [])) == 0
    assert len(sender.send_many("t", [], [])) == 0
    assert len(sender.send_many("t", [b"a"] * 5000)) == 5000


@pytest.mark.parametrize(
    ("values", "keys", "text", "on_their_way"),
    [
        (3, 2, "there are 2 keys, but more values", 2),
        (1, 0, "there are 0 keys, but more values", 0),
        (2, 3, "there are 2 values, but more keys", 2),
        (0, 1, "there are 0 values, but more keys", 0),
    ],
)
def test_there_are_as_many_keys_as_values(values: int, keys: int, text: str, on_their_way: int) -> None:
    sender = Sender().known()
    with pytest.raises(ValueError, match=text):
        sender.send_many("t", [b"v"] * values, [b"k"] * keys, partition=0)
    assert sum(batch.record_count for batch in sender.accumulator.incomplete) == on_their_way


# --- interceptors and callbacks -----------------------------------------------------------------------------------


def test_interceptors_get_the_arguments_as_they_were_given() -> None:
    sender = Sender().known()
    sender.interceptors = object()
    called: list[Any] = []
    sender.send("t", b"v", b"k", [("h", b"1")], 0, 5, called.append)
    sender.send("t", b"v")
    sender.send_many("t", [b"a"], [b"k"], None, 0, 7)
    assert sender.asked == [
        ("t", b"v", b"k", [("h", b"1")], 0, 5, called.append),
        ("t", b"v", None, None, None, None, None),
        ("t", b"a", b"k", None, 0, 7, None),
    ]


def test_a_callback_gets_the_result_or_the_error() -> None:
    sender = Sender().known()
    got: list[Any] = []
    error = NotEnoughReplicasError("x")
    first = sender.send("t", b"v", partition=0, callback=lambda *result: got.append(result))
    (batch,) = sender.accumulator.drain(NODE, 1 << 20, LATER)
    assert got == []
    sender.accumulator.succeed(batch, 4, -1)
    second = sender.send("t", b"v", partition=0, callback=lambda *result: got.append(result))
    (batch,) = sender.accumulator.drain(NODE, 1 << 20, LATER)
    sender.accumulator.fail(batch, error)
    assert got == [(first.value, None), (None, error)]
    assert first.value is not None
    assert first.value.offset == 4
    assert (second.retriable(), first.retriable()) == (True, False)
    late: list[Any] = []
    deliver_to(failed_future("t", 3, error), lambda *result: late.append(result))
    assert late == [(None, error)]
    assert failed_future("t", 3, error).topic_partition.partition == 3
