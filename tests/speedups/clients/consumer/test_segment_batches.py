"""Batches out of segment files, against the same bytes in a Fetch response."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from struct import Struct
from typing import Any

import pytest
from clients.consumer.fetched import batch, chunk

from kafkapy._speedups.clients.consumer.segment_batches import BAD, DONE, END, MORE, OLD, SegmentBatches
from kafkapy.errors import CorruptMessageError, KafkaError
from kafkapy.records.batches import Record, RecordBatchBuilder
from kafkapy.records.legacy import build_message_set

ABORTED = Struct(">hqqqq")
Open = Callable[[bytes], int]


@pytest.fixture
def opened(tmp_path: Path) -> Any:
    fds: list[int] = []

    def write(data: bytes) -> int:
        path = tmp_path / f"{len(fds)}.log"
        path.write_bytes(data)
        fds.append(os.open(path, os.O_RDONLY))
        return fds[-1]

    yield write
    for fd in fds:
        os.close(fd)


def offsets(reader: SegmentBatches, fd: int, size: int = 1 << 20, start: int = 0) -> tuple[list[int], int]:
    """All offsets, and what is behind them."""
    out: list[int] = []
    position, status = 0, MORE
    while status == MORE:
        partition, position, status = reader.read(fd, position, size, start)
        if partition is not None:
            out += [record.offset for record in partition.take(1 << 20)]
    return out, status


@pytest.mark.parametrize("size", [61, 100, 500, 1 << 20])
def test_whole_batches_below_the_end_are_read(opened: Open, size: int) -> None:
    data = b"".join(batch(base, 5) for base in range(0, 100, 5))
    fd = opened(data)
    for end, status in ((100, END), (1000, END), (95, DONE), (96, END), (7, DONE)):
        reader = SegmentBatches("t", 3, end)
        found, behind = offsets(reader, fd, size)
        assert (found, behind) == (list(range(min(-(-end // 5) * 5, 100))), status)
    partition, position, _ = SegmentBatches("t", 3, 100).read(fd, len(batch(0, 5)), 1 << 20, 7)
    assert partition is not None
    assert (partition.topic, partition.partition, partition.next().offset, position) == ("t", 3, 7, len(data))  # type: ignore[union-attr]


def test_a_batch_is_found_by_its_offset(opened: Open) -> None:
    one = len(batch(10, 5))
    data = batch(10, 5) + batch(20, 5)
    fd = opened(data)
    reader = SegmentBatches("t", 0, 100)
    assert [reader.find(fd, 0, offset) for offset in (0, 10, 14, 15, 20, 24)] == [0, 0, 0, one, one, one]
    assert reader.find(fd, 0, 25) == len(data)
    assert reader.find(opened(data + b"\1" * 100), 0, 25) == 0


def test_what_is_behind_the_batches_is_told(opened: Open) -> None:
    data = batch(0, 5)
    old = build_message_set([Record(5, 7, 0, None, b"old")], 1, 0)
    for behind, status in (
        (b"", END), (batch(5, 5)[:-1], END), (batch(5, 5)[:30], END), (b"\0", END), (bytes(100), BAD), (old, OLD),
        (batch(5, 5)[:8] + b"\x7f\xff\x00\x00" + bytes(4) + b"\2" + bytes(100), END),
        (batch(5, 5)[:16] + b"\3" + batch(5, 5)[17:], BAD),
    ):  # fmt: skip
        reader = SegmentBatches("t", 0, 100)
        assert offsets(reader, opened(data + behind)) == ([0, 1, 2, 3, 4], status)
        assert offsets(reader, opened(behind))[1] == status


def transactional(base: int, producer_id: int, count: int = 2) -> bytes:
    builder = RecordBatchBuilder(base_offset=base)
    for _ in range(count):
        builder.append(1, None, b"%d" % producer_id)
    return builder.build(0, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)


def test_aborted_transactions_are_passed_over(opened: Open) -> None:
    """By the offsets they span, whether the markers are there or not."""
    fd = opened(b"".join(transactional(base, base // 2 % 3) for base in range(0, 60, 2)))
    spans = [(0, 0, 13), (0, 30, 31), (1, 8, 9), (2, 0, 100)]
    index = b"".join(ABORTED.pack(0, *span, 0) for span in sorted(spans, key=lambda span: span[2]))
    expected = [
        at
        for base in range(0, 60, 2)
        if not any(span[0] == base // 2 % 3 and span[1] <= base <= span[2] for span in spans)
        for at in (base, base + 1)
    ]
    assert 0 < len(expected) < 60
    for size in (61, 300, 1 << 20):
        assert offsets(SegmentBatches("t", 0, 60, index), fd, size) == (expected, END)
    assert offsets(SegmentBatches("t", 0, 60), fd)[0] == list(range(60))
    for bad in (index[:-1], b"\0\1" + index[2:], ABORTED.pack(0, 1, 9, 8, 0)):
        with pytest.raises(ValueError):
            SegmentBatches("t", 0, 60, bad)


@pytest.mark.parametrize(
    ("spans", "read"),
    [
        ([(5, 4, 4)], [0, 2, 6]),
        ([(5, 3, 5)], [0, 2, 6]),
        ([(5, 0, 3), (5, 5, 9)], [2, 4]),
        ([(5, 0, 4)], [2, 6]),
        ([(4, 0, 9), (6, 0, 9)], [0, 2, 4, 6]),
        ([(4, 0, 9), (5, 6, 6), (6, 0, 9)], [0, 2, 4]),
        ([(5, 0, 0), (5, 4, 4), (5, 6, 6)], [2]),
        ([(5, 6, 6), (5, 0, 0)], [2, 4]),
    ],
)
def test_an_aborted_transaction_has_a_first_and_a_last_offset(
    opened: Open, spans: list[tuple[int, int, int]], read: list[int]
) -> None:
    log = transactional(0, 5, 1) + batch(2, 1) + transactional(4, 5, 1) + transactional(6, 5, 1)
    index = b"".join(ABORTED.pack(0, *span, 0) for span in spans)
    assert offsets(SegmentBatches("t", 0, 60, index), opened(log)) == (read, END)


@pytest.mark.parametrize(
    ("index", "error"),
    [
        (ABORTED.pack(0, 1, 0, 0, 0), None),
        (ABORTED.pack(0, 1, 9, 9, 0) * 2, None),
        (ABORTED.pack(0, 1, 9, 8, 0), "ends before it begins"),
        (ABORTED.pack(0, 1, -1, 8, 0), "ends before it begins"),
        (ABORTED.pack(1, 1, 0, 0, 0), "a version that is not known"),
        (ABORTED.pack(-1, 1, 0, 0, 0), "a version that is not known"),
        (ABORTED.pack(0, 1, 0, 0, 0) + b"\0", "ends within an entry"),
        (ABORTED.pack(0, 1, 0, 0, 0)[:-1], "ends within an entry"),
    ],
)
def test_a_transaction_index_is_whole(index: bytes, error: str | None) -> None:
    if error is None:
        SegmentBatches("t", 0, 60, index)
    else:
        with pytest.raises(ValueError, match=error):
            SegmentBatches("t", 0, 60, index)


@pytest.mark.parametrize("aborted", [b"", ABORTED.pack(0, 5, 0, 9, 0)])
def test_a_wrong_crc_is_an_error_where_it_is_checked(opened: Open, aborted: bytes) -> None:
    turned = bytearray(transactional(0, 5, 1))
    turned[-2] ^= 1
    fd = opened(bytes(turned))
    checked, *_ = SegmentBatches("t", 0, 60, aborted).read(fd, 0, 1 << 20, 0)
    with pytest.raises(CorruptMessageError, match="its CRC is wrong"):
        checked.take(10)  # type: ignore[union-attr]
    unchecked, *_ = SegmentBatches("t", 0, 60, aborted, False).read(fd, 0, 1 << 20, 0)
    assert [record.offset for record in unchecked.take(10)] == ([] if aborted else [0])  # type: ignore[union-attr]


def test_a_read_ends_at_its_bytes_or_with_the_file(opened: Open) -> None:
    one = batch(0, 3)
    size = len(one)
    data = one + batch(3, 3) + batch(6, 3)
    fd = opened(data)
    reader = SegmentBatches("t", 0, 100)
    for max_bytes, end, status in (
        (61, size, MORE),
        (size - 1, size, MORE),
        (size, size, MORE),
        (size + 1, size, MORE),
        (2 * size, 2 * size, MORE),
        (3 * size, 3 * size, MORE),
        (3 * size + 1, 3 * size, END),
    ):
        partition, position, found = reader.read(fd, 0, max_bytes, 0)
        assert (position, found) == (end, status)
        assert partition is not None
        assert (partition.partition, partition.end_offset) == (0, 3 * end // size)
        assert partition.bytes == end
    assert reader.read(fd, 3 * size, 1000, 0) == (None, 3 * size, END)
    cut = opened(data[:-1])
    assert reader.read(cut, 2 * size, 61, 0) == (None, 2 * size, END)
    assert reader.read(fd, 2 * size, 61, 0)[1:] == (3 * size, MORE)
    for position, max_bytes in ((-1, 1000), (0, 60), (0, 0), (0, -1)):
        with pytest.raises(ValueError, match=f"nothing can be read at {position} by {max_bytes} bytes"):
            reader.read(fd, position, max_bytes, 0)
    with pytest.raises(ValueError, match="there is no position -1"):
        reader.find(fd, -1, 0)
    assert [SegmentBatches("t", 0, end).read(fd, size, 1 << 20, 0)[1:] for end in (3, 4, 6, 7)] == [
        (size, DONE), (2 * size, DONE), (2 * size, DONE), (3 * size, END)
    ]  # fmt: skip


def test_the_position_passes_what_was_aborted(opened: Open) -> None:
    fd = opened(transactional(0, 1, 9))
    partition, _, _ = SegmentBatches("t", 0, 60, ABORTED.pack(0, 1, 0, 20, 0)).read(fd, 0, 1 << 20, 0)
    assert partition is not None
    assert (partition.exhausted, partition.next_offset) == (True, 9)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(OSError):
            SegmentBatches("t", 0, 1).read(fd, 0, 1000, 0)
    finally:
        os.close(fd)
    with pytest.raises(ValueError):
        SegmentBatches("t", 0, 1).read(0, -1, 1000, 0)


def told(take: Callable[[], list[Any]]) -> tuple[list[Any], type[Exception] | None]:
    try:
        return [(record.offset, record.value) for record in take()], None
    except KafkaError as error:
        return [], type(error)


def test_bytes_that_were_cut_or_turned_are_those_of_a_response(opened: Open) -> None:
    """Cut at every byte, and with bits turned: what is read is what a consumer reads, and never more."""
    data = batch(0, 3) + batch(3, 3)
    rng = random.Random(9)
    hostile = [data[:end] for end in range(len(data))]
    for _ in range(400):
        turned = bytearray(data)
        turned[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        hostile.append(bytes(turned))
    for each in hostile:
        fd = opened(each)
        reader = SegmentBatches("t", 0, 6)
        position, status, size = 0, MORE, rng.choice((61, 90, 1 << 20))
        while status == MORE:
            before = position
            partition, position, status = reader.read(fd, position, size, 0)
            assert before <= position <= len(each)
            if partition is not None:
                expected = chunk(each[before:position], start=0)
                assert told(lambda: partition.take(100)) == told(lambda: expected.take(100))  # noqa: B023
        assert 0 <= reader.find(fd, 0, 4) <= len(each)
