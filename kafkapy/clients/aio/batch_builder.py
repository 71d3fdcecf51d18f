"""BatchBuilder: records that a producer sends together."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from kafkapy.serializer import Serialize

__all__ = ["BatchBuilder", "BatchRecord"]

BATCH_OVERHEAD: Final = 61
"""Size of a batch's header in bytes."""
RECORD_OVERHEAD: Final = 21
"""Largest size of a record's own fields in bytes (DefaultRecord.MAX_RECORD_OVERHEAD)."""
HEADER_OVERHEAD: Final = 10
"""Largest size of a header's two lengths in bytes."""

Headers = Iterable[tuple[str, bytes | None]]


class BatchRecord(NamedTuple):
    """An appended record.

    `size` is its share of the batch in bytes; the timestamp is in ms.
    """

    offset: int
    size: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class BatchBuilder:
    """Collects records up to max_batch_size bytes.

    AIOKafkaProducer.create_batch creates it; one task uses it.
    """

    def __init__(
        self, max_size: int, key_serializer: Serialize | None = None, value_serializer: Serialize | None = None
    ) -> None:
        self._max_size = max_size
        self._serializers = (key_serializer, value_serializer)
        self._size = BATCH_OVERHEAD
        self._records: list[BatchRecord] = []
        self._closed = False
        self._taken = False

    def append(self, *, timestamp: int | None, key: Any, value: Any, headers: Headers = ()) -> BatchRecord | None:
        """Add a record; None when the batch is full or closed.

        `timestamp` is in ms (None: the current time). The first record always fits. The topic is unknown here:
        serializer objects get an empty topic name.
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
        """Close the batch for further records."""
        self._closed = True

    def size(self) -> int:
        """Largest size of the batch in bytes, before compression."""
        return self._size

    def record_count(self) -> int:
        """Number of records in the batch."""
        return len(self._records)

    def take(self) -> list[BatchRecord]:
        """The records, in order; closes the batch.

        ValueError for a batch that is empty or was taken before.
        """
        if self._taken or not self._records:
            raise ValueError("the batch was sent already" if self._taken else "the batch is empty")
        self._closed = self._taken = True
        return self._records
