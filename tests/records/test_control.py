"""Transaction markers: the bytes Kafka writes, and what is refused."""

import struct

import pytest

from kafkapy.errors import InvalidRecordError
from kafkapy.records.batches import Record, RecordBatchBuilder, decode_records, iter_batches
from kafkapy.records.control import (
    ControlRecordType,
    EndTransactionMarker,
    build_end_transaction_marker,
    read_control_batch,
)


@pytest.mark.parametrize("committed", [True, False])
def test_a_marker_round_trips_with_its_batch_fields(committed):
    data = build_end_transaction_marker(
        77, 3, committed=committed, coordinator_epoch=12, timestamp_ms=5000, base_offset=40, leader_epoch=6
    )
    (batch,) = iter_batches(data, check_crc=True)
    assert (batch.is_control, batch.is_transactional, batch.record_count, batch.codec) == (True, True, 1, 0)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (77, 3, -1)
    assert (batch.base_offset, batch.leader_epoch, batch.max_timestamp) == (40, 6, 5000)
    marker = read_control_batch(batch)
    assert marker == (ControlRecordType.COMMIT if committed else ControlRecordType.ABORT, 12)
    assert marker.committed == committed


def test_the_bytes_are_kafkas():
    data = build_end_transaction_marker(1, 0, committed=True, coordinator_epoch=7, timestamp_ms=1)
    (record,) = decode_records(next(iter_batches(data)))
    assert record.key == bytes.fromhex("00000001")
    assert record.value == bytes.fromhex("000000000007")
    assert len(data) == 78


def test_kafka_python_takes_it_for_a_marker():
    from kafka.record.default_records import DefaultRecordBatch

    for committed in (True, False):
        batch = DefaultRecordBatch(
            build_end_transaction_marker(1, 0, committed=committed, coordinator_epoch=7, timestamp_ms=1)
        )
        (record,) = batch
        assert batch.is_control_batch
        assert (record.commit, record.abort) == (committed, not committed)


def control_batch(key, value, control=True):
    builder = RecordBatchBuilder()
    builder.append(1, key, value)
    return next(iter_batches(builder.build(control=control)))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"\0" * 6),
        (b"\0\0\0", b"\0" * 6),
        (b"\xff\xff\0\1", b"\0" * 6),
        (b"\0\0\0\1", None),
        (b"\0\0\0\1", b"\0" * 5),
        (b"\0\0\0\0", b"\xff\xff\0\0\0\0"),
    ],
)
def test_malformed_markers_are_refused(key, value):
    with pytest.raises(InvalidRecordError):
        read_control_batch(control_batch(key, value))


def test_newer_versions_and_longer_values_are_read():
    key, value = struct.pack(">hhb", 5, 0, 9), struct.pack(">hib", 2, 8, 9)
    assert read_control_batch(control_batch(key, value)) == (ControlRecordType.ABORT, 8)


def test_other_control_records_and_emptied_batches_are_no_marker():
    for code in (2, 3, 99):
        assert read_control_batch(control_batch(struct.pack(">hh", 0, code), b"")) is None
    assert ControlRecordType.of_key(struct.pack(">hh", 0, 99)) is ControlRecordType.UNKNOWN
    with pytest.raises(InvalidRecordError):
        EndTransactionMarker.of(Record(0, 0, 0, struct.pack(">hh", 0, 2), b""))
    emptied = RecordBatchBuilder().build(control=True, last_offset=0)
    assert read_control_batch(next(iter_batches(emptied))) is None


def test_a_data_batch_is_no_control_batch():
    with pytest.raises(InvalidRecordError):
        read_control_batch(control_batch(b"\0\0\0\1", b"\0" * 6, control=False))
