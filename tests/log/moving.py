"""A LogManager with three directories, of which partition t-0 moves from one to another."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy._speedups.records import record_batch
from kafkapy.config.broker import BrokerConfig
from kafkapy.config.topic import LogConfig
from kafkapy.log.future_logs import Progress
from kafkapy.log.log_manager import LogManager
from kafkapy.records.batches import iter_records
from kafkapy.types import TopicPartition

TP = TopicPartition("t", 0)
TOPIC_ID = uuid.UUID(int=77)
SMALL = {"segment.bytes": "600", "index.interval.bytes": "100", "segment.index.bytes": "400"}


def log_config(**overrides: str) -> LogConfig:
    return LogConfig.create(overrides=SMALL | {key.replace("_", "."): value for key, value in overrides.items()})


def open_manager(root: Path, **how: Any) -> LogManager:
    dirs = ",".join(str(root / name) for name in ("one", "two", "three"))
    keys = {"broker.id": "1", "log.dirs": dirs, "log.segment.delete.delay.ms": "0", "log.segment.bytes": "600"}
    keys |= {"producer.id.expiration.ms": str((1 << 31) - 1)}
    manager = LogManager(BrokerConfig(keys), topic_config=lambda topic: log_config(), **how)
    manager.acquire()
    manager.load()
    return manager


def managers(tmp_path: Path) -> Iterator[Callable[..., LogManager]]:
    """What makes a LogManager after the other, in one place; each is stopped before the next."""

    made: list[LogManager] = []

    def make(**how: Any) -> LogManager:
        if made:
            made[-1].shutdown()
        made.append(open_manager(tmp_path, **how))
        return made[-1]

    yield make
    for manager in made:
        manager.shutdown()


def lead(manager: LogManager, epoch: int = 0, **overrides: str) -> PartitionLog:
    log = manager.get_or_create(TP, TOPIC_ID, log_config(**overrides))
    log.become_leader(1, epoch, [1])
    return log


def elsewhere(manager: LogManager) -> Path:
    return next(log_dir.path for log_dir in manager.dirs if log_dir.path != manager.dir_of(TP))


def move(manager: LogManager, *, step: int = 1 << 20, steps: int = 10_000) -> Progress:
    """Goes on until the move is at its end, or for so many steps."""
    progress = Progress.COPYING
    while progress is Progress.COPYING and steps:
        progress = manager.futures.advance(TP, step)
        steps -= 1
    return progress


def everything(log: PartitionLog) -> list[tuple[int, bytes]]:
    """(offset, batch without offset and epoch) of each batch, every one with a right CRC."""
    found, offset = [], log.log_start_offset
    while data := log.read(offset, 1 << 20)[0]:
        while data:
            base, length = struct.unpack_from(">qi", data)
            batch, data = data[: length + 12], data[length + 12 :]
            assert record_batch.check_crc(batch)
            found.append((base, batch[16:]))
            offset = base + struct.unpack_from(">i", batch, 23)[0] + 1
    return found


def state(log: PartitionLog) -> tuple[Any, ...]:
    producers = sorted(log.producers(), key=lambda each: each["producer_id"])
    return everything(log), log.offsets()[:4], producers, log.leader_epochs(), log.aborted_transactions()


def marker_at(marker: bytes, timestamp: int) -> bytes:
    data = bytearray(marker)
    struct.pack_into(">qq", data, 27, timestamp, timestamp)
    record_batch.refresh_crc(data)
    return bytes(data)


def directories(manager: LogManager) -> list[str]:
    return sorted(f"{each.path.name}/{path.name}" for each in manager.dirs for path in each.path.glob("t-0*"))


def records(log: PartitionLog) -> list[Any]:
    found, offset = [], log.log_start_offset
    while data := log.read(offset, 1 << 20)[0]:
        for record in iter_records(data):
            if record.offset >= offset:
                found.append(record)
        offset = found[-1].offset + 1
    return found
