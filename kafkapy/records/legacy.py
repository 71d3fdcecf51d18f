"""Message formats v0 and v1, as clients before Kafka 0.11 speak them: read, build, convert to v2 and back.

Reading and building, message by message, is for what is on disk and for tools; the conversions are for what clients
send and fetch, and let the GIL go (kafkapy._speedups.records.message_set).

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
    message_set.BAD_MAGIC: "messages of other formats are in the message set, or inside the compressed one",
    message_set.BAD_STRUCTURE: "the key and value of a message do not add up to its size",
    message_set.COMPRESSED: "a compressed message is among others or inside another one",
}


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


# --- conversion ----------------------------------------------------------------------------------------------------


class OpenedSet(NamedTuple):
    """A produced message set, opened if it was one compressed message."""

    messages: Buffer
    """Uncompressed messages of one format."""
    magic: int
    codec: CompressionType
    """What it was compressed with."""
    append_time: int | None
    """In ms, when the wrapper is marked LogAppendTime."""


def open_message_set(data: Buffer, *, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> OpenedSet:
    """A message set as a client sends it: uncompressed messages, or one wrapper. Bytes of a message that is not whole
    are left out.

    CorruptMessageError for a wrapper with a wrong CRC or length; InvalidRecordError for one that is empty, of a codec
    the format does not have, that cannot be read, or with another message behind it; MessageTooLargeError when it opens
    to more than max_bytes. Uncompressed messages are not looked into.
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
        raise InvalidRecordError("a produce holds one compressed message set per partition")
    if wrapper.codec > CompressionType.LZ4:
        raise InvalidRecordError(f"codec {wrapper.codec} is none of message format v0 or v1")
    if not wrapper.value:
        raise InvalidRecordError("a compressed message set is empty")
    codec = CompressionType(wrapper.codec)
    try:
        messages = decompress(codec, wrapper.value, max_bytes=max_bytes, magic=magic)
    except CorruptMessageError as error:
        # The CRC is right, so sending it again cannot help, and CORRUPT_MESSAGE would have clients try.
        raise InvalidRecordError(str(error)) from error
    append_time = wrapper.timestamp if wrapper.timestamp_type is TimestampType.LOG_APPEND_TIME else None
    return OpenedSet(messages, magic, codec, append_time)


class UpConverted(NamedTuple):
    """Messages as one uncompressed v2 batch with base offset 0."""

    batch: bytearray
    record_count: int
    bad_timestamps: list[int]
    """Indexes of records with a timestamp that no client may send (message_set.to_records), at most 100."""


def up_convert(opened: OpenedSet, *, log_append_time: int | None = None) -> UpConverted:
    """A produced message set in format v2; offsets count anew. log_append_time (ms) becomes the timestamp of every
    record; the batch is CreateTime all the same, until it has been checked (record_batch.stamp_append_time).

    CorruptMessageError for a message with a wrong CRC or length; InvalidRecordError for one of another format,
    compressed once more, or whose key and value do not add up, and when there is none; MessageTooLargeError past 2 GiB.
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
    """What an old client gets for fetched batches."""

    message_set: bytes
    end_offset: int
    """Behind the last batch that was looked at, one that was dropped too."""
    record_count: int
    """Records that were converted; those in messages that are old enough do not count."""
    temporary_bytes: int
    """Of memory that the conversion took."""


def down_convert(
    data: Buffer,
    magic: int,
    *,
    first_offset: int = 0,
    max_bytes: int = MAX_DECOMPRESSED_BYTES,
    max_first_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> DownConverted:
    """Fetched batches as a message set of v0 or v1, for a client that asks from first_offset in an old Fetch version.

    Control batches are left out, headers dropped, and records below first_offset too where the batch is uncompressed
    (some librdkafka versions rely on that). Messages already old enough are copied; a v1 message for a v0 client is
    built anew. The result is no larger than the batches were, unless its first one alone is: it may end inside a
    message. Nor does more than max_bytes get decompressed for it, unless the first one opens to more, at most
    max_first_bytes. What is past that, or past a batch of zstd or one that is damaged, is for the next fetch. A first
    batch that is cut gives as much of a message as says that it is: its offset and length.

    UnsupportedCompressionTypeError when zstd comes first; for a first batch that is damaged, as decoding raises.
    Source: org.apache.kafka.common.record.RecordsUtil.downConvert and LazyDownConversionRecords.
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
    """(messages, records converted, bytes opened) of one batch."""
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
        raise UnsupportedCompressionTypeError("zstd batches cannot be given to a client of message format v0 or v1")
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
