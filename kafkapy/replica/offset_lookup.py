"""ListOffsets on one log: the offset of a position or of a time.

Called on worker threads where a look-up reads batches from the disk. Sources: kafka.log.UnifiedLog,
kafka.cluster.Partition.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkapy import errors
from kafkapy.log.timestamps import offset_for_timestamp, offset_of_max_timestamp
from kafkapy.types import IsolationLevel, ListOffsetsTimestamp

if TYPE_CHECKING:
    from kafkapy._speedups.log.partition_log import PartitionLog

NO_TIMESTAMP: Final = -1


class FoundOffset(NamedTuple):
    """An offset, the record's timestamp in ms, and its leader epoch.

    Each is -1 when it is not known; the timestamp also when no record was read.
    """

    timestamp: int
    offset: int
    leader_epoch: int = -1


def last_fetchable_offset(log: PartitionLog, isolation: IsolationLevel | None) -> int:
    """The end of a reader's view of the log.

    It is the high watermark, the last stable offset, or (None: a follower) the log end.
    """
    _, end, high_watermark, last_stable, _ = log.offsets()
    if isolation is None:
        return end
    return last_stable if isolation is IsolationLevel.READ_COMMITTED else high_watermark


def lookup(log: PartitionLog, timestamp: int, isolation: IsolationLevel | None) -> FoundOffset | None:
    """The offset for a time in ms or a ListOffsetsTimestamp.

    None when every record is older than the time. OFFSET_NOT_AVAILABLE when the answer is beyond the high watermark of
    a new leader, which has not reached the start of its epoch yet (KIP-207): the offset could go backwards.
    """
    epochs = log.leader_epochs()
    end = last_fetchable_offset(log, isolation)
    start = log.log_start_offset
    if timestamp in (ListOffsetsTimestamp.EARLIEST, ListOffsetsTimestamp.EARLIEST_LOCAL):
        epoch = epochs[0][0] if epochs and epochs[0][1] <= start else -1
        return FoundOffset(NO_TIMESTAMP, start, epoch)
    if timestamp in (ListOffsetsTimestamp.LATEST_TIERED, ListOffsetsTimestamp.EARLIEST_PENDING_UPLOAD):
        return FoundOffset(NO_TIMESTAMP, -1)  # nothing is tiered, nothing awaits its upload
    # The last stable offset may stay behind for long under an open transaction, so only the high watermark counts here.
    behind = isolation is not None and log.is_leader and log.high_watermark < log.epoch_start_offset
    if timestamp == ListOffsetsTimestamp.LATEST:
        if behind:
            raise errors.OffsetNotAvailableError
        return FoundOffset(NO_TIMESTAMP, end, log.leader_epoch)
    if timestamp == ListOffsetsTimestamp.MAX_TIMESTAMP:
        found = offset_of_max_timestamp(log, end_offset=end)
    else:
        found = offset_for_timestamp(log, timestamp, end_offset=end)
    if found is None and behind:
        # The record may lie between the high watermark and the records that the former leader has committed.
        raise errors.OffsetNotAvailableError
    return None if found is None else FoundOffset(found.timestamp, found.offset, found.leader_epoch)


def legacy_offsets(log: PartitionLog, timestamp: int, limit: int, from_consumer: bool) -> list[int]:
    """The offsets that ListOffsets version 0 returns, at most `limit`.

    They are start offsets of segments not younger than a time, the youngest first. The log end stands for "now". A
    consumer sees the high watermark in place of offsets beyond it.
    """
    segments = log.segments()
    start, end, high_watermark, _, _ = log.offsets()
    offsets = [(max(base, start), created_ms) for base, _, _, created_ms, _ in segments]
    if segments and segments[-1][1] > 0:
        offsets.append((end, int(time.time() * 1000)))
    if timestamp == ListOffsetsTimestamp.LATEST:
        chosen = offsets
    elif timestamp == ListOffsetsTimestamp.EARLIEST:
        chosen = offsets[:1]
    else:
        chosen = [each for each in offsets if each[1] <= timestamp]
    found = [base for base, _ in reversed(chosen)][: max(limit, 0)]
    if from_consumer and any(offset > high_watermark for offset in found):
        found = [high_watermark, *(offset for offset in found if offset <= high_watermark)]
    return found
