"""Message formats v0 and v1, as clients before Kafka 0.11 speak them: read, build, convert to v2 and back.

    offset int64, size int32 (bytes that follow), CRC-32 uint32 (of what follows it), magic int8, attributes int8,
    timestamp int64 (v1 only, ms), key int32 length + bytes, value int32 length + bytes (-1 is null)

Attributes: bits 0-2 codec, bit 3 timestamp type (v1). A compressed message is a wrapper whose value holds a whole
message set. Its offset is that of the last message inside; the offsets inside are absolute in v0 and count from 0 in
v1, where a wrapper's LogAppendTime holds for all inside. zstd does not exist in these formats. Source: KIP-31, KIP-32,
org.apache.kafka.common.record.LegacyRecord and AbstractLegacyRecordBatch.

Functions here keep no state and may run on any thread.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkapy._speedups.batch_builder import RecordBatchBuilder
from kafkapy._speedups.memory_records import BatchView, Record, iter_batches
from kafkapy.errors import (
    CorruptMessageError,
    InvalidRecordError,
    MessageTooLargeError,
    UnsupportedCompressionTypeError,
)
from kafkapy.records.compression import MAX_DECOMPRESSED_BYTES, compress, decompress
from kafkapy.types import CompressionType, TimestampType

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "LegacyMessage",
    "build_message_set",
    "decode_message",
    "decode_message_set",
    "down_convert",
    "iter_messages",
    "up_convert",
]

_LOG_OVERHEAD: Final = 12
_ENTRY: Final = struct.Struct(">qiIbb")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_CODEC_MASK: Final = 0x07
_TIMESTAMP_TYPE_FLAG: Final = 0x08
_MIN_SIZE: Final = {0: 14, 1: 22}
_NO_TIMESTAMP: Final = -1


class LegacyMessage(NamedTuple):
    """One message as it stands in a set: a record, or a wrapper around a compressed set."""

    offset: int
    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: bytes | None

    @property
    def codec(self) -> int:
        """The codec's number; not 0 makes it a wrapper."""
        return self.attributes & _CODEC_MASK

    @property
    def timestamp_type(self) -> TimestampType:
        """Who stamped it; v0 has no timestamps."""
        if self.magic == 0:
            return TimestampType.NO_TIMESTAMP_TYPE
        return TimestampType(bool(self.attributes & _TIMESTAMP_TYPE_FLAG))


def iter_messages(data: Buffer) -> Iterator[LegacyMessage]:
    """The messages of a set as they stand, wrappers unopened; stops before an incomplete one at the end.

    CorruptMessageError for a wrong CRC, a length no message has, or a magic other than 0 and 1.
    """
    view = memoryview(data).cast("B")
    position = 0
    while len(view) - position >= _LOG_OVERHEAD:
        (size,) = _INT32.unpack_from(view, position + 8)
        if size < _MIN_SIZE[0]:
            raise CorruptMessageError(f"a message of {size} bytes is shorter than the shortest ({_MIN_SIZE[0]})")
        if size > len(view) - position - _LOG_OVERHEAD:
            return
        end = position + _LOG_OVERHEAD + size
        yield _parse(view[position:end])
        position = end


def _parse(view: memoryview) -> LegacyMessage:
    offset, size, crc, magic, attributes = _ENTRY.unpack_from(view)
    if magic not in _MIN_SIZE:
        raise CorruptMessageError(f"magic {magic} in a message set of format v0 or v1")
    if size < _MIN_SIZE[magic]:
        raise CorruptMessageError(f"a v{magic} message of {size} bytes is shorter than the shortest")
    if zlib.crc32(view[16:]) != crc:
        raise CorruptMessageError(f"the message at offset {offset} says CRC-32 {crc:#010x}, but its bytes give another")
    position = _ENTRY.size
    timestamp = _NO_TIMESTAMP
    if magic == 1:
        (timestamp,) = _INT64.unpack_from(view, position)
        position += _INT64.size
    key, position = _nullable_bytes(view, position)
    value, position = _nullable_bytes(view, position)
    if position != len(view):
        raise InvalidRecordError(f"{len(view) - position} bytes are left over in the message at offset {offset}")
    return LegacyMessage(offset, magic, attributes, timestamp, key, value)


def _nullable_bytes(view: memoryview, position: int) -> tuple[bytes | None, int]:
    if len(view) - position < _INT32.size:
        raise InvalidRecordError("a message ends before the length of its key or value")
    (length,) = _INT32.unpack_from(view, position)
    position += _INT32.size
    if length < 0:
        return None, position
    if length > len(view) - position:
        raise InvalidRecordError(f"a key or value claims {length} bytes where {len(view) - position} are left")
    return bytes(view[position : position + length]), position + length


def decode_message(data: Buffer, *, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> list[Record]:
    """The records in one whole message: itself, or with absolute offsets those inside a wrapper.

    Raises as iter_messages; InvalidRecordError for a wrapper that is empty, of zstd, or holds another wrapper;
    MessageTooLargeError when it opens to more than max_bytes.
    """
    return _records_of(_parse(memoryview(data).cast("B")), max_bytes)


def decode_message_set(data: Buffer, *, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> list[Record]:
    """The records of a set, wrappers opened; max_bytes bounds all that is opened. Raises as decode_message."""
    records: list[Record] = []
    left = max_bytes
    for message in iter_messages(data):
        inside = _records_of(message, left)
        if message.codec:
            left -= sum(len(record.key or b"") + len(record.value or b"") for record in inside)
            if left < 0:
                raise MessageTooLargeError(f"the message set opens to more than the {max_bytes} bytes allowed")
        records.extend(inside)
    return records


def _records_of(wrapper: LegacyMessage, max_bytes: int) -> list[Record]:
    if not wrapper.codec:
        kind = wrapper.timestamp_type
        return [Record(wrapper.offset, wrapper.timestamp, kind, wrapper.key, wrapper.value)]
    if wrapper.codec > CompressionType.LZ4:
        raise InvalidRecordError(f"codec {wrapper.codec} does not exist in message format v{wrapper.magic}")
    if wrapper.value is None:
        raise InvalidRecordError("a compressed message set is null")
    messages = list(iter_messages(decompress(wrapper.codec, wrapper.value, max_bytes=max_bytes, magic=wrapper.magic)))
    if not messages:
        raise InvalidRecordError("a compressed message set holds no message")
    base = 0
    # librdkafka before 0.11 sent 0 as the wrapper's offset; then the offsets inside are taken as they are.
    if wrapper.magic == 1 and wrapper.offset != 0:
        base = wrapper.offset - messages[-1].offset
        if base < 0:
            raise InvalidRecordError(
                f"the last message inside has offset {messages[-1].offset}, its wrapper only {wrapper.offset}"
            )
    records = []
    for message in messages:
        if message.codec:
            raise InvalidRecordError("a compressed message set holds another one")
        if message.magic != wrapper.magic:
            raise InvalidRecordError(f"a v{message.magic} message is inside a v{wrapper.magic} wrapper")
        kind = wrapper.timestamp_type
        timestamp = wrapper.timestamp if kind is TimestampType.LOG_APPEND_TIME else message.timestamp
        records.append(Record(base + message.offset, timestamp, kind, message.key, message.value))
    return records


def _encode(offset: int, magic: int, attributes: int, timestamp: int, key: bytes | None, value: bytes | None) -> bytes:
    body = struct.pack(">bb", magic, attributes)
    if magic == 1:
        body += _INT64.pack(timestamp)
    parts = [body]
    for field in (key, value):
        if field is None:
            parts.append(_INT32.pack(-1))
        else:
            parts.append(_INT32.pack(len(field)))
            parts.append(field)
    body = b"".join(parts)
    return struct.pack(">qiI", offset, 4 + len(body), zlib.crc32(body)) + body


def build_message_set(
    records: Sequence[Record], magic: int, codec: int = CompressionType.NONE, *, level: int | None = None
) -> bytes:
    """The records as a message set of v0 or v1, compressed ones in one wrapper.

    Headers, which it cannot hold, are dropped. ValueError for another magic; UnsupportedCompressionTypeError for zstd,
    which these formats do not have.
    """
    if magic not in _MIN_SIZE:
        raise ValueError(f"magic {magic}: a message set is of format v0 or v1")
    if codec > CompressionType.LZ4:
        raise UnsupportedCompressionTypeError(f"codec {codec} does not exist in message format v{magic}")
    if not records:
        return b""
    append_time = magic == 1 and records[0].timestamp_type == TimestampType.LOG_APPEND_TIME
    flags = _TIMESTAMP_TYPE_FLAG if append_time else 0
    base = records[0].offset if codec and magic == 1 else 0
    inner = b"".join(_encode(r.offset - base, magic, flags, r.timestamp, r.key, r.value) for r in records)
    if not codec:
        return inner
    timestamp = max(record.timestamp for record in records)
    value = compress(codec, inner, level, magic=magic)
    return _encode(records[-1].offset, magic, flags | codec, timestamp, None, value)


def up_convert(
    records: Sequence[Record],
    codec: int = CompressionType.NONE,
    *,
    level: int | None = None,
    log_append_time: int | None = None,
    base_offset: int | None = None,
) -> bytes:
    """Decoded records of v0 or v1 as one v2 batch. log_append_time (ms) makes it LogAppendTime.

    With base_offset the records are numbered anew from it (as in a produce), else they keep their offsets. ValueError
    when there are none, or their offsets do not rise.
    """
    if not records:
        raise ValueError("a batch needs at least one record")
    builder = RecordBatchBuilder(base_offset=records[0].offset if base_offset is None else base_offset)
    for record in records:
        builder.append(
            max(record.timestamp, _NO_TIMESTAMP),
            record.key,
            record.value,
            offset=None if base_offset is not None else record.offset,
        )
    if log_append_time is None and records[0].timestamp_type == TimestampType.LOG_APPEND_TIME:
        log_append_time = records[0].timestamp
    compressed = compress(codec, builder.payload_bytes(), level) if codec else None
    return builder.build(codec, compressed=compressed, log_append_time=log_append_time)


def down_convert(data: Buffer, magic: int, *, first_offset: int = 0, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytes:
    """Fetched batches as a message set of v0 or v1, for a client that asks from first_offset in an old Fetch version.

    Control batches are left out, headers dropped, and records below first_offset too where the batch is uncompressed
    (some librdkafka versions rely on that). Messages already old enough are copied; a v1 message for a v0 client is
    built anew. UnsupportedCompressionTypeError for zstd; otherwise raises as decoding does.
    Source: org.apache.kafka.common.record.RecordsUtil.downConvert.
    """
    if magic not in _MIN_SIZE:
        raise ValueError(f"magic {magic}: batches are converted down to v0 or v1")
    parts = []
    for batch in iter_batches(data):
        if batch.magic <= magic:
            parts.append(batch.to_bytes())
            continue
        records, codec = _for_down_conversion(batch, max_bytes)
        if not codec:
            records = [record for record in records if record.offset >= first_offset]
        parts.append(build_message_set(records, magic, codec))
    return b"".join(parts)


def _for_down_conversion(batch: BatchView, max_bytes: int) -> tuple[list[Record], int]:
    if batch.magic < 2:
        message = next(iter_messages(batch.to_bytes()))
        return _records_of(message, max_bytes), message.codec
    if batch.is_control:
        return [], CompressionType.NONE
    if batch.codec == CompressionType.ZSTD:
        raise UnsupportedCompressionTypeError("zstd batches cannot be given to a client of message format v0 or v1")
    payload = decompress(batch.codec, batch.payload(), max_bytes=max_bytes) if batch.codec else None
    return batch.decode(payload), batch.codec
