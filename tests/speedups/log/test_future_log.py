"""Copying a log whose file was spoiled: what is no batch is never copied, and nothing worse happens."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from kafkapy._speedups.log import future_log
from kafkapy._speedups.log.cleaner_throttle import CleanerThrottle
from kafkapy._speedups.log.future_log import FutureLogCopy
from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy.config.topic import LogConfig
from kafkapy.log.backends.local import LocalBackend
from kafkapy.log.backends.memory import MemoryBackend
from kafkapy.log.loader import load_log
from kafkapy.records.batches import Record, RecordBatchBuilder
from kafkapy.records.legacy import build_message_set
from kafkapy.types import TopicPartition

TP = TopicPartition("t", 0)
BATCHES = 4


@pytest.fixture
def source(tmp_path: Path) -> PartitionLog:
    storage = LocalBackend().open_log(tmp_path, "t-0", create=True)
    log, _ = load_log(storage, TP, LogConfig.create())
    log.become_leader(1, 0, [1])
    for number in range(BATCHES):
        builder = RecordBatchBuilder()
        for n in range(2):
            builder.append(1_600_000_000_000, b"k", b"%d.%d" % (number, n))
        log.append_as_leader(builder.build())
    return log


def copied(source: PartitionLog, tmp_path: Path) -> tuple[int, PartitionLog]:
    """The last outcome, and a copy in memory."""
    future, _ = load_log(MemoryBackend().open_log(tmp_path, "future", create=True), TP, LogConfig.create())
    return copy_into(source, future), future


def copy_into(source: PartitionLog, future: PartitionLog) -> int:
    copy = FutureLogCopy(source, future, CleanerThrottle())
    outcome = future_log.MORE
    for _ in range(10):
        outcome = copy.copy(1 << 20)[0]
        if outcome == future_log.NEEDS_SEGMENT:
            future.prepare_segment()
        elif outcome != future_log.MORE:
            break
    return outcome


def spoil(path: Path, at: int, data: bytes) -> bytes:
    with path.open("r+b") as file:
        file.seek(at)
        before = file.read(len(data))
        file.seek(at)
        file.write(data)
    return before


def test_all_of_a_sound_log_is_copied(source: PartitionLog, tmp_path: Path) -> None:
    outcome, future = copied(source, tmp_path)
    assert outcome == future_log.CAUGHT_UP
    assert future.read(0)[0] == source.read(0)[0]
    assert future.log_end_offset == source.log_end_offset == 2 * BATCHES


def test_every_byte_spoiled(source: PartitionLog, tmp_path: Path) -> None:
    path = tmp_path / "t-0" / f"{0:020d}.log"
    whole = path.read_bytes()
    size = len(whole) // BATCHES
    harmless = 0
    for at in range(size, 2 * size):
        before = spoil(path, at, bytes([whole[at] ^ 0x81]))
        outcome, future = copied(source, tmp_path)
        # Offset and leader epoch are not covered by the CRC; anything else ends the copy in front of that batch.
        if at - size in (*range(8), *range(12, 16)):
            harmless += outcome == future_log.CAUGHT_UP
        else:
            assert outcome in (future_log.CORRUPT, future_log.HOLE), at - size
            assert future.read(0)[0] in (b"", whole[:size]), at - size
        spoil(path, at, before)
    assert harmless > 0


def test_the_file_cut_at_every_byte(source: PartitionLog, tmp_path: Path) -> None:
    path = tmp_path / "t-0" / f"{0:020d}.log"
    whole = path.read_bytes()
    size = len(whole) // BATCHES
    for length in range(2 * size):
        os.truncate(path, length)
        _, future = copied(source, tmp_path)
        assert future.read(0)[0] in (b"", whole[:size]), length
        path.write_bytes(whole)


def test_random_bits(source: PartitionLog, tmp_path: Path) -> None:
    path = tmp_path / "t-0" / f"{0:020d}.log"
    whole = path.read_bytes()
    chance = random.Random(1)
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 8)):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        _, future = copied(source, tmp_path)
        assert future.size <= len(whole)
        path.write_bytes(whole)


@pytest.mark.parametrize("magic", [0, 1])
def test_every_byte_of_an_old_message_spoiled(tmp_path: Path, magic: int) -> None:
    parts = [build_message_set([Record(n, 5000 if magic else -1, 0, b"k", b"v%d" % n)], magic) for n in range(3)]
    storage = LocalBackend().open_log(tmp_path, "t-0", create=True)
    path = tmp_path / "t-0" / f"{0:020d}.log"
    path.write_bytes(b"".join(parts))
    old, _ = load_log(storage, TP, LogConfig.create())
    assert copied(old, tmp_path)[1].read(0)[0] == b"".join(parts)
    size = len(parts[0])
    for at in range(size + 8, 2 * size):  # the offset is not covered by the CRC
        before = spoil(path, at, bytes([path.read_bytes()[at] ^ 0x81]))
        future, _ = load_log(MemoryBackend().open_log(tmp_path, "future", create=True), TP, LogConfig.create())
        try:
            outcome = copy_into(old, future)
        except OSError:  # the scan finds no message there, so the file counts as unreadable
            outcome = future_log.FAILED
        assert outcome in (future_log.CORRUPT, future_log.HOLE, future_log.FAILED), at - size
        assert future.read(0)[0] in (b"", parts[0]), at - size
        spoil(path, at, before)


@pytest.mark.parametrize("magic", [0, 1])
def test_the_copy_of_old_messages_knows_their_times(tmp_path: Path, magic: int) -> None:
    """Format v0 has no times; what stands in front of a message in the file is none either."""
    parts = [
        build_message_set([Record(n, 5000 + n if magic else -1, 0, b"k", b"v" * 30)], magic) for n in range(BATCHES)
    ]
    storage = LocalBackend().open_log(tmp_path, "t-0", create=True)
    (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(b"".join(parts))
    old, _ = load_log(storage, TP, LogConfig.create())
    outcome, future = copied(old, tmp_path)
    assert outcome == future_log.CAUGHT_UP
    newest = 5000 + BATCHES - 1 if magic else -1
    assert [segment[2] for segment in future.segments()] == [segment[2] for segment in old.segments()] == [newest]
    for number in range(BATCHES):
        assert future.find_timestamp(5000 + number) == (parts[number] if magic else None)
    assert future.find_timestamp(5000 + BATCHES) is None


@pytest.mark.parametrize(
    ("apart_ms", "config", "counts"),
    [(1, {}, [7]), (1, {"segment.bytes": 3}, [3, 3, 1]), (400, {"segment.ms": "1000"}, [3, 3, 1])],
    ids=["one segment", "by size", "by time"],
)
def test_the_copy_of_old_messages_has_segments_of_its_own(
    tmp_path: Path, apart_ms: int, config: dict[str, Any], counts: list[int]
) -> None:
    parts = [build_message_set([Record(n, 5000 + n * apart_ms, 0, b"k", b"v" * 30)], 1) for n in range(7)]
    size = len(parts[0])
    storage = LocalBackend().open_log(tmp_path, "t-0", create=True)
    (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(b"".join(parts))
    old, _ = load_log(storage, TP, LogConfig.create())
    overrides = {key: str(value * size) if key == "segment.bytes" else value for key, value in config.items()}
    future, _ = load_log(
        MemoryBackend().open_log(tmp_path, "future", create=True), TP, LogConfig.create(overrides=overrides)
    )
    assert copy_into(old, future) == future_log.CAUGHT_UP
    bases = [sum(counts[:number]) for number in range(len(counts))]
    assert [segment[:2] for segment in future.segments()] == [
        (base, count * size) for base, count in zip(bases, counts, strict=True)
    ]
    assert future.unflushed_messages == future.log_end_offset == 7


def test_a_stopped_copy_copies_nothing(source: PartitionLog, tmp_path: Path) -> None:
    future, _ = load_log(MemoryBackend().open_log(tmp_path, "future", create=True), TP, LogConfig.create())
    copy: Any = FutureLogCopy(source, future, CleanerThrottle())
    copy.stop()
    assert copy.copy(1 << 20)[:2] == (future_log.ENDED, 0)
    with pytest.raises(RuntimeError):
        copy.end_swap(source.storage)
