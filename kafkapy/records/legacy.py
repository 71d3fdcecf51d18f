"""Message formats v0 and v1 (before Kafka 0.11): reading, building, conversion.

Reading and building, message by message, serve files on disk and tools. The conversions to v2 and back serve Produce
and Fetch requests, and release the GIL (kafkapy._speedups.records.message_set).

    offset int64, size int32 (bytes that follow), CRC-32 uint32 (of the bytes after it), magic int8, attributes int8,
    timestamp int64 (v1 only, ms), key int32 length + bytes, value int32 length + bytes (-1 is null)

Attributes: bits 0-2 codec, bit 3 timestamp type (v1). A compressed message is a wrapper whose value holds a whole
message set. The wrapper has the offset of its last message; the offsets inside are absolute in v0 and count from 0 in
v1. In v1 a wrapper's LogAppendTime applies to all its messages. These formats do not have zstd. Source: KIP-31, KIP-32,
org.apache.kafka.common.record.LegacyRecord and AbstractLegacyRecordBatch.

Functions here keep no state and may run on any thread.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkapy._speedups.records import message_set, record_batch
from kafkapy._speedups.records.memory_records import BatchView, Record, iter_batches
from kafkapy.errors import (
    CorruptMessageError,
    InvalidRecordError,
    KafkaError,
    MessageTooLargeError,
    UnsupportedCompressionTypeError,
)
from kafkapy.records.compression import MAX_DECOMPRESSED_BYTES, compress, decompress
from kafkapy.types import CompressionType, TimestampType

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "DownConverted",
    "LegacyMessage",
    "OpenedSet",
    "UpConverted",
    "build_message_set",
    "decode_message",
    "decode_message_set",
    "down_convert",
    "iter_messages",
    "open_message_set",
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
_MAX_BAD_TIMESTAMPS: Final = 100
_BATCH_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_NOT_CONVERTIBLE: Final = {
    message_set.BAD_MAGIC: "the message set, or the compressed set inside it, has messages of different formats",
    message_set.BAD_STRUCTURE: "the key and value of a message do not add up to its size",
    message_set.COMPRESSED: "a compressed message is among others or inside another one",
}


class LegacyMessage(NamedTuple):
    """One message of a set: a record, or a wrapper around messages."""

    offset: int
    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: bytes | None

    @property
    def codec(self) -> int:
        """The codec's number; a wrapper has a codec other than 0."""
        return self.attributes & _CODEC_MASK

    @property
    def timestamp_type(self) -> TimestampType:
        """The source of the timestamp; v0 has no timestamps."""
        if self.magic == 0:
            return TimestampType.NO_TIMESTAMP_TYPE
        return TimestampType(bool(self.attributes & _TIMESTAMP_TYPE_FLAG))


def iter_messages(data: Buffer) -> Iterator[LegacyMessage]:
    """The messages of a set, wrappers not decompressed.

    Stops before an incomplete message at the end. CorruptMessageError for a wrong CRC, an impossible length, or a magic
    other than 0 and 1.
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
    """The records of one whole message: itself, or those inside a wrapper.

    Offsets are absolute. Raises as iter_messages; InvalidRecordError for a wrapper that is empty, uses zstd, or
    contains another wrapper; MessageTooLargeError when it decompresses to more than max_bytes.
    """
    return _records_of(_parse(memoryview(data).cast("B")), max_bytes)


def decode_message_set(data: Buffer, *, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> list[Record]:
    """The records of a set, including those inside wrappers. Raises as decode_message.

    max_bytes limits the decompressed size of all wrappers together.
    """
    records: list[Record] = []
    left = max_bytes
    for message in iter_messages(data):
        inside = _records_of(message, left)
        if message.codec:
            left -= sum(len(record.key or b"") + len(record.value or b"") for record in inside)
            if left < 0:
                raise MessageTooLargeError(f"the message set decompresses to more than the {max_bytes} bytes allowed")
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
    # librdkafka before 0.11 sent 0 as the wrapper's offset; the offsets inside are then absolute.
    if wrapper.magic == 1 and wrapper.offset != 0:
        base = wrapper.offset - messages[-1].offset
        if base < 0:
            raise InvalidRecordError(
                f"the last message inside has offset {messages[-1].offset}, its wrapper only {wrapper.offset}"
            )
    records = []
    for message in messages:
        if message.codec:
            raise InvalidRecordError("a compressed message set contains another compressed set")
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
    """The records as a message set of v0 or v1.

    With a codec the set is one wrapper. Headers are dropped, because the formats have none. ValueError for another
    magic; UnsupportedCompressionTypeError for zstd, which these formats do not have.
    """
    if magic not in _MIN_SIZE:
        raise ValueError(f"magic {magic}: a message set has format v0 or v1")
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


# --- conversion ----------------------------------------------------------------------------------------------------


class OpenedSet(NamedTuple):
    """A produced message set, decompressed if it was one wrapper."""

    messages: Buffer
    """Uncompressed messages of one format."""
    magic: int
    codec: CompressionType
    """The codec of the wrapper."""
    append_time: int | None
    """The wrapper's LogAppendTime in ms, or None."""


def open_message_set(data: Buffer, *, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> OpenedSet:
    """A message set from a client: uncompressed messages, or one wrapper.

    An incomplete message at the end is cut off. CorruptMessageError for a wrapper with a wrong CRC or length;
    InvalidRecordError for a wrapper that is empty, unreadable, followed by another message, or of a codec that the
    format does not have; MessageTooLargeError when it decompresses to more than max_bytes. Uncompressed messages are
    not checked.
    """
    view = memoryview(data).cast("B")
    if len(view) < _ENTRY.size or _INT32.unpack_from(view, 8)[0] > len(view) - _LOG_OVERHEAD:
        raise CorruptMessageError("the message set holds no whole message")
    _, size, _, magic, attributes = _ENTRY.unpack_from(view)
    if magic not in _MIN_SIZE:
        raise CorruptMessageError(f"magic {magic} in a message set of format v0 or v1")
    if not attributes & _CODEC_MASK:
        return OpenedSet(view, magic, CompressionType.NONE, None)
    wrapper = next(iter_messages(view))
    rest = view[_LOG_OVERHEAD + size :]
    if len(rest) >= _LOG_OVERHEAD and _INT32.unpack_from(rest, 8)[0] <= len(rest) - _LOG_OVERHEAD:
        raise InvalidRecordError("a produce request has one compressed message set per partition")
    if wrapper.codec > CompressionType.LZ4:
        raise InvalidRecordError(f"codec {wrapper.codec} does not exist in message formats v0 and v1")
    if not wrapper.value:
        raise InvalidRecordError("a compressed message set is empty")
    codec = CompressionType(wrapper.codec)
    try:
        messages = decompress(codec, wrapper.value, max_bytes=max_bytes, magic=magic)
    except CorruptMessageError as error:
        # The CRC is right, so a retry cannot help; clients would retry after CORRUPT_MESSAGE.
        raise InvalidRecordError(str(error)) from error
    append_time = wrapper.timestamp if wrapper.timestamp_type is TimestampType.LOG_APPEND_TIME else None
    return OpenedSet(messages, magic, codec, append_time)


class UpConverted(NamedTuple):
    """Messages as one uncompressed v2 batch with base offset 0."""

    batch: bytearray
    record_count: int
    bad_timestamps: list[int]
    """Indexes of records whose timestamp no client may send (message_set.to_records), at most 100."""


def up_convert(opened: OpenedSet, *, log_append_time: int | None = None) -> UpConverted:
    """A produced message set in format v2, with offsets from 0.

    log_append_time (ms) becomes the timestamp of every record; the batch stays CreateTime until its check is over
    (record_batch.stamp_append_time). CorruptMessageError for a message with a wrong CRC or length; InvalidRecordError
    for an empty set, or a message of another format, compressed twice, or whose key and value do not add up to its
    size; MessageTooLargeError above 2 GiB.
    """
    timestamp = opened.append_time if log_append_time is None else log_append_time
    status, records, count, base_timestamp, max_timestamp, bad = message_set.to_records(
        opened.messages, opened.magic, timestamp=timestamp, marks_count=opened.codec is CompressionType.NONE
    )
    if status in (message_set.BAD_CRC, message_set.BAD_LENGTH):
        raise CorruptMessageError("a message fails its CRC check or has an impossible length")
    if status != message_set.OK:
        raise InvalidRecordError(_NOT_CONVERTIBLE[status])
    if not count:
        raise InvalidRecordError("the message set holds no message")
    if opened.append_time is not None and (log_append_time is not None or opened.append_time == _NO_TIMESTAMP):
        bad = list(range(min(count, _MAX_BAD_TIMESTAMPS)))
    size = _BATCH_HEADER.size + len(records)
    batch = bytearray(
        _BATCH_HEADER.pack(
            0, size - _LOG_OVERHEAD, -1, 2, 0, 0, count - 1, base_timestamp, max_timestamp, -1, -1, -1, count
        )
    )
    batch += records
    record_batch.refresh_crc(batch)
    return UpConverted(batch, count, bad)


class DownConverted(NamedTuple):
    """The result of a conversion of fetched batches for an old client."""

    message_set: bytes
    end_offset: int
    """The offset after the last batch that was read, including dropped batches."""
    record_count: int
    """Number of converted records; records that were copied unchanged do not count."""
    temporary_bytes: int
    """Bytes of memory that the conversion used."""


def down_convert(
    data: Buffer,
    magic: int,
    *,
    first_offset: int = 0,
    max_bytes: int = MAX_DECOMPRESSED_BYTES,
    max_first_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> DownConverted:
    """Fetched batches as a message set of v0 or v1.

    For a client with an old Fetch version. Control batches and headers are dropped, and in uncompressed batches also
    the records below first_offset (some librdkafka versions need that). Messages that are old enough are copied; a v1
    message for a v0 client is rebuilt. The result is not larger than the batches, unless its first batch alone is: it
    may end inside a message. At most max_bytes are decompressed, or max_first_bytes for the first batch. The result
    ends before a later batch that exceeds the limit, uses zstd, or is damaged: the next fetch starts there. If the
    first batch was cut, the result is the offset and length of a message, which marks it as incomplete.

    UnsupportedCompressionTypeError for zstd in the first batch; the decoding errors for a damaged first batch. Source:
    org.apache.kafka.common.record.RecordsUtil.downConvert and LazyDownConversionRecords.
    """
    if magic not in _MIN_SIZE:
        raise ValueError(f"magic {magic}: batches are converted down to v0 or v1")
    limit = memoryview(data).nbytes
    parts: list[bytes] = []
    size = converted = temporary = opened = 0
    end_offset = -1
    whole = False
    for batch in iter_batches(data):
        whole = True
        try:
            left = max_bytes - opened if parts else max_first_bytes
            made, count, used = _down_convert_batch(batch, magic, first_offset, max(left, 0))
        except KafkaError:
            if parts:
                break
            raise
        if parts and size + len(made) > limit:
            parts.append(made[: limit - size])
            break
        if made:
            parts.append(made)
        size += len(made)
        converted += count
        temporary += batch.size + used
        opened += used
        end_offset = batch.next_offset
    if not whole:
        return DownConverted(bytes(memoryview(data)[:_LOG_OVERHEAD]), first_offset, 0, 0)
    return DownConverted(b"".join(parts), end_offset, converted, temporary)


def _down_convert_batch(batch: BatchView, magic: int, first_offset: int, max_bytes: int) -> tuple[bytes, int, int]:
    """(messages, converted records, decompressed bytes) of one batch."""
    if batch.magic <= magic:
        return batch.to_bytes(), 0, 0
    if batch.magic < 2:
        message = next(iter_messages(batch.to_bytes()))
        records = _records_of(message, max_bytes)
        if not message.codec:
            records = [record for record in records if record.offset >= first_offset]
        made = build_message_set(records, magic, message.codec)
        return made, len(records), len(made)
    if batch.is_control:
        return b"", 0, 0
    codec = CompressionType(batch.codec)
    if codec is CompressionType.ZSTD:
        raise UnsupportedCompressionTypeError("a client of message format v0 or v1 cannot read zstd batches")
    append_time = batch.max_timestamp if batch.timestamp_type == TimestampType.LOG_APPEND_TIME else None
    payload = decompress(codec, batch.payload(), max_bytes=max_bytes) if codec else batch.payload()
    inner, count, last, max_timestamp = message_set.from_records(
        payload,
        batch.record_count,
        magic,
        base_offset=batch.base_offset,
        base_timestamp=batch.base_timestamp,
        append_time=append_time,
        first_offset=batch.base_offset if codec else first_offset,
        relative=bool(codec) and magic == 1,
    )
    if not codec or not count:
        return inner, count, len(inner)
    flags = _TIMESTAMP_TYPE_FLAG if append_time is not None and magic == 1 else 0
    value = compress(codec, inner, magic=magic)
    return _encode(last, magic, flags | codec, max_timestamp, None, value), count, len(payload) + len(inner)
