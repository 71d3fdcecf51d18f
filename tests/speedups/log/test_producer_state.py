"""Producer snapshots: Kafka's format, and every cut or flipped bit is noticed; sequence numbers at their end and over
epochs.
"""

from __future__ import annotations

import random
import struct
import time
from pathlib import Path
from typing import Any

import crc32c
import pytest

from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy._speedups.log.producer_state import read_snapshot
from kafkapy.config.topic import LogConfig
from kafkapy.errors import InvalidProducerEpochError, OutOfOrderSequenceNumberError
from kafkapy.log.backends.local import LocalBackend
from kafkapy.log.loader import load_log
from kafkapy.records.batches import RecordBatchBuilder
from kafkapy.types import CompressionType, TopicPartition

NOW = time.time_ns() // 1_000_000
LARGEST = 2**31 - 1


def batch(sequence: int, *, epoch: int = 0, count: int = 1, timestamp: int = NOW) -> bytes:
    builder = RecordBatchBuilder()
    for _ in range(count):
        builder.append(timestamp, b"k", b"v")
    return builder.build(CompressionType.NONE, producer_id=7, producer_epoch=epoch, base_sequence=sequence)


@pytest.fixture
def make(tmp_path: Path) -> Any:
    def open_log(*, clean: bool = True, **overrides: str) -> PartitionLog:
        storage = LocalBackend().open_log(tmp_path, "t-0", create=True)
        config = LogConfig.create(overrides={key.replace("_", "."): value for key, value in overrides.items()})
        log, _ = load_log(storage, TopicPartition("t", 0), config, clean=clean)
        log.become_leader(1, 0, [1])
        return log

    return open_log


def append(log: PartitionLog, data: bytes) -> int:
    return int(log.append_as_leader(data, api_version=9)[0])


def test_a_snapshot_is_kafkas(make: Any, tmp_path: Path) -> None:
    log = make()
    append(log, batch(0, count=3))
    log.take_producer_snapshot()
    data = (tmp_path / "t-0" / f"{3:020d}.snapshot").read_bytes()
    version, crc, count = struct.unpack_from(">hIi", data)
    assert (version, count) == (1, 1)
    assert crc == crc32c.crc32c(data[6:])
    assert struct.unpack_from(">qhiqiqiq", data, 10) == (7, 0, 2, 2, 2, NOW, -1, -1)
    assert read_snapshot(data) is not None
    for cut in range(len(data)):
        assert read_snapshot(data[:cut]) is None
    for at in random.Random(1).sample(range(len(data) * 8), 200):
        spoiled = bytearray(data)
        spoiled[at // 8] ^= 1 << at % 8
        assert read_snapshot(bytes(spoiled)) is None


@pytest.mark.parametrize("clean", [True, False])
def test_a_duplicate_is_known_after_a_restart(make: Any, clean: bool) -> None:
    log = make()
    append(log, batch(0, count=2))
    append(log, batch(2, count=2))
    if clean:
        log.close()
        log.flush()
        log.take_producer_snapshot()
    log = make(clean=clean)
    assert append(log, batch(2, count=2)) == 2
    assert log.log_end_offset == 4
    with pytest.raises(OutOfOrderSequenceNumberError):
        append(log, batch(5))
    assert append(log, batch(4)) == 4


def test_snapshot_and_replay_agree(make: Any, tmp_path: Path) -> None:
    log = make()
    for number in range(10):
        append(log, batch(number))
    log.close()
    log.flush()
    log.take_producer_snapshot()
    with_snapshot = make().producers()
    (tmp_path / "t-0" / f"{10:020d}.snapshot").unlink()
    assert make().producers() == with_snapshot


def test_sequence_numbers_begin_again_at_zero(make: Any) -> None:
    log = make()
    append(log, batch(LARGEST - 1, count=1))  # an unknown producer may begin anywhere
    assert append(log, batch(LARGEST, count=3)) == 1  # its last one is 1
    assert append(log, batch(LARGEST, count=3)) == 1
    assert append(log, batch(2)) == 4


def test_a_new_epoch_begins_at_zero_and_shuts_the_old_one_out(make: Any) -> None:
    log = make()
    append(log, batch(0))
    with pytest.raises(OutOfOrderSequenceNumberError):
        append(log, batch(1, epoch=1))
    append(log, batch(0, epoch=1))
    with pytest.raises(InvalidProducerEpochError):
        append(log, batch(1, epoch=0))


def test_an_idle_producer_is_forgotten_and_may_go_on(make: Any) -> None:
    log = make()
    append(log, batch(0))
    assert log.expire_producers(NOW + 86_400_000 - 1) == 0
    assert log.expire_producers(NOW + 86_400_000) == 1
    assert append(log, batch(17)) == 1


@pytest.mark.parametrize("clean", [True, False])
def test_a_duplicate_has_the_append_time_of_its_first_copy_over_restarts(make: Any, clean: bool) -> None:
    log = make(message_timestamp_type="LogAppendTime")
    first = log.append_as_leader(batch(0, count=2), api_version=9, now_ms=NOW + 5)
    assert first == (0, 1, NOW + 5)
    assert log.append_as_leader(batch(0, count=2), api_version=9, now_ms=NOW + 90) == first
    before = log.producers()
    assert [each["last_timestamp"] for each in before] == [NOW + 5]
    if clean:
        log.close()
        log.flush()
        log.take_producer_snapshot()
    log = make(clean=clean, message_timestamp_type="LogAppendTime")
    assert log.producers() == before
    assert log.append_as_leader(batch(0, count=2), api_version=9, now_ms=NOW + 90) == first


def test_a_producer_expires_at_the_same_moment_with_and_without_a_restart(make: Any) -> None:
    log = make()
    append(log, batch(0))
    log.close()
    log.flush()
    log.take_producer_snapshot()
    log = make()
    assert log.expire_producers(NOW + 86_400_000 - 1) == 0
    assert log.expire_producers(NOW + 86_400_000) == 1


def test_five_batches_are_remembered_and_no_sixth(make: Any) -> None:
    log = make()
    for number in range(6):
        append(log, batch(number))
    with pytest.raises(OutOfOrderSequenceNumberError):
        append(log, batch(0))
    assert [append(log, batch(number)) for number in range(1, 6)] == [1, 2, 3, 4, 5]
    assert log.log_end_offset == 6
