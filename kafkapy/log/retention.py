"""Which segments retention removes: by time, by size, and below the log start. Source:
kafka.log.UnifiedLog.deleteOldSegments.

Whole segments from the oldest on, never beyond the high watermark. The active segment is closed first when it is due
as well. The files are renamed to `.deleted` at once and removed after file.delete.delay.ms.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkapy._speedups.log.partition_log import PartitionLog

__all__ = ["apply_retention"]

logger = logging.getLogger("kafka.log.UnifiedLog")


def apply_retention(log: PartitionLog, now_ms: int) -> int:
    """Deletes segments by retention and log start; the number of segments.

    The keys are the topic's retention.ms and retention.bytes. Blocking; a worker thread. OSError when files cannot be
    renamed.

    Topics with cleanup.policy=compact only lose what lies below the log start.
    """
    deleted = 0
    config = log.config
    if "delete" in config.cleanup_policy:
        deleted += _by_time(log, now_ms, config.retention_ms)
        deleted += _by_size(log, config.retention_bytes)
    return deleted + _below_log_start(log)


def _by_time(log: PartitionLog, now_ms: int, retention_ms: int) -> int:
    """Segments whose newest record is older than retention.ms (-1: none)."""
    if retention_ms < 0:
        return 0

    def expired(size: int, max_timestamp: int, created_ms: int) -> bool:
        newest = max_timestamp if max_timestamp >= 0 else created_ms
        return now_ms - newest > retention_ms

    return _delete_while(log, expired, f"retention.ms={retention_ms}")


def _by_size(log: PartitionLog, retention_bytes: int) -> int:
    """Segments without which the log is still at least retention.bytes large (-1: none)."""
    if retention_bytes < 0:
        return 0
    excess = log.size - retention_bytes

    def superfluous(size: int, max_timestamp: int, created_ms: int) -> bool:
        nonlocal excess
        if excess < size or excess <= 0:
            return False
        excess -= size
        return True

    return _delete_while(log, superfluous, f"retention.bytes={retention_bytes}")


def _delete_while(log: PartitionLog, due: Callable[[int, int, int], bool], why: str) -> int:
    """Deletes the oldest segments as long as due(size, max timestamp, created) says so."""
    # The offsets come first: a record that is appended after them is not below them, however old its segment looked.
    log_end, high_watermark = log.log_end_offset, log.high_watermark
    segments = log.segments()
    end = -1
    for number, (_, size, max_timestamp, created_ms, _) in enumerate(segments):
        is_active = number + 1 == len(segments)
        upper = log_end if is_active else segments[number + 1][0]
        if upper > high_watermark or (is_active and size == 0) or not due(size, max_timestamp, created_ms):
            break
        end = upper
    if end < 0:
        return 0
    if end > segments[-1][0]:
        # All of it is due: the active segment can only go when there is another.
        log.roll()
    deleted = log.delete_segments_below(end)
    if deleted:
        logger.info(
            "Retention of %s-%d deleted %d segments up to offset %d, %s",
            log.topic,
            log.partition,
            len(deleted),
            end,
            why,
        )
    return len(deleted)


def _below_log_start(log: PartitionLog) -> int:
    deleted = log.delete_segments_below(log.log_start_offset)
    if deleted:
        logger.info(
            "Retention of %s-%d deleted %d segments below the log start", log.topic, log.partition, len(deleted)
        )
    return len(deleted)
