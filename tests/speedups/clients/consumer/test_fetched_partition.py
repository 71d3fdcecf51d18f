"""Records of a fetched partition as Kafka's CompletedFetch gives them: positions, transactions, old formats, errors."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from speedups.clients.consumer.fetched_bytes import started

from kafkapy._speedups.clients.consumer.fetched_partition import FetchedPartition
from kafkapy.errors import (
    CorruptMessageError,
    IllegalStateError,
    KafkaError,
    KafkaProtocolError,
    MessageTooLargeError,
    UnsupportedCodecError,
)
from kafkapy.records.batches import Record, RecordBatchBuilder, decode_records, iter_batches
from kafkapy.records.legacy import build_message_set

NOW = 1_700_000_000_000


def batch(base: int, count: int = 3, *, codec: int = 0, offsets: list[int] | None = None, **build: Any) -> bytes:
    builder = RecordBatchBuilder(base_offset=base)
    for offset in range(base, base + count) if offsets is None else offsets:
        builder.append(NOW + offset, b"k%d" % offset, b"v%d" % offset, offset=offset)
    return builder.build(codec, **build)


def marker(offset: int, producer_id: int, *, commit: bool) -> bytes:
    builder = RecordBatchBuilder(base_offset=offset)
    builder.append(NOW, struct.pack(">hh", 0, 1 if commit else 0), struct.pack(">hi", 0, 0))
    return builder.build(producer_id=producer_id, producer_epoch=0, transactional=True, control=True)


def transactional(base: int, count: int, producer_id: int, codec: int = 0) -> bytes:
    return batch(
        base, count, codec=codec, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True
    )


def offsets(partition: FetchedPartition, step: int = 1000) -> list[int]:
    out: list[int] = []
    while records := partition.take(step):
        out += [record.offset for record in records]
    assert partition.next() is None
    assert partition.exhausted
    return out


# --- positions ------------------------------------------------------------------------------------------------------


def test_position_before_during_and_after() -> None:
    partition = started(batch(10, leader_epoch=4) + batch(13, 2, leader_epoch=5), 10)
    assert (partition.next_offset, partition.leader_epoch, partition.exhausted) == (10, -1, False)
    assert (partition.end_offset, partition.end_epoch) == (15, 5)
    record = partition.next()
    assert record is not None
    assert (record.offset, record.leader_epoch, partition.next_offset, partition.leader_epoch) == (10, 4, 11, 4)
    assert [r.offset for r in partition.take(3)] == [11, 12, 13]
    assert (partition.next_offset, partition.leader_epoch) == (14, 5)
    assert [r.offset for r in partition.take(3)] == [14]
    assert partition.exhausted
    assert partition.next_offset == 15
    assert partition.take(3) == []


def test_the_start_may_lie_inside_a_batch_or_behind_all() -> None:
    data = batch(0, 5) + batch(5, 5, codec=4)
    for offset in range(12):
        assert offsets(started(data, offset), 1) == list(range(offset, 10))
        assert offsets(started(data, offset, budget=0)) == list(range(offset, 10))
    behind = started(data, 11)
    assert behind.exhausted
    assert behind.next_offset == 11


def test_nothing_at_all() -> None:
    partition = started(b"", 7)
    assert (partition.exhausted, partition.next_offset, partition.end_offset, partition.end_epoch) == (True, 7, -1, -1)
    assert partition.take(10) == []
    assert not partition.has_records


def test_compacted_batches_move_the_position_over_what_is_gone() -> None:
    data = batch(0, offsets=[2, 5], last_offset=9) + batch(10, offsets=[], last_offset=19) + batch(20, 1)
    partition = started(data, 0)
    assert [record.offset for record in partition.take(2)] == [2, 5]
    assert partition.next_offset == 20  # the empty batch is behind it, too
    assert [record.offset for record in partition.take(2)] == [20]
    only_empty = started(batch(0, offsets=[], last_offset=9), 3)
    assert only_empty.exhausted
    assert only_empty.next_offset == 10


def test_a_part_of_a_batch_at_the_end_is_left_for_the_next_fetch() -> None:
    whole, part = batch(0, 3), batch(3, 3)
    for cut in range(len(part)):
        partition = started(whole + part[:cut], 0)
        assert partition.end_offset == 3
        assert offsets(partition) == [0, 1, 2]
        assert partition.next_offset == 3
    for cut in range(1, len(part)):
        partition = started(part[:cut], 3)
        for _ in range(2):
            with pytest.raises(KafkaProtocolError):
                partition.take(1)


def test_append_time_and_delete_horizon() -> None:
    partition = started(batch(0, 2, log_append_time=NOW + 77), 0)
    assert [(r.timestamp, r.timestamp_type) for r in partition.take(5)] == [(NOW + 77, 1)] * 2
    builder = RecordBatchBuilder(delete_horizon_ms=NOW + 5)
    builder.append(NOW + 1, b"k", None)
    (record,) = started(builder.build(), 0).take(5)
    assert (record.timestamp, record.timestamp_type, record.value) == (NOW + 1, 0, None)


def test_a_partition_is_started_once() -> None:
    partition = started(batch(0) + batch(3))
    for count in (0, 2, 1, 2, 1, 1):  # within the batches, between them and after the last one
        partition.take(count)
        with pytest.raises(IllegalStateError, match="the records of u-3 are being read already"):
            partition.start("u", 0, False, None, None)
    assert partition.exhausted
    with pytest.raises(TypeError):
        FetchedPartition()


# --- transactions ---------------------------------------------------------------------------------------------------


def test_control_batches_are_never_handed_out() -> None:
    data = marker(0, 7, commit=True) + batch(1, 2) + marker(3, 7, commit=False)
    for committed in (True, False):
        partition = started(data, 0, committed)
        assert partition.next_offset == 1
        assert offsets(partition) == [1, 2]
        assert partition.next_offset == 4


@pytest.mark.parametrize("codec", [0, 3])
@pytest.mark.parametrize("budget", [0, 1 << 30])
def test_aborted_transactions_are_skipped_by_their_producer(codec: int, budget: int) -> None:
    data = b"".join(
        (
            transactional(0, 2, 1, codec),  # aborted
            transactional(2, 2, 2, codec),  # committed
            batch(4, 1, codec=codec),  # no transaction
            batch(5, 1, codec=codec, producer_id=1, producer_epoch=0, base_sequence=2),  # idempotent only
            transactional(6, 1, 1, codec),  # aborted, the same transaction
            marker(7, 1, commit=False),
            transactional(8, 1, 1, codec),  # the same producer, committed
            marker(9, 2, commit=True),
            marker(10, 1, commit=True),
            transactional(11, 2, 1, codec),  # aborted again
            marker(13, 1, commit=False),
        )
    )
    aborted = [(1, 11), (1, 0)]
    assert offsets(started(data, 0, True, aborted=aborted, budget=budget)) == [2, 3, 4, 5, 8]
    assert offsets(started(data, 0, False, aborted=aborted, budget=budget)) == [0, 1, 2, 3, 4, 5, 6, 8, 11, 12]
    partition = started(data, 0, True, aborted=aborted, budget=budget)
    assert partition.next_offset == 2
    assert [r.offset for r in partition.take(5)] == [2, 3, 4, 5, 8]
    assert partition.exhausted
    assert partition.next_offset == 14


class CompletedFetchModel:
    """The rules as Kafka's CompletedFetch states them, on decoded batches."""

    def __init__(self, data: bytes, offset: int, committed: bool, aborted: list[tuple[int, int]]) -> None:
        self.records: list[tuple[int, bytes | None]] = []
        self.position = offset
        waiting = sorted(aborted, key=lambda entry: entry[1])
        aborting: set[int] = set()
        for view in iter_batches(data):
            if committed and view.producer_id != -1:
                while waiting and waiting[0][1] <= view.last_offset:
                    aborting.add(waiting.pop(0)[0])
                if view.is_control:
                    if struct.unpack_from(">hh", decode_records(view)[0].key or b"")[1] == 0:
                        aborting.discard(view.producer_id)
                elif view.is_transactional and view.producer_id in aborting:
                    self.position = max(self.position, view.next_offset)
                    continue
            if not view.is_control:
                self.records += [(r.offset, r.value) for r in decode_records(view) if r.offset >= offset]
            self.position = max(self.position, view.next_offset)


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_any_history_against_the_rules(data: st.DataObject) -> None:
    log, aborted, base = b"", [], data.draw(st.integers(0, 5))
    open_since: dict[int, int] = {}
    for _ in range(data.draw(st.integers(0, 12))):
        kind = data.draw(st.sampled_from(["plain", "transactional", "marker", "compacted"]))
        producer = data.draw(st.integers(1, 3))
        codec = data.draw(st.sampled_from([0, 0, 1, 2, 3, 4]))
        count = data.draw(st.integers(1, 4))
        if kind == "plain":
            log += batch(base, count, codec=codec)
        elif kind == "compacted":
            keep = data.draw(st.lists(st.integers(base, base + count - 1), unique=True).map(sorted))
            log += batch(base, offsets=keep, codec=codec if keep else 0, last_offset=base + count - 1)
        elif kind == "transactional":
            log += transactional(base, count, producer, codec)
            open_since.setdefault(producer, base)
        else:
            count = 1
            commit = data.draw(st.booleans())
            log += marker(base, producer, commit=commit)
            if producer in open_since and not commit:
                aborted.append((producer, open_since[producer]))
            open_since.pop(producer, None)
        base += count
    offset = data.draw(st.integers(0, base + 1))
    committed = data.draw(st.booleans())
    model = CompletedFetchModel(log, offset, committed, aborted)
    partition = started(log, offset, committed, aborted=aborted, budget=data.draw(st.sampled_from([0, 200, 1 << 30])))
    got: list[tuple[int, bytes | None]] = []
    while True:
        before = partition.next_offset
        records = partition.take(data.draw(st.integers(1, 6)))
        if not records:
            break
        assert before <= records[0].offset < partition.next_offset
        got += [(record.offset, record.value) for record in records]
    assert got == model.records
    assert partition.next_offset == model.position
    assert partition.exhausted


# --- message formats v0 and v1 --------------------------------------------------------------------------------------


def legacy_records(first: int, count: int, magic: int, append_time: bool = False) -> list[Record]:
    kind = -1 if magic == 0 else int(append_time)
    stamp = -1 if magic == 0 else NOW
    return [
        Record(
            first + i, stamp + (i if magic else 0), kind, None if i % 2 else b"k%d" % i, b"v%d" % i if i % 3 else None
        )
        for i in range(count)
    ]


@pytest.mark.parametrize("budget", [0, 1 << 30])
@pytest.mark.parametrize("codec", [0, 1, 2, 3])
@pytest.mark.parametrize(("magic", "append_time"), [(0, False), (1, False), (1, True)])
def test_old_message_formats(magic: int, append_time: bool, codec: int, budget: int) -> None:
    first, second = legacy_records(5, 4, magic, append_time), legacy_records(9, 3, magic, append_time)
    data = build_message_set(first, magic, codec) + build_message_set(second, magic, codec) + batch(12, 2)
    expected = [(r.offset, r.timestamp, r.timestamp_type, r.key, r.value) for r in first + second]
    if append_time and codec:
        last = {True: first[-1].timestamp, False: second[-1].timestamp}
        expected = [(o, last[o < 9], kind, key, value) for o, _, kind, key, value in expected]
    expected += [(12, NOW + 12, 0, b"k12", b"v12"), (13, NOW + 13, 0, b"k13", b"v13")]
    for offset in (0, 5, 7, 9, 11, 12, 14):
        partition = started(data, offset, budget=budget)
        assert partition.end_offset == 14
        got = [(r.offset, r.timestamp, r.timestamp_type, r.key, r.value) for r in partition.take(100)]
        assert got == [row for row in expected if row[0] >= offset]
        assert all(r.headers == [] and r.leader_epoch == -1 for r in started(data, 0).take(7))
        assert partition.next_offset == 14


def test_old_messages_that_are_cut_or_damaged() -> None:
    plain = build_message_set(legacy_records(0, 3, 1), 1)
    one = len(plain) // 3
    for cut in range(len(plain)):
        partition = started(plain[:cut], 0)
        if cut < len(build_message_set(legacy_records(0, 1, 1), 1)):
            if cut:
                with pytest.raises(KafkaProtocolError):
                    partition.take(5)
            continue
        assert len(partition.take(5)) in (1, 2)
    damaged = bytearray(plain)
    damaged[-1] ^= 1
    partition = started(bytes(damaged), 0)
    assert [r.offset for r in partition.take(5)] == [0, 1]
    assert partition.next_offset == 2
    with pytest.raises(CorruptMessageError):
        partition.take(5)
    wrapper = bytearray(build_message_set(legacy_records(0, 3, 1), 1, 1))
    wrapper[-12] ^= 1
    struct.pack_into(">I", wrapper, 12, __import__("zlib").crc32(wrapper[16:]))
    with pytest.raises(CorruptMessageError):
        started(bytes(wrapper), 0).take(5)
    assert one > 0


def test_random_bits_in_old_messages() -> None:
    rng = random.Random(9)
    for _ in range(2000):
        magic, codec = rng.choice((0, 1)), rng.choice((0, 1, 2, 3))
        data = bytearray(build_message_set(legacy_records(0, 5, magic), magic, codec) + batch(5))
        for _ in range(rng.choice((1, 4))):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        try:
            assert len(started(bytes(data), 0, budget=rng.choice((0, 1 << 30))).take(100)) <= 100
        except (KafkaError, MemoryError):
            continue


# --- errors ---------------------------------------------------------------------------------------------------------


def test_an_error_is_raised_where_the_position_reaches_it_and_again() -> None:
    bad = bytearray(batch(3))
    bad[-1] ^= 0xFF
    data = batch(0) + bytes(bad) + batch(6)
    partition = started(data, 0)
    assert [r.offset for r in partition.take(100)] == [0, 1, 2]
    assert (partition.next_offset, partition.exhausted) == (3, False)
    for _ in range(2):
        with pytest.raises(CorruptMessageError, match=r"t-3 at offset 3 .*CRC"):
            partition.take(1)
        with pytest.raises(CorruptMessageError):
            partition.next()
    assert partition.end_offset == 9


def test_crcs_are_checked_only_where_asked() -> None:
    bad = bytearray(batch(0))
    bad[-2] ^= 0xFF  # a byte of the last value
    partition = started(bytes(bad), 0, check_crcs=False)
    assert len(partition.take(5)) == 3
    with pytest.raises(CorruptMessageError):
        started(bytes(bad), 0).take(5)


@pytest.mark.parametrize(
    ("at", "value", "error"),
    [
        (8, struct.pack(">i", 5), CorruptMessageError),  # length
        (16, b"\x07", CorruptMessageError),  # magic
        (57, struct.pack(">i", 4), CorruptMessageError),  # more records than there are
        (57, struct.pack(">i", 2), CorruptMessageError),  # fewer
        (57, struct.pack(">i", -1), CorruptMessageError),
        (57, struct.pack(">i", 1 << 30), CorruptMessageError),
        (23, struct.pack(">i", -5), CorruptMessageError),  # last offset delta
        (21, struct.pack(">h", 4), CorruptMessageError),  # zstd, but it is not
        (21, struct.pack(">h", 6), UnsupportedCodecError),
    ],
)
def test_what_does_not_add_up(at: int, value: bytes, error: type[Exception]) -> None:
    broken = bytearray(batch(0))
    broken[at : at + len(value)] = value
    partition = started(bytes(broken), 0, check_crcs=False)
    with pytest.raises(error):
        for _ in range(3):
            partition.take(100)


def test_a_batch_that_opens_to_too_much() -> None:
    builder = RecordBatchBuilder()
    builder.append(NOW, None, bytes(260 << 20))
    data = builder.build(4)
    partition = started(data, 0, budget=1 << 20)
    with pytest.raises(MessageTooLargeError):
        partition.take(1)


# --- memory ---------------------------------------------------------------------------------------------------------


def test_records_live_in_the_slabs_of_their_batches() -> None:
    """Small batches share slabs, large ones and those opened late have their own; all are read right, in any order."""
    rng = random.Random(6)
    for budget in (0, 300_000, 3_000_000, 1 << 40):
        log, expected = b"", []
        for base in range(0, 120, 2):
            builder = RecordBatchBuilder(base_offset=base)
            size = rng.choice((0, 50, 5_000, 60_000, 600_000, 1_500_000)) if base % 10 == 0 else rng.randrange(9_000)
            values = [rng.randbytes(20) * (size // 20), b"%d" % base]
            for value in values:
                builder.append(NOW, None, value)
            log += builder.build(rng.choice((0, 1, 2, 3, 4)))
            expected += values
        partition = started(log, 0, budget=budget)
        kept, got = [], 0
        while records := partition.take(rng.randrange(1, 9)):
            for record in records:
                if rng.random() < 0.3:
                    kept.append((record, expected[got]))
                else:
                    assert record.value == expected[got]
                got += 1
        assert got == len(expected)
        del partition, records, record
        assert all(record.value == value for record, value in kept)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
@pytest.mark.parametrize("repeated", [1, 3, 12])
def test_batches_that_fill_slabs_are_read_right(codec: int, repeated: int) -> None:
    """Batches of 64 KiB that compress to different degrees: slabs end before, amid and behind what is opened."""
    rng = random.Random(repeated)
    log, expected = b"", []
    for base in range(0, 400, 8):
        builder = RecordBatchBuilder(base_offset=base)
        values = [rng.randbytes(rng.randrange(2, 16_000) // repeated) * repeated for _ in range(8)]
        for value in values:
            builder.append(NOW, None, value)
        log += builder.build(codec)
        expected += values
    for budget in (1_000_000, 1 << 40):
        partition = started(log, 0, budget=budget)
        assert [record.value for record in partition.take(1000)] == expected
    # One bit is flipped behind the CRC's back: what comes before the batch is read, and nothing is written elsewhere.
    damaged = bytearray(log)
    damaged[len(log) // 2 + 200] ^= 0x10
    partition = started(bytes(damaged), 0, check_crcs=False)
    got: list[bytes] = []
    with pytest.raises(KafkaError):
        while records := partition.take(7):
            got += [record.value for record in records]
        # The bit was in a value that the codec does not check.
        assert sum(a != b for a, b in zip(got, expected, strict=True)) == 1
        raise CorruptMessageError
    assert sum(a != b for a, b in zip(got, expected, strict=False)) <= 1


def test_skipped_batches_leave_their_slabs() -> None:
    log = b"".join(transactional(i, 1, 1 + i % 2, 4) for i in range(40)) + marker(40, 1, commit=False)
    for _ in range(3):
        partition = started(log, 0, True, aborted=[(1, 0)])
        assert offsets(partition) == list(range(1, 40, 2))
