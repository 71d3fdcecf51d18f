"""Record batches with their codecs, for reading and writing.

    for batch in iter_batches(response.records, check_crc=True):
        for record in decode_records(batch):
            ...

    builder = RecordBatchBuilder(max_size=16_384)
    builder.append(timestamp_ms, b"key", b"value", [("trace", b"1")])
    data = builder.build(CompressionType.ZSTD)

Compiled kernels read and write the bytes (memory_records.pyx and batch_builder.pyx in _speedups/records). Threads share
nothing here.
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
    """The records of one batch, of any message format and codec.

    Offsets are absolute. A v2 CRC is not checked. max_bytes limits the decompressed size. InvalidRecordError or
    CorruptMessageError for malformed records, MessageTooLargeError above max_bytes.
    """
    if batch.magic < 2:
        return legacy.decode_message(batch.to_bytes(), max_bytes=max_bytes)
    if batch.codec:
        return batch.decode(decompress(batch.codec, batch.payload(), max_bytes=max_bytes))
    return batch.decode()


def iter_records(
    data: Buffer, *, check_crc: bool = False, control: bool = False, max_bytes: int = MAX_DECOMPRESSED_BYTES
) -> Iterator[Record]:
    """All records in a buffer of batches. Raises as decode_records.

    Records of control batches only with `control`.
    """
    for batch in iter_batches(data, check_crc=check_crc):
        if control or not batch.is_control:
            yield from decode_records(batch, max_bytes=max_bytes)


class RecordBatchBuilder(batch_builder.RecordBatchBuilder):
    """Collects records into one v2 batch and compresses it.

    The compiled base class documents the other methods. A builder owns its buffer. Producers, coordinators and tools
    create it; one thread at a time uses it.
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
        """The batch as bytes; `codec` compresses its records at `level`.

        Level None is Kafka's default. log_append_time (ms) makes the batch LogAppendTime. last_offset sets the batch's
        last offset after compaction removed the last records; such a batch may be empty. The builder accepts more
        records afterwards. ValueError for arguments that make no valid batch.
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
    """One message of format v0 or v1 as a v2 batch.

    Offsets, timestamps and codec stay the same; a wrapper becomes one batch. Raises as decode_records. A message
    without a timestamp gets none, whatever message.timestamp.type is: its append time is unknown. Source:
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
        raise InvalidRecordError(f"the message set at offset {first.offset} cannot become a batch: {error}") from error
    stamped = first.timestamp_type == TimestampType.LOG_APPEND_TIME
    codec = next(legacy.iter_messages(data)).codec
    return builder.build(codec, log_append_time=first.timestamp if stamped else None)
