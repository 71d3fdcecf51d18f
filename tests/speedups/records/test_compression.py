"""The codecs in C against the usual Python libraries, both ways; bombs, lies about sizes, and damage."""

import gzip
import os
import random
import struct
import threading
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy._speedups.records.compression import (
    CORRUPT,
    DEFAULT_LEVEL,
    LZ4_V0,
    OK,
    TOO_LARGE,
    UNKNOWN_CODEC,
    compress,
    decompress,
    xxh32,
)

lz4 = pytest.importorskip("lz4.frame")
snappy = pytest.importorskip("snappy")
zstandard = pytest.importorskip("zstandard")

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
CODECS = [GZIP, SNAPPY, LZ4, ZSTD, LZ4_V0]
TEXT = b"".join(b'{"user": %d, "name": "n%d"}\n' % (i * 7919 % 10_007, i % 13) for i in range(8000))
NOISE = random.Random(1).randbytes(300_000)
XERIAL = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)


def packed(codec: int, data: bytes, level: int = DEFAULT_LEVEL) -> bytes:
    status, out = compress(codec, data, level)
    assert status == OK
    return out


def opened(codec: int, data: bytes, max_bytes: int = 1 << 28) -> bytes:
    status, out = decompress(codec, data, max_bytes)
    assert status == OK
    return bytes(out)


def peak_growth(work) -> int:
    """Bytes by which resident memory grew at most while `work` ran; 0 with AddressSanitizer, whose memory counts."""
    if os.environ.get("KAFKAPY_ASAN"):
        work()
        return 0
    Path("/proc/self/clear_refs").write_text("5")

    def high_water(field: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith(field)).split()[1]) * 1024

    before = high_water("VmRSS")
    work()
    return high_water("VmHWM") - before


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("data", [b"", b"x", TEXT, NOISE, bytes(3 << 20), TEXT[:32_768], TEXT[:32_769]], ids=len)
def test_round_trip(codec: int, data: bytes) -> None:
    assert opened(codec, packed(codec, data)) == data


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(CODECS), st.lists(st.binary(max_size=300), max_size=30), st.integers(1, 40))
def test_round_trip_of_anything(codec: int, parts: list[bytes], times: int) -> None:
    data = b"".join(parts) * times
    assert opened(codec, packed(codec, data), len(data)) == data


@pytest.mark.parametrize(
    ("codec", "levels"), [(GZIP, (-1, 1, 6, 9)), (LZ4, (1, 3, 9, 12, 17)), (ZSTD, (-131072, -5, 1, 3, 22))]
)
def test_levels(codec: int, levels: tuple[int, ...]) -> None:
    for level in levels * 2:
        assert opened(codec, packed(codec, TEXT, level)) == TEXT
    assert packed(codec, TEXT, 1000) == packed(codec, TEXT, levels[-1])


def test_codecs_that_do_not_exist() -> None:
    for codec in (-1, 0, 5, 6, 7, 9, 1 << 30):
        assert compress(codec, b"x") == (UNKNOWN_CODEC, b"")
        assert decompress(codec, b"x", 10)[0] == UNKNOWN_CODEC
        assert decompress(codec, b"", 10)[0] == UNKNOWN_CODEC


# --- other implementations ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"x", TEXT, NOISE, bytes(1 << 20)], ids=len)
def test_others_read_ours(data: bytes) -> None:
    assert gzip.decompress(packed(GZIP, data)) == data
    assert lz4.decompress(packed(LZ4, data)) == data
    assert lz4.get_frame_info(packed(LZ4, data))["block_linked"] is False
    assert lz4.get_frame_info(packed(LZ4, data))["block_size_id"] == lz4.BLOCKSIZE_MAX64KB
    assert zstandard.ZstdDecompressor().decompress(packed(ZSTD, data)) == data
    framed = packed(SNAPPY, data)
    assert framed[:16] == XERIAL
    at, blocks = 16, []
    while at < len(framed):
        (size,) = struct.unpack_from(">i", framed, at)
        blocks.append(snappy.uncompress(framed[at + 4 : at + 4 + size]))
        at += 4 + size
    assert b"".join(blocks) == data
    assert all(len(block) == 32_768 for block in blocks[:-1])


@pytest.mark.parametrize("data", [b"x", TEXT, NOISE, bytes(5 << 20)], ids=len)
def test_ours_reads_others(data: bytes) -> None:
    for level in (1, 9):
        assert opened(GZIP, gzip.compress(data, level)) == data
    assert opened(SNAPPY, snappy.compress(data)) == data
    blocks = [snappy.compress(data[at : at + 100_000]) for at in range(0, len(data), 100_000)]
    assert opened(SNAPPY, XERIAL + b"".join(struct.pack(">i", len(block)) + block for block in blocks)) == data
    for linked in (True, False):
        for block_size in (lz4.BLOCKSIZE_MAX64KB, lz4.BLOCKSIZE_MAX256KB, lz4.BLOCKSIZE_MAX4MB):
            for checksums in (True, False):
                frame = lz4.compress(
                    data,
                    block_linked=linked,
                    block_size=block_size,
                    content_checksum=checksums,
                    block_checksum=checksums,
                    store_size=checksums,
                )
                assert opened(LZ4, frame) == data
                assert opened(LZ4_V0, frame) == data
    for with_size in (True, False):
        for level in (1, 19):
            compressor = zstandard.ZstdCompressor(level=level, write_content_size=with_size, write_checksum=True)
            assert opened(ZSTD, compressor.compress(data)) == data
    chunks = zstandard.ZstdCompressor().compressobj()
    assert opened(ZSTD, chunks.compress(data) + chunks.flush()) == data


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])
def test_frames_one_after_the_other_are_read_and_other_bytes_behind_one_are_not(codec: int) -> None:
    one = packed(codec, TEXT)
    assert opened(codec, one + packed(codec, b"more") + packed(codec, b"")) == TEXT + b"more"
    assert decompress(codec, one + b"?", 1 << 28)[0] == CORRUPT
    assert decompress(codec, one + packed(codec, b"more")[:-1], 1 << 28)[0] == CORRUPT


def test_lz4_of_format_v0() -> None:
    frame = packed(LZ4_V0, TEXT)
    assert frame[6] == xxh32(frame[:6]) >> 8 & 0xFF != xxh32(frame[4:6]) >> 8 & 0xFF
    assert decompress(LZ4, frame, 1 << 28)[0] == CORRUPT
    assert opened(LZ4_V0, frame) == TEXT
    assert frame[7:] == packed(LZ4, TEXT)[7:]
    assert xxh32(b"abc") == 0x32D153FF
    with pytest.raises(ValueError):
        xxh32(bytes(16))


# --- bounds ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_output_is_bounded_exactly(codec: int) -> None:
    data = packed(codec, TEXT)
    assert opened(codec, data, len(TEXT)) == TEXT
    for limit in (len(TEXT) - 1, 70_000, 65_536, 1, 0, -1):
        assert decompress(codec, data, limit)[0] == TOO_LARGE
    assert opened(codec, packed(codec, b""), 0) == b""


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_stops_at_its_bound(codec: int) -> None:
    bomb = packed(codec, bytes(64 << 20))
    assert peak_growth(lambda: decompress(codec, bomb, 1 << 20)) < 8 << 20
    assert decompress(codec, bomb, 1 << 20)[0] == TOO_LARGE


def test_many_frames_do_not_get_around_the_bound() -> None:
    for codec in (GZIP, LZ4, ZSTD):
        frames = packed(codec, bytes(1 << 20)) * 50
        assert decompress(codec, frames, 10 << 20)[0] == TOO_LARGE
        assert len(opened(codec, frames)) == 50 << 20


def test_announced_sizes_cost_nothing() -> None:
    lz4_frame = lz4.compress(TEXT, store_size=True)
    lie = struct.pack("<Q", 1 << 40)
    lz4_lie = lz4_frame[:6] + lie + bytes([xxh32(lz4_frame[4:6] + lie) >> 8 & 0xFF]) + lz4_frame[15:]
    zstd_lie = b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 1 << 40) + packed(ZSTD, TEXT)[8:]
    snappy_lie = b"\xff\xff\xff\xff\x0f\x00\x00"
    gzip_lie = gzip.compress(b"x")[:-4] + b"\xff\xff\xff\xff"
    for codec, data in (
        (LZ4, lz4_lie),
        (ZSTD, zstd_lie),
        (SNAPPY, snappy_lie),
        (SNAPPY, XERIAL + struct.pack(">i", len(snappy_lie)) + snappy_lie),
        (GZIP, gzip_lie),
    ):
        assert decompress(codec, data, 1 << 28)[0] == CORRUPT
        assert peak_growth(lambda codec=codec, data=data: decompress(codec, data, 1 << 28)) < 4 << 20


def test_a_large_window_is_bounded_by_what_is_read() -> None:
    compressor = zstandard.ZstdCompressor(
        compression_params=zstandard.ZstdCompressionParameters.from_level(3, window_log=27, enable_ldm=True),
    )
    stream = compressor.compressobj()
    frame = stream.compress(bytes(96 << 20)) + stream.flush()
    assert decompress(ZSTD, frame, 1 << 20)[0] == TOO_LARGE
    assert peak_growth(lambda: decompress(ZSTD, frame, 1 << 20)) < 8 << 20
    assert len(opened(ZSTD, frame)) == 96 << 20


# --- damage ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_every_truncation_is_refused(codec: int) -> None:
    for data in (TEXT[:600], b""):
        whole = packed(codec, data)
        for cut in range(len(whole)):
            if codec == SNAPPY and cut == 16:
                continue  # the frame's header and no block: an empty stream
            assert decompress(codec, whole[:cut], 1 << 20)[0] == CORRUPT


@pytest.mark.parametrize("codec", CODECS)
def test_random_bits_and_bytes_end_in_a_status_and_the_next_call_is_right(codec: int) -> None:
    rng = random.Random(codec)
    sources = [packed(codec, TEXT[:3000]), packed(codec, TEXT), packed(codec, NOISE[:2000])]
    for turn in range(1500):
        broken = bytearray(rng.choice(sources))
        for _ in range(rng.choice((1, 1, 3, 20))):
            broken[rng.randrange(len(broken))] = rng.randrange(256)
        if turn % 3 == 0:
            broken = broken[: rng.randrange(len(broken))]
        status, out = decompress(codec, broken, 400_000)
        assert status in (OK, CORRUPT, TOO_LARGE)
        assert out.nbytes <= (400_000 if status == OK else 0)
    assert opened(codec, sources[1]) == TEXT


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(CODECS), st.binary(max_size=200))
def test_arbitrary_bytes_behind_the_right_magic(codec: int, data: bytes) -> None:
    magic = {
        GZIP: b"\x1f\x8b\x08",
        SNAPPY: XERIAL,
        LZ4: b"\x04\x22\x4d\x18",
        LZ4_V0: b"\x04\x22\x4d\x18",
        ZSTD: b"\x28\xb5\x2f\xfd",
    }
    for prefix in (b"", magic[codec]):
        status, out = decompress(codec, prefix + data, 100_000)
        assert out.nbytes <= 100_000
        assert status in (OK, CORRUPT, TOO_LARGE)


def test_gzip_checksums_are_checked() -> None:
    whole = bytearray(gzip.compress(TEXT))
    assert zlib.crc32(TEXT) == int.from_bytes(whole[-8:-4], "little")
    whole[-8] ^= 1
    assert decompress(GZIP, whole, 1 << 28)[0] == CORRUPT


# --- threads --------------------------------------------------------------------------------------------------------


def test_threads_have_contexts_of_their_own() -> None:
    wrong: list[object] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(60):
            codec = rng.choice(CODECS)
            data = TEXT[: rng.randrange(len(TEXT))]
            level = rng.choice((DEFAULT_LEVEL, 1, 4, 12))
            if bytes(decompress(codec, compress(codec, data, level)[1], len(data))[1]) != data:
                wrong.append((codec, len(data), level))
            decompress(codec, NOISE[:100], 1000)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_what_was_opened_lives_as_long_as_its_view() -> None:
    view = decompress(ZSTD, packed(ZSTD, TEXT), 1 << 28)[1][1000:2000]
    for _ in range(10):
        decompress(ZSTD, packed(ZSTD, NOISE), 1 << 28)
    assert bytes(view) == TEXT[1000:2000]
    assert view.readonly
