"""The codecs of record batches. Output is limited before it is allocated.

    none    unchanged
    gzip    RFC 1952
    snappy  frames of snappy-java ("xerial"); reading also accepts one raw block without a frame, as other clients write
    lz4     LZ4 frame with independent blocks of at most 64 KiB, the only kind that Kafka's Java reader accepts. In
            message format v0 the frame's header checksum is wrong by design (KAFKA-3160): pass `magic=0`.
    zstd    Zstandard frame

The kernel kafkapy._speedups.records.compression does the work without the GIL. Functions here keep no state and may run
on any thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkapy._speedups.records import compression as _kernel
from kafkapy.errors import CorruptMessageError, MessageTooLargeError, UnsupportedCompressionTypeError
from kafkapy.types import CompressionType

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "LEVEL_RANGES",
    "MAX_DECOMPRESSED_BYTES",
    "compress",
    "decompress",
]

MAX_DECOMPRESSED_BYTES: Final = 256 * 1024 * 1024
"""The default limit of `decompress` in bytes. It refuses a batch that decompresses to more."""

LEVEL_RANGES: Final = {
    CompressionType.GZIP: (1, 9),
    CompressionType.LZ4: (1, 17),
    CompressionType.ZSTD: (-131072, 22),
}
"""Accepted levels, as in compression.gzip.level and its siblings (KIP-390). Gzip also takes -1, its default."""


def compress(codec: int, data: Buffer, level: int | None = None, *, magic: int = 2) -> bytes:
    """`data`, compressed by the codec. Level None is Kafka's default.

    `magic` is the message format of the result. ValueError for a level outside LEVEL_RANGES,
    UnsupportedCompressionTypeError for an unknown codec.
    """
    kind = _known(codec)
    if kind is CompressionType.NONE:
        return bytes(data)
    status, packed = _kernel.compress(_kernel_codec(kind, magic), data, _checked_level(kind, level))
    if status != _kernel.OK:
        raise MemoryError(f"no memory to compress with {kind.config_name}")
    return packed


def decompress(codec: int, data: Buffer, *, max_bytes: int = MAX_DECOMPRESSED_BYTES, magic: int = 2) -> memoryview:
    """The decompressed `data`. Never allocates more than max_bytes for it.

    CorruptMessageError for malformed or truncated data; MessageTooLargeError when it decompresses to more than
    max_bytes; UnsupportedCompressionTypeError for an unknown codec.
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
            f"{len(source)} bytes of {kind.config_name} decompress to more than the {max_bytes} allowed"
        )
    if status == _kernel.NO_MEMORY:
        raise MemoryError(f"no memory to decompress {len(source)} bytes of {kind.config_name}")
    raise CorruptMessageError(f"the {kind.config_name} data of a batch cannot be read")


def _known(codec: int) -> CompressionType:
    try:
        return CompressionType(codec)
    except ValueError:
        raise UnsupportedCompressionTypeError(f"codec {codec} does not exist (codecs are 0 to 4)") from None


def _kernel_codec(kind: CompressionType, magic: int) -> int:
    return _kernel.LZ4_V0 if kind is CompressionType.LZ4 and magic == 0 else kind.value


def _checked_level(kind: CompressionType, level: int | None) -> int:
    if level is None or kind is CompressionType.SNAPPY:
        return _kernel.DEFAULT_LEVEL
    low, high = LEVEL_RANGES[kind]
    if not low <= level <= high and not (kind is CompressionType.GZIP and level == -1):
        raise ValueError(f"{kind.config_name} level {level} is not in {low} to {high}")
    return level
