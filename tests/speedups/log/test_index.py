"""Offset and time index files: format, every cut and many flipped bits; lookups stay right, the data is the truth."""

from __future__ import annotations

import os
import random
import struct
import time
from pathlib import Path

import pytest

from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy.config.topic import LogConfig
from kafkapy.log.backends.local import LocalBackend
from kafkapy.log.loader import load_log
from kafkapy.records.batches import RecordBatchBuilder
from kafkapy.types import CompressionType, TopicPartition

NOW = time.time_ns() // 1_000_000
COUNT = 8
BUNCH = 64
"""Entries that wait in memory, at most, before they are written."""
CONFIG = {"index.interval.bytes": "0", "segment.index.bytes": "480"}


def open_log(root: Path, *, clean: bool = True, config: dict[str, str] = CONFIG) -> PartitionLog:
    storage = LocalBackend().open_log(root, "t-0", create=True)
    log, _ = load_log(storage, TopicPartition("t", 0), LogConfig.create(overrides=config), clean=clean)
    log.become_leader(1, 0, [1])
    return log


def stop(log: PartitionLog) -> None:
    log.close()
    log.flush()
    log.take_producer_snapshot()


def append(log: PartitionLog, count: int, value_size: int = 20) -> None:
    """One record a batch."""
    for _ in range(count):
        builder = RecordBatchBuilder()
        builder.append(NOW + log.log_end_offset, b"k", b"v" * value_size)
        log.append_as_leader(builder.build(CompressionType.NONE), api_version=9)


def fill(root: Path, value_size: int) -> None:
    log = open_log(root)
    append(log, COUNT, value_size)
    stop(log)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    fill(tmp_path, 20)
    return tmp_path


def check_offsets(log: PartitionLog) -> None:
    assert log.log_end_offset == COUNT
    for offset in range(COUNT):
        assert struct.unpack_from(">q", log.read(offset, 1)[0])[0] == offset


def check(log: PartitionLog) -> None:
    check_offsets(log)
    for number in range(COUNT):
        found = log.find_timestamp(NOW + number)
        assert found is not None
        assert struct.unpack_from(">q", found)[0] == number


def test_the_files_are_kafkas(root: Path) -> None:
    data = (root / "t-0" / f"{0:020d}.log").read_bytes()
    size = len(data) // COUNT
    index = (root / "t-0" / f"{0:020d}.index").read_bytes()
    assert list(struct.iter_unpack(">ii", index)) == [(n, n * size) for n in range(1, COUNT)]
    times = (root / "t-0" / f"{0:020d}.timeindex").read_bytes()
    assert list(struct.iter_unpack(">qi", times)) == [(NOW + n, n) for n in range(1, COUNT)]


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_an_index_cut_at_every_byte(root: Path, suffix: str) -> None:
    path = root / "t-0" / f"{0:020d}.{suffix}"
    data = path.read_bytes()
    for cut in range(len(data)):
        path.write_bytes(data[:cut])
        # A time index cut between two entries looks like a whole one, so only a stop without a marker makes it right.
        log = open_log(root, clean=suffix == "index" or cut % 12 != 0)
        check(log)
        log.close()


def flipped(data: bytes, at: int) -> bytes:
    spoiled = bytearray(data)
    spoiled[at // 8] ^= 1 << at % 8
    return bytes(spoiled)


@pytest.mark.parametrize("value_size", [20, 6000])
def test_an_offset_index_with_any_bit_flipped(tmp_path: Path, value_size: int) -> None:
    """With batches larger than what a walk reads at once, the entry behind the one looked up is believed first."""
    fill(tmp_path, value_size)
    path = tmp_path / "t-0" / f"{0:020d}.index"
    data = path.read_bytes()
    for at in random.Random(3).sample(range(len(data) * 8), 150):
        path.write_bytes(flipped(data, at))
        log = open_log(tmp_path)
        check_offsets(log)
        log.close()


def test_an_offset_index_that_leads_to_other_batches(tmp_path: Path) -> None:
    fill(tmp_path, 6000)
    path = tmp_path / "t-0" / f"{0:020d}.index"
    entries = list(struct.iter_unpack(">ii", path.read_bytes()))
    size = entries[0][1]
    for spoiled in range(len(entries)):
        for position in range(0, COUNT * size, size):
            changed = [*entries]
            changed[spoiled] = (entries[spoiled][0], position)
            path.write_bytes(b"".join(struct.pack(">ii", *entry) for entry in changed))
            log = open_log(tmp_path)
            check_offsets(log)
            log.close()


def test_a_time_index_with_any_bit_flipped_never_loses_a_record(root: Path) -> None:
    path = root / "t-0" / f"{0:020d}.timeindex"
    data = path.read_bytes()
    for at in random.Random(4).sample(range(len(data) * 8), 150):
        path.write_bytes(flipped(data, at))
        log = open_log(root)
        assert log.log_end_offset == COUNT
        assert struct.unpack_from(">q", log.read(COUNT - 1, 1)[0])[0] == COUNT - 1
        log.close()
        path.write_bytes(data)
    log = open_log(root, clean=False)  # an unclean stop has it built anew
    check(log)
    stop(log)
    assert path.read_bytes() == data


@pytest.mark.parametrize("offset", range(1, COUNT + 1))
def test_a_truncation_leaves_no_entry_of_what_is_gone(tmp_path: Path, offset: int) -> None:
    fill(tmp_path, 20)
    log = open_log(tmp_path)
    log.truncate_to(offset)
    stop(log)
    size = len((tmp_path / "t-0" / f"{0:020d}.log").read_bytes()) // offset
    index = (tmp_path / "t-0" / f"{0:020d}.index").read_bytes()
    assert list(struct.iter_unpack(">ii", index)) == [(n, n * size) for n in range(1, offset)]
    times = (tmp_path / "t-0" / f"{0:020d}.timeindex").read_bytes()
    # A closed segment's time index is never empty.
    assert list(struct.iter_unpack(">qi", times)) == ([(NOW + n, n) for n in range(1, offset)] or [(NOW, 0)])
    log = open_log(tmp_path)
    builder = RecordBatchBuilder()
    builder.append(NOW + 3 * COUNT, b"k", b"v")
    log.append_as_leader(builder.build(CompressionType.NONE), api_version=9)
    found = log.find_timestamp(NOW + offset)
    assert found is not None
    assert struct.unpack_from(">q", found)[0] == offset


@pytest.mark.parametrize(("suffix", "entry_size"), [("index", 8), ("timeindex", 12)])
def test_a_file_gets_its_length_once(tmp_path: Path, suffix: str, entry_size: int) -> None:
    """Entries that come later are written into it, and it is not cut before: what is at its end stays there."""
    capacity = 1000
    log = open_log(tmp_path, config={**CONFIG, "segment.index.bytes": str(capacity * 24)})
    path = tmp_path / "t-0" / f"{0:020d}.{suffix}"
    append(log, BUNCH + 1)
    length = path.stat().st_size
    assert length == capacity * 24
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"x")
    append(log, BUNCH)
    assert path.read_bytes()[-1:] == b"x"
    stop(log)
    assert path.stat().st_size == 2 * BUNCH * entry_size
    log = open_log(tmp_path)
    for number in range(log.log_end_offset):
        found = log.find_timestamp(NOW + number)
        assert found is not None
        assert struct.unpack_from(">q", found)[0] == number
