"""A read ends at the high watermark or last stable offset, wherever in the log that is, and costs what it sends."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest
from log import conftest as helpers
from log import log_oracle as oracle

from kafkapy.log.timestamps import TimestampOffset, offset_for_timestamp, offset_of_max_timestamp
from kafkapy.records.batches import Record, RecordBatchBuilder
from kafkapy.records.legacy import build_message_set
from kafkapy.types import CompressionType

if TYPE_CHECKING:
    from kafkapy._speedups.log.partition_log import PartitionLog

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
MANY = 1500
NOW = 1_700_000_000_000


def reads_of_this_thread() -> int:
    found = re.search(r"syscr: (\d+)", Path("/proc/thread-self/io").read_text())
    assert found is not None
    return int(found[1])


def cost_of_read(log: PartitionLog, offset: int, max_bytes: int, isolation: int) -> int:
    """System calls that read a file, among them one for the records themselves."""
    overhead = -(reads_of_this_thread() - reads_of_this_thread())
    before = reads_of_this_thread()
    data = log.read(offset, max_bytes, isolation=isolation)[0]
    after = reads_of_this_thread()
    assert data
    return after - before - overhead


def transactional(producer: int, sequence: int, count: int = 1, timestamp: int = NOW) -> bytes:
    return helpers.make_batch(
        count, producer_id=producer, epoch=0, sequence=sequence, attributes=0x10, timestamp=timestamp
    )


def abort(log: PartitionLog, producer: int) -> None:
    log.append_as_leader(helpers.make_marker(producer, 0, commit=False, timestamp=NOW))


def fill(log: PartitionLog, batches: int = MANY) -> None:
    for _ in range(batches):
        log.append_as_leader(helpers.make_batch(1, value=b"v" * 50, timestamp=NOW), api_version=9)


def ends_at(log: PartitionLog, offset: int, isolation: int, max_bytes: int = 1 << 20) -> int:
    """One more than the last offset of the bytes read."""
    batches = oracle.parse_batches(log.read(offset, max_bytes, isolation=isolation)[0])
    return batches[-1].last + 1 if batches else offset


@pytest.mark.parametrize("reopened", (False, True))
def test_history_behind_an_open_transaction_costs_a_reader_nothing(logs: helpers.Logs, reopened: bool) -> None:
    log = logs.open()
    fill(log)
    stable = log.log_end_offset
    log.append_as_leader(transactional(1, 0), api_version=9)
    fill(log)
    if reopened:
        logs.stop(log)
        log = logs.open(leader_epoch=1)
    assert (log.last_stable_offset, log.high_watermark) == (stable, log.log_end_offset)
    for offset in (0, stable // 2, stable - 3):
        cost_of_read(log, offset, 1000, READ_COMMITTED)
        # The headers of one index interval, and the records.
        assert cost_of_read(log, offset, 1000, READ_COMMITTED) <= 3, offset
        assert ends_at(log, offset, READ_COMMITTED) == stable
    assert log.read(stable, isolation=READ_COMMITTED)[0] == b""
    if not reopened:
        fill(log, 3)
        assert cost_of_read(log, 0, 1000, READ_COMMITTED) <= 3
    log.append_as_leader(helpers.make_marker(1, 0, commit=True, timestamp=NOW))
    assert log.last_stable_offset == log.log_end_offset
    assert ends_at(log, stable, READ_COMMITTED) == log.log_end_offset


def test_the_first_read_beside_an_open_transaction_looks_nothing_up(logs: helpers.Logs) -> None:
    """The place of the transaction's first batch is known since its append."""
    log = logs.open()
    fill(log)
    log.append_as_leader(transactional(1, 0), api_version=9)
    fill(log)
    beside_none = cost_of_read(log, 0, 1000, READ_UNCOMMITTED)
    assert cost_of_read(log, 0, 1000, READ_COMMITTED) == beside_none


def test_a_follower_behind_costs_a_reader_one_look_into_the_index(logs: helpers.Logs) -> None:
    log = logs.open(isr=(1, 2))
    fill(log)
    for high_watermark in (MANY // 3, MANY // 2, MANY - 1):
        log.follower_position(2, high_watermark)
        assert log.high_watermark == high_watermark
        assert ends_at(log, 0, READ_UNCOMMITTED) == high_watermark
        for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
            cost_of_read(log, 0, 1000, isolation)
            assert cost_of_read(log, 0, 1000, isolation) <= 3
            assert cost_of_read(log, high_watermark - 1, 1000, isolation) <= 3


def test_aborted_transactions_are_those_of_the_bytes_returned(logs: helpers.Logs) -> None:
    log = logs.open()
    for number in range(3000):
        log.append_as_leader(transactional(1, number), api_version=9)
        abort(log, 1)
    assert len(log.aborted_transactions()) == 3000
    for offset in (0, 1, 2000, 5000):
        data, _, _, _, aborted = log.read(offset, 1000, isolation=READ_COMMITTED)
        end = oracle.parse_batches(data)[-1].last + 1
        assert aborted is not None
        needed = [(1, first) for first in range(offset // 2 * 2, end, 2)]
        assert aborted[: len(needed)] == needed
        # At most one index interval more than needed.
        assert len(aborted) <= len(needed) + 64
    assert len(log.read(0, 1 << 30, isolation=READ_COMMITTED)[4] or ()) == 3000


def test_aborted_transactions_that_overlap_a_long_one_are_all_found(logs: helpers.Logs) -> None:
    """Many short transactions begin and end while long ones are open: compared with a search through all of them."""
    rng = Random(5)
    log = logs.open(segment_bytes=60_000, index_interval_bytes=500)
    sequences: dict[int, int] = {}
    open_ones: set[int] = set()

    def begin(producer: int) -> None:
        log.append_as_leader(transactional(producer, sequences.get(producer, 0)), api_version=9)
        sequences[producer] = sequences.get(producer, 0) + 1
        open_ones.add(producer)

    begin(100)
    for number in range(2000):
        producer = number % 7
        begin(producer)
        if rng.random() < 0.7:
            abort(log, producer)
            open_ones.discard(producer)
        if number == 700:
            begin(101)
        if number == 1500:
            abort(log, 101)
            open_ones.discard(101)
    for producer in open_ones:
        abort(log, producer)
    known = log.aborted_transactions()
    assert len(known) > 1200
    for removed in (False, True):
        if removed:
            log.delete_records(log.log_end_offset // 3)
            assert log.delete_segments_below(log.log_start_offset)
            known = log.aborted_transactions()
        for _ in range(300):
            offset = rng.randrange(log.log_start_offset, log.log_end_offset)
            data, _, _, _, aborted = log.read(offset, rng.choice((1, 300, 5000)), isolation=READ_COMMITTED)
            end = oracle.parse_batch(data).last + 1
            whole = oracle.parse_batches(data)
            end = max(end, whole[-1].last + 1 if whole else 0)
            assert aborted is not None
            overlapping = {(entry[0], entry[1]) for entry in known if entry[2] >= offset and entry[1] < end}
            assert overlapping <= set(aborted)
            assert len(set(aborted)) == len(aborted)
            assert all((entry[0], entry[1]) in set(aborted) or entry[1] >= end for entry in known if entry[2] >= offset)


def test_the_newest_record_is_found_though_markers_are_newer(logs: helpers.Logs) -> None:
    """Records of long ago in transactions that end today: markers count for retention, but are no records."""
    log = logs.open(segment_bytes=20_000, index_interval_bytes=300)
    for number in range(400):
        age = abs(number - 250)
        log.append_as_leader(transactional(1, number, timestamp=NOW - 1000 * age), api_version=9)
        abort(log, 1)
    assert len(log.segments()) > 2
    newest = TimestampOffset(NOW, 500, 0)
    assert log.newest_record_timestamp() == NOW
    assert offset_of_max_timestamp(log) == newest
    assert offset_of_max_timestamp(log, end_offset=400) is None
    assert offset_for_timestamp(log, NOW - 1000) == TimestampOffset(NOW - 1000, 498, 0)
    assert offset_for_timestamp(log, NOW + 1) is None
    later = helpers.make_marker(1, 0, commit=True, timestamp=NOW + 5000)
    log.append_as_leader(transactional(1, 400, timestamp=NOW - 7), api_version=9)
    log.append_as_leader(later)
    assert max(segment[2] for segment in log.segments()) == NOW + 5000
    assert offset_of_max_timestamp(log) == newest
    assert offset_for_timestamp(log, NOW + 1) is None
    logs.stop(log)
    for clean in (True, False):
        log = logs.open(segment_bytes=20_000, index_interval_bytes=300, leader_epoch=1, clean=clean)
        assert offset_of_max_timestamp(log) == newest
        log.append_as_leader(helpers.make_batch(1, timestamp=NOW + 3), api_version=9)
        assert offset_of_max_timestamp(log) == TimestampOffset(NOW + 3, 802, 1)
        log.truncate_to(802)
        assert offset_of_max_timestamp(log) == newest


def test_look_ups_by_time_do_not_walk_through_markers_again(logs: helpers.Logs) -> None:
    log = logs.open()
    for number in range(1000):
        log.append_as_leader(transactional(1, number, timestamp=NOW - 1000), api_version=9)
        abort(log, 1)
    logs.stop(log)
    log = logs.open(leader_epoch=1)
    costs = []
    for _ in range(3):
        before = reads_of_this_thread()
        assert offset_for_timestamp(log, NOW - 500) is None
        assert offset_of_max_timestamp(log) == TimestampOffset(NOW - 1000, 0, 0)
        costs.append(reads_of_this_thread() - before)
    assert max(costs[1:]) <= 8 < costs[0]


def test_an_empty_log_and_one_of_markers_have_no_newest_record(logs: helpers.Logs) -> None:
    log = logs.open()
    assert offset_of_max_timestamp(log) is None
    abort(log, 1)
    assert offset_of_max_timestamp(log) is None


@pytest.mark.parametrize("codec", list(CompressionType))
def test_the_newest_record_is_found_inside_its_batch(logs: helpers.Logs, codec: CompressionType) -> None:
    """Its own offset, not that of the batch; the first of several."""
    log = logs.open()
    builder = RecordBatchBuilder()
    for timestamp in (NOW, NOW + 20, NOW + 10, NOW + 20, NOW + 5):
        builder.append(timestamp, b"k", b"v")
    log.append_as_leader(builder.build(codec), api_version=9, validated=True)
    assert offset_of_max_timestamp(log) == TimestampOffset(NOW + 20, 1, 0)
    assert offset_for_timestamp(log, NOW + 1) == TimestampOffset(NOW + 20, 1, 0)


@pytest.mark.parametrize("magic", [1, 2])
def test_a_record_that_is_deleted_is_not_found_and_the_search_goes_on(logs: helpers.Logs, magic: int) -> None:
    """The header of its batch still names its timestamp. A message of an old format has its last offset there."""
    times = [(NOW + 90, NOW, NOW), (NOW + 1, NOW + 95, NOW + 95), (NOW + 2, NOW + 2, NOW + 2)]
    data = b""
    for number, timestamps in enumerate(times):
        records = [Record(3 * number + n, each, 0, b"k", b"v") for n, each in enumerate(timestamps)]
        if magic == 1:
            data += build_message_set(records, 1, CompressionType.GZIP)
            continue
        builder = RecordBatchBuilder()
        for each in timestamps:
            builder.append(each, b"k", b"v")
        built = builder.build(CompressionType.GZIP)
        data += (3 * number).to_bytes(8, "big") + built[8:]
    logs.directory.mkdir()
    (logs.directory / f"{0:020d}.log").write_bytes(data)
    log = logs.open(leader_epoch=None, clean=False)
    assert log.log_end_offset == 9
    assert offset_for_timestamp(log, NOW + 90, end_offset=9) == TimestampOffset(NOW + 90, 0, -1)
    log.become_leader(1, 0, [1])
    log.delete_records(1)
    for wanted, offset in ((NOW, 1), (NOW + 1, 3), (NOW + 2, 4), (NOW + 90, 4), (NOW + 95, 4)):
        found = offset_for_timestamp(log, wanted)
        assert found is not None and found.offset == offset, wanted
    assert offset_for_timestamp(log, NOW + 96) is None
    for end_offset, expected in ((9, 4), (6, 4), (3, None)):
        found = offset_for_timestamp(log, NOW + 90, end_offset=end_offset)
        assert (None if found is None else found.offset) == expected
    log.delete_records(6)
    assert offset_for_timestamp(log, NOW + 90) is None
