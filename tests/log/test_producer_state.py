"""Idempotent and transactional producers, as a client sees them (Kafka 3.9's ProducerStateManager)."""

from __future__ import annotations

import struct
import time
from typing import Any

import pytest
from log.conftest import make_control

from kafkapy._speedups.base.crc32c import crc32c
from kafkapy._speedups.log.producer_state import read_snapshot
from kafkapy.errors import (
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTxnStateError,
    OutOfOrderSequenceNumberError,
    TransactionCoordinatorFencedError,
)

LAST = 2**31 - 1
NOW = time.time_ns() // 1_000_000


@pytest.fixture
def send(logs: Any, batch: Any) -> Any:
    log = logs.open()

    def produce(sequence: int, count: int = 1, *, producer_id: int = 1, epoch: int = 0, **more: Any) -> tuple[int, int]:
        data = batch(count, producer_id=producer_id, epoch=epoch, sequence=sequence, timestamp=NOW, **more)
        return log.append_as_leader(data, api_version=9)[:2]

    produce.log = log  # type: ignore[attr-defined]
    return produce


def test_duplicates_of_the_last_five_batches_get_their_offsets(send: Any) -> None:
    sent = [send(2 * number, 2) for number in range(7)]
    for number in range(2, 7):
        assert send(2 * number, 2) == sent[number]
    for number in range(2):
        with pytest.raises(OutOfOrderSequenceNumberError):
            send(2 * number, 2)
    with pytest.raises(OutOfOrderSequenceNumberError):
        send(12, 1)  # the same first sequence number, another length
    assert send.log.log_end_offset == 14


def test_sequences_wrap(send: Any) -> None:
    assert send(LAST - 1, 2) == (0, 1)  # an unknown producer begins anywhere
    assert send(0) == (2, 2)
    assert send(1, 3) == (3, 5)
    assert send(LAST - 1, 2) == (0, 1)


def test_a_batch_may_wrap_inside(send: Any) -> None:
    assert send(LAST - 1, 4) == (0, 3)
    assert send(LAST - 1, 4) == (0, 3)
    assert send(2) == (4, 4)


def test_a_new_epoch_begins_at_zero_and_fences_the_old_one(send: Any) -> None:
    send(0)
    with pytest.raises(OutOfOrderSequenceNumberError):
        send(1, epoch=1)
    assert send(0, epoch=1) == (1, 1)
    with pytest.raises(InvalidProducerEpochError):
        send(1)
    with pytest.raises(InvalidProducerEpochError):
        send(0)


def test_only_transactional_records_while_a_transaction_is_open(send: Any, marker: Any) -> None:
    send(0, attributes=0x10)
    with pytest.raises(InvalidTxnStateError):
        send(1)
    send.log.append_as_leader(marker(1, 0, commit=True, coordinator_epoch=3))
    assert send(1) == (2, 2)
    with pytest.raises(TransactionCoordinatorFencedError):
        send.log.append_as_leader(marker(1, 0, commit=True, coordinator_epoch=2))
    with pytest.raises(InvalidProducerEpochError):
        send.log.append_as_leader(marker(1, -1, commit=True, coordinator_epoch=3))


@pytest.mark.parametrize("kind", [-1, 2, 3, 4, 5, 6, 32767])
def test_control_records_of_other_kinds_stay_and_end_no_transaction(logs: Any, batch: Any, kind: int) -> None:
    """A newer Kafka may write them (ControlRecordType)."""
    log = logs.open()
    log.append_as_leader(batch(2, producer_id=1, epoch=0, sequence=0, attributes=0x10, timestamp=NOW), api_version=9)
    key = struct.pack(">hh", 0, kind)
    log.append_as_leader(make_control(key, b"", attributes=0x20))
    log.append_as_leader(make_control(key, b"new", attributes=0x30, producer_id=1, epoch=0))
    log.become_follower(2, 1)
    log.append_as_follower(make_control(key, b"\xff" * 6, attributes=0x20, base_offset=4, leader_epoch=1))
    for clean in (True, False):
        assert log.log_end_offset == 5
        assert len(log.read(0, isolation=2)[0]) == log.size
        assert [each["current_transaction_first_offset"] for each in log.producers()] == [0]
        logs.stop(log)
        log = logs.open(leader_epoch=2, clean=clean)
    assert (logs.report.cut_bytes, log.last_stable_offset) == (0, 0)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"\0\0\0", bytes(6)),
        (b"", bytes(6)),
        (b"\xff\xff\0\1", bytes(6)),
        (b"\0\0\0\1", bytes(5)),
        (b"\0\0\0\0", b""),
        (b"\0\0\0\1", b"\xff\xff\0\0\0\0"),
    ],
    ids=["key too short", "no key", "version of the key", "value too short", "no value", "version of the value"],
)
def test_a_malformed_marker_is_refused_and_ends_a_recovery(logs: Any, batch: Any, key: bytes, value: bytes) -> None:
    log = logs.open()
    log.append_as_leader(batch(2, producer_id=1, epoch=0, sequence=0, attributes=0x10, timestamp=NOW), api_version=9)
    bad = make_control(key, value, attributes=0x30, producer_id=1, epoch=0)
    with pytest.raises(InvalidRecordError):
        log.append_as_leader(bad)
    log.become_follower(2, 1)
    bad = make_control(key, value, attributes=0x30, producer_id=1, epoch=0, base_offset=2, leader_epoch=1)
    with pytest.raises(InvalidRecordError):
        log.append_as_follower(bad)
    assert (log.log_end_offset, log.last_stable_offset) == (2, 0)
    logs.stop(log)
    path = logs.directory / f"{0:020d}.log"
    path.write_bytes(path.read_bytes() + bad)
    log = logs.open(leader_epoch=2, clean=False)
    assert (logs.report.cut_bytes, log.log_end_offset, log.last_stable_offset) == (len(bad), 2, 0)


def test_a_compressed_marker_is_refused(send: Any) -> None:
    send(0, attributes=0x10)
    plain, compressed = (
        make_control(b"\0\0\0\1", bytes(6), attributes=0x30 | codec, producer_id=1, epoch=0) for codec in (0, 1)
    )
    with pytest.raises(InvalidRecordError):
        send.log.append_as_leader(compressed)
    assert send.log.last_stable_offset == 0
    send.log.append_as_leader(plain)
    assert send.log.last_stable_offset == 2


def test_the_last_stable_offset_waits_for_the_marker_to_be_replicated(logs: Any, batch: Any, marker: Any) -> None:
    log = logs.open(isr=(1, 2))
    log.append_as_leader(batch(2, producer_id=1, epoch=0, sequence=0, attributes=0x10), api_version=9)
    log.append_as_leader(batch(1), api_version=9)
    log.follower_position(2, 3)
    assert (log.high_watermark, log.last_stable_offset) == (3, 0)
    log.append_as_leader(marker(1, 0, commit=True))
    assert log.last_stable_offset == 0
    log.follower_position(2, 4)
    assert (log.high_watermark, log.last_stable_offset) == (4, 4)


def test_the_snapshot_file_is_kafkas(send: Any, logs: Any, marker: Any) -> None:
    send(0, 3, producer_id=7, epoch=2, attributes=0x10)
    assert send.log.take_producer_snapshot() == 3
    assert send.log.take_producer_snapshot() is None
    data = (logs.directory / f"{3:020d}.snapshot").read_bytes()
    body = struct.pack(">i", 1) + struct.pack(">qhiqiqiq", 7, 2, 2, 2, 2, NOW, -1, 0)
    assert data == struct.pack(">hI", 1, crc32c(body)) + body
    assert read_snapshot(data) == [
        {
            "producer_id": 7,
            "epoch": 2,
            "last_sequence": 2,
            "last_offset": 2,
            "offset_delta": 2,
            "last_timestamp": NOW,
            "coordinator_epoch": -1,
            "current_transaction_first_offset": 0,
        }
    ]


def test_a_snapshot_is_taken_at_each_roll(send: Any, logs: Any) -> None:
    send(0)
    send.log.roll()
    send(1)
    send.log.seal_segments()
    [found] = read_snapshot((logs.directory / f"{1:020d}.snapshot").read_bytes()) or []
    assert found["last_sequence"] == 0


def test_idle_producers_expire_but_not_open_transactions(send: Any) -> None:
    send(0)
    send(0, producer_id=2, attributes=0x10)
    assert send.log.expire_producers(NOW + 86_399_999) == 0
    assert send.log.expire_producers(NOW + 86_400_000) == 1
    assert [producer["producer_id"] for producer in send.log.producers()] == [2]
    assert send(100) == (2, 2)
