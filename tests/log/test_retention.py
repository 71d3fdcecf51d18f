"""Retention: whole segments from the oldest on, by each rule, and never beyond the high watermark."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy.log.retention import apply_retention

NOW = 1_600_000_000_000


def fill(logs: Any, batch: Any, *, timestamps: list[int], isr: tuple[int, ...] = (1,), **overrides: Any) -> Any:
    """A log with one batch a segment."""
    log = logs.open(segment_bytes=80, isr=isr, min_insync_replicas=1, **overrides)
    for timestamp in timestamps:
        log.append_as_leader(batch(1, timestamp=timestamp), api_version=9)
        if log.high_watermark < log.log_end_offset:
            assert isr != (1,)
        log.roll()
    return log


def bases(log: Any) -> list[int]:
    return [segment[0] for segment in log.segments()]


def test_segments_go_when_their_newest_record_is_too_old(logs: Any, batch: Any) -> None:
    log = fill(logs, batch, timestamps=[NOW - 900, NOW - 1001, NOW - 1001, NOW - 500], retention_ms=1000)
    assert apply_retention(log, NOW) == 0       # the first is young enough, so those behind it stay
    assert apply_retention(log, NOW + 200) == 3
    assert bases(log) == [3, 4]
    assert log.log_start_offset == 3


def test_the_active_segment_is_closed_when_all_is_expired(logs: Any, batch: Any) -> None:
    log = logs.open(retention_ms=1000)
    log.append_as_leader(batch(3, timestamp=NOW), api_version=9)
    assert apply_retention(log, NOW + 1000) == 0
    assert apply_retention(log, NOW + 1001) == 1
    assert (log.log_start_offset, log.log_end_offset) == (3, 3)
    assert [segment[:2] for segment in log.segments()] == [(3, 0)]
    assert apply_retention(log, NOW + 9999) == 0        # an empty active segment stays


@pytest.mark.parametrize("keep", [0, 1, 2, 3])
def test_the_log_never_gets_smaller_than_retention_bytes(logs: Any, batch: Any, keep: int) -> None:
    size = len(batch(1, timestamp=NOW))
    log = fill(logs, batch, timestamps=[NOW] * 4, retention_ms=-1, retention_bytes=max(keep * size, 1))
    apply_retention(log, NOW)
    assert bases(log) == list(range(4 - max(keep, 1), 5))
    log.update_config(type(log.config).create(overrides={"retention.bytes": "-1", "retention.ms": "-1"}))
    assert apply_retention(log, NOW) == 0


def test_what_lies_below_the_log_start_goes_with_every_policy(logs: Any, batch: Any) -> None:
    log = fill(logs, batch, timestamps=[1] * 4, cleanup_policy="compact", retention_ms=1)
    assert apply_retention(log, NOW) == 0
    log.delete_records(2)
    assert apply_retention(log, NOW) == 2
    assert bases(log) == [2, 3, 4]


def test_nothing_goes_that_is_not_replicated(logs: Any, batch: Any) -> None:
    log = fill(logs, batch, timestamps=[1, 1, 1], isr=(1, 2), retention_ms=1)
    assert apply_retention(log, NOW) == 0
    log.follower_position(2, 2)
    assert log.high_watermark == 2
    assert apply_retention(log, NOW) == 2
    assert bases(log) == [2, 3]


def test_an_empty_segment_that_compaction_left_does_not_keep_others(logs: Any, batch: Any) -> None:
    from kafkapy.log.cleaner import Cleaner
    from kafkapy.log.cleaner_manager import log_to_clean
    from kafkapy.types import TopicPartition

    log = fill(logs, batch, timestamps=[1, 1, 1, 1], cleanup_policy="compact,delete", retention_ms=1000)
    Cleaner(1 << 20).clean(log_to_clean(TopicPartition("orders", 0), log, None, 5), 5)
    assert log.segments()[0][1] == 0
    assert apply_retention(log, 4_100_000_000_000) == 4
    assert log.log_start_offset == 4


def test_deleted_files_wait_for_the_delay(logs: Any, batch: Any) -> None:
    later: list[tuple[Any, int]] = []
    log = fill(logs, batch, timestamps=[1, 1], retention_ms=1000, file_delete_delay_ms=1234)
    log.storage._later = lambda function, delay: later.append((function, delay))
    assert apply_retention(log, NOW) == 2
    waiting = sorted(path.name for path in logs.directory.glob("*.deleted"))
    assert f"{0:020d}.log.deleted" in waiting
    assert [delay for _, delay in later] == [1234]
    assert not (logs.directory / f"{0:020d}.log").exists()
    later[0][0]()
    assert [path for path in logs.directory.glob("*.deleted") if "next-segment" not in path.name] == []


def test_segments_whose_records_have_no_timestamps_go_by_their_files_age(logs: Any, batch: Any) -> None:
    """Kafka's LogSegment.largestTimestamp: then it is the file's time that counts, and that is now."""
    log = fill(logs, batch, timestamps=[-1, -1], retention_ms=1000)
    created = [created_ms for _, _, _, created_ms, _ in log.segments()]
    assert all(timestamp == -1 for _, _, timestamp, _, _ in log.segments())
    assert apply_retention(log, min(created) + 1000) == 0
    assert bases(log) == [0, 1, 2]
    assert apply_retention(log, max(created) + 1001) == 2
    assert bases(log) == [2]


def test_a_timestamp_of_zero_is_one(logs: Any, batch: Any) -> None:
    log = fill(logs, batch, timestamps=[0, 0], retention_ms=1000)
    assert apply_retention(log, 1000) == 0
    assert apply_retention(log, 1001) == 2
