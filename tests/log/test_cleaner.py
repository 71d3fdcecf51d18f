"""Compaction: the newest record of each key stays, with its offset; tombstones, transactions, producers as in Kafka."""

from __future__ import annotations

import os
import random
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from log.conftest import make_control

from kafkapy._speedups.log import open_files
from kafkapy._speedups.log.cleaner import CleaningStopped
from kafkapy._speedups.log.cleaner_throttle import CleanerThrottle
from kafkapy._speedups.records.memory_records import Record
from kafkapy.errors import CorruptMessageError, InvalidRecordError
from kafkapy.log.cleaned_files import CleanedFiles
from kafkapy.log.cleaner import Cleaner, group_segments
from kafkapy.log.cleaner_manager import log_to_clean
from kafkapy.records.batches import RecordBatchBuilder, decode_records, iter_batches
from kafkapy.records.control import build_end_transaction_marker
from kafkapy.records.legacy import build_message_set
from kafkapy.types import TopicPartition

TP = TopicPartition("orders", 0)
NOW = 1_600_000_000_000
HORIZON = 0x40


def keyed(*records: tuple[bytes | None, bytes | None], codec: int = 0, timestamp: int = NOW, **how: Any) -> bytes:
    builder = RecordBatchBuilder()
    for number, (key, value) in enumerate(records):
        builder.append(timestamp + number, key, value, [("n", b"1")] if number % 2 else [])
    return builder.build(codec, **how)


def all_batches(log: Any, limit: int = 1 << 62) -> list[Any]:
    found: list[Any] = []
    offset = log.log_start_offset
    while offset < limit and (data := log.read(offset, 1 << 20, isolation=2)[0]):
        for batch in iter_batches(data, check_crc=True):
            assert batch.base_offset >= offset
            offset = batch.last_offset + 1
            found.append(batch)
    return found


def all_records(log: Any, *, control: bool = False) -> list[Any]:
    return [record for batch in all_batches(log) if control or not batch.is_control for record in decode_records(batch)]


def contents(log: Any) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in all_records(log)]


def clean(
    log: Any, *, checkpoint: int | None = None, now_ms: int = NOW, memory: int = 1 << 20, roll: bool = True
) -> int:
    if roll:
        log.roll()
    end, _ = Cleaner(memory).clean(log_to_clean(TP, log, checkpoint, now_ms), now_ms)
    return end


@pytest.mark.parametrize("codec", range(5))
def test_the_newest_record_of_each_key_stays(logs: Any, codec: int) -> None:
    log = logs.open(cleanup_policy="compact", segment_bytes=900)
    for number in range(60):
        log.append_as_leader(keyed((b"a%d" % (number % 5), b"x%d" % number), (b"b", b"y" * 20), codec=codec))
    before = all_records(log)
    end = clean(log)
    assert end == log.log_end_offset == 120
    newest = {record.key: record for record in before}
    kept = all_records(log)
    assert [(r.offset, r.key, r.value, r.timestamp, r.headers) for r in kept] == sorted(
        (r.offset, r.key, r.value, r.timestamp, r.headers) for r in newest.values()
    )
    assert {batch.codec for batch in all_batches(log)} == {codec}
    logs.stop(log)
    for clean_stop in (True, False):
        log = logs.open(cleanup_policy="compact", segment_bytes=900, clean=clean_stop)
        assert [(r.offset, r.value) for r in all_records(log)] == [(r.offset, r.value) for r in kept]
        assert log.log_end_offset == 120
        logs.stop(log)


def test_what_was_not_read_into_the_map_is_left_alone(logs: Any) -> None:
    log = logs.open(cleanup_policy="compact")
    log.append_as_leader(keyed((b"k", b"1")))
    log.roll()
    log.append_as_leader(keyed((b"k", b"2")))
    assert clean(log, roll=False) == 1
    assert contents(log) == [(0, b"k", b"1"), (1, b"k", b"2")]


def test_max_compaction_lag_closes_the_active_segment(logs: Any) -> None:
    for policy, segments in (("compact", 2), ("delete", 1)):
        log = logs.open(cleanup_policy=policy, max_compaction_lag_ms=1000)
        log.append_as_leader(keyed((b"k", b"1"), timestamp=NOW))
        log.append_as_leader(keyed((b"k", b"2"), timestamp=NOW + 1000))
        assert len(log.segments()) == 1
        log.append_as_leader(keyed((b"k", b"3"), timestamp=NOW + 1001))
        assert len(log.segments()) == segments
        log.truncate_fully_and_start_at(0)


def test_records_without_a_key_go_and_are_counted(logs: Any) -> None:
    log = logs.open()
    log.append_as_leader(keyed((None, b"1"), (b"k", b"2")))
    log.roll()
    _, stats = Cleaner(1 << 20).clean(log_to_clean(TP, log, None, NOW), NOW)
    assert contents(log) == [(1, b"k", b"2")]
    assert stats.figures["records_without_key"] == 1


def test_tombstones_stay_for_delete_retention_ms_and_then_go(logs: Any) -> None:
    log = logs.open(cleanup_policy="compact", delete_retention_ms=1000)
    log.append_as_leader(keyed((b"k", b"1"), (b"other", b"v")))
    log.append_as_leader(keyed((b"k", None)))
    checkpoint = clean(log)
    assert contents(log) == [(1, b"other", b"v"), (2, b"k", None)]
    batch = all_batches(log)[1]
    header = batch.to_bytes()
    assert struct.unpack_from(">h", header, 21)[0] & HORIZON
    assert struct.unpack_from(">q", header, 27)[0] == NOW + 1000
    assert [record.timestamp for record in all_records(log)] == [NOW + 1, NOW]
    for later, left in ((999, 2), (1000, 1)):
        log.append_as_leader(keyed((b"filler", b"f")))
        checkpoint = clean(log, checkpoint=checkpoint, now_ms=NOW + later)
        assert len([entry for entry in contents(log) if entry[1] != b"filler"]) == left


def test_aborted_records_go_and_markers_when_nobody_needs_them(logs: Any) -> None:
    log = logs.open(cleanup_policy="compact", delete_retention_ms=1000)
    how: dict[str, Any] = {"transactional": True, "producer_epoch": 0}
    log.append_as_leader(keyed((b"a", b"good")))
    log.append_as_leader(keyed((b"a", b"bad"), (b"c", b"bad"), producer_id=1, base_sequence=0, **how))
    log.append_as_leader(keyed((b"b", b"committed"), producer_id=2, base_sequence=0, **how))
    for producer, committed in ((1, False), (2, True)):
        log.append_as_leader(
            build_end_transaction_marker(producer, 0, committed=committed, coordinator_epoch=0, timestamp_ms=NOW)
        )
    for number in range(3):  # so that the batches above are not their producers' last ones
        log.append_as_leader(keyed((b"d%d" % number, b"x"), producer_id=1, base_sequence=2 + number, **how))
        log.append_as_leader(build_end_transaction_marker(1, 0, committed=True, coordinator_epoch=0, timestamp_ms=NOW))
        log.append_as_leader(keyed((b"e%d" % number, b"x"), producer_id=2, base_sequence=1 + number, **how))
        log.append_as_leader(build_end_transaction_marker(2, 0, committed=True, coordinator_epoch=0, timestamp_ms=NOW))
    assert log.aborted_transactions() == [(1, 1, 4, 3)]

    def markers() -> list[int]:
        return [batch.base_offset for batch in all_batches(log) if batch.is_control and batch.record_count]

    checkpoint = clean(log)
    assert contents(log)[:2] == [(0, b"a", b"good"), (3, b"b", b"committed")]
    assert markers()[:2] == [4, 5]
    assert log.aborted_transactions() == [(1, 1, 4, 3)]  # this pass still met its data
    assert (logs.directory / f"{0:020d}.txnindex").exists()
    clean(log, checkpoint=checkpoint, now_ms=NOW + 1)
    assert markers()[:2] == [4, 5]
    assert log.aborted_transactions() == []
    assert not (logs.directory / f"{0:020d}.txnindex").exists()
    clean(log, checkpoint=checkpoint, now_ms=NOW + 1000)
    assert markers()[:2] == [4, 5]
    clean(log, checkpoint=checkpoint, now_ms=NOW + 1001)
    assert markers()[:2] == [5, 7]  # the commit of producer 2 still has its data
    assert (3, b"b", b"committed") in contents(log)


def test_the_last_sequence_of_a_producer_outlives_its_records(logs: Any) -> None:
    log = logs.open(cleanup_policy="compact")
    log.append_as_leader(keyed((b"k", b"1"), (b"k", b"2"), producer_id=7, producer_epoch=3, base_sequence=40))
    log.append_as_leader(keyed((b"k", b"3")))
    clean(log)
    assert contents(log) == [(2, b"k", b"3")]
    [empty, _] = all_batches(log)
    assert (empty.base_offset, empty.last_offset, empty.record_count) == (0, 1, 0)
    logs.stop(log)
    for path in logs.directory.glob("*.snapshot"):
        path.unlink()
    log = logs.open(cleanup_policy="compact", clean=False)
    [producer] = log.producers()
    assert (producer["producer_id"], producer["epoch"], producer["last_sequence"]) == (7, 3, 41)
    log.append_as_leader(keyed((b"k", b"4"), producer_id=7, producer_epoch=3, base_sequence=42), api_version=9)
    clean(log)
    assert [batch.base_offset for batch in all_batches(log)] == [3]


def test_a_map_too_small_for_all_keys_cleans_what_it_can(logs: Any) -> None:
    log = logs.open(cleanup_policy="compact", segment_bytes=100_000)
    for number in range(400):
        log.append_as_leader(keyed(*((b"%d-%d" % (number % 200, n), b"v%d" % number) for n in range(10))))
    log.roll()
    checkpoint: int | None = None
    rounds = 0
    expected = {record.key: record.value for record in all_records(log)}
    while checkpoint != log.log_end_offset:
        before, checkpoint = checkpoint, clean(log, checkpoint=checkpoint, memory=1100 * 24, roll=False)
        assert before is None or checkpoint > before
        assert {record.key: record.value for record in all_records(log)} == expected
        rounds += 1
    assert rounds >= 2


def test_a_batch_with_more_keys_than_the_map_takes_is_reported(logs: Any) -> None:
    log = logs.open(cleanup_policy="compact")
    log.append_as_leader(keyed(*((b"%d" % n, b"v") for n in range(2000))))
    with pytest.raises(CorruptMessageError, match=r"log\.cleaner\.dedupe\.buffer\.size"):
        clean(log, memory=1000 * 24)


def test_a_control_record_of_another_kind_stays(logs: Any) -> None:
    log = logs.open(cleanup_policy="compact", delete_retention_ms=0)
    for number in range(3):
        log.append_as_leader(keyed((b"k", b"%d" % number)))
        log.append_as_leader(make_control(b"\0\0\0\2", b"leader change", attributes=0x20, timestamp=NOW))
    before = all_records(log, control=True)
    for later in (0, 1, 1_000_000):
        clean(log, now_ms=NOW + later)
        assert all_records(log, control=True) == [before[number] for number in (1, 3, 4, 5)]


def test_a_map_with_room_for_no_key_leaves_the_log_as_it_is(logs: Any) -> None:
    """As a tiny log.cleaner.io.buffer.load.factor makes it. It still goes on over holes, where there is no key."""
    log = logs.open(cleanup_policy="compact", segment_bytes=300)
    for number in range(20):
        log.append_as_leader(keyed((b"k", b"%d" % number)))
    before = contents(log)
    log.roll()
    cleaner = Cleaner(1 << 20, load_factor=1e-5)
    with pytest.raises(CorruptMessageError, match=r"log\.cleaner\.dedupe\.buffer\.size"):
        cleaner.clean(log_to_clean(TP, log, None, NOW), NOW)
    assert contents(log) == before
    clean(log)
    [newest] = contents(log)
    end, stats = cleaner.clean(log_to_clean(TP, log, None, NOW), NOW)
    assert 0 < end <= newest[0]
    assert (stats.keys, stats.map_fullness, contents(log)) == (0, 0.0, [newest])


def test_damaged_bytes_are_reported_and_nothing_is_changed(logs: Any) -> None:
    log = logs.open(cleanup_policy="compact")
    for _ in range(3):
        log.append_as_leader(keyed((b"k", b"1" * 50)))
    log.roll()
    path = logs.directory / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    random.seed(3)
    for _ in range(60):
        at = random.randrange(len(data))
        spoiled = bytearray(data)
        spoiled[at] ^= 1 << random.randrange(8)
        path.write_bytes(spoiled)  # the same file: the log has it open
        size = len(data) // 3
        if at % size < 8 or 12 <= at % size < 16:
            continue  # offset and leader epoch are not covered by the checksum
        with pytest.raises(CorruptMessageError):
            clean(log)
        assert path.read_bytes() == spoiled
        assert not [name for name in logs.directory.iterdir() if name.suffix in (".cleaned", ".swap")]


def test_a_stopped_cleaning_has_no_effect(logs: Any) -> None:
    log = logs.open(cleanup_policy="compact")
    log.append_as_leader(keyed((b"k", b"1"), (b"k", b"2")))
    log.roll()
    pace = CleanerThrottle()
    pace.stop()
    with pytest.raises(CleaningStopped):
        Cleaner(1 << 20, pace=pace).clean(log_to_clean(TP, log, None, NOW), NOW)
    assert len(contents(log)) == 2


def test_a_log_that_is_truncated_meanwhile_is_not_touched(logs: Any) -> None:
    log = logs.open(cleanup_policy="compact")
    for number in range(3):
        log.append_as_leader(keyed((b"k", b"%d" % number)))
        log.roll()
    with pytest.raises(CleaningStopped):
        Cleaner(1 << 20).clean(log_to_clean(TP, log, None, NOW), NOW, lambda cleaning: log.truncate_to(1) and None)
    assert contents(log) == [(0, b"k", b"0")]


@pytest.mark.parametrize("step", ["create", "finish", "promote"])
def test_a_log_that_is_truncated_when_its_files_are_written_keeps_none_of_them(
    logs: Any, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The data file goes first: without it a restart ignores the others."""
    log = logs.open(cleanup_policy="compact")
    for number in range(3):
        log.append_as_leader(keyed((b"k", b"%d" % number)))
        log.roll()
    do, unlink, removed = getattr(CleanedFiles, step), Path.unlink, []

    def truncate_after(files: CleanedFiles, *how: Any) -> Any:
        done = do(files, *how)
        log.truncate_to(2)
        monkeypatch.setattr(Path, "unlink", note)
        return done

    def note(path: Path, missing_ok: bool = False) -> None:
        removed.extend([path.name] if path.exists() else [])
        unlink(path, missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(CleanedFiles, step, truncate_after)
        with pytest.raises(CleaningStopped):
            Cleaner(1 << 20).clean(log_to_clean(TP, log, None, NOW), NOW)
    assert removed[0] == f"{0:020d}.log.{'swap' if step == 'promote' else 'cleaned'}"
    assert not [path for path in logs.directory.rglob("*") if path.suffix in (".cleaned", ".swap")]
    assert contents(log) == [(0, b"k", b"0"), (1, b"k", b"1")]
    assert clean(log) == 2
    assert contents(log) == [(1, b"k", b"1")]


def test_segments_are_joined_up_to_the_size_of_one() -> None:
    def segments(*sizes: int) -> list[tuple[int, int, int, int, int, int]]:
        return [(100 * n, size, 8, 12, 0, 0) for n, size in enumerate(sizes)]

    assert group_segments(segments(10, 10, 10, 10, 1), 400, 20, 1000, 9) == [(0, 2), (2, 2)]
    assert group_segments(segments(10, 10, 10, 10, 1), 300, 25, 1000, 9) == [(0, 2), (2, 1)]
    assert group_segments(segments(50, 10, 10, 1), 300, 25, 1000, 9) == [(0, 1), (1, 2)]
    assert group_segments(segments(1, 1, 1, 1), 300, 25, 24, 9) == [(0, 2), (2, 1)]
    far = [(0, 1, 8, 12, 0, 0), (1 << 31, 1, 8, 12, 0, 0), ((1 << 31) + 5, 1, 8, 12, 0, 0)]
    assert group_segments(far, 1 << 40, 100, 1000, 9) == [(0, 1), (1, 1)]
    assert group_segments(segments(1, 1, 1, 1, 1, 1), 500, 25, 1000, 2) == [(0, 2), (2, 2), (4, 1)]


def test_a_log_of_more_segments_than_may_be_open_is_cleaned(logs: Any) -> None:
    log = logs.open(cleanup_policy="compact", segment_bytes=200)
    for number in range(200):
        log.append_as_leader(keyed((b"%d" % (number % 5), b"x" * 30)))
    log.roll()
    assert len(log.segments()) > 50
    open_files.close_idle(1 << 20)
    before = open_files.open_count()
    open_files.set_limit(before + 12, 4)
    try:
        for _ in range(2):
            clean(log, roll=False)
            assert open_files.open_count() <= before + 16
        open_files.set_limit(0, 0)
        assert [offset for offset, _, _ in contents(log)] == [195, 196, 197, 198, 199]
    finally:
        open_files.set_limit(0, 0)


def test_the_memory_backend_is_cleaned_too(config: Callable[..., Any] | None = None) -> None:
    from pathlib import Path

    from kafkapy.config.topic import LogConfig
    from kafkapy.log.backends.memory import MemoryBackend
    from kafkapy.log.loader import load_log

    settings = LogConfig.create(overrides={"cleanup.policy": "compact"})
    log, _ = load_log(MemoryBackend().open_log(Path("/"), str(TP), create=True), TP, settings)
    log.become_leader(1, 0, (1,))
    for number in range(50):
        log.append_as_leader(keyed((b"k%d" % (number % 3), b"%d" % number)))
    clean(log)
    assert contents(log) == [(n, b"k%d" % (n % 3), b"%d" % n) for n in (47, 48, 49)]


def test_readers_see_sound_batches_while_the_log_is_cleaned(logs: Any) -> None:
    log = logs.open(cleanup_policy="compact", segment_bytes=20_000)
    stop = threading.Event()
    problems: list[BaseException] = []

    def append() -> None:
        number = 0
        while not stop.is_set() and number < 3000:
            log.append_as_leader(keyed(*((b"k%d" % ((number + n) % 50), b"v%d" % number) for n in range(20))))
            number += 1

    def read() -> None:
        try:
            while not stop.is_set():
                offsets = [batch.base_offset for batch in all_batches(log, log.log_end_offset)]
                assert offsets == sorted(set(offsets))
                middle = random.randrange(max(log.log_end_offset, 1))
                data = log.read(middle, 5000, isolation=2)[0]
                if data:
                    first = next(iter(iter_batches(data)))
                    assert first.last_offset >= middle
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=target) for target in (append, read, read)]
    for thread in threads:
        thread.start()
    checkpoint: int | None = None
    for _ in range(25):
        checkpoint = clean(log, checkpoint=checkpoint)
    stop.set()
    for thread in threads:
        thread.join()
    assert problems == []
    clean(log, checkpoint=checkpoint)
    assert len(contents(log)) <= 50


@pytest.mark.parametrize("magic", (0, 1))
@pytest.mark.parametrize("codec", range(4))
def test_messages_of_old_formats_become_batches_when_they_are_cleaned(logs: Any, magic: int, codec: int) -> None:
    """Source: MemoryRecords.filterTo of Kafka 4.1; 3.9 keeps the format."""
    config = {"cleanup_policy": "compact", "delete_retention_ms": 1000}
    logs.stop(logs.open(**config))
    stamp = NOW if magic else -1
    kind = 1 if magic else -1
    sets, expected = [], {}
    for number in range(0, 40, 2):
        records = [
            Record(number + n, stamp + number if magic else -1, kind, key, value)
            for n, (key, value) in enumerate([(b"a%d" % (number % 6), b"x%d" % number), (b"gone", None)])
        ]
        if codec:
            # With its records, a wrapper has one time (LogAppendTime).
            records = [Record(r.offset, records[0].timestamp, kind, r.key, r.value) for r in records]
        sets.append(build_message_set(records, magic, codec))
        expected |= {record.key: record for record in records}
    path = logs.directory / f"{0:020d}.log"
    path.write_bytes(b"".join(sets))
    for index in (*logs.directory.glob("*.index"), *logs.directory.glob("*.timeindex")):
        index.unlink()
    log = logs.open(**config)
    log.append_as_leader(keyed((b"a0", b"new")))
    expected[b"a0"] = Record(40, NOW, 0, b"a0", b"new")
    checkpoint = clean(log)
    assert checkpoint == 41
    wanted = sorted((r.offset, r.key, r.value, r.timestamp) for r in expected.values())
    assert [(r.offset, r.key, r.value, r.timestamp) for r in all_records(log)] == wanted
    batches = all_batches(log)
    assert {batch.magic for batch in batches} == {2}
    assert {batch.codec for batch in batches if batch.last_offset < 40} == {codec}
    assert {batch.timestamp_type for batch in batches if batch.last_offset < 40} == {1 if magic else 0}
    horizons = [batch.delete_horizon_ms for batch in batches if batch.delete_horizon_ms is not None]
    assert horizons == [NOW + 1000]
    log.append_as_leader(keyed((b"filler", b"f")))
    clean(log, checkpoint=checkpoint, now_ms=NOW + 1000)
    assert b"gone" not in {record.key for record in all_records(log)}
    left = contents(log)
    logs.stop(log)
    for clean_stop in (True, False):
        log = logs.open(clean=clean_stop, **config)
        assert contents(log) == left
        logs.stop(log)


def test_a_damaged_message_of_an_old_format_is_reported(logs: Any) -> None:
    logs.stop(logs.open(cleanup_policy="compact"))
    whole = b"".join(build_message_set([Record(n, NOW, 0, b"k", b"v")], 1) for n in range(3))
    path = logs.directory / f"{0:020d}.log"
    path.write_bytes(whole)
    log = logs.open(cleanup_policy="compact")
    log.append_as_leader(keyed((b"k", b"w")))
    log.roll()
    data = bytearray(path.read_bytes())
    data[40 + 20] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptMessageError):
        clean(log, roll=False)
    assert path.read_bytes() == data


@pytest.mark.parametrize("magic", (0, 1))
def test_flipped_bits_in_messages_of_old_formats_never_harm(logs: Any, magic: int) -> None:
    logs.stop(logs.open(cleanup_policy="compact"))
    kind = 0 if magic else -1
    whole = b"".join(
        build_message_set([Record(2 * n + i, NOW, kind, b"k%d" % i, b"v" * n) for i in range(2)], magic, n % 2)
        for n in range(4)
    )
    path = logs.directory / f"{0:020d}.log"
    path.write_bytes(whole)
    log = logs.open(cleanup_policy="compact")
    log.append_as_leader(keyed((b"k0", b"w")))
    log.roll()
    sound = path.read_bytes()
    source = random.Random(magic)
    for _ in range(100):
        data = bytearray(sound)
        at = source.randrange(len(whole))
        # Offsets have no checksum in these formats.
        data[at] ^= 1 << source.randrange(8)
        path.write_bytes(data)
        try:
            clean(log, roll=False)
        except (CorruptMessageError, InvalidRecordError):
            assert path.read_bytes() == data
        else:
            path.write_bytes(sound)
            logs.stop(log)
            log = logs.open(cleanup_policy="compact")
    for size in range(1, len(sound), 7):
        path.write_bytes(sound[:size])
        with pytest.raises((CorruptMessageError, OSError)):
            clean(log, roll=False)


@pytest.mark.parametrize("timestamp", [NOW, -1])
def test_a_cleaned_segment_is_as_old_as_the_newest_of_its_sources(logs: Any, timestamp: int) -> None:
    """Its file's time, which retention goes by where records have no timestamps."""
    log = logs.open(cleanup_policy="compact")
    for number in range(3):
        log.append_as_leader(keyed((b"k%d" % number, b"v"), timestamp=timestamp))
        log.roll()
    logs.stop(log)
    for number in range(4):
        modified = (NOW + 1000 * number) * 1_000_000
        os.utime(logs.directory / f"{number:020d}.log", ns=(modified, modified))
    log = logs.open(cleanup_policy="compact")
    assert clean(log, roll=False) == 3
    assert [segment[0] for segment in log.segments()] == [0, 3]
    assert (logs.directory / f"{0:020d}.log").stat().st_mtime_ns == (NOW + 2000) * 1_000_000
    assert log.segments()[0][3] == NOW + 2000
