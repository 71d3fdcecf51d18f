"""Record batches from the records of pending operations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kafkapy.coordinator.hosted import PendingOperation
from kafkapy.coordinator.records import CoordinatorRecord
from kafkapy.coordinator.result import ProducerStamp
from kafkapy.records.batches import RecordBatchBuilder

RECORD_OVERHEAD: Final = 64
"""Bytes that a record takes in a batch beside its key and value, at most."""
BATCH_OVERHEAD: Final = 61
"""Bytes of a batch's header."""


def encode(records: Iterable[CoordinatorRecord], pending: PendingOperation, newest: Mapping[int, int]) -> int:
    """Encode the operation's records; the bytes of a batch with them alone, at most.

    `newest`: see CoordinatorRecord.encode.
    """
    size = 0
    for record in records:
        key, value = encoded = record.encode(newest)
        pending.encoded.append(encoded)
        size += len(key) + RECORD_OVERHEAD if value is None else len(key) + len(value) + RECORD_OVERHEAD
    pending.encoded_bytes = size
    return size + BATCH_OVERHEAD


def build(written: Iterable[PendingOperation], limit: int, compression: int) -> bytes:
    """The operations' records as batches of at most `limit` bytes.

    Operations share batches, but no operation's records are split. Transactional records have batches apart.
    """
    batches: list[bytes] = []
    builder: RecordBatchBuilder | None = None
    stamp: ProducerStamp | None = None
    for pending in written:
        if not pending.encoded:
            continue
        if builder is not None and (pending.producer != stamp or builder.size + pending.encoded_bytes > limit):
            batches.append(_finished(builder, stamp, compression))
            builder = None
        if builder is None:
            builder, stamp = RecordBatchBuilder(), pending.producer
        for key, value in pending.encoded:
            builder.append(pending.timestamp_ms, key, value)
        pending.encoded = []
    if builder is not None:
        batches.append(_finished(builder, stamp, compression))
    return batches[0] if len(batches) == 1 else b"".join(batches)


def _finished(builder: RecordBatchBuilder, stamp: ProducerStamp | None, compression: int) -> bytes:
    if stamp is None:
        return builder.build(compression)
    return builder.build(
        compression,
        producer_id=stamp.producer_id,
        producer_epoch=stamp.producer_epoch,
        transactional=True,
    )
