"""What a worker says of a produce: records to append, or Kafka's error with one message per bad record."""

import random
import struct

import pytest

from kafkapy._speedups.records import record_batch
from kafkapy.errors import ErrorCode
from kafkapy.records.batches import Record, RecordBatchBuilder, decode_records, iter_batches
from kafkapy.records.legacy import build_message_set
from kafkapy.records.validator import RecordRules, validate_records
from kafkapy.types import CompressionType

NOW = 1_700_000_000_000
RULES = RecordRules()
CODECS = list(CompressionType)
OLD_CODECS = CODECS[:4]
PAIRS = [(NOW, b"k", b"v"), (NOW + 7, b"k2", b"value" * 50), (NOW + 3, b"", None)]


def produced(codec=CompressionType.NONE, pairs=PAIRS, **fields):
    builder = RecordBatchBuilder()
    for timestamp, key, value in pairs:
        builder.append(timestamp, key, value, [("h", b"1")])
    return builder.build(codec, **fields)


def old(magic, codec=CompressionType.NONE, pairs=PAIRS, kind=None):
    kind = (0 if magic else -1) if kind is None else kind
    rows = [Record(i, t if magic else -1, kind, k, v) for i, (t, k, v) in enumerate(pairs)]
    return build_message_set(rows, magic, codec)


def accepted(data, rules=RULES):
    outcome = validate_records(data, rules, now_ms=NOW)
    assert (outcome.error, outcome.message, outcome.record_errors) == (ErrorCode.NONE, None, [])
    (batch,) = iter_batches(outcome.records, check_crc=True)
    return outcome, batch


def refused(data, rules=RULES):
    outcome = validate_records(data, rules, now_ms=NOW)
    assert outcome.records is None
    assert outcome.message
    return outcome


def changed(data, at, form, value):
    out = bytearray(data)
    struct.pack_into(form, out, at, value)
    record_batch.refresh_crc(out)
    return bytes(out)


# --- accepted -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_a_good_batch_comes_back_as_it_was(codec):
    data = produced(codec, producer_id=4, producer_epoch=1, base_sequence=8)
    outcome, _ = accepted(data, RecordRules(needs_keys=True))
    assert outcome.records == data
    assert (outcome.changed, outcome.record_count) == (False, 3)
    assert (outcome.max_timestamp, outcome.offset_of_max_timestamp) == (NOW + 7, 1)


@pytest.mark.parametrize("source", CODECS)
@pytest.mark.parametrize("target", CODECS)
def test_any_codec_becomes_any_other_with_the_fields_kept(source, target):
    data = produced(source, producer_id=4, producer_epoch=1, base_sequence=8, transactional=True)
    outcome, batch = accepted(data, RecordRules(codec=target))
    assert outcome.changed == (source != target)
    assert (batch.codec, batch.is_transactional, batch.record_count) == (target, True, 3)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (4, 1, 8)
    assert decode_records(batch) == decode_records(next(iter_batches(data)))


def test_the_level_of_the_target_codec_is_used():
    data = produced(pairs=[(NOW, b"%d" % i, b"text %d" % (i * i)) for i in range(2000)])
    sizes = [len(accepted(data, RecordRules(codec=CompressionType.GZIP, level=n))[0].records) for n in (1, 9)]
    assert sizes[1] < sizes[0]


@pytest.mark.parametrize("codec", CODECS)
def test_append_time_is_stamped(codec):
    outcome, batch = accepted(produced(codec), RecordRules(log_append_time=True, timestamp_before_max_ms=0))
    assert (batch.timestamp_type, batch.max_timestamp, outcome.max_timestamp) == (1, NOW, NOW)
    assert {record.timestamp for record in decode_records(batch)} == {NOW}


def test_a_header_that_lies_about_the_max_timestamp_is_corrected():
    outcome, batch = accepted(changed(produced(), 35, ">q", 5))
    assert (outcome.changed, batch.max_timestamp) == (True, NOW + 7)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("source", OLD_CODECS)
@pytest.mark.parametrize("target", [None, *CODECS])
def test_older_formats_become_one_v2_batch(magic, source, target):
    outcome, batch = accepted(old(magic, source), RecordRules(codec=target))
    assert (batch.codec, batch.base_offset, batch.record_count) == (source if target is None else target, 0, 3)
    assert [(r.offset, r.timestamp, r.key, r.value) for r in decode_records(batch)] == [
        (i, t if magic else -1, k, v) for i, (t, k, v) in enumerate(PAIRS)
    ]
    assert (outcome.max_timestamp, outcome.offset_of_max_timestamp) == ((NOW + 7, 1) if magic else (-1, 0))
    assert outcome.changed


def test_older_formats_are_numbered_from_zero_whatever_offsets_they_carry():
    rows = [Record(i, NOW, 0, b"k", b"v") for i in (7, 7, 3)]
    _, batch = accepted(build_message_set(rows, 1))
    assert [record.offset for record in decode_records(batch)] == [0, 1, 2]
    _, batch = accepted(old(0), RecordRules(log_append_time=True))
    assert {record.timestamp for record in decode_records(batch)} == {NOW}


# --- refused: the records -----------------------------------------------------------------------------------------

KEYLESS = [(NOW, b"k", b""), (NOW, None, b""), (NOW, b"k", b""), (NOW, None, b"")]
LATE = [(NOW - 101, b"k", b""), (NOW - 100, b"k", b""), (NOW + 50, b"k", b""), (NOW + 51, None, b""), (-1, b"k", b"")]
BOUNDS = RecordRules(timestamp_before_max_ms=100, timestamp_after_max_ms=50)


def test_records_without_a_key_on_a_compacted_topic():
    datas = [produced(c, KEYLESS) for c in CODECS] + [old(m, c, KEYLESS) for m in (0, 1) for c in OLD_CODECS]
    for data in datas:
        outcome = refused(data, RecordRules(needs_keys=True))
        assert outcome.error == ErrorCode.INVALID_RECORD
        assert [index for index, _ in outcome.record_errors] == [1, 3]
        assert all("key" in text for _, text in outcome.record_errors)


def test_timestamps_out_of_bounds():
    for data in [produced(c, LATE) for c in CODECS] + [old(1, c, LATE) for c in OLD_CODECS]:
        outcome = refused(data, BOUNDS)
        assert outcome.error == ErrorCode.INVALID_TIMESTAMP
        assert [index for index, _ in outcome.record_errors] == [0, 3]
        assert str(NOW - 100) in outcome.record_errors[0][1]
    accepted(old(0, pairs=LATE), BOUNDS)  # v0 has no timestamps
    accepted(produced(pairs=LATE), RecordRules(log_append_time=True, timestamp_before_max_ms=1))


def test_a_bad_timestamp_decides_the_error_when_keys_are_missing_too():
    outcome = refused(produced(pairs=[(NOW, None, b""), (5, b"k", b"")]), RecordRules(True, timestamp_before_max_ms=9))
    assert outcome.error == ErrorCode.INVALID_TIMESTAMP
    assert len(outcome.record_errors) == 2


def test_a_producer_may_not_say_log_append_time():
    assert refused(produced(log_append_time=NOW)).error == ErrorCode.INVALID_TIMESTAMP
    for data in (old(1, kind=1), old(1, CompressionType.GZIP, kind=1)):
        # As in Kafka: the timestamp beside the mark is a client's as well as any other, if it is what is kept.
        _, batch = accepted(data)
        assert batch.timestamp_type == 0
        outcome = refused(data, RecordRules(log_append_time=True))
        assert (outcome.error, len(outcome.record_errors)) == (ErrorCode.INVALID_TIMESTAMP, len(PAIRS))
    timeless = [(-1, b"k", b"v")]
    for codec in (CompressionType.NONE, CompressionType.GZIP):
        assert refused(old(1, codec, timeless, kind=1)).error == ErrorCode.INVALID_TIMESTAMP
        assert refused(old(1, codec, [(-2, b"k", b"v")])).error == ErrorCode.INVALID_TIMESTAMP


def test_at_most_a_hundred_records_are_named():
    many = [(NOW, None, b"")] * 300
    for data in (produced(1, many), old(1, CompressionType.GZIP, many)):
        assert len(refused(data, RecordRules(needs_keys=True)).record_errors) == 100


# --- refused: the batch -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "data"),
    [
        (ErrorCode.CORRUPT_MESSAGE, b""),
        (ErrorCode.CORRUPT_MESSAGE, bytes(100)),
        (ErrorCode.CORRUPT_MESSAGE, produced()[:-1]),
        (ErrorCode.CORRUPT_MESSAGE, produced() + b"\0"),
        (ErrorCode.CORRUPT_MESSAGE, produced()[:-1] + b"\x7f"),
        (ErrorCode.CORRUPT_MESSAGE, old(1)[:20]),
        (ErrorCode.CORRUPT_MESSAGE, old(1, CompressionType.GZIP)[:-1]),
        (ErrorCode.INVALID_RECORD, produced() * 2),
        (ErrorCode.INVALID_RECORD, produced() + old(1)),
        (ErrorCode.INVALID_RECORD, old(0) + old(1)),
        (ErrorCode.INVALID_RECORD, old(1, CompressionType.GZIP) * 2),
        (ErrorCode.INVALID_RECORD, produced(control=True)),
        (ErrorCode.INVALID_RECORD, changed(produced(), 0, ">q", 1)),
        (ErrorCode.INVALID_RECORD, produced(producer_id=5, producer_epoch=0)),
        (ErrorCode.INVALID_RECORD, RecordBatchBuilder().build(last_offset=3)),
        (ErrorCode.INVALID_RECORD, changed(produced(), 57, ">i", 2)),
        (ErrorCode.INVALID_RECORD, changed(produced(), 57, ">i", -3)),
        (ErrorCode.INVALID_RECORD, changed(produced(), 23, ">i", 3)),
        (ErrorCode.INVALID_RECORD, changed(changed(produced(4), 57, ">i", 2**31 - 1), 23, ">i", 2**31 - 2)),
        (ErrorCode.CORRUPT_MESSAGE, changed(produced(CompressionType.GZIP), 61, ">i", 0)),
        (ErrorCode.CORRUPT_MESSAGE, changed(produced(), 21, ">h", CompressionType.ZSTD)),
        (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, changed(produced(), 21, ">h", 6)),
    ],
)
def test_batches_that_are_no_batches(error, data):
    assert refused(data).error == error


def test_a_crc_that_is_wrong():
    data = bytearray(old(1))
    data[-1] ^= 1
    assert refused(data).error == ErrorCode.CORRUPT_MESSAGE


def test_max_message_bytes_holds_for_what_came_and_for_what_would_be_stored():
    packed, plain = (
        produced(CompressionType.GZIP, pairs=[(NOW, b"k", bytes(5000))]),
        produced(pairs=[(NOW, b"k", bytes(5000))]),
    )
    small = RecordRules(max_message_bytes=1000)
    assert refused(plain, small).error == ErrorCode.MESSAGE_TOO_LARGE
    accepted(packed, small)
    grows = RecordRules(codec=CompressionType.NONE, max_message_bytes=1000)
    assert refused(packed, grows).error == ErrorCode.MESSAGE_TOO_LARGE
    exact = RecordRules(max_message_bytes=len(plain))
    accepted(plain, exact)
    assert refused(plain, RecordRules(max_message_bytes=len(plain) - 1)).error == ErrorCode.MESSAGE_TOO_LARGE


def test_a_decompression_bomb():
    rules = RecordRules(max_decompressed_bytes=1 << 20)
    bomb = [(NOW, b"k", bytes(8 << 20))]
    for codec in CODECS[1:]:
        assert refused(produced(codec, bomb), rules).error == ErrorCode.MESSAGE_TOO_LARGE
    for codec in OLD_CODECS[1:]:
        assert refused(old(1, codec, bomb), rules).error == ErrorCode.MESSAGE_TOO_LARGE


def test_hostile_bytes_are_answered_never_raised():
    rng = random.Random(11)
    rules = RecordRules(True, CompressionType.ZSTD, max_decompressed_bytes=1 << 20)
    sources = [produced(c) for c in CODECS] + [old(m, c) for m in (0, 1) for c in OLD_CODECS]
    answers = set()
    for _ in range(3000):
        data = bytearray(rng.choice(sources))
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        if data[16] == 2 and len(data) > 61 and rng.random() < 0.7:
            record_batch.refresh_crc(data)
        if rng.random() < 0.2:
            del data[rng.randrange(len(data)) :]
        outcome = validate_records(data, rules, now_ms=NOW)
        answers.add(outcome.error)
        assert (outcome.records is None) == (outcome.error != ErrorCode.NONE)
        if outcome.records is not None:
            decode_records(next(iter_batches(outcome.records, check_crc=True)))
    assert answers >= {ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD}
    assert ErrorCode.UNKNOWN_SERVER_ERROR not in answers
