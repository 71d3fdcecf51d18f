"""The codecs of record batches, with output that is bounded before it is allocated.

    none    as is
    gzip    RFC 1952
    snappy  framed as snappy-java ("xerial") does; one raw block without a frame, as other clients write it, is read too
    lz4     LZ4 frame with independent blocks of at most 64 KiB, which is all that Kafka's Java reader takes. In
            message format v0 the frame's header checksum is wrong by design (KAFKA-3160): pass `magic=0`.
    zstd    Zstandard frame

The kernel kafkapy._speedups.records.compression does the work, without the GIL. Functions here keep no state and may
run on any thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkapy._speedups.records import compression as _kernel
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
    status, packed = _kernel.compress(_kernel_codec(kind, magic), data, _checked_level(kind, level))
    if status != _kernel.OK:
        raise MemoryError(f"no memory to compress with {kind.config_name}")
    return packed


def decompress(codec: int, data: Buffer, *, max_bytes: int = MAX_DECOMPRESSED_BYTES, magic: int = 2) -> memoryview:
    """What `data` holds. Never allocates more than max_bytes for it.

    CorruptMessageError for bytes that are not this codec's or end early; MessageTooLargeError when they open to more
    than max_bytes; UnsupportedCompressionTypeError for a codec Kafka does not have.
    """
    kind = _known(codec)
    source = memoryview(data).cast("B")
    if kind is CompressionType.NONE:
        return source
    status, opened = _kernel.decompress(_kernel_codec(kind, magic), source, max_bytes)
    if status == _kernel.OK:
        return opened
    if status == _kernel.TOO_LARGE:
        raise MessageTooLargeError(
            f"{len(source)} bytes of {kind.config_name} open to more than the {max_bytes} allowed"
        )
    if status == _kernel.NO_MEMORY:
        raise MemoryError(f"no memory for what {len(source)} bytes of {kind.config_name} open to")
    raise CorruptMessageError(f"the {kind.config_name} data of a batch cannot be read")


def _known(codec: int) -> CompressionType:
    try:
        return CompressionType(codec)
    except ValueError:
        raise UnsupportedCompressionTypeError(f"{codec} is the number of no codec (0 to 4)") from None


def _kernel_codec(kind: CompressionType, magic: int) -> int:
    return _kernel.LZ4_V0 if kind is CompressionType.LZ4 and magic == 0 else kind.value


def _checked_level(kind: CompressionType, level: int | None) -> int:
    if level is None or kind is CompressionType.SNAPPY:
        return _kernel.DEFAULT_LEVEL
    low, high = LEVEL_RANGES[kind]
    if not low <= level <= high and not (kind is CompressionType.GZIP and level == -1):
        raise ValueError(f"{kind.config_name} level {level} is not in {low} to {high}")
    return level
