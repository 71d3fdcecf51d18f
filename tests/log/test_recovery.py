"""Hostile and torn files: whatever is in a partition's directory, loading ends, and only whole batches are served."""

from __future__ import annotations

import random
import shutil
import struct
import time
from pathlib import Path
from typing import Any

import pytest

NOW = time.time_ns() // 1_000_000  # what is older than a day is expired by the producer state


def files_of(logs: Any, batch: Any, *, count: int = 6) -> None:
    """A small log with one index entry per batch, cleanly closed."""
    log = logs.open(segment_bytes=4000, index_interval_bytes=1, segment_index_bytes=240)
    for number in range(count):
        log.append_as_leader(
            batch(2, timestamp=NOW + number, producer_id=5, epoch=0, sequence=2 * number), api_version=9
        )
    logs.stop(log)


def reopen(logs: Any, **how: Any) -> Any:
    return logs.open(segment_bytes=4000, index_interval_bytes=1, segment_index_bytes=240, **how)


def test_a_log_cut_at_every_byte_keeps_its_whole_batches(logs: Any, batch: Any, read_all: Any, tmp_path: Path) -> None:
    files_of(logs, batch, count=3)
    path = logs.directory / f"{0:020d}.log"
    data = path.read_bytes()
    size = len(data) // 3
    for cut in range(len(data)):
        path.write_bytes(data[:cut])
        log = reopen(logs, clean=False, leader_epoch=None)
        whole = cut // size
        assert log.log_end_offset == 2 * whole
        assert [entry[:2] for entry in read_all(log)] == [(2 * n, 2 * n + 1) for n in range(whole)]
        assert path.stat().st_size == whole * size
        log.close()


def test_flipped_bits_are_never_served(logs: Any, batch: Any, read_all: Any) -> None:
    files_of(logs, batch)
    path = logs.directory / f"{0:020d}.log"
    data = path.read_bytes()
    size = len(data) // 6
    random.seed(7)
    for _ in range(200):
        at = random.randrange(len(data))
        spoiled = bytearray(data)
        spoiled[at] ^= 1 << random.randrange(8)
        path.write_bytes(spoiled)
        log = reopen(logs, clean=False, leader_epoch=None)
        served = read_all(log)
        # Base offset and leader epoch (bytes 0-7, 12-15) are outside the CRC; another flip ends the log at its batch.
        assert len(served) == at // size or at % size < 8 or 12 <= at % size < 16
        for number, entry in enumerate(served[: at // size]):
            assert entry == (2 * number, 2 * number + 1, data[number * size + 16 : (number + 1) * size])
        for number, entry in enumerate(served):
            assert entry[2] == data[number * size + 16 : (number + 1) * size]
        log.close()


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_an_index_cut_or_spoiled_anywhere_is_rebuilt_or_right(
    logs: Any, batch: Any, read_all: Any, suffix: str
) -> None:
    files_of(logs, batch)
    path = logs.directory / f"{0:020d}.{suffix}"
    data = path.read_bytes()
    random.seed(8)
    variants = [data[:cut] for cut in range(len(data))] + [data + bytes(n) for n in range(1, 30)]
    for _ in range(60):
        spoiled = bytearray(data)
        spoiled[-1 - random.randrange(12)] ^= 1 << random.randrange(8)
        variants.append(bytes(spoiled))
    for content in [*variants, bytes(len(data)), b"\xff" * len(data)]:
        path.write_bytes(content)
        log = reopen(logs, leader_epoch=None)
        assert len(read_all(log)) == 6
        assert log.log_end_offset == 12
        for offset in range(12):
            assert struct.unpack_from(">q", log.read(offset, 1)[0])[0] == offset - offset % 2
        log.close()


def test_a_missing_index_is_rebuilt(logs: Any, batch: Any) -> None:
    files_of(logs, batch)
    path = logs.directory / f"{0:020d}.index"
    before = path.read_bytes()
    path.unlink()
    log = reopen(logs, leader_epoch=None)
    assert log.log_end_offset == 12
    logs.stop(log)
    assert path.read_bytes() == before


def test_the_indexes_of_a_segment_that_was_truncated_to_nothing_are_empty(logs: Any, batch: Any) -> None:
    files_of(logs, batch)
    log = reopen(logs)
    log.roll()
    log.seal_segments()
    log.become_follower(2, 1)
    log.truncate_to(1)
    assert (log.log_end_offset, log.size) == (0, 0)
    logs.stop(log)
    assert [path.stat().st_size for path in logs.directory.glob("*index")] == [0, 0]
    log = reopen(logs)
    for number in range(3):
        log.append_as_leader(batch(1, timestamp=NOW + 10 + number), api_version=9)
    assert log.find_timestamp(NOW + 10)[:8] == bytes(8)
    logs.stop(log)


def test_index_entries_of_an_empty_segment_are_not_believed(logs: Any, batch: Any) -> None:
    log = reopen(logs)
    logs.stop(log)
    (logs.directory / f"{0:020d}.log").touch()
    (logs.directory / f"{0:020d}.index").write_bytes(b"")
    (logs.directory / f"{0:020d}.timeindex").write_bytes(struct.pack(">qi", NOW, 2))
    log = reopen(logs)
    assert log.segments()[0][2] == -1
    for number in range(3):
        log.append_as_leader(batch(1, timestamp=NOW + 10 + number), api_version=9)
    assert log.find_timestamp(NOW + 10)[:8] == bytes(8)
    logs.stop(log)


def test_a_snapshot_cut_or_spoiled_anywhere_is_replaced_by_the_batches(logs: Any, batch: Any) -> None:
    files_of(logs, batch)
    path = logs.directory / f"{12:020d}.snapshot"
    data = path.read_bytes()
    random.seed(9)
    flips = []
    for _ in range(40):
        spoiled = bytearray(data)
        spoiled[random.randrange(len(data))] ^= 1 << random.randrange(8)
        flips.append(bytes(spoiled))
    for content in [data[:cut] for cut in range(len(data))] + flips:
        path.write_bytes(content)
        log = reopen(logs, leader_epoch=None)
        assert logs.report.snapshot_offset == -1
        [producer] = log.producers()
        assert (producer["producer_id"], producer["last_sequence"], producer["last_offset"]) == (5, 11, 11)
        log.close()


def test_a_malformed_epoch_file_is_rebuilt(logs: Any, batch: Any) -> None:
    files_of(logs, batch)
    path = logs.directory / "leader-epoch-checkpoint"
    for content in (b"", b"0\n1\n", b"\xff\xfe", b"1\n0\n", b"0\n2\n3 4\n1 2\n"):
        path.write_bytes(content)
        log = reopen(logs, leader_epoch=None)
        assert log.leader_epochs() == [(0, 0)]
        log.close()
        assert path.read_bytes() == b"0\n1\n0 0\n"


@pytest.mark.parametrize("start", [0, 1, 2, 500])
def test_a_new_directory_gives_an_empty_log_that_begins_at_its_log_start(logs: Any, batch: Any, start: int) -> None:
    log = logs.open(log_start_offset=start)
    assert log.offsets() == (start,) * 5
    assert [segment[0] for segment in log.segments()] == [start]
    assert log.append_as_leader(batch(2), api_version=9)[:2] == (start, start + 1)


def test_segments_behind_a_hole_are_removed(logs: Any, batch: Any) -> None:
    log = logs.open(segment_bytes=250)
    for _ in range(9):
        log.append_as_leader(batch(2), api_version=9)
    bases = [segment[0] for segment in log.segments()]
    logs.stop(log)
    middle = logs.directory / f"{bases[1]:020d}.log"
    middle.write_bytes(middle.read_bytes()[:-3])
    log = logs.open(segment_bytes=250, clean=False)
    assert log.log_end_offset == bases[2] - 2
    assert [segment[0] for segment in log.segments()] == bases[:2]
    assert sorted(path.name for path in logs.directory.glob("*.log")) == [f"{base:020d}.log" for base in bases[:2]]


def test_what_was_synced_is_not_walked_again(logs: Any, batch: Any) -> None:
    log = logs.open(segment_bytes=250)
    for _ in range(9):
        log.append_as_leader(batch(2), api_version=9)
    log.seal_segments()
    recovery_point = log.flush()
    log.append_as_leader(batch(2), api_version=9)
    count = len(log.segments())
    log = logs.open(segment_bytes=250, clean=False, recovery_point=recovery_point)
    assert logs.report.recovered_segments <= 2 < count
    assert log.log_end_offset == 20


def test_leftovers_of_a_crash_are_dealt_with(logs: Any, batch: Any, read_all: Any) -> None:
    files_of(logs, batch)
    directory = logs.directory
    for name in (f"{0:020d}.log.deleted", f"{99:020d}.index.cleaned", f"{99:020d}.log.swap", "1.next-segment.deleted"):
        (directory / name).write_bytes(b"left over")
    shutil.copy(directory / f"{0:020d}.log", directory / f"{0:020d}.log.swap")
    log = reopen(logs, leader_epoch=None)
    assert len(read_all(log)) == 6
    assert not [path.name for path in directory.iterdir() if path.suffix in (".deleted", ".cleaned", ".swap")]


def test_a_swap_counts_only_below_what_was_not_finished(logs: Any, batch: Any, read_all: Any) -> None:
    """Of the files at or above a `.cleaned` one the sources are still there; those below have lost theirs."""
    log = logs.open()
    for _ in range(4):
        for _ in range(2):
            log.append_as_leader(batch(2), api_version=9)
        log.roll()
    logs.stop(log)
    bases = (0, 4, 8, 12)
    cleaned: dict[int, bytes] = {}
    for base in bases:
        data = (logs.directory / f"{base:020d}.log").read_bytes()
        cleaned[base] = data[len(data) // 2 :]  # the second of its batches
        (logs.directory / f"{base:020d}.log.swap").write_bytes(cleaned[base])
    (logs.directory / f"{8:020d}.log.cleaned").write_bytes(cleaned[8])
    (logs.directory / f"{8:020d}.log.swap").unlink()
    log = logs.open(cleanup_policy="compact", clean=False, leader_epoch=None)
    assert [first for first, *_ in read_all(log, 0)] == [2, 6, 8, 10, 12, 14]
    for base in (0, 4):
        assert (logs.directory / f"{base:020d}.log").read_bytes() == cleaned[base]
    assert not [path.name for path in logs.directory.iterdir() if path.suffix in (".cleaned", ".swap")]


def test_aborted_transactions_survive_a_restart_and_a_crash(logs: Any, batch: Any, marker: Any) -> None:
    log = logs.open()
    for producer in (1, 2):
        log.append_as_leader(
            batch(2, producer_id=producer, epoch=0, sequence=0, attributes=0x10, timestamp=NOW), api_version=9
        )
    assert log.last_stable_offset == 0
    log.append_as_leader(marker(1, 0, commit=False))
    assert (log.high_watermark, log.last_stable_offset) == (5, 2)
    log.append_as_leader(marker(2, 0, commit=True))
    assert log.last_stable_offset == 6
    aborted = [(1, 0, 4, 2)]
    assert log.aborted_transactions() == aborted
    assert log.read(0, isolation=1)[4] == [(1, 0)]
    assert log.read(5, isolation=1)[4] == []
    assert log.read(0, isolation=0)[4] is None
    raw = (logs.directory / f"{0:020d}.txnindex").read_bytes()
    assert raw == struct.pack(">hqqqq", 0, 1, 0, 4, 2)
    logs.stop(log)
    log = logs.open(leader_epoch=1)
    assert log.aborted_transactions() == aborted
    (logs.directory / f"{0:020d}.txnindex").unlink()
    log = logs.open(leader_epoch=2, clean=False)
    assert log.aborted_transactions() == aborted
    assert (logs.directory / f"{0:020d}.txnindex").read_bytes() == raw


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(("limit", "synced"), [(2, True), (3, True), (4, False)])
def test_a_start_syncs_what_flush_messages_had_made_due(
    logs: Any, batch: Any, clean: bool, limit: int, synced: bool
) -> None:
    """The broker may have ended between an append and its sync: what is visible again must not be lost then."""
    log = logs.open()
    log.append_as_leader(batch(3), api_version=9)
    log.close()
    log = logs.open(leader_epoch=None, clean=clean, flush_messages=limit)
    assert (log.recovery_point, log.unflushed_messages) == ((3, 0) if synced else (0, 3))
