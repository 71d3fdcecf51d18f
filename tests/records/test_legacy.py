"""Message formats v0 and v1: against other clients' record code, converted up and down, and hostile bytes."""

import random
import struct
import zlib

import pytest

from kafkapy.errors import (
    CorruptMessageError,
    InvalidRecordError,
    KafkaError,
    MessageTooLargeError,
    UnsupportedCompressionTypeError,
)
from kafkapy.records.batches import Record, RecordBatchBuilder, decode_records, iter_batches
from kafkapy.records.control import build_end_transaction_marker
from kafkapy.records.legacy import (
    build_message_set,
    decode_message,
    decode_message_set,
    down_convert,
    iter_messages,
    open_message_set,
    up_convert,
)
from kafkapy.types import CompressionType, TimestampType

MAGICS = (0, 1)
CODECS = (CompressionType.NONE, CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4)
PAIRS = [(b"k0", b"v0"), (None, b"value" * 40), (b"k2", None), (b"", b""), (b"k4", b"x" * 70_000)]


def records(magic, base=0, kind=None):
    kind = (TimestampType.CREATE_TIME if magic else TimestampType.NO_TIMESTAMP_TYPE) if kind is None else kind
    return [Record(base + i, 1000 + i if magic else -1, kind, k, v) for i, (k, v) in enumerate(PAIRS)]


def message(offset, magic, body, crc=None):
    data = struct.pack(">b", magic) + body
    return struct.pack(">qiI", offset, len(data) + 4, zlib.crc32(data) if crc is None else crc) + data


@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("base", [0, 70])
def test_round_trip(magic, codec, base):
    data = build_message_set(records(magic, base), magic, codec)
    assert decode_message_set(data) == records(magic, base)
    assert len(list(iter_messages(data))) == (1 if codec else 5)
    assert [r for batch in iter_batches(data) for r in decode_records(batch)] == records(magic, base)


@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("library", ["kafka.record.legacy_records", "aiokafka.record.legacy_records"])
def test_we_read_other_clients(magic, codec, library):
    module = pytest.importorskip(library)
    builder = module.LegacyRecordBatchBuilder(magic, int(codec), 1 << 20)
    for record in records(magic):
        builder.append(record.offset, timestamp=record.timestamp if magic else None, key=record.key, value=record.value)
    try:
        data = bytes(builder.build())
    except RuntimeError as error:
        pytest.skip(f"{library} cannot build it here: {error}")
    if codec:
        # a broker gives a wrapper the offset of its last record; clients send 0 (librdkafka) or what they like
        data = struct.pack(">q", 4) + data[8:]
    assert decode_message_set(data) == records(magic)


@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("library", ["kafka.record.legacy_records", "aiokafka.record.legacy_records"])
def test_other_clients_read_ours(magic, codec, library):
    module = pytest.importorskip(library)
    data = build_message_set(records(magic, 50), magic, codec)
    read = []
    for batch in iter_batches(data):
        other = module.LegacyRecordBatch(bytearray(batch.to_bytes()), magic)
        assert other.validate_crc()
        try:
            read += [(r.offset, r.timestamp, r.key, r.value) for r in other]
        except RuntimeError as error:
            pytest.skip(f"{library} cannot read it here: {error}")
    assert read == [(r.offset, r.timestamp if magic else None, r.key, r.value) for r in records(magic, 50)]


def test_append_time_of_a_v1_wrapper_holds_for_all_inside():
    inside = records(1, 10)
    data = bytearray(build_message_set(inside, 1, CompressionType.GZIP))
    data[17] |= 8
    struct.pack_into(">q", data, 18, 9999)
    struct.pack_into(">I", data, 12, zlib.crc32(data[16:]))
    assert [(r.offset, r.timestamp, r.timestamp_type) for r in decode_message(data)] == [
        (10 + i, 9999, 1) for i in range(5)
    ]


def test_a_wrapper_with_offset_zero_leaves_the_offsets_inside_as_they_are():
    data = build_message_set(records(1), 1, CompressionType.GZIP)
    data = struct.pack(">q", 0) + data[8:]
    assert [r.offset for r in decode_message(data)] == [0, 1, 2, 3, 4]


# --- conversion ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize("codec", CODECS)
def test_up_conversion_counts_offsets_anew(magic, codec):
    opened = open_message_set(build_message_set(records(magic, 30), magic, codec))
    assert (opened.magic, opened.codec, opened.append_time) == (magic, codec, None)
    for append_time in (None, 5):
        converted = up_convert(opened, log_append_time=append_time)
        (batch,) = iter_batches(converted.batch, check_crc=True)
        assert (batch.codec, batch.base_offset, batch.record_count, converted.record_count) == (0, 0, 5, 5)
        stamped = [r.timestamp if append_time is None else 5 for r in records(magic)]
        assert list(decode_records(batch)) == [Record(i, stamped[i], 0, k, v) for i, (k, v) in enumerate(PAIRS)]
        assert (batch.base_timestamp, batch.max_timestamp) == (stamped[0], max(stamped))
        assert not converted.bad_timestamps


@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize("codec", CODECS)
def test_down_conversion(magic, codec):
    data = b""
    for base in (100, 105):
        builder = RecordBatchBuilder(base_offset=base)
        for record in records(1):
            builder.append(record.timestamp, record.key, record.value, [("dropped", b"header")])
        data += builder.build(codec)
        data += build_end_transaction_marker(1, 0, committed=True, coordinator_epoch=0, timestamp_ms=1, base_offset=999)
    converted = down_convert(data + data[:50], magic, first_offset=102)
    got = decode_message_set(converted.message_set)
    assert (converted.end_offset, converted.record_count) == (1000, len(got))
    first = 100 if codec else 102  # only uncompressed batches are cut at the offset asked for
    assert [r.offset for r in got] == list(range(first, 110))
    assert [(r.key, r.value) for r in got] == (PAIRS * 2)[first - 100 :]
    assert got[0].timestamp == (1000 + first - 100 if magic else -1)


def test_down_conversion_copies_what_is_old_enough_and_rebuilds_v1_for_v0():
    v0, v1 = build_message_set(records(0), 0), build_message_set(records(1, 5), 1, CompressionType.GZIP)
    assert down_convert(v0 + v1, 1).message_set == v0 + v1
    got = decode_message_set(down_convert(v0 + v1, 0).message_set)
    assert [(r.offset, r.timestamp_type) for r in got] == [(i, -1) for i in range(10)]
    with pytest.raises(ValueError):
        down_convert(v0, 2)


def test_zstd_does_not_exist_before_v2():
    builder = RecordBatchBuilder()
    builder.append(1, None, b"")
    with pytest.raises(UnsupportedCompressionTypeError):
        down_convert(builder.build(CompressionType.ZSTD), 1)
    with pytest.raises(UnsupportedCompressionTypeError):
        build_message_set(records(1), 1, CompressionType.ZSTD)
    with pytest.raises(ValueError):
        build_message_set(records(1), 2)
    assert build_message_set([], 1) == b""


# --- hostile bytes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("magic", MAGICS)
def test_every_truncation_ends_the_walk(magic):
    data = build_message_set(records(magic)[:3], magic)
    ends = [batch.position + batch.size for batch in iter_batches(data)]
    for cut in range(len(data)):
        assert len(list(iter_messages(data[:cut]))) == sum(end <= cut for end in ends)


@pytest.mark.parametrize("magic", MAGICS)
def test_every_flipped_bit_under_the_crc_is_caught(magic):
    data = build_message_set(records(magic)[:1], magic)
    for at in range(12, len(data)):
        for bit in range(8):
            broken = bytearray(data)
            broken[at] ^= 1 << bit
            with pytest.raises(CorruptMessageError):
                list(iter_messages(broken))


@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize("codec", CODECS)
def test_flips_behind_a_refreshed_crc_never_do_worse_than_be_refused(magic, codec):
    rng = random.Random(3)
    data = build_message_set(records(magic)[:3], magic, codec)
    for _ in range(500):
        broken = bytearray(data)
        broken[rng.randrange(8, len(broken))] ^= 1 << rng.randrange(8)
        (size,) = struct.unpack_from(">i", broken, 8)
        if 14 <= size <= len(broken) - 12:
            struct.pack_into(">I", broken, 12, zlib.crc32(broken[16 : 12 + size]))
        try:
            decode_message_set(broken, max_bytes=1 << 20)
        except KafkaError:
            continue


V0_FIELDS = b"\0" + struct.pack(">i", -1)


@pytest.mark.parametrize(
    ("error", "data"),
    [
        (CorruptMessageError, message(0, 2, V0_FIELDS + struct.pack(">i", -1))),
        (CorruptMessageError, message(0, 0, V0_FIELDS)),
        (CorruptMessageError, message(0, 1, V0_FIELDS + struct.pack(">i", -1))),
        (InvalidRecordError, message(0, 0, b"\0" + struct.pack(">i", 2**31 - 1) + bytes(8))),
        (InvalidRecordError, message(0, 0, V0_FIELDS + struct.pack(">i", 9) + bytes(8))),
        (InvalidRecordError, message(0, 0, V0_FIELDS + struct.pack(">i", 1) + bytes(8))),
        (InvalidRecordError, message(0, 0, b"\0" + struct.pack(">i", 6) + bytes(7))),
        (InvalidRecordError, message(0, 0, b"\1" + struct.pack(">ii", -1, -1))),
        (InvalidRecordError, message(0, 0, b"\4" + struct.pack(">ii", -1, 0))),
        (InvalidRecordError, message(0, 0, b"\7" + struct.pack(">ii", -1, 0))),
    ],
)
def test_malformed_messages_are_refused(error, data):
    with pytest.raises(error):
        decode_message_set(data)


def wrapped(inner, magic, offset):
    from kafkapy.records.compression import compress

    packed = compress(CompressionType.GZIP, inner)
    body = b"\1" + (struct.pack(">q", 5) if magic else b"") + struct.pack(">ii", -1, len(packed)) + packed
    return message(offset, magic, body)


def test_wrappers_that_hold_what_they_may_not_are_refused():
    nested = build_message_set(records(1), 1, CompressionType.GZIP)
    for data in (
        wrapped(b"", 1, 0),
        wrapped(nested, 1, 4),
        wrapped(build_message_set(records(0), 0), 1, 4),
        wrapped(build_message_set(records(1), 1), 1, 3),  # the wrapper's offset is below the last inside
    ):
        with pytest.raises(InvalidRecordError):
            decode_message_set(data)


def test_what_wrappers_open_to_is_bounded_together():
    one = build_message_set(records(1), 1, CompressionType.GZIP)
    assert len(decode_message_set(one * 3, max_bytes=300_000)) == 15
    for data, limit in ((one, 60_000), (one * 3, 150_000)):
        with pytest.raises(MessageTooLargeError):
            decode_message_set(data, max_bytes=limit)
