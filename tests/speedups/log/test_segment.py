"""Segments: when they roll, what a reader that holds one may expect."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy.config.topic import LogConfig
from kafkapy.log.backends.local import LocalBackend
from kafkapy.log.loader import load_log
from kafkapy.records.batches import RecordBatchBuilder
from kafkapy.types import CompressionType, TopicPartition

NOW = time.time_ns() // 1_000_000


def batch(timestamp: int = NOW, value: bytes = b"v") -> bytes:
    builder = RecordBatchBuilder()
    builder.append(timestamp, b"k", value)
    return builder.build(CompressionType.NONE)


@pytest.fixture
def make(tmp_path: Path) -> Any:
    def open_log(**config: str) -> PartitionLog:
        storage = LocalBackend().open_log(tmp_path, "t-0", create=True)
        overrides = {key.replace("_", "."): value for key, value in config.items()}
        log, _ = load_log(storage, TopicPartition("t", 0), LogConfig.create(overrides=overrides))
        log.become_leader(1, 0, [1])
        return log

    return open_log


def bases(log: PartitionLog) -> list[int]:
    return [segment[0] for segment in log.segments()]


def test_a_segment_is_never_larger_than_segment_bytes(make: Any) -> None:
    size = len(batch())
    log = make(segment_bytes=str(3 * size))
    for _ in range(7):
        log.append_as_leader(batch(), api_version=9)
    assert bases(log) == [0, 3, 6]
    assert [segment[1] for segment in log.segments()] == [3 * size, 3 * size, size]


def test_a_segment_is_closed_when_its_first_record_is_older_than_segment_ms(make: Any) -> None:
    log = make(segment_ms="1000")
    for timestamp in (NOW - 5000, NOW - 4000, NOW - 3999, NOW):
        log.append_as_leader(batch(timestamp), api_version=9)
    assert bases(log) == [0, 2, 3]


@pytest.mark.parametrize("jitter", ["1000", "1000000000000"])
def test_jitter_closes_segments_before_segment_ms_at_times_of_their_own(make: Any, jitter: str) -> None:
    log = make(segment_ms="1000", segment_jitter_ms=jitter)
    start = NOW - 60_000
    for number in range(600):
        log.append_as_leader(batch(start + 100 * number), api_version=9)
    starts = bases(log)
    ages = {later - earlier for earlier, later in pairwise(starts)}
    assert max(ages) <= 11
    # Were the jitter more than segment.ms, nearly every append would begin a segment.
    assert len(ages) > 3
    assert len(starts) < 300


def test_segment_ms_counts_on_over_a_restart(make: Any) -> None:
    log = make(segment_ms="1000")
    log.append_as_leader(batch(NOW - 5000), api_version=9)
    log.close()
    log.flush()
    log = make(segment_ms="1000")
    log.append_as_leader(batch(NOW - 3999), api_version=9)
    assert bases(log) == [0, 1]


def test_a_full_index_closes_the_segment(make: Any) -> None:
    log = make(index_interval_bytes="0", segment_index_bytes="48")
    for number in range(10):
        log.append_as_leader(batch(NOW + number), api_version=9)
    assert len(bases(log)) > 1


def test_a_new_configuration_counts_from_the_next_append(make: Any) -> None:
    log = make()
    for _ in range(3):
        log.append_as_leader(batch(), api_version=9)
    log.update_config(LogConfig.create(overrides={"segment.bytes": str(2 * len(batch()))}))
    log.append_as_leader(batch(), api_version=9)
    assert bases(log) == [0, 3]


def test_append_time_is_told_and_stored(make: Any) -> None:
    log = make(message_timestamp_type="LogAppendTime")
    base, last, appended = log.append_as_leader(batch(1000), api_version=9, now_ms=NOW)
    assert (base, last, appended) == (0, 0, NOW)
    assert log.segments()[0][2] == NOW
    assert int.from_bytes(log.read(0)[0][35:43], "big") == NOW


def test_deleted_segments_leave_the_directory(make: Any, tmp_path: Path) -> None:
    log = make(segment_bytes=str(2 * len(batch())), file_delete_delay_ms="0")
    for _ in range(6):
        log.append_as_leader(batch(), api_version=9)
    log.seal_segments()
    assert log.delete_segments_below(4) == [0, 2]
    assert log.log_start_offset == 4
    assert sorted(path.name for path in (tmp_path / "t-0").glob("*.log")) == [f"{4:020d}.log"]
