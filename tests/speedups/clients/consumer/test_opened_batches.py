"""Batches of a fetched partition at their limits: memory, counts, errors by name, transactions, and old messages."""

from __future__ import annotations

import gzip
import struct
import zlib
from typing import Any

import pytest
from speedups.clients.consumer.fetched_bytes import fetched, started

from kafkapy.errors import CorruptMessageError, KafkaProtocolError, UnsupportedCodecError
from kafkapy.records.batches import RecordBatchBuilder

NOW = 1_700_000_000_000
HEADER_SIZE = 61
SMALLEST_RECORD = 7
ALL = 1 << 40


def offsets(records: bytes, offset: int = 0, committed: bool = False, **options: Any) -> list[int]:
    partition = started(records, offset, committed, **options)
    taken = [record.offset for record in partition.take(1000)]
    assert partition.take(1) == []
    return taken


def batch(base: int, *values: bytes | None, codec: int = 0, key: bytes | None = None, **build: Any) -> bytes:
    builder = RecordBatchBuilder(base_offset=base)
    for value in values:
        builder.append(NOW, key, value)
    return builder.build(codec, **build)


def opened(records: bytes, budget: int) -> int:
    """The bytes that are held beside the response."""
    partition = fetched(records, budget=budget)
    found = partition.bytes - len(records)
    partition.start("t", 0, False, None, None)
    partition.take(1000)
    assert partition.exhausted
    return found


# --- memory -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
@pytest.mark.parametrize("size", [1, 100, 5_000, 70_000, 300_000, 1_100_000])
def test_a_batch_is_opened_where_all_of_it_may_be(codec: int, size: int) -> None:
    value = bytes(range(256)) * (size // 256 + 1)
    records = batch(0, value[:size], codec=codec)
    whole = len(batch(0, value[:size])) - HEADER_SIZE
    for budget in (0, 1, whole - 1, whole, whole + 1, ALL):
        assert opened(records, budget) == (whole if budget >= whole else 0)


@pytest.mark.parametrize("codec", [1, 4])
def test_behind_a_batch_that_is_not_opened_none_is(codec: int) -> None:
    large, small = (b"x" * 5_000, b"y" * 100)
    sizes = [len(batch(0, value)) - HEADER_SIZE for value in (large, small, small)]
    log = batch(0, large, codec=codec) + batch(1, small) + batch(2, small, codec=codec) + batch(3, small, codec=codec)
    first, second, third = sizes
    for budget, expected in (
        (first - 1, 0),
        (first, first),
        (first + second - 1, first),
        (first + second, first + second),
        (first + second + third - 1, first + second),
        (first + second + third, sum(sizes)),
    ):
        assert opened(log, budget) == expected
    log = batch(0, small, codec=codec) + batch(1, large, codec=codec) + batch(2, small, codec=codec)
    assert opened(log, second + first - 1) == second


def test_old_messages_take_memory_too() -> None:
    plain = message(0, b"v" * 50) + message(1, b"w" * 50)
    wrapped = wrapper(1, plain)
    size = opened(plain, ALL)
    assert size > 100
    assert opened(plain, 0) == size  # they are read from nothing else
    assert [opened(wrapped, budget) for budget in (0, len(plain) - 1, len(plain), ALL)] == [0, 0, size, size]
    compressed = batch(2, b"x" * 500, codec=1)
    whole = len(batch(2, b"x" * 500)) - HEADER_SIZE
    for log, least in ((plain, size), (wrapped, size)):
        for budget, expected in ((least + whole - 1, size), (least + whole, size + whole)):
            assert opened(log + compressed, budget) == expected
    assert opened(wrapped + compressed, len(plain) - 1) == 0


# --- counts and errors --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("count", [1, 2, 60])
def test_the_smallest_records_fill_a_batch(codec: int, count: int) -> None:
    assert len(batch(0, *[None] * count)) == HEADER_SIZE + SMALLEST_RECORD * count
    records = batch(0, *[None] * count, codec=codec)
    for budget in (0, ALL):
        assert offsets(records, budget=budget) == list(range(count))
        assert offsets(batch(0, None) + batch(1, *[None] * count, codec=codec), budget=budget) == list(range(count + 1))
        more = bytearray(records)
        more[HEADER_SIZE - 4 : HEADER_SIZE] = struct.pack(">i", count + 1)
        partition = started(bytes(more), check_crcs=False, budget=budget)
        with pytest.raises(CorruptMessageError, match="its records do not add up"):
            partition.take(1000)
        assert partition.next_offset == 0


@pytest.mark.parametrize(
    ("at", "value", "error", "text"),
    [
        (8, struct.pack(">i", 5), CorruptMessageError, "no batch has its length"),
        (16, b"\x03", CorruptMessageError, "its magic is none of Kafka's message formats"),
        (16, b"\xff", CorruptMessageError, "its magic is none of Kafka's message formats"),
        (57, struct.pack(">i", -1), CorruptMessageError, "its records do not add up"),
        (57, struct.pack(">i", 2), CorruptMessageError, "its records do not add up"),
        (23, struct.pack(">i", -1), CorruptMessageError, "its records do not add up"),
        (21, struct.pack(">h", 1), CorruptMessageError, "it cannot be decompressed"),
        (21, struct.pack(">h", 5), UnsupportedCodecError, "compressed with a codec that is not known"),
    ],
)
def test_errors_have_names(at: int, value: bytes, error: type[Exception], text: str) -> None:
    broken = bytearray(batch(3, b"a"))
    broken[at : at + len(value)] = value
    readable = at not in (8, 16)
    for budget in (0, ALL):
        partition = started(batch(0, b"a", b"b", b"c", leader_epoch=4) + bytes(broken), check_crcs=False, budget=budget)
        # What has no length has no end.
        assert (partition.end_offset, partition.end_epoch) == ((3 if at == 23 else 4, -1) if readable else (3, 4))
        assert [record.offset for record in partition.take(10)] == [0, 1, 2]
        for _ in range(2):
            with pytest.raises(error, match=rf"a record batch of t-3 at offset 3 cannot be read: .*{text}"):
                partition.take(10)
    broken = bytearray(batch(3, b"a"))
    broken[-2] ^= 1
    with pytest.raises(CorruptMessageError, match="its CRC is wrong"):
        started(bytes(broken), 3).take(10)
    assert offsets(bytes(broken), 3, check_crcs=False) == [3]


def test_a_part_of_a_batch_alone_is_an_error_with_its_size() -> None:
    whole = batch(5, b"a")
    for cut in (1, 16, len(whole) - 1):
        partition = started(whole[:cut], 5)
        assert (partition.end_offset, partition.end_epoch, partition.exhausted) == (-1, -1, False)
        with pytest.raises(KafkaProtocolError, match=rf"has sent {cut} bytes of t-3 at offset 5 without one whole"):
            partition.take(1)


# --- transactions -------------------------------------------------------------------------------------------------


def transactional(base: int, count: int = 1, producer_id: int = 1) -> bytes:
    return batch(base, *[b"v"] * count, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)


def control(offset: int, key: bytes | None, producer_id: int = 1) -> bytes:
    return batch(offset, b"", key=key, producer_id=producer_id, producer_epoch=0, transactional=True, control=True)


ABORT, COMMIT = struct.pack(">hh", 0, 0), struct.pack(">hh", 0, 1)


@pytest.mark.parametrize(("first", "read"), [(0, []), (1, []), (2, [0, 1]), (3, [0, 1])])
def test_a_transaction_begins_with_the_batch_that_has_its_first_offset(first: int, read: list[int]) -> None:
    log = transactional(0, 2) + control(2, ABORT)
    assert offsets(log, committed=True, aborted=[(1, first)]) == read
    assert offsets(log, committed=True, aborted=[(2, first)]) == [0, 1]
    assert offsets(log, committed=False, aborted=[(1, first)]) == [0, 1]


@pytest.mark.parametrize(
    ("key", "ends"),
    [
        (ABORT, True),
        (struct.pack(">hh", 1, 0), True),  # of another version
        (ABORT + b"\x01", True),
        (COMMIT, False),
        (struct.pack(">hh", 0, 2), False),
        (struct.pack(">hh", 0, 256), False),
        (ABORT[:3], False),
        (b"", False),
        (None, False),
    ],
)
def test_only_an_abort_marker_ends_an_aborted_transaction(key: bytes | None, ends: bool) -> None:
    log = transactional(0) + control(1, key) + transactional(2)
    assert offsets(log, committed=True, aborted=[(1, 0)]) == ([2] if ends else [])
    log = transactional(0) + control(1, key, producer_id=2) + transactional(2)
    assert offsets(log, committed=True, aborted=[(1, 0)]) == []


def test_what_belongs_to_no_transaction_is_read() -> None:
    log = transactional(0, producer_id=0) + batch(1, b"v") + batch(2, b"v", producer_id=0, producer_epoch=0)
    assert offsets(log, committed=True, aborted=[(0, 0)]) == [1, 2]
    # A marker without its record, after compaction.
    empty = RecordBatchBuilder(base_offset=1).build(
        0, producer_id=1, producer_epoch=0, transactional=True, control=True, last_offset=1
    )
    assert offsets(transactional(0) + empty + transactional(2), committed=True, aborted=[(1, 0)]) == []


# --- old messages -------------------------------------------------------------------------------------------------


def message(
    offset: int,
    value: bytes | None,
    *,
    magic: int = 1,
    attributes: int = 0,
    timestamp: int = NOW,
    key: bytes | None = None,
) -> bytes:
    body = struct.pack(">bb", magic, attributes)
    if magic == 1:
        body += struct.pack(">q", timestamp)
    for each in (key, value):
        body += struct.pack(">i", -1) if each is None else struct.pack(">i", len(each)) + each
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def wrapper(offset: int, inside: bytes, *, attributes: int = 1, **fields: Any) -> bytes:
    return message(offset, gzip.compress(inside), attributes=attributes, **fields)


def rows(records: bytes, offset: int = 0) -> list[tuple[int, int, int, bytes | None, bytes | None]]:
    found = started(records, offset).take(1000)
    return [(each.offset, each.timestamp, each.timestamp_type, each.key, each.value) for each in found]


def test_each_field_of_old_messages() -> None:
    log = (
        message(0, b"a", key=b"k")
        + message(1, None, timestamp=NOW + 5)
        + message(2, b"", attributes=8, timestamp=NOW + 7)
        + message(3, b"d", attributes=8)
        + message(4, b"e", magic=0, key=b"")
        + message(5, b"f")
    )
    assert rows(log) == [
        (0, NOW, 0, b"k", b"a"),
        (1, NOW + 5, 0, None, None),
        (2, NOW + 7, 1, None, b""),
        (3, NOW, 1, None, b"d"),
        (4, -1, -1, b"", b"e"),
        (5, NOW, 0, None, b"f"),
    ]
    assert [each[0] for each in rows(log, 3)] == [3, 4, 5]
    assert fetched(log).end_offset == 6


@pytest.mark.parametrize("far", [1, 1 << 30, (1 << 31) - 1, 1 << 31, 1 << 40])
def test_old_messages_may_be_far_apart(far: int) -> None:
    assert [each[0] for each in rows(message(7, b"a") + message(7 + far, b"b") + message(8 + far, b"c"))] == [
        7,
        7 + far,
        8 + far,
    ]
    inside = message(0, b"a") + message(far, b"b")
    partition = started(wrapper(7 + far, inside))
    if far < 1 << 31:
        assert [each.offset for each in partition.take(10)] == [7, 7 + far]
        assert partition.next_offset == partition.end_offset == 8 + far
    else:
        with pytest.raises(CorruptMessageError, match="its records do not add up"):
            partition.take(10)


def test_old_messages_out_of_order_are_not_read_twice() -> None:
    assert [each[0] for each in rows(message(5, b"a") + message(3, b"b") + message(6, b"c"))] == [5, 6]


@pytest.mark.parametrize(
    ("wrapper_offset", "magic", "inside", "expected"),
    [
        (9, 1, (0, 1, 2), [7, 8, 9]),
        (9, 1, (0, 2), [7, 9]),
        (2, 1, (0, 1, 2), [0, 1, 2]),
        (1, 1, (0, 1, 2), None),
        (0, 1, (4, 5), [4, 5]),  # of a producer that has set no offset
        (9, 1, (8, 9), [8, 9]),  # as the offsets are already
        (9, 0, (8, 9), [8, 9]),
        (3, 0, (8, 9), [8, 9]),
    ],
)
def test_offsets_inside_a_wrapper(
    wrapper_offset: int, magic: int, inside: tuple[int, ...], expected: list[int] | None
) -> None:
    data = wrapper(wrapper_offset, b"".join(message(each, b"v", magic=magic) for each in inside), magic=magic)
    partition = started(data)
    if expected is None:
        with pytest.raises(CorruptMessageError, match="its records do not add up"):
            partition.take(10)
        return
    assert [each.offset for each in partition.take(10)] == expected
    assert partition.next_offset == partition.end_offset == expected[-1] + 1


def test_the_time_of_a_wrapper_is_its_records_where_the_broker_set_it() -> None:
    inside = message(0, b"a", timestamp=1) + message(1, b"b", timestamp=2)
    for attributes, expected in ((1, [(1, 0), (2, 0)]), (9, [(NOW, 1), (NOW, 1)])):
        assert [each[1:3] for each in rows(wrapper(1, inside, attributes=attributes))] == expected


@pytest.mark.parametrize(
    ("data", "error", "text"),
    [
        (wrapper(1, b""), CorruptMessageError, "its records do not add up"),
        (wrapper(1, wrapper(0, message(0, b"a"))), CorruptMessageError, "its records do not add up"),
        (wrapper(1, message(0, b"a")[:-1]), CorruptMessageError, "its records do not add up"),
        (wrapper(1, message(0, b"a", magic=0)), CorruptMessageError, "its records do not add up"),
        (wrapper(1, message(0, b"a")[:-1] + b"b"), CorruptMessageError, "its CRC is wrong"),
        (wrapper(1, struct.pack(">qi", 0, 3) + bytes(40)), CorruptMessageError, "its records do not add up"),
        (message(1, b"abc", attributes=1), CorruptMessageError, "it cannot be decompressed"),
        (message(1, b"abc", attributes=3), CorruptMessageError, "it cannot be decompressed"),
        (message(1, b"abc", attributes=4), UnsupportedCodecError, "a codec that is not known"),
        (message(1, b"abc")[:-1] + b"x", CorruptMessageError, "its CRC is wrong"),
        (struct.pack(">qi", 1, 3) + message(1, b"a")[12:], CorruptMessageError, "no batch has its length"),
    ],
    ids=map(str, range(11)),
)
def test_errors_of_old_messages_have_names(data: bytes, error: type[Exception], text: str) -> None:
    for budget in (0, ALL):
        partition = started(message(0, b"a") + data + message(2, b"z"), budget=budget)
        assert partition.end_offset == (1 if "length" in text else 3)
        assert [each.offset for each in partition.take(10)] == [0]
        with pytest.raises(error, match=text):
            partition.take(10)
    # A part of a message at the end is left for the next fetch.
    whole = message(0, b"a")
    assert [each[0] for each in rows(whole + message(1, b"b")[:-1])] == [0]
