"""Which segments retention removes: by time, by size, and below the log start. Source:
kafka.log.UnifiedLog.deleteOldSegments.

Whole segments from the oldest on, never beyond the high watermark. The active segment is closed first when it is due
as well.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkapy._speedups.partition_log import PartitionLog

__all__ = ["apply_retention"]

logger = logging.getLogger("kafka.log.UnifiedLog")


def apply_retention(log: PartitionLog, now_ms: int) -> int:
    """Deletes what the topic's retention.ms, retention.bytes and the log start allow; how many segments. Blocking; a
    worker thread.

    Topics with cleanup.policy=compact only lose what lies below the log start.
    """
    deleted = 0
    config = log.config
    if "delete" in config.cleanup_policy:
        deleted += _by_time(log, now_ms, config.retention_ms)
        deleted += _by_size(log, config.retention_bytes)
    return deleted + len(log.delete_segments_below(log.log_start_offset))


def _by_time(log: PartitionLog, now_ms: int, retention_ms: int) -> int:
    if retention_ms < 0:
        return 0
    segments = log.segments()
    end = -1
    for number, (_, size, max_timestamp, created_ms, _) in enumerate(segments):
        newest = max_timestamp if max_timestamp >= 0 else created_ms
        if size == 0 or now_ms - newest <= retention_ms:
            break
        end = segments[number + 1][0] if number + 1 < len(segments) else log.log_end_offset
    return _delete(log, end, segments[-1][0], "retention.ms")


def _by_size(log: PartitionLog, retention_bytes: int) -> int:
    if retention_bytes < 0:
        return 0
    segments = log.segments()
    excess = sum(segment[1] for segment in segments) - retention_bytes
    end = -1
    for number, (_, size, _, _, _) in enumerate(segments):
        if size == 0 or excess < size:
            break
        excess -= size
        end = segments[number + 1][0] if number + 1 < len(segments) else log.log_end_offset
    return _delete(log, end, segments[-1][0], "retention.bytes")


def _delete(log: PartitionLog, end: int, active: int, why: str) -> int:
    """Segments up to `end`; when that takes in the active one (base offset `active`), a new one is started first."""
    if end < 0:
        return 0
    if end > active and log.high_watermark >= end:
        log.roll()
    deleted = log.delete_segments_below(end)
    if deleted:
        logger.info("%s-%d: deleted %d segments by %s", log.topic, log.partition, len(deleted), why)
    return len(deleted)
