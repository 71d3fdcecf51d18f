"""The codecs of record batches, over cramjam, with output that is bounded before it is allocated.

    none    as is
    gzip    RFC 1952
    snappy  blocks framed as snappy-java ("xerial") does: 8 bytes magic, int32 version, int32 oldest version, then
            int32 length + raw snappy block, again and again. One raw block without a frame, as other clients write
            it, is read too.
    lz4     LZ4 frame with independent blocks of at most 64 KiB, which is all that Kafka's Java reader takes. In
            message format v0 the frame's header checksum is wrong by design (KAFKA-3160): pass `magic=0`.
    zstd    Zstandard frame

cramjam releases the GIL while it works. Functions here keep no state and may run on any thread.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import cramjam

from kafkapy.errors import CorruptMessageError, MessageTooLargeError, UnsupportedCompressionTypeError
from kafkapy.types import CompressionType

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "DEFAULT_LEVELS",
    "LEVEL_RANGES",
    "MAX_DECOMPRESSED_BYTES",
    "codec_of",
    "compress",
    "decompress",
]

MAX_DECOMPRESSED_BYTES: Final = 256 * 1024 * 1024
"""What `decompress` allows unless told otherwise: a batch that opens to more than this is refused."""

LEVEL_RANGES: Final = {
    CompressionType.GZIP: (1, 9),
    CompressionType.LZ4: (1, 17),
    CompressionType.ZSTD: (-131072, 22),
}
"""Accepted levels, as in compression.gzip.level and its siblings (KIP-390); gzip takes -1 for its default, too."""

DEFAULT_LEVELS: Final = {CompressionType.GZIP: -1, CompressionType.LZ4: 9, CompressionType.ZSTD: 3}

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK: Final = 32 * 1024
# The densest raw snappy element copies 64 bytes and takes 3; a block that claims more than this is lying.
_SNAPPY_MAX_RATIO: Final = 22
_DEFLATE_MAX_RATIO: Final = 1032
_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_FIRST_GUESS: Final = 64 * 1024
_INT32: Final = struct.Struct(">i")
_DECOMPRESS_INTO: Final[dict[CompressionType, Callable[[Any, Any], int]]] = {
    CompressionType.GZIP: cramjam.gzip.decompress_into,
    CompressionType.LZ4: cramjam.lz4.decompress_into,
    CompressionType.ZSTD: cramjam.zstd.decompress_into,
}


def codec_of(name: str) -> CompressionType | None:
    """The codec for a value of compression.type; None for "producer". ValueError for a name Kafka does not know."""
    if name == "producer":
        return None
    if name in ("uncompressed", "none"):
        return CompressionType.NONE
    try:
        return CompressionType[name.upper()]
    except KeyError:
        raise ValueError(
            f"compression type {name!r} is none of none, gzip, snappy, lz4, zstd, uncompressed, producer"
        ) from None


def compress(codec: int, data: Buffer, level: int | None = None, *, magic: int = 2) -> bytes:
    """`data` as this codec's bytes. level None is Kafka's default; magic is the message format that the bytes are for.

    ValueError for a level outside LEVEL_RANGES, UnsupportedCompressionTypeError for a codec Kafka does not have.
    """
    kind = _known(codec)
    if kind is CompressionType.NONE:
        return bytes(data)
    if kind is CompressionType.SNAPPY:
        return _compress_xerial(data)
    level = _checked_level(kind, level)
    if kind is CompressionType.GZIP:
        return bytes(cramjam.gzip.compress(data, level=6 if level == -1 else level))
    if kind is CompressionType.LZ4:
        return _compress_lz4(data, level, broken_checksum=magic == 0)
    return bytes(cramjam.zstd.compress(data, level=level))


def decompress(codec: int, data: Buffer, *, max_bytes: int = MAX_DECOMPRESSED_BYTES, magic: int = 2) -> memoryview:
    """What `data` holds. Never allocates more than max_bytes for it.

    CorruptMessageError for bytes that are not this codec's or end early; MessageTooLargeError when they open to more
    than max_bytes; UnsupportedCompressionTypeError for a codec Kafka does not have.
    """
    kind = _known(codec)
    source = memoryview(data).cast("B")
    if kind is CompressionType.NONE:
        return source
    if kind is CompressionType.SNAPPY:
        return _decompress_snappy(source, max_bytes)
    if kind is CompressionType.LZ4 and magic == 0:
        source = _with_right_lz4_checksum(source)
    guess = 4 * len(source)
    if kind is CompressionType.GZIP and len(source) >= 18:
        # The trailer's size of the last member, as far as deflate can go: a first guess, so a lie costs one more round.
        guess = min(int.from_bytes(source[-4:], "little"), _DEFLATE_MAX_RATIO * len(source))
    return _decompress_growing(kind, _DECOMPRESS_INTO[kind], source, guess, max_bytes)


def _known(codec: int) -> CompressionType:
    try:
        return CompressionType(codec)
    except ValueError:
        raise UnsupportedCompressionTypeError(f"{codec} is the number of no codec (0 to 4)") from None


def _checked_level(kind: CompressionType, level: int | None) -> int:
    if level is None:
        return DEFAULT_LEVELS[kind]
    low, high = LEVEL_RANGES[kind]
    if not low <= level <= high and not (kind is CompressionType.GZIP and level == -1):
        raise ValueError(f"{kind.config_name} level {level} is not in {low} to {high}")
    return level


def _decompress_growing(
    kind: CompressionType, into: Callable[[Any, Any], int], source: memoryview, guess: int, max_bytes: int
) -> memoryview:
    """Opens into buffers that double until one is large enough: cramjam stops at the end of what it is given."""
    size = min(max(guess, _FIRST_GUESS), max_bytes)
    while True:
        out = bytearray(size)
        try:
            return memoryview(out)[: into(source, out)]
        except cramjam.DecompressionError as error:
            if "write whole buffer" not in str(error):
                raise CorruptMessageError(f"the {kind.config_name} data of a batch cannot be read: {error}") from error
            if size >= max_bytes:
                raise MessageTooLargeError(
                    f"{len(source)} bytes of {kind.config_name} open to more than the {max_bytes} allowed"
                ) from error
        size = min(size * 2, max_bytes)


# --- snappy -------------------------------------------------------------------------------------------------------


def _compress_xerial(data: Buffer) -> bytes:
    source = memoryview(data).cast("B")
    parts = [_XERIAL_HEADER]
    for start in range(0, len(source), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(source[start : start + _XERIAL_BLOCK]))
        parts.append(_INT32.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _decompress_snappy(source: memoryview, max_bytes: int) -> memoryview:
    if len(source) < len(_XERIAL_HEADER) or source[: len(_XERIAL_MAGIC)].tobytes() != _XERIAL_MAGIC:
        out = bytearray(_snappy_size(source, max_bytes))
        _snappy_block_into(source, memoryview(out))
        return memoryview(out)
    blocks = []
    total = 0
    position = len(_XERIAL_HEADER)
    while position < len(source):
        if len(source) - position < _INT32.size:
            raise CorruptMessageError("the snappy data of a batch ends inside a block's length")
        (length,) = _INT32.unpack_from(source, position)
        position += _INT32.size
        if length < 0 or length > len(source) - position:
            raise CorruptMessageError(f"a snappy block claims {length} bytes where {len(source) - position} are left")
        block = source[position : position + length]
        size = _snappy_size(block, max_bytes - total)
        blocks.append((block, size))
        total += size
        position += length
    out = bytearray(total)
    view = memoryview(out)
    position = 0
    for block, size in blocks:
        _snappy_block_into(block, view[position : position + size])
        position += size
    return view


def _snappy_size(block: memoryview, max_bytes: int) -> int:
    """Bytes that a raw block says it opens to, refused when they cannot be true or are too many."""
    try:
        size: int = cramjam.snappy.decompress_raw_len(block)
    except cramjam.DecompressionError as error:
        raise CorruptMessageError(f"the snappy data of a batch cannot be read: {error}") from error
    if size > _SNAPPY_MAX_RATIO * len(block):
        raise CorruptMessageError(f"a snappy block of {len(block)} bytes cannot hold the {size} it claims")
    if size > max_bytes:
        raise MessageTooLargeError(f"a snappy block opens to {size} bytes where {max_bytes} are allowed")
    return size


def _snappy_block_into(block: memoryview, out: memoryview) -> None:
    if not out:
        return
    try:
        written = cramjam.snappy.decompress_raw_into(block, out)
    except cramjam.DecompressionError as error:
        raise CorruptMessageError(f"the snappy data of a batch cannot be read: {error}") from error
    if written != len(out):
        raise CorruptMessageError(f"a snappy block opens to {written} bytes but claims {len(out)}")


# --- lz4 ----------------------------------------------------------------------------------------------------------


def _compress_lz4(data: Buffer, level: int, *, broken_checksum: bool) -> bytes:
    # Kafka's default, 9, means lz4's fast compressor; every other level its high compression, whose levels are 3 to 12.
    native = 1 if level == DEFAULT_LEVELS[CompressionType.LZ4] else min(max(level, 3), 12)
    compressor = cramjam.lz4.Compressor(level=native, content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))
    frame = bytes(compressor.finish())
    if not broken_checksum:
        return frame
    end = _lz4_descriptor_end(memoryview(frame))
    return frame[:end] + bytes([_xxh32_short(frame[:end]) >> 8 & 0xFF]) + frame[end + 1 :]


def _with_right_lz4_checksum(source: memoryview) -> memoryview:
    """A v0 frame with its header checksum put right, so that a conforming decoder takes it."""
    end = _lz4_descriptor_end(source)
    frame = bytearray(source)
    frame[end] = _xxh32_short(bytes(source[len(_LZ4_MAGIC) : end])) >> 8 & 0xFF
    return memoryview(frame)


def _lz4_descriptor_end(frame: memoryview) -> int:
    """Where the header checksum stands: behind flags, block descriptor and, if there, content size and dictionary."""
    if len(frame) < 7 or frame[:4].tobytes() != _LZ4_MAGIC:
        raise CorruptMessageError("the lz4 data of a batch does not start with an LZ4 frame")
    end = len(_LZ4_MAGIC) + 2 + (8 if frame[4] & 0x08 else 0) + (4 if frame[4] & 0x01 else 0)
    if end >= len(frame):
        raise CorruptMessageError("the lz4 data of a batch ends inside its frame header")
    return end


def _xxh32_short(data: bytes) -> int:
    """XXH32 with seed 0 of at most 15 bytes, which no LZ4 frame header without content size or dictionary exceeds."""
    p1, p2, p3, p4, p5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
    mask = 0xFFFFFFFF
    value = (p5 + len(data)) & mask
    position = 0
    while len(data) - position >= 4:
        value = (value + int.from_bytes(data[position : position + 4], "little") * p3) & mask
        value = (value << 17 | value >> 15) * p4 & mask
        position += 4
    for byte in data[position:]:
        value = (value + byte * p5) & mask
        value = (value << 11 | value >> 21) * p1 & mask
    value = (value ^ value >> 15) * p2 & mask
    value = (value ^ value >> 13) * p3 & mask
    return value ^ value >> 16
