"""Codecs: every one both ways, the frames that other clients write, bounded output, and damaged bytes."""

import random
import struct
import tracemalloc

import pytest
import snappy
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy._speedups.records.compression import xxh32
from kafkapy.errors import CorruptMessageError, MessageTooLargeError, UnsupportedCompressionTypeError
from kafkapy.records.compression import LEVEL_RANGES, codec_of, compress, decompress
from kafkapy.types import CompressionType

CODECS = list(CompressionType)
REAL = [codec for codec in CODECS if codec is not CompressionType.NONE]
TEXT = b"".join(b'{"user": %d, "name": "n%d"}\n' % (i * 7919 % 10_007, i % 13) for i in range(6000))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("data", [b"", b"x", TEXT, random.Random(1).randbytes(100_000), bytes(300_000)], ids=len)
def test_round_trip(codec, data):
    packed = compress(codec, data)
    assert isinstance(packed, bytes)
    assert bytes(decompress(codec, packed)) == data
    assert bytes(decompress(codec, memoryview(bytearray(packed)))) == data


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(REAL), st.binary(max_size=3000), st.sampled_from([0, 1, 2]))
def test_round_trip_of_anything_in_every_message_format(codec, data, magic):
    assert bytes(decompress(codec, compress(codec, memoryview(data), magic=magic), magic=magic)) == data


@pytest.mark.parametrize("codec", LEVEL_RANGES)
def test_every_end_of_the_level_range_works_and_the_next_one_does_not(codec):
    low, high = LEVEL_RANGES[codec]
    for level in (low, high, -1 if codec is CompressionType.GZIP else low + 1):
        assert bytes(decompress(codec, compress(codec, TEXT, level))) == TEXT
    for level in (low - 1, high + 1):
        if (codec, level) != (CompressionType.GZIP, -1):
            with pytest.raises(ValueError):
                compress(codec, TEXT, level)


def test_higher_levels_are_smaller():
    for codec, (fast, small) in {
        CompressionType.GZIP: (1, 9),
        CompressionType.LZ4: (9, 12),  # Kafka's lz4 default, 9, is the fast compressor
        CompressionType.ZSTD: (-100, 19),
    }.items():
        assert len(compress(codec, TEXT, small)) < len(compress(codec, TEXT, fast))


# --- frames as others write them ----------------------------------------------------------------------------------


def test_snappy_is_framed_as_snappy_java_does():
    packed = compress(CompressionType.SNAPPY, TEXT)
    assert packed[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    at, opened = 16, b""
    while at < len(packed):
        (size,) = struct.unpack_from(">i", packed, at)
        block = snappy.uncompress(packed[at + 4 : at + 4 + size])
        assert len(block) <= 32 * 1024
        opened += block
        at += 4 + size
    assert opened == TEXT


def test_raw_snappy_is_read():
    assert bytes(decompress(CompressionType.SNAPPY, snappy.compress(TEXT))) == TEXT


def test_lz4_frames_are_what_kafkas_java_reader_takes():
    for level in (None, 1, 17):
        frame = compress(CompressionType.LZ4, TEXT, level)
        assert frame[:4] == b"\x04\x22\x4d\x18"
        assert frame[4] & 0xC0 == 0x40  # version 1
        assert frame[4] & 0x20  # blocks are independent
        assert (frame[5] >> 4) & 7 == 4  # of at most 64 KiB
        assert frame[6] == xxh32(frame[4:6]) >> 8 & 0xFF


def test_lz4_of_format_v0_has_kafkas_wrong_header_checksum():
    frame = compress(CompressionType.LZ4, TEXT, magic=0)
    assert frame[6] == xxh32(frame[:6]) >> 8 & 0xFF != xxh32(frame[4:6]) >> 8 & 0xFF
    with pytest.raises(CorruptMessageError):
        decompress(CompressionType.LZ4, frame)
    assert bytes(decompress(CompressionType.LZ4, frame, magic=0)) == TEXT
    # a client that got it right is read, too
    assert bytes(decompress(CompressionType.LZ4, compress(CompressionType.LZ4, TEXT), magic=0)) == TEXT


def test_xxh32_published_values():
    assert xxh32(b"") == 0x02CC5D05
    assert xxh32(b"a") == 0x550D7456
    assert xxh32(b"abc") == 0x32D153FF


@pytest.mark.parametrize(
    ("codec", "module", "call"),
    [
        (CompressionType.LZ4, "lz4.frame", lambda m: m.compress(TEXT, block_linked=True, store_size=True)),
        (
            CompressionType.LZ4,
            "lz4.frame",
            lambda m: m.compress(TEXT, block_size=m.BLOCKSIZE_MAX4MB, content_checksum=True),
        ),
        (CompressionType.ZSTD, "zstandard", lambda m: m.ZstdCompressor(write_content_size=False).compress(TEXT)),
        (CompressionType.SNAPPY, "snappy", lambda m: m.compress(TEXT)),
        (CompressionType.GZIP, "gzip", lambda m: m.compress(TEXT) + m.compress(b"more")),
    ],
)
def test_other_implementations_are_read(codec, module, call):
    packed = call(pytest.importorskip(module))
    expected = TEXT + b"more" if codec is CompressionType.GZIP else TEXT
    assert bytes(decompress(codec, packed)) == expected


@pytest.mark.parametrize(
    ("codec", "module", "call"),
    [
        (CompressionType.LZ4, "lz4.frame", lambda m, data: m.decompress(data)),
        (CompressionType.ZSTD, "zstandard", lambda m, data: m.ZstdDecompressor().decompressobj().decompress(data)),
        (CompressionType.GZIP, "gzip", lambda m, data: m.decompress(data)),
    ],
)
def test_other_implementations_read_ours(codec, module, call):
    assert call(pytest.importorskip(module), compress(codec, TEXT)) == TEXT


# --- bounds -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", REAL)
def test_output_is_bounded_exactly(codec):
    packed = compress(codec, TEXT)
    assert bytes(decompress(codec, packed, max_bytes=len(TEXT))) == TEXT
    for limit in (len(TEXT) - 1, 1000, 0):
        with pytest.raises(MessageTooLargeError):
            decompress(codec, packed, max_bytes=limit)


@pytest.mark.parametrize("codec", REAL)
def test_a_decompression_bomb_is_refused_without_its_memory(codec):
    bomb = compress(codec, bytes(64 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(MessageTooLargeError):
            decompress(codec, bomb, max_bytes=1 << 20)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_sizes_that_cannot_be_true_are_refused_before_they_are_allocated():
    claims_4_gib = b"\xff\xff\xff\xff\x0f\x00\x00"
    framed = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + struct.pack(">i", len(claims_4_gib)) + claims_4_gib
    gzip_trailer = compress(CompressionType.GZIP, b"x")[:-4] + b"\xff\xff\xff\xff"
    tracemalloc.start()
    try:
        for codec, data in (
            (CompressionType.SNAPPY, claims_4_gib),
            (CompressionType.SNAPPY, framed),
            (CompressionType.GZIP, gzip_trailer),
        ):
            with pytest.raises(CorruptMessageError):
                decompress(codec, data)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1, 1000])
def test_a_snappy_block_that_claims_more_than_is_there(length):
    block = snappy.compress(b"abc")
    with pytest.raises(CorruptMessageError):
        decompress(CompressionType.SNAPPY, b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, length) + block)


# --- damage -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", REAL)
def test_truncated_data_is_refused(codec):
    packed = compress(codec, TEXT[:500])
    for cut in range(1, len(packed)):
        if codec is CompressionType.SNAPPY and cut == 16:
            continue  # the frame's header and no block: an empty stream
        with pytest.raises(CorruptMessageError):
            decompress(codec, packed[:cut])


@pytest.mark.parametrize("codec", REAL)
def test_flipped_bits_never_do_worse_than_be_refused(codec):
    rng = random.Random(2)
    packed = compress(codec, TEXT[:2000])
    for _ in range(400):
        broken = bytearray(packed)
        broken[rng.randrange(len(broken))] ^= 1 << rng.randrange(8)
        try:
            assert decompress(codec, broken, max_bytes=100_000).nbytes <= 100_000
        except (CorruptMessageError, MessageTooLargeError):
            continue


def test_codecs_that_do_not_exist():
    for codec in (-1, 5, 7):
        with pytest.raises(UnsupportedCompressionTypeError):
            compress(codec, b"")
        with pytest.raises(UnsupportedCompressionTypeError):
            decompress(codec, b"")


def test_names_of_compression_type():
    assert codec_of("producer") is None
    assert codec_of("uncompressed") is codec_of("none") is CompressionType.NONE
    assert [codec_of(name) for name in ("gzip", "snappy", "lz4", "zstd")] == REAL
    with pytest.raises(ValueError):
        codec_of("brotli")
