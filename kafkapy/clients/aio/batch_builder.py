"""BatchBuilder: records that one call hands to the producer together."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from kafkapy.serializer import Serialize

__all__ = ["BatchBuilder", "BatchRecord"]

BATCH_OVERHEAD: Final = 61
"""Bytes of a batch's header."""
RECORD_OVERHEAD: Final = 21
"""Bytes at most of a record's own fields (DefaultRecord.MAX_RECORD_OVERHEAD)."""
HEADER_OVERHEAD: Final = 10
"""Bytes at most of a header's two lengths."""

Headers = Iterable[tuple[str, bytes | None]]


class BatchRecord(NamedTuple):
    """What was appended; `size` in bytes as it counts for the batch, timestamp in ms."""

    offset: int
    size: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class BatchBuilder:
    """Collects records up to max_batch_size bytes. Made by AIOKafkaProducer.create_batch; used by one task."""

    def __init__(
        self, max_size: int, key_serializer: Serialize | None = None, value_serializer: Serialize | None = None
    ) -> None:
        self._max_size = max_size
        self._serializers = (key_serializer, value_serializer)
        self._size = BATCH_OVERHEAD
        self._records: list[BatchRecord] = []
        self._closed = False
        self._taken = False

    def append(
        self, *, timestamp: int | None, key: Any, value: Any, headers: Headers = ()
    ) -> BatchRecord | None:
        """Add a record, `timestamp` in ms (None: now). None when the batch is full or closed; its first record always
        fits. Serializers that are objects get an empty name for the topic, which is not known here.
        """
        pairs = list(headers)
        raw_key, raw_value = (
            data if serialize is None else serialize("", pairs, data)
            for serialize, data in zip(self._serializers, (key, value), strict=True)
        )
        size = RECORD_OVERHEAD + len(raw_key or b"") + len(raw_value or b"")
        size += sum(HEADER_OVERHEAD + len(name.encode()) + len(each or b"") for name, each in pairs)
        if self._closed or (self._records and self._size + size > self._max_size):
            return None
        at = time.time_ns() // 1_000_000 if timestamp is None else timestamp
        record = BatchRecord(len(self._records), size, at, raw_key, raw_value, pairs)
        self._records.append(record)
        self._size += size
        return record

    def close(self) -> None:
        """Take no more records."""
        self._closed = True

    def size(self) -> int:
        """Bytes of the batch at most, before compression."""
        return self._size

    def record_count(self) -> int:
        """How many records there are."""
        return len(self._records)

    def take(self) -> list[BatchRecord]:
        """The records, in order, to be sent; the batch is closed and cannot be taken again. ValueError."""
        if self._taken or not self._records:
            raise ValueError("the batch was sent already" if self._taken else "the batch is empty")
        self._closed = self._taken = True
        return self._records
