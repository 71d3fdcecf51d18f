"""ListOffsets by time: the first record since a timestamp, and the newest.

The newest record is the one with the highest timestamp.

The batch is found in the data plane by index and headers; its records, possibly compressed, are looked into here.
Blocking: a worker thread, or the control
loop for small batches. Source: kafka.log.UnifiedLog.fetchOffsetByTimestamp.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkapy._speedups.records.memory_records import Record
from kafkapy.records.batches import iter_records
from kafkapy.records.legacy import decode_message_set

if TYPE_CHECKING:
    from kafkapy._speedups.log.partition_log import PartitionLog

__all__ = ["TimestampOffset", "offset_for_timestamp", "offset_of_max_timestamp"]

MAGIC_AT: Final = 16


class TimestampOffset(NamedTuple):
    """A record's place: timestamp (ms), offset, and leader epoch of its batch."""

    timestamp: int
    offset: int
    leader_epoch: int


def offset_for_timestamp(log: PartitionLog, timestamp: int, *, end_offset: int = -1) -> TimestampOffset | None:
    """The first record whose timestamp is `timestamp` ms or later, or None.

    It is at or above the log start and below `end_offset` (-1: the log end).
    """
    limit = log.log_end_offset if end_offset < 0 else end_offset
    start = offset = log.log_start_offset
    while (batch := log.find_timestamp(timestamp, limit, offset)) is not None:
        for record in _records(batch):
            if record.timestamp >= timestamp and start <= record.offset < limit:
                return TimestampOffset(record.timestamp, record.offset, _leader_epoch(batch))
        # The header's max timestamp promised one, but it lies outside the bounds (deleted records): the batches behind
        # may hold another.
        offset = _next_offset(batch)
    return None


def _is_legacy(batch: bytes) -> bool:
    return batch[MAGIC_AT] < 2


def _records(batch: bytes) -> Iterable[Record]:
    return decode_message_set(batch) if _is_legacy(batch) else iter_records(batch)


def _leader_epoch(batch: bytes) -> int:
    return -1 if _is_legacy(batch) else int.from_bytes(batch[12:16], "big", signed=True)


def _next_offset(batch: bytes) -> int:
    """A message of format v0 or v1 stands for the last offset inside it."""
    base = int.from_bytes(batch[:8], "big")
    return base + 1 if _is_legacy(batch) else base + int.from_bytes(batch[23:27], "big") + 1


def offset_of_max_timestamp(log: PartitionLog, *, end_offset: int = -1) -> TimestampOffset | None:
    """The first record with the highest timestamp of the log.

    None when the log is empty (ListOffsets with -3, KIP-734).

    A transaction marker is no record, however new; Kafka 4.4 may answer a marker's offset.
    """
    newest = log.newest_record_timestamp()
    return None if newest < 0 else offset_for_timestamp(log, newest, end_offset=end_offset)
