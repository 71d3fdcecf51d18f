"""The conversion kernel: both ways against the builders, and hostile bytes."""

from __future__ import annotations

import random
import struct
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy._speedups.records import message_set
from kafkapy.errors import CorruptMessageError
from kafkapy.records.batches import Record, RecordBatchBuilder, decode_records, iter_batches
from kafkapy.records.legacy import (
    build_message_set,
    decode_message_set,
    down_convert,
    open_message_set,
    up_convert,
)
from kafkapy.types import CompressionType

MAGICS = (0, 1)
BYTES = st.none() | st.binary(max_size=40)
TIMESTAMPS = st.just(-1) | st.integers(0, (1 << 63) - 1)
ROWS = st.lists(st.tuples(st.integers(1, 3), TIMESTAMPS, BYTES, BYTES), min_size=1, max_size=12)
CODECS = st.sampled_from([CompressionType.NONE, CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4])


def batch_of(rows: Any, base: int, codec: int, append_time: int | None) -> tuple[bytes, list[Record]]:
    """A v2 batch with gaps between its offsets, as the cleaner leaves them, and its records."""
    builder = RecordBatchBuilder(base_offset=base)
    records, offset = [], base - 1
    for gap, timestamp, key, value in rows:
        offset += gap
        builder.append(timestamp, key, value, [("h", b"x")], offset=offset)
        stamp = timestamp if append_time is None else append_time
        records.append(Record(offset, stamp, int(append_time is not None), key, value))
    return builder.build(codec, log_append_time=append_time), records


@given(rows=ROWS, base=st.integers(0, 1 << 40), codec=CODECS, magic=st.sampled_from(MAGICS), cut=st.integers(0, 40))
@settings(max_examples=300, deadline=None)
def test_down_conversion_keeps_records(rows: Any, base: int, codec: int, magic: int, cut: int) -> None:
    for append_time in (None, 1234):
        data, records = batch_of(rows, base, codec, append_time)
        made = down_convert(data, magic, first_offset=base + cut)
        expected = [r for r in records if codec or r.offset >= base + cut]
        if magic == 0:
            expected = [Record(r.offset, -1, -1, r.key, r.value) for r in expected]
        assert decode_message_set(made.message_set) == expected
        assert made.record_count == len(expected)
        assert made.end_offset == records[-1].offset + 1


@given(rows=ROWS, codec=CODECS, magic=st.sampled_from(MAGICS))
@settings(max_examples=300, deadline=None)
def test_there_and_back(rows: Any, codec: int, magic: int) -> None:
    written = [Record(i, timestamp if magic else -1, 0, k, v) for i, (_, timestamp, k, v) in enumerate(rows)]
    opened = open_message_set(build_message_set(written, magic, codec))
    converted = up_convert(opened)
    (batch,) = iter_batches(converted.batch, check_crc=True)
    assert list(decode_records(batch)) == written
    assert not converted.bad_timestamps
    back = decode_message_set(down_convert(converted.batch, magic).message_set)
    assert [(r.offset, r.timestamp, r.key, r.value) for r in back] == [
        (r.offset, r.timestamp, r.key, r.value) for r in written
    ]


def some_messages(magic: int) -> bytes:
    return build_message_set([Record(i, 1000 + i, 0, b"key", b"value" * i) for i in range(4)], magic)


@pytest.mark.parametrize("magic", MAGICS)
def test_the_checksum_is_zlibs(magic: int) -> None:
    builder = RecordBatchBuilder()
    for size in range(200):
        builder.append(5, None, random.Random(size).randbytes(size))
    (batch,) = iter_batches(builder.build())
    made, count, last, newest = message_set.from_records(
        batch.payload(), 200, magic, base_offset=0, base_timestamp=batch.base_timestamp
    )
    assert (count, last, newest) == (200, 199, 5)
    position = 0
    for _ in range(count):
        size, crc = struct.unpack_from(">iI", made, position + 8)
        assert crc == zlib.crc32(made[position + 16 : position + 12 + size])
        position += 12 + size
    assert position == len(made)


@pytest.mark.parametrize("magic", MAGICS)
def test_messages_cut_anywhere(magic: int) -> None:
    data = some_messages(magic)
    ends = [batch.position + batch.size for batch in iter_batches(data)]
    for cut in range(len(data)):
        status, records, count, *_ = message_set.to_records(bytearray(data[:cut]), magic)
        assert (status, count) == (message_set.OK, sum(end <= cut for end in ends))
        assert bool(records) == bool(count)


@pytest.mark.parametrize("magic", MAGICS)
def test_every_flipped_bit_of_a_message_is_found(magic: int) -> None:
    data = some_messages(magic)[: len(some_messages(magic)) // 2]
    size = 12 + struct.unpack_from(">i", data, 8)[0]
    for at in range(12, size):
        for bit in range(8):
            broken = bytearray(data)
            broken[at] ^= 1 << bit
            assert message_set.to_records(broken, magic)[0] in (message_set.BAD_CRC, message_set.BAD_MAGIC)


@pytest.mark.parametrize("magic", MAGICS)
def test_spoiled_bytes_never_harm(magic: int) -> None:
    source = random.Random(magic)
    for _ in range(3000):
        broken = bytearray(some_messages(magic))
        for _ in range(source.choice([1, 1, 3])):
            broken[source.randrange(8, len(broken))] = source.choice([0, 1, 0x7F, 0x80, 0xFF, source.randrange(256)])
        position = 0
        while len(broken) - position >= 12:  # checksums put right, so that what they protect is met
            size = struct.unpack_from(">i", broken, position + 8)[0]
            if not 14 <= size <= len(broken) - position - 12:
                break
            struct.pack_into(">I", broken, position + 12, zlib.crc32(broken[position + 16 : position + 12 + size]))
            position += 12 + size
        status, records, count, *_ = message_set.to_records(broken, magic)
        assert status == message_set.OK or (records, count) == (b"", 0)


def test_records_that_do_not_add_up() -> None:
    source = random.Random(5)
    builder = RecordBatchBuilder()
    for number in range(5):
        builder.append(number, b"key", b"value", [("h", b"v")])
    (batch,) = iter_batches(builder.build())
    payload = bytes(batch.payload())

    def convert(data: bytes, count: int) -> Any:
        return message_set.from_records(bytearray(data), count, 1, base_offset=0, base_timestamp=0)

    for cut in range(len(payload)):
        with pytest.raises(CorruptMessageError):
            convert(payload[:cut], 5)
    for count in (4, 6, 0, 0x7FFFFFFF):
        with pytest.raises(CorruptMessageError):
            convert(payload, count)
    for _ in range(3000):
        broken = bytearray(payload)
        for _ in range(source.choice([1, 2, 4])):
            broken[source.randrange(len(broken))] = source.choice([0, 1, 0x7F, 0x80, 0xFF, source.randrange(256)])
        try:
            made = convert(bytes(broken), 5)
        except CorruptMessageError:
            continue
        assert len(decode_message_set(made[0])) == made[1] == 5


def test_other_formats_are_refused() -> None:
    for magic in (-1, 2, 7):
        with pytest.raises(ValueError, match="magic"):
            message_set.to_records(b"", magic)
        with pytest.raises(ValueError, match="magic"):
            message_set.from_records(b"", 0, magic, base_offset=0, base_timestamp=0)
    assert message_set.to_records(some_messages(0), 1)[0] == message_set.BAD_MAGIC
    nested = build_message_set([Record(0, 1, 0, b"k", b"v")], 1, CompressionType.GZIP)
    assert message_set.to_records(nested, 1)[0] == message_set.COMPRESSED
