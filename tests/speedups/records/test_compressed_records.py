"""The walk over compressed records while they are decompressed: against a reference, over every border, and hostile."""

import array
import gzip
import importlib.util
import random
import struct
from pathlib import Path

import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy._speedups.records import compressed_records as kernel
from kafkapy._speedups.records import record_batch
from kafkapy._speedups.records.batch_builder import RecordBatchBuilder
from kafkapy.records.compression import compress

_PATH = Path(__file__).parents[2] / "reference" / "compressed_records.py"
_SPEC = importlib.util.spec_from_file_location("reference_compressed_records", _PATH)
reference = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(reference)

HEADER = 61
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
CODECS = (GZIP, SNAPPY, LZ4, ZSTD)
STATUS = {"ok": kernel.OK, "corrupt": kernel.CORRUPT, "structure": kernel.BAD_STRUCTURE}
PIECE = 128 * 1024


def exact(data):
    """The bytes in an allocation of just their size, so that a sanitizer sees a read past the end."""
    return array.array("B", data)


def xerial(payload, block=1000):
    blocks = [snappy.compress(payload[at : at + block]) for at in range(0, len(payload), block)]
    return b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + b"".join(struct.pack(">i", len(b)) + b for b in blocks)


# As every client may write them: name -> (codec, what it makes of the records).
WRITERS = {
    "gzip": (GZIP, gzip.compress),
    "gzip of two members": (GZIP, lambda p: gzip.compress(p[: len(p) // 2]) + gzip.compress(p[len(p) // 2 :])),
    "snappy-java": (SNAPPY, lambda p: compress(SNAPPY, p)),
    "snappy-java of small blocks": (SNAPPY, xerial),
    "raw snappy": (SNAPPY, snappy.compress),
    "lz4": (LZ4, lambda p: compress(LZ4, p)),
    "lz4 of linked blocks": (LZ4, lambda p: lz4.frame.compress(p, block_linked=True, store_size=True)),
    "lz4 of 256 KB blocks": (LZ4, lambda p: lz4.frame.compress(p, block_size=lz4.frame.BLOCKSIZE_MAX256KB)),
    "lz4 of 4 MB blocks": (
        LZ4,
        lambda p: lz4.frame.compress(p, block_size=lz4.frame.BLOCKSIZE_MAX4MB, content_checksum=True),
    ),
    "zstd": (ZSTD, lambda p: compress(ZSTD, p)),
    "zstd of unknown size": (ZSTD, lambda p: zstandard.ZstdCompressor(write_content_size=False).compress(p)),
    "zstd of two frames": (ZSTD, lambda p: compress(ZSTD, p[: len(p) // 2]) + compress(ZSTD, p[len(p) // 2 :])),
}


def payload_of(records, base_timestamp=1_700_000_000_000):
    builder = RecordBatchBuilder()
    for offset, key, value, headers in records:
        builder.append(base_timestamp + offset, key, value, headers)
    return builder.payload_bytes()


def batch_of(payload, count, codec, *, base_timestamp=1_700_000_000_000, delta=None, attributes=0):
    """Any bytes behind the header of a batch; the CRC is not looked at here."""
    body = struct.pack(
        ">hiqqqhii",
        attributes | codec,
        count - 1 if delta is None else delta,
        base_timestamp,
        base_timestamp,
        -1,
        -1,
        -1,
        count,
    ) + bytes(payload)
    return struct.pack(">qiibI", 0, 9 + len(body), -1, 2, 0) + body


def some_records(count=40, size=60, seed=1):
    source = random.Random(seed)
    return [
        (
            i % 7,
            b"k%d" % i if i % 3 else None,
            source.randbytes(source.randrange(size)) if i % 5 else None,
            [("name", b"value"), ("", None), ("x" * (i % 4), b"")][: i % 4],
        )
        for i in range(count)
    ]


def agrees(data, **rules):
    """The kernel says what the reference says, with pieces of every size; the status."""
    expected, bad, max_timestamp = reference.validate(data, **rules)
    statuses = set()
    for piece in (PIECE, 1000, 61, 7, 1):
        status, problems, found, _, _ = kernel.check(exact(data), piece=piece, **rules)
        if expected == "corrupt":
            # Records that do not add up may come before the bytes that the codec cannot read.
            assert status in (kernel.CORRUPT, kernel.BAD_STRUCTURE), piece
        else:
            assert status == STATUS[expected], piece
        if status == kernel.OK:
            assert problems == [(i, record_batch.NULL_KEY) for i in bad]
            assert found == max_timestamp
        statuses.add(status)
    return statuses.pop()


# --- good batches -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("size", [1, 60, 3000, 200_000])
def test_what_clients_write_is_taken_over_every_border(writer, size):
    codec, write = WRITERS[writer]
    records = some_records(40 if size < 10_000 else 8, size)
    payload = payload_of(records)
    data = batch_of(write(payload), len(records), codec)
    for piece in (PIECE, 65_536, 4099, 61) + ((1, 2, 3, 26, 27) if size <= 3000 else ()):
        status, problems, max_timestamp, delta, opened = kernel.check(exact(data), piece=piece)
        assert (status, problems, opened) == (kernel.OK, [], len(payload))
        assert (max_timestamp, delta) == (1_700_000_000_000 + 6, 6)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(WRITERS)),
    st.lists(
        st.tuples(
            st.integers(-(2**40), 2**40),
            st.none() | st.binary(max_size=90),
            st.none() | st.binary(max_size=400),
            st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=20)), max_size=4),
        ),
        min_size=1,
        max_size=30,
    ),
    st.booleans(),
)
def test_any_records_agree_with_the_reference(writer, records, needs_keys):
    codec, write = WRITERS[writer]
    base = 1_700_000_000_000 + records[0][0]
    data = batch_of(write(payload_of(records)), len(records), codec, base_timestamp=base)
    assert agrees(data, needs_keys=needs_keys) == kernel.OK


def test_the_rules_of_a_topic_are_applied_to_every_record():
    records = [(t, b"k", b"v" * 40, ()) for t in (899, 900, 1000, 1050, 1051, -1)]
    payload = payload_of(records, 0)
    rules = {"now_ms": 1000, "timestamp_before_max_ms": 100, "timestamp_after_max_ms": 50}
    for codec in CODECS:
        data = batch_of(compress(codec, payload), len(records), codec, base_timestamp=899)
        for piece in (PIECE, 20):
            assert kernel.check(data, piece=piece, **rules)[1] == [
                (0, record_batch.BAD_TIMESTAMP),
                (4, record_batch.BAD_TIMESTAMP),
            ]
            assert kernel.check(data, piece=piece, log_append_time=True, **rules)[1] == []


def test_at_most_a_hundred_problems_are_listed():
    data = batch_of(compress(LZ4, payload_of([(0, None, b"v", ())] * 500)), 500, LZ4)
    assert kernel.check(data, needs_keys=True)[1] == [(i, record_batch.NULL_KEY) for i in range(100)]


# --- batches that lie ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("said", [1, 39, 41, 1000, 2**31 - 1, 0, -1])
def test_a_count_that_is_not_that_of_the_records_is_refused(codec, said):
    data = batch_of(compress(codec, payload_of(some_records())), said, codec)
    for piece in (PIECE, 50):
        assert kernel.check(exact(data), piece=piece)[0] == kernel.BAD_STRUCTURE
    wrong_delta = batch_of(compress(codec, payload_of(some_records())), 40, codec, delta=40)
    assert kernel.check(wrong_delta)[0] == kernel.BAD_STRUCTURE


@pytest.mark.parametrize("codec", CODECS)
def test_another_codec_than_the_bytes_is_corrupt(codec):
    payload = payload_of(some_records())
    for other in CODECS:
        if other != codec:
            assert kernel.check(exact(batch_of(compress(other, payload), 40, codec)))[0] == kernel.CORRUPT
    for noise in (payload, b"this is not what the codec writes", b"\0", b""):
        assert kernel.check(exact(batch_of(noise, 1, codec)))[0] in (kernel.CORRUPT, kernel.BAD_STRUCTURE)


def spoiled_payloads():
    payload = payload_of([(0, b"key", b"value" * 20, [("name", b"content")])] * 3)
    yield "trailing byte", payload + b"\0"
    yield "trailing record", payload + payload
    yield "last byte missing", payload[:-1]
    yield "half of it", payload[: len(payload) // 2]
    yield "deltas that start again", payload[: len(payload) // 3] * 3
    yield "nothing", b""


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(("name", "payload"), list(spoiled_payloads()))
def test_records_that_do_not_add_up_are_refused(codec, name, payload):
    assert agrees(batch_of(compress(codec, payload), 3, codec)) == kernel.BAD_STRUCTURE


@pytest.mark.parametrize("size", [1, 5, 30])
def test_any_byte_of_the_records_changed_agrees_with_the_reference(size):
    source = random.Random(size)
    records = some_records(6, size)
    clean = payload_of(records)
    refused = 0
    for at in range(len(clean)):
        payload = bytearray(clean)
        payload[at] = source.randrange(256)
        codec = source.choice(CODECS)
        refused += agrees(batch_of(compress(codec, payload), len(records), codec)) != kernel.OK
    assert refused > len(clean) // 4


@pytest.mark.parametrize("writer", WRITERS)
def test_every_truncation_is_refused(writer):
    codec, write = WRITERS[writer]
    payload = write(payload_of(some_records(6, 30)))
    for cut in range(len(payload)):
        for piece in (PIECE, 13):
            assert kernel.check(exact(batch_of(payload[:cut], 6, codec)), piece=piece)[0] in (
                kernel.CORRUPT,
                kernel.BAD_STRUCTURE,
            )


@pytest.mark.parametrize("writer", WRITERS)
def test_flipped_bits_never_harm(writer):
    codec, write = WRITERS[writer]
    source = random.Random(writer)
    clean = write(payload_of(some_records(12, 80)))
    for _ in range(400):
        payload = bytearray(clean)
        for _ in range(source.randrange(1, 4)):
            payload[source.randrange(len(payload))] ^= 1 << source.randrange(8)
        data = batch_of(payload, 12, codec)
        expected = reference.validate(data)[0]
        for piece in (PIECE, 17):
            status = kernel.check(exact(data), piece=piece)[0]
            if expected == "ok":
                # The libraries of Python look over some flags of a frame.
                assert status in (kernel.OK, kernel.CORRUPT)
            else:
                assert status != kernel.OK or expected == "corrupt"
    assert kernel.check(batch_of(clean, 12, codec))[0] == kernel.OK


# --- bounds -------------------------------------------------------------------------------------------------------


def bomb(codec, value_size, count=1):
    """A batch whose one record has a value of that many zeros."""
    payload = payload_of([(0, None, bytes(value_size), ())])
    return batch_of(compress(codec, payload), count, codec)


@pytest.mark.parametrize("codec", CODECS)
def test_a_budget_ends_the_walk_soon(codec):
    data = bomb(codec, 8 << 20)
    status, _, _, _, opened = kernel.check(data, budget=1 << 20)
    assert status == kernel.OVER_BUDGET
    assert opened <= (1 << 20) + PIECE
    assert kernel.check(data)[0] == kernel.OK


def test_a_record_larger_than_all_that_may_come_ends_the_walk_at_once():
    size = 257 << 20
    head = b"\0" + b"\0" + b"\0" + b"\x01" + zigzag(size)
    payload = zigzag(len(head) + size + 1) + head + bytes(1 << 20)
    for codec in CODECS:
        status, _, _, _, opened = kernel.check(batch_of(compress(codec, payload), 1, codec))
        assert status in (kernel.BAD_STRUCTURE, kernel.TOO_LARGE)
        assert opened <= len(payload)


def zigzag(value):
    value <<= 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def test_a_count_that_no_compression_explains_is_told_from_the_header():
    for codec, most in ((GZIP, 1032), (SNAPPY, 22), (LZ4, 255), (ZSTD, 32768)):
        fits = 100 * most // 7
        assert kernel.count_possible(batch_of(bytes(100), fits, codec))
        assert not kernel.count_possible(batch_of(bytes(100), fits + 1, codec))
        assert kernel.check(batch_of(bytes(100), fits + 1, codec))[0] == kernel.BAD_STRUCTURE
    # The densest that each codec makes is possible.
    payload = payload_of([(0, None, None, ())] * 200_000)
    for codec in CODECS:
        assert kernel.count_possible(batch_of(compress(codec, payload), 200_000, codec))
    assert not kernel.count_possible(batch_of(bytes(1 << 20), 2**31 - 1, ZSTD))


def test_arguments_are_checked():
    with pytest.raises(ValueError):
        kernel.check(b"")
    with pytest.raises(ValueError):
        kernel.count_possible(b"x" * 60)
    for piece in (0, PIECE + 1):
        with pytest.raises(ValueError):
            kernel.check(bomb(LZ4, 1), piece=piece)
