"""Records whose fields are short are read in a faster way: columns that are made so against records that are not."""

from __future__ import annotations

import random
from typing import Any

import pytest
from clients.consumer.fetched import chunk

from kafkapy._speedups.base.crc32c import crc32c
from kafkapy._speedups.clients.consumer.fetched_partition import FetchedPartition
from kafkapy.errors import CorruptMessageError
from kafkapy.records.batches import RecordBatchBuilder

pa = pytest.importorskip("pyarrow")
arrow = pytest.importorskip("kafkapy.arrow")

NOW = 1_700_000_000_000
SIZES = (0, 1, 3, 4, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 8190, 8191, 8192, 16_384, 1 << 20)
"""Around what a byte, two and three hold of a length, and what is copied in one way or the other."""
COLUMNS = ["key", "value", "offset", "timestamp"]


def batch(rows: list[tuple[int, bytes | None, bytes | None]], offsets: list[int] | None = None) -> bytes:
    builder = RecordBatchBuilder(base_offset=0)
    for at, (time, key, value) in enumerate(rows):
        builder.append(NOW + time, key, value, offset=offsets[at] if offsets else None)
    return builder.build(0)


def read(data: bytes) -> FetchedPartition:
    return chunk(data, start=0)


def by_columns(data: bytes) -> tuple[list[Any], type[Exception] | None]:
    builder = arrow.TableBuilder(COLUMNS)
    error = None
    try:
        partition = read(data)
        while builder.add(partition, 2):
            pass
    except Exception as raised:
        error = type(raised)
    table = builder.table()
    table.validate(full=True)
    times = table["timestamp"].cast(pa.int64()).to_pylist()
    columns = (table["key"].to_pylist(), table["value"].to_pylist(), table["offset"].to_pylist(), times)
    return list(zip(*columns, strict=True)), error


def by_records(data: bytes) -> tuple[list[Any], type[Exception] | None]:
    records: list[Any] = []
    error = None
    try:
        partition = read(data)
        while taken := partition.take(2):
            records += taken
    except Exception as raised:
        error = type(raised)
    times = [None if each.timestamp == -1 else each.timestamp for each in records]
    return [(each.key, each.value, each.offset, time) for each, time in zip(records, times, strict=True)], error


@pytest.mark.parametrize("size", SIZES)
def test_every_length_is_read(size: int) -> None:
    data = bytes(number % 251 for number in range(size))
    rows = [(0, data, None), (1, None, data), (2, data, data), (3, None, None), (4, b"", b"x")]
    found, error = by_columns(batch(rows))
    assert error is None
    assert found == [(key, value, at, NOW + time) for at, (time, key, value) in enumerate(rows)]


@pytest.mark.parametrize("delta", [0, 1, 63, 64, 8191, 8192, (1 << 20) - 1, 1 << 20, 1 << 21, 1 << 30, 1 << 40])
def test_every_delta_is_read(delta: int) -> None:
    offset = min(delta, (1 << 31) - 2)
    data = batch(
        [(0, b"a", b"b"), (delta, b"c", b"d"), (delta - 7, b"e", b"f")], [0, max(offset, 1), max(offset, 1) + 1]
    )
    found, error = by_columns(data)
    assert error is None
    assert [row[2:] for row in found] == [
        (0, NOW), (max(offset, 1), NOW + delta), (max(offset, 1) + 1, NOW + delta - 7)
    ]  # fmt: skip


def patched(data: bytes, rng: random.Random) -> bytes:
    """The batch with a bit of its records turned, and a CRC that is right."""
    out = bytearray(data)
    out[rng.randrange(61, len(out))] ^= 1 << rng.randrange(8)
    out[17:21] = crc32c(bytes(out[21:])).to_bytes(4, "big")
    return bytes(out)


def test_what_is_wrong_is_wrong_in_both_ways() -> None:
    rng = random.Random(5)
    data = batch([(9 * at, b"k" * at, b"v" * (at % 5)) for at in range(8)])
    errors = 0
    for _ in range(500):
        turned = patched(data, rng)
        found = by_columns(turned)
        assert found == by_records(turned)
        errors += found[1] is CorruptMessageError
    assert errors > 50


def test_records_that_end_early_are_an_error_at_every_byte() -> None:
    data = batch([(at, b"key", b"value") for at in range(3)])
    for end in range(61, len(data)):
        cut = bytearray(data[:end])
        cut[8:12] = (end - 12).to_bytes(4, "big")
        cut[17:21] = crc32c(bytes(cut[21:])).to_bytes(4, "big")
        found, error = by_columns(bytes(cut))
        assert (found, error) == by_records(bytes(cut))
        assert error is CorruptMessageError
