"""Batches with codecs, and every codec against the record code of kafka-python and aiokafka, both ways."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy.errors import KafkaError, MessageTooLargeError
from kafkapy.records.batches import Record, RecordBatchBuilder, decode_records, iter_batches, iter_records
from kafkapy.records.control import build_end_transaction_marker
from kafkapy.types import CompressionType

CODECS = list(CompressionType)
RECORDS = [
    (1_600_000_000_000, b"key", b"value", []),
    (1_600_000_000_005, None, b"no key", [("one", b"1"), ("null", None), ("ünï", b"")]),
    (1_599_999_999_999, b"", None, []),
    (1_600_000_000_001, b"k" * 5000, b"v" * 50_000, [("h", b"x" * 3000)]),
] + [(1_600_000_000_010 + i, b"%d" % i, b"repeated value" * 5, []) for i in range(50)]


def ours(codec, records=RECORDS, **fields):
    builder = RecordBatchBuilder()
    for record in records:
        builder.append(*record)
    return builder.build(codec, **fields)


@pytest.mark.parametrize("codec", CODECS)
def test_round_trip(codec):
    data = ours(codec)
    (batch,) = iter_batches(data, check_crc=True)
    assert batch.codec == codec
    assert decode_records(batch) == [Record(i, t, 0, k, v, h) for i, (t, k, v, h) in enumerate(RECORDS)]
    assert (len(data) < len(ours(CompressionType.NONE)) // 2) == (codec is not CompressionType.NONE)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(CODECS), st.lists(st.tuples(st.none() | st.binary(), st.none() | st.binary()), min_size=1))
def test_round_trip_of_anything(codec, pairs):
    records = decode_records(next(iter_batches(ours(codec, [(1, key, value) for key, value in pairs]))))
    assert [(r.key, r.value) for r in records] == pairs


def has_codec(module, codec):
    name = codec.config_name
    return name == "none" or getattr(module, f"has_{name}")()


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_python_reads_ours(codec):
    from kafka import codec as codecs
    from kafka.record.default_records import DefaultRecordBatch

    if not has_codec(codecs, codec):
        pytest.skip(f"kafka-python has no {codec.config_name} here")
    batch = DefaultRecordBatch(ours(codec, producer_id=5, producer_epoch=1, base_sequence=9))
    assert batch.validate_crc()
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (5, 1, 9)
    assert [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in batch] == [
        (i, t, k, v, h) for i, (t, k, v, h) in enumerate(RECORDS)
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_we_read_kafka_pythons(codec):
    from kafka import codec as codecs
    from kafka.record.default_records import DefaultRecordBatchBuilder

    if not has_codec(codecs, codec):
        pytest.skip(f"kafka-python has no {codec.config_name} here")
    builder = DefaultRecordBatchBuilder(2, codec, True, 5, 1, 9, 1 << 20)
    for i, (t, k, v, h) in enumerate(RECORDS):
        assert builder.append(i, t, k, v, h)
    (batch,) = iter_batches(bytes(builder.build()), check_crc=True)
    assert (batch.codec, batch.is_transactional, batch.base_sequence) == (codec, True, 9)
    assert decode_records(batch) == [Record(i, t, 0, k, v, h) for i, (t, k, v, h) in enumerate(RECORDS)]


@pytest.mark.parametrize("codec", CODECS)
def test_aiokafka_reads_ours(codec):
    from aiokafka.record.default_records import DefaultRecordBatch

    batch = DefaultRecordBatch(bytearray(ours(codec)))
    assert batch.validate_crc()
    assert [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in batch] == [
        (i, t, k, v, h) for i, (t, k, v, h) in enumerate(RECORDS)
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_we_read_aiokafkas(codec):
    from aiokafka.record.default_records import DefaultRecordBatchBuilder

    builder = DefaultRecordBatchBuilder(2, int(codec), 0, -1, -1, -1, 1 << 20)
    for i, (t, k, v, h) in enumerate(RECORDS):
        assert builder.append(i, t, k, v, h)
    (batch,) = iter_batches(bytes(builder.build()), check_crc=True)
    assert batch.codec == codec
    assert decode_records(batch) == [Record(i, t, 0, k, v, h) for i, (t, k, v, h) in enumerate(RECORDS)]


def test_uncompressed_batches_are_byte_for_byte_those_of_kafka_python():
    from kafka.record.default_records import DefaultRecordBatchBuilder

    builder = DefaultRecordBatchBuilder(2, 0, False, 5, 1, 9, 1 << 20)
    for i, (t, k, v, h) in enumerate(RECORDS):
        builder.append(i, t, k, v, h)
    theirs = bytes(builder.build())
    mine = ours(0, producer_id=5, producer_epoch=1, base_sequence=9)
    # they write 0 where the leader epoch stands, which a producer does not know; we write -1
    assert (mine[:12], mine[16:]) == (theirs[:12], theirs[16:])


def test_a_batch_that_opens_to_too_much_is_refused():
    for codec in CODECS[1:]:
        (batch,) = iter_batches(ours(codec, [(1, None, bytes(1 << 20))]))
        with pytest.raises(MessageTooLargeError):
            decode_records(batch, max_bytes=1 << 16)


def test_a_codec_number_that_does_not_exist_is_an_error_not_a_crash():
    data = bytearray(ours(CompressionType.NONE))
    data[22] |= 6
    with pytest.raises(KafkaError):
        decode_records(next(iter_batches(data)))


def test_records_of_a_buffer_leave_control_records_out_unless_asked():
    marker = build_end_transaction_marker(1, 0, committed=True, coordinator_epoch=0, timestamp_ms=5)
    data = ours(1, RECORDS[:2]) + marker + ours(4, RECORDS[:1]) + marker[:30]
    assert [r.value for r in iter_records(data, check_crc=True)] == [b"value", b"no key", b"value"]
    assert len(list(iter_records(data, control=True))) == 4
