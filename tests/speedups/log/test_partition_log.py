"""A partition log at its edges: leader epoch file, torn tails, offsets that are refused."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy.config.topic import LogConfig
from kafkapy.errors import KafkaStorageError, NotLeaderOrFollowerError, OffsetOutOfRangeError
from kafkapy.log.backends.local import LocalBackend
from kafkapy.log.loader import load_log
from kafkapy.records.batches import RecordBatchBuilder
from kafkapy.types import CompressionType, TopicPartition

NOW = time.time_ns() // 1_000_000


def batch(count: int = 2) -> bytes:
    builder = RecordBatchBuilder()
    for _ in range(count):
        builder.append(NOW, b"k", b"v" * 10)
    return builder.build(CompressionType.NONE)


@pytest.fixture
def make(tmp_path: Path) -> Any:
    def open_log(*, clean: bool = True) -> PartitionLog:
        storage = LocalBackend().open_log(tmp_path, "t-0", create=True)
        return load_log(storage, TopicPartition("t", 0), LogConfig.create(), clean=clean)[0]

    return open_log


@pytest.fixture
def directory(make: Any, tmp_path: Path) -> Path:
    log = make()
    for epoch in range(3):
        log.become_leader(1, epoch, [1])
        log.append_as_leader(batch(), api_version=9)
    log.close()
    log.flush()
    log.take_producer_snapshot()
    return tmp_path / "t-0"


def test_an_epoch_file_cut_or_spoiled_anywhere_ends_in_epochs_of_the_log(make: Any, directory: Path) -> None:
    path = directory / "leader-epoch-checkpoint"
    data = path.read_bytes()
    assert data == b"0\n3\n0 0\n1 2\n2 4\n"
    variants = [data[:cut] for cut in range(len(data) - 1)]
    for at in random.Random(5).sample(range(len(data) * 8), 60):
        spoiled = bytearray(data)
        spoiled[at // 8] ^= 1 << at % 8
        variants.append(bytes(spoiled))
    for content in variants:
        path.write_bytes(content)
        log = make()
        assert log.log_end_offset == 6
        epochs = log.leader_epochs()
        assert epochs == sorted(epochs)
        assert all(start < 6 for _, start in epochs)
        log.close()


@pytest.mark.parametrize("clean", [True, False])
def test_a_last_batch_torn_at_every_byte_is_not_there(make: Any, directory: Path, clean: bool) -> None:
    path = directory / f"{0:020d}.log"
    data = path.read_bytes()
    size = len(data) // 3
    for cut in range(2 * size, 3 * size):
        path.write_bytes(data[:cut])
        log = make(clean=clean)
        assert log.log_end_offset == 4
        assert log.read(0)[0] == data[: 2 * size]
        assert path.stat().st_size == 2 * size
        log.close()


def test_what_is_not_there_is_refused(make: Any, directory: Path) -> None:
    log = make()
    log.become_leader(1, 3, [1])
    assert log.read(6)[0] == b""
    for offset in (-1, 7):
        with pytest.raises(OffsetOutOfRangeError):
            log.read(offset)
    with pytest.raises(OffsetOutOfRangeError):
        log.delete_records(7)
    log.become_follower(2, 4)
    with pytest.raises(NotLeaderOrFollowerError):
        log.append_as_leader(batch(), api_version=9)
    log.go_offline(5)
    with pytest.raises(KafkaStorageError):
        log.read(0)


def test_nothing_is_taken_after_close(make: Any, directory: Path) -> None:
    log = make()
    log.become_leader(1, 3, [1])
    log.close()
    with pytest.raises(NotLeaderOrFollowerError):
        log.append_as_leader(batch(), api_version=9)
