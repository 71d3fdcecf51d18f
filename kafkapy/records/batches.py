"""Record batches with their codecs: what every package above uses to read and write records.

    for batch in iter_batches(response.records, check_crc=True):
        for record in decode_records(batch):
            ...

    builder = RecordBatchBuilder(max_size=16_384)
    builder.append(timestamp_ms, b"key", b"value", [("trace", b"1")])
    data = builder.build(CompressionType.ZSTD)

Compiled kernels walk and write the bytes (memory_records.pyx and batch_builder.pyx in _speedups/records). Nothing here
is shared between threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kafkapy._speedups.records import batch_builder
from kafkapy._speedups.records.memory_records import BatchView, Record, iter_batches
from kafkapy.errors import InvalidRecordError
from kafkapy.records import legacy
from kafkapy.records.compression import MAX_DECOMPRESSED_BYTES, compress, decompress
from kafkapy.types import CompressionType, TimestampType

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "BatchView",
    "Record",
    "RecordBatchBuilder",
    "decode_records",
    "iter_batches",
    "iter_records",
    "upgrade_message",
]


def decode_records(batch: BatchView, *, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> list[Record]:
    """The records of one batch, of any message format and codec, with absolute offsets. Does not check a v2 CRC.

    max_bytes bounds what a compressed batch may open to. InvalidRecordError or CorruptMessageError for bytes that make
    no records, MessageTooLargeError past max_bytes.
    """
    if batch.magic < 2:
        return legacy.decode_message(batch.to_bytes(), max_bytes=max_bytes)
    if batch.codec:
        return batch.decode(decompress(batch.codec, batch.payload(), max_bytes=max_bytes))
    return batch.decode()


def iter_records(
    data: Buffer, *, check_crc: bool = False, control: bool = False, max_bytes: int = MAX_DECOMPRESSED_BYTES
) -> Iterator[Record]:
    """Every record in a buffer of batches; those of control batches only when asked for. Raises as decode_records."""
    for batch in iter_batches(data, check_crc=check_crc):
        if control or not batch.is_control:
            yield from decode_records(batch, max_bytes=max_bytes)


class RecordBatchBuilder(batch_builder.RecordBatchBuilder):
    """Collects records into one v2 batch (see the compiled base class) and compresses it.

    Owns its buffer; made by producers, coordinators and tools, used by one thread at a time.
    """

    def build(  # type: ignore[override]  # the base class is handed the compressed bytes
        self,
        codec: int = CompressionType.NONE,
        *,
        level: int | None = None,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
        control: bool = False,
        leader_epoch: int = -1,
        log_append_time: int | None = None,
        last_offset: int | None = None,
    ) -> bytes:
        """The batch as bytes, its records compressed by `codec` at `level` (None: Kafka's default).

        log_append_time (ms) makes the batch LogAppendTime. last_offset is kept as the batch's last offset when
        compaction took out the records at the end; with it a batch may be empty. The builder may go on afterwards.
        ValueError for arguments that make no batch.
        """
        return super().build(
            codec,
            compressed=compress(codec, self.payload_bytes(), level) if codec else None,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            transactional=transactional,
            control=control,
            leader_epoch=leader_epoch,
            log_append_time=log_append_time,
            last_offset=last_offset,
        )


def upgrade_message(message: Buffer, *, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytes:
    """One message of format v0 or v1 as a v2 batch of the same offsets, timestamps and codec; a wrapper becomes one
    batch. Raises as decode_records.

    What has no timestamp keeps none, whatever message.timestamp.type says: nobody knows when it was appended. Source:
    org.apache.kafka.common.record.MemoryRecords.buildRetainedRecordsInto.
    """
    data = bytes(message)
    records = legacy.decode_message(data, max_bytes=max_bytes)
    first = records[0]
    builder = RecordBatchBuilder(base_offset=first.offset)
    try:
        for record in records:
            builder.append(record.timestamp, record.key, record.value, offset=record.offset)
    except ValueError as error:
        raise InvalidRecordError(f"the message set at offset {first.offset} makes no batch: {error}") from error
    stamped = first.timestamp_type == TimestampType.LOG_APPEND_TIME
    codec = next(legacy.iter_messages(data)).codec
    return builder.build(codec, log_append_time=first.timestamp if stamped else None)
