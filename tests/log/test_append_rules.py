"""What a produce of bad input is answered with, and that nothing of it reaches the file."""

from __future__ import annotations

import errno
import resource
import signal
from pathlib import Path
from typing import Any

import pytest

from kafkapy._speedups.base.event_queue import LOG_OFFLINE, EventQueue
from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy._speedups.records import record_batch
from kafkapy.errors import (
    CorruptMessageError,
    FencedLeaderEpochError,
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTimestampError,
    KafkaStorageError,
    MessageTooLargeError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    RecordListTooLargeError,
    UnknownLeaderEpochError,
    UnsupportedCompressionTypeError,
)
from kafkapy.log.backends.local import LocalLogStorage


def spoil(data: bytes, at: int, value: bytes, *, crc: bool = True) -> bytes:
    copy = bytearray(data)
    copy[at : at + len(value)] = value
    if crc:
        record_batch.refresh_crc(copy)
    return bytes(copy)


def test_bad_batches_have_their_codes_and_leave_no_byte(logs: Any, batch: Any) -> None:
    log = logs.open(max_message_bytes=500, segment_bytes=400)
    good = batch(3)
    cases = [
        (b"", InvalidRecordError),
        (good[:40], InvalidRecordError),
        (good[:-1], InvalidRecordError),
        (good + good, InvalidRecordError),
        (good + b"x", InvalidRecordError),
        (spoil(good, 8, b"\0\0\0\1", crc=False), CorruptMessageError),
        (spoil(good, 8, b"\xff\xff\xff\xff", crc=False), CorruptMessageError),
        (spoil(good, 16, b"\1", crc=False), InvalidRecordError),
        (spoil(good, 16, b"\7", crc=False), CorruptMessageError),
        (spoil(good, 30, b"\x55", crc=False), CorruptMessageError),
        (spoil(good, 0, b"\0\0\0\0\0\0\0\1"), InvalidRecordError),
        (spoil(good, 57, b"\0\0\0\2"), InvalidRecordError),
        (spoil(good, 57, b"\0\0\0\0"), InvalidRecordError),
        (spoil(good, 23, b"\xff\xff\xff\xff"), InvalidRecordError),
        (spoil(good, 21, b"\0\x20"), InvalidRecordError),
        (batch(producer_id=9, epoch=-5, sequence=0), InvalidProducerEpochError),
        (spoil(good, 21, b"\0\7"), CorruptMessageError),
        (batch(1, producer_id=1, epoch=0, sequence=-1), InvalidRecordError),
        (batch(1, records=b"\1\2\3"), InvalidRecordError),
        (batch(1, value=b"x" * 500), MessageTooLargeError),
        (batch(1, value=b"x" * 380), RecordListTooLargeError),
    ]
    for data, error in cases:
        with pytest.raises(error):
            log.append_as_leader(data, api_version=9, validated=False)
    with pytest.raises(UnsupportedCompressionTypeError):
        log.append_as_leader(spoil(good, 21, b"\0\4"), api_version=6, validated=False)
    assert log.log_end_offset == 0
    assert (logs.directory / f"{0:020d}.log").stat().st_size == 0
    # What a worker has compressed for a topic with compression.type=zstd is not what the client sent.
    log.append_as_leader(spoil(good, 21, b"\0\4"), api_version=6)
    assert log.counters()["failed_produce_requests"] == len(cases) + 1


def test_leadership_and_epochs_are_checked(logs: Any, batch: Any) -> None:
    log = logs.open(leader_epoch=5, min_insync_replicas=2)
    with pytest.raises(FencedLeaderEpochError):
        log.append_as_leader(batch(), leader_epoch=4)
    with pytest.raises(UnknownLeaderEpochError):
        log.append_as_leader(batch(), leader_epoch=6)
    with pytest.raises(NotEnoughReplicasError):
        log.append_as_leader(batch(), required_acks=-1)
    assert log.append_as_leader(batch(), required_acks=1)[0] == 0
    log.become_leader(1, 5, [1, 2])
    assert log.append_as_leader(batch(), required_acks=-1)[0] == 1
    log.become_follower(2, 6)
    with pytest.raises(NotLeaderOrFollowerError):
        log.append_as_leader(batch())


def test_offset_epoch_and_append_time_are_stamped(logs: Any, batch: Any) -> None:
    log = logs.open(leader_epoch=3, message_timestamp_type="LogAppendTime")
    log.append_as_leader(batch(2), api_version=9)
    assert log.append_as_leader(batch(2), api_version=9, now_ms=77_000) == (2, 3, 77_000)
    data = log.read(2)[0]
    header = record_batch.parse_header(data)[1]
    assert (header["base_offset"], header["leader_epoch"], header["max_timestamp"]) == (2, 3, 77_000)
    assert header["attributes"] & 8
    assert record_batch.check_crc(data)


@pytest.mark.parametrize("codec", [0, 1])
def test_a_batch_with_append_time_takes_the_timestamp_type_of_the_topic(logs: Any, batch: Any, codec: int) -> None:
    log = logs.open()
    assert log.append_as_leader(batch(2, attributes=8 | codec), api_version=9) == (0, 1, -1)
    data = log.read(0)[0]
    assert record_batch.parse_header(data)[1]["attributes"] == codec
    assert record_batch.check_crc(data)


def test_the_header_of_a_compressed_batch_tells_timestamps_out_of_bounds(logs: Any, batch: Any) -> None:
    bounds = {"message_timestamp_before_max_ms": 100, "message_timestamp_after_max_ms": 50}
    log = logs.open(**bounds, kafkapy_validate_compressed="header")
    cases = ((1000, True), (900, True), (899, False), (1050, True), (1051, False), (-1, True), (-5, False))
    for timestamp, fits in cases:
        data = batch(1, attributes=1, timestamp=timestamp)
        if fits:
            log.append_as_leader(data, api_version=9, validated=False, now_ms=1000)
        else:
            with pytest.raises(InvalidTimestampError):
                log.append_as_leader(data, api_version=9, validated=False, now_ms=1000)
    late_first = bytearray(batch(1, attributes=1, timestamp=1000))
    late_first[27:35] = (1).to_bytes(8, "big")
    record_batch.refresh_crc(late_first)
    with pytest.raises(InvalidTimestampError):
        log.append_as_leader(bytes(late_first), api_version=9, validated=False, now_ms=1000)


def test_a_follower_keeps_the_leaders_offsets_and_epochs(logs: Any, batch: Any) -> None:
    log = logs.open(leader_epoch=None)
    log.append_as_follower(batch(2, leader_epoch=4) + batch(1, base_offset=2, leader_epoch=4))
    log.append_as_follower(batch(1, base_offset=7, leader_epoch=6))
    assert (log.log_end_offset, log.high_watermark) == (8, 0)
    assert log.leader_epochs() == [(4, 0), (6, 7)]
    assert (logs.directory / "leader-epoch-checkpoint").read_text() == "0\n2\n4 0\n6 7\n"
    assert log.offset_for_leader_epoch(3) == (3, 0)
    assert log.offset_for_leader_epoch(4) == (4, 7)
    assert log.offset_for_leader_epoch(5) == (4, 7)
    assert log.offset_for_leader_epoch(6) == (6, 8)
    assert log.offset_for_leader_epoch(7) == (-1, -1)
    with pytest.raises(OffsetOutOfRangeError):
        log.append_as_follower(batch(1, base_offset=3, leader_epoch=6))
    assert log.set_high_watermark(100) == 8


def test_the_high_watermark_is_the_slowest_in_sync_replica(logs: Any, batch: Any) -> None:
    log = logs.open(isr=(1, 2, 3))
    log.append_as_leader(batch(4), api_version=9)
    assert log.high_watermark == 0
    log.follower_position(2, 4)
    log.follower_position(3, 2)
    log.follower_position(9, 0)
    assert log.high_watermark == 2
    log.become_leader(1, 0, [1, 2])
    assert log.high_watermark == 4


def test_a_full_disk_takes_the_log_offline_and_serves_no_half_batch(
    tmp_path: Path, batch: Any, read_all: Any, logs: Any
) -> None:
    events = EventQueue()
    storage = LocalLogStorage(tmp_path)
    log = PartitionLog("full", 0, storage, logs.open().config, events=events)
    log.become_leader(1, 0, [1])
    log.append_as_leader(batch(1, value=b"x" * 2000), api_version=9)
    size = log.size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 1000, hard))
    try:
        with pytest.raises(KafkaStorageError):
            log.append_as_leader(batch(1, value=b"y" * 2000), api_version=9)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert (tmp_path / f"{0:020d}.log").stat().st_size == size
    assert log.offline_errno in (errno.EFBIG, errno.ENOSPC)
    [offline] = [event for event in events.drain() if event[0] == LOG_OFFLINE]
    assert offline[1] == log.id and b"full-0" in offline[3]
    with pytest.raises(KafkaStorageError):
        log.append_as_leader(batch(), api_version=9)
    with pytest.raises(KafkaStorageError):
        log.read(0)


def test_the_index_files_are_kafkas(logs: Any, batch: Any) -> None:
    log = logs.open(index_interval_bytes=1)
    sizes = []
    for number in range(4):
        data = batch(3, timestamp=5000 + number)
        log.append_as_leader(data, api_version=9)
        sizes.append(len(data))
    logs.stop(log)
    index = (logs.directory / f"{0:020d}.index").read_bytes()
    times = (logs.directory / f"{0:020d}.timeindex").read_bytes()
    entries = [(3 * number + 2, sum(sizes[:number])) for number in range(1, 4)]
    assert index == b"".join(o.to_bytes(4, "big") + p.to_bytes(4, "big") for o, p in entries)
    assert times == b"".join((5000 + n).to_bytes(8, "big") + (3 * n + 2).to_bytes(4, "big") for n in range(1, 4))
    assert min(path.name for path in logs.directory.iterdir()) == f"{0:020d}.index"


def test_the_deprecated_key_bounds_timestamps_both_ways(logs: Any, batch: Any) -> None:
    log = logs.open(message_timestamp_difference_max_ms=100)
    log.append_as_leader(batch(1, timestamp=900), api_version=9, now_ms=1000)
    for timestamp in (899, 1101):
        with pytest.raises(InvalidTimestampError):
            log.append_as_leader(batch(1, timestamp=timestamp), api_version=9, validated=False, now_ms=1000)


def test_min_insync_replicas_asks_for_no_more_than_there_are(logs: Any, batch: Any) -> None:
    log = logs.open(min_insync_replicas=2)
    with pytest.raises(NotEnoughReplicasError):
        log.append_as_leader(batch(1), required_acks=-1, api_version=9)
    log.become_leader(1, 1, (1,), (1,))
    log.append_as_leader(batch(1), required_acks=-1, api_version=9)
    log.update_config(log.config)
    log.append_as_leader(batch(1), required_acks=-1, api_version=9)
    log.become_leader(1, 2, (1,), (1, 2, 3))
    with pytest.raises(NotEnoughReplicasError):
        log.append_as_leader(batch(1), required_acks=-1, api_version=9)
