"""ConsumerRecord: looks like kafka-python's named tuple, makes its fields once and late, and lets memory go."""

from __future__ import annotations

import gc
import json
import os
import pickle
from typing import Any

import kafka.consumer.fetcher
import pytest

from kafkapy._speedups.clients.consumer.consumer_record import ConsumerRecord
from kafkapy._speedups.clients.consumer.fetch_frame import FetchResponseFrame
from kafkapy.errors import RecordDeserializationError, SerializationError
from kafkapy.protocol.messages.fetch import FetchResponse
from kafkapy.records.batches import RecordBatchBuilder

NOW = 1_700_000_000_000
HEADERS: list[tuple[str, bytes | None]] = [("trace", b"abc"), ("größe", None), ("", b"")]


def fetched(
    *values: bytes | None,
    key: bytes | None = b"key",
    key_deserializer: Any = None,
    value_deserializer: Any = None,
    headers: list[tuple[str, bytes | None]] = HEADERS,
    codec: int = 0,
) -> list[ConsumerRecord]:
    return taken(reply(*values, key=key, headers=headers, codec=codec), key_deserializer, value_deserializer)


def reply(
    *values: bytes | None,
    key: bytes | None = b"key",
    headers: list[tuple[str, bytes | None]] = HEADERS,
    codec: int = 0,
) -> bytes:
    """A response to Fetch."""
    builder = RecordBatchBuilder(base_offset=5)
    for value in values:
        builder.append(NOW, key, value, headers)
    data = builder.build(codec, leader_epoch=7)
    response = FetchResponse(
        responses=[
            FetchResponse.TopicResponse(
                topic="orders",
                partitions=[FetchResponse.TopicResponse.Partition(partition_index=3, high_watermark=9, records=data)],
            )
        ]
    )
    return b"\x00\x00\x00\x01" + response.encode(11)


def taken(response: bytes, key_deserializer: Any = None, value_deserializer: Any = None) -> list[ConsumerRecord]:
    """All records of a response."""
    frame = FetchResponseFrame(11)
    frame.feed(response)
    (partition,) = frame.partitions()
    partition.start("orders", 0, False, key_deserializer, value_deserializer)
    return partition.take(100_000)


def test_the_fields_are_kafka_pythons() -> None:
    (record,) = fetched(b"value")
    theirs = kafka.consumer.fetcher.ConsumerRecord(
        "orders", 3, 7, 5, NOW, 0, b"key", b"value", HEADERS, None, 3, 5, len("tracegröße".encode()) + 3
    )
    assert ConsumerRecord._fields == theirs._fields
    for name in theirs._fields:
        assert getattr(record, name) == getattr(theirs, name)
    assert tuple(record) == tuple(theirs)
    assert record == tuple(theirs)
    assert record._asdict() == theirs._asdict()
    assert len(record) == len(theirs)
    assert record[6:8] == theirs[6:8] == (b"key", b"value")
    assert record[-1] == theirs[-1]
    assert repr(record) == repr(theirs)
    topic, partition, *_ = record
    assert (topic, partition) == ("orders", 3)
    assert b"value" in record
    with pytest.raises(AttributeError):
        record.value = b"x"  # type: ignore[misc]


def test_nulls_and_no_headers() -> None:
    (record,) = fetched(None, key=None, headers=[])
    assert (record.key, record.value, record.headers) == (None, None, [])
    assert (record.serialized_key_size, record.serialized_value_size, record.serialized_header_size) == (-1, -1, -1)
    (record,) = fetched(b"", key=b"", headers=[])
    assert (record.key, record.value) == (b"", b"")
    assert (record.serialized_key_size, record.serialized_value_size) == (0, 0)


def test_comparison_hash_pickle_and_replace() -> None:
    one, two = fetched(b"a", b"a")
    (again,) = fetched(b"a")
    assert one == again
    assert hash(one) == hash(again)
    assert one != two
    assert one < two
    assert one != "a"
    assert pickle.loads(pickle.dumps(one)) == one
    changed = one._replace(value=b"other", offset=99)
    assert (changed.value, changed.offset, changed.key) == (b"other", 99, b"key")
    with pytest.raises(ValueError, match="no field"):
        one._replace(colour=1)


def test_a_record_can_be_made_for_a_test_of_ones_own() -> None:
    record = ConsumerRecord("t", 0, -1, 5, NOW, 0, "key", {"a": 1}, [("h", b"x")])
    assert (record.topic, record.offset, record.key, record.value, record.headers) == (
        "t",
        5,
        "key",
        {"a": 1},
        [("h", b"x")],
    )
    assert ConsumerRecord(**record._asdict()) == record
    with pytest.raises(ValueError, match="checksum"):
        ConsumerRecord("t", 0, -1, 5, NOW, 0, None, None, [], 7)  # type: ignore[arg-type]


def test_sizes_and_deliveries_that_are_not_given_are_unknown() -> None:
    def told(record: ConsumerRecord) -> tuple[Any, ...]:
        sizes = record.serialized_key_size, record.serialized_value_size, record.serialized_header_size
        return *sizes, record.delivery_count, record.headers

    record = ConsumerRecord("t", 0, -1, 5, NOW, 0, None, None)
    assert told(record) == (-1, -1, -1, None, [])
    full = ConsumerRecord("t", 0, -1, 5, NOW, 0, b"k", b"v", (("h", b"x"),), None, 3, 4, 5, 2)
    assert told(full) == (3, 4, 5, 2, (("h", b"x"),))
    for again in (pickle.loads(pickle.dumps(full)), full._replace(value=b"w")):
        assert told(again) == told(full)
    assert told(pickle.loads(pickle.dumps(record))) == told(record)
    with pytest.raises(ValueError, match="no checksum of their own"):
        ConsumerRecord("t", 0, -1, 5, NOW, 0, None, None, None, 1)


def test_the_size_of_headers_is_known_before_they_are() -> None:
    (record,) = fetched(b"v")
    assert record.serialized_header_size == len("tracegröße".encode()) + 3
    (record,) = fetched(b"v", headers=[("h", None), ("i", b"12")])
    assert record.serialized_header_size == 4


def test_names_of_headers_that_are_not_utf8_are_replaced() -> None:
    (record,) = fetched(b"v", headers=[("ok", b"x")])
    assert record.headers == [("ok", b"x")]
    assert record.headers is record.headers


# --- deserializers --------------------------------------------------------------------------------------------------


def test_a_deserializer_is_called_once_and_only_when_needed() -> None:
    calls: list[bytes] = []

    def load(data: bytes) -> Any:
        calls.append(data)
        return json.loads(data)

    record, other = fetched(b'{"a": 1}', b"[]", value_deserializer=load)
    assert calls == []
    assert record.value == {"a": 1}
    assert record.value is record.value
    assert calls == [b'{"a": 1}']
    assert (record.key, record.serialized_value_size) == (b"key", 8)
    assert other.key == b"key"
    assert len(calls) == 1


def test_deserializers_may_want_topic_and_headers() -> None:
    class Three:
        def deserialize(self, topic: str, headers: Any, data: bytes | None) -> Any:
            return (topic, headers, data)

    class Two:
        def deserialize(self, topic: str, data: bytes | None) -> Any:
            return (topic, data)

    (record,) = fetched(None, key_deserializer=Three(), value_deserializer=Two())
    assert record.key == ("orders", HEADERS, b"key")
    assert record.value == ("orders", None)


def test_a_deserializer_that_fails_says_where_and_may_succeed_later() -> None:
    answers: list[Any] = [ValueError("no such schema"), "fine"]

    def load(data: bytes) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    (record,) = fetched(b"x", value_deserializer=load)
    with pytest.raises(SerializationError, match=r"value .* offset 5 of orders-3.*no such schema") as caught:
        _ = record.value
    assert isinstance(caught.value, RecordDeserializationError)
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("orders", 3, 5)
    assert isinstance(caught.value.__cause__, ValueError)
    assert record.value == "fine"


# --- memory ---------------------------------------------------------------------------------------------------------


def resident() -> int:
    with open("/proc/self/statm") as file:  # noqa: PTH123
        return int(file.read().split()[1]) * 4096


@pytest.mark.skipif("KAFKAPY_ASAN" in os.environ, reason="AddressSanitizer holds back freed memory")
@pytest.mark.parametrize("codec", [0, 4])
def test_records_whose_fields_were_made_do_not_hold_the_response(codec: int) -> None:
    kept = []
    before = None
    response = reply(*[bytes([i % 256]) * 1000 for i in range(2000)], codec=codec, headers=[])
    for turn in range(30):
        records = taken(bytes(bytearray(response)))  # a copy each time
        record = records[7]
        assert (record.value[:1], record.key, record.headers) == (b"\x07", b"key", [])
        kept.append(record)
        del records
        gc.collect()
        if turn == 5:
            before = resident()
    assert before is not None
    assert resident() - before < 12 << 20  # 24 responses of 2 MB would be 48
    assert {record.offset for record in kept} == {12}


def test_many_records_come_and_go() -> None:
    for _ in range(20):
        records = fetched(*[b"v"] * 3000)
        assert all(record.headers[0] == ("trace", b"abc") for record in records[::7])
        assert sum(record.offset for record in records) == sum(range(5, 3005))


def test_headers_stay_while_another_thread_makes_the_rest() -> None:
    names = [f"{i:04}" for i in range(1000)]
    headers: list[tuple[str, bytes | None]] = [(name, b"a" * 400) for name in names]
    others: list[tuple[str, bytes | None]] = [(name, b"z" * 400) for name in names]
    (record,) = fetched(b"value", headers=headers)
    kept: list[Any] = []

    def meanwhile(phase: str, info: dict[str, int]) -> None:
        """What another thread may do at a collection: the record is made, its memory goes to the next response."""
        if phase == "start" and not kept:
            kept.append((record.key, record.value))
            kept.append(record.headers)
            kept.append(fetched(b"value", headers=others))

    gc.callbacks.append(meanwhile)
    thresholds = gc.get_threshold()
    gc.set_threshold(300, 1000, 1000)
    try:
        made = record.headers
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(meanwhile)
    assert len(kept) == 3
    assert made == kept[1] == headers
