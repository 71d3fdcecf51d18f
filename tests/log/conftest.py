"""Logs in temporary directories, batches to put into them, and the list-of-batches a log is compared with."""

from __future__ import annotations

import os
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy._speedups.records import record_batch
from kafkapy.config.broker import BrokerConfig
from kafkapy.config.topic import LogConfig
from kafkapy.log.backends.local import LocalBackend
from kafkapy.log.loader import LoadReport, load_log
from kafkapy.log.log_manager import LogManager
from kafkapy.types import TopicPartition

TP = TopicPartition("orders", 0)
MEMORY = Path("/dev/shm")
HEADER = struct.Struct(">qiibIhiqqqhii")


def _varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def make_batch(
    count: int = 1,
    *,
    timestamp: int = 1000,
    value: bytes = b"value",
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    attributes: int = 0,
    base_offset: int = 0,
    leader_epoch: int = -1,
    records: bytes | None = None,
) -> bytes:
    """A v2 batch, written out by hand: the reference for what the kernels read."""
    body = b""
    for number in range(count):
        record = b"\0" + _varint(0) + _varint(number) + _varint(1) + b"k" + _varint(len(value)) + value + _varint(0)
        body += _varint(len(record)) + record
    body = body if records is None else records
    header = HEADER.pack(
        base_offset, 49 + len(body), leader_epoch, 2, 0, attributes, count - 1, timestamp, timestamp,
        producer_id, epoch, sequence, count,
    )  # fmt: skip
    data = bytearray(header + body)
    record_batch.refresh_crc(data)
    return bytes(data)


def make_marker(
    producer_id: int, epoch: int, *, commit: bool, coordinator_epoch: int = 0, timestamp: int = 1000
) -> bytes:
    """A control batch that ends a transaction."""
    key, value = struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, coordinator_epoch)
    return make_control(key, value, producer_id=producer_id, epoch=epoch, attributes=0x30, timestamp=timestamp)


def make_control(key: bytes, value: bytes, **how: Any) -> bytes:
    """A batch of one control record."""
    record = b"\0" + _varint(0) + _varint(0) + _varint(len(key)) + key + _varint(len(value)) + value + _varint(0)
    return make_batch(records=_varint(len(record)) + record, **how)


def config(**overrides: Any) -> LogConfig:
    return LogConfig.create(overrides={key.replace("_", "."): str(value) for key, value in overrides.items()})


class Logs:
    """Opens the log of one directory again and again."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.directory = root / str(TP)

    def open(self, *, leader_epoch: int | None = 0, isr: tuple[int, ...] = (1,), clean: bool = True,
             recovery_point: int = 0, log_start_offset: int = 0, **overrides: Any) -> PartitionLog:  # fmt: skip
        self.log, self.report = load_log(
            LocalBackend().open_log(self.root, str(TP), create=True),
            TP,
            config(**overrides),
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
        )
        if leader_epoch is not None:
            self.log.become_leader(1, leader_epoch, isr)
        return self.log

    def stop(self, log: PartitionLog) -> None:
        """A clean stop."""
        log.close()
        log.flush()
        log.take_producer_snapshot()

    report: LoadReport


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    return Logs(tmp_path)


@pytest.fixture
def log_manager(tmp_path: Path) -> Iterator[Callable[..., LogManager]]:
    """Makes managers of one directory that have loaded: log_manager(scheduler, log_cleaner_threads="2")."""
    made = []

    def make(scheduler: Any, **keys: str) -> LogManager:
        names = {"log.dirs": str(tmp_path / "logs"), "broker.id": "1"}
        names |= {name.replace("_", "."): value for name, value in keys.items()}
        manager = LogManager(BrokerConfig(names), scheduler=scheduler)
        made.append(manager)
        manager.acquire()
        manager.load()
        return manager

    yield make
    for manager in made:
        manager.shutdown()


@pytest.fixture
def fast_directory() -> Iterator[Path]:
    """In memory, where there is such a place: thousands of small directories are written."""
    path = Path(tempfile.mkdtemp(prefix="kafkapy-faults-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def batch() -> Callable[..., bytes]:
    return make_batch


@pytest.fixture
def marker() -> Callable[..., bytes]:
    return make_marker


@pytest.fixture
def open_logs() -> Callable[[Path], Logs]:
    return Logs


@pytest.fixture
def read_all() -> Callable[..., list[tuple[int, int, bytes]]]:
    """(base offset, last offset, bytes behind the leader epoch) of every batch from an offset on."""

    def read(log: PartitionLog, offset: int | None = None, *, isolation: int = 2, max_bytes: int = 700) -> list[Any]:
        offset = log.log_start_offset if offset is None else offset
        found: list[tuple[int, int, bytes]] = []
        while True:
            data = log.read(offset, max_bytes, isolation=isolation)[0]
            if not data:
                return found
            while len(data) >= 61:
                base, length = struct.unpack_from(">qi", data)
                if length + 12 > len(data):
                    break
                last = base + struct.unpack_from(">i", data, 23)[0]
                assert record_batch.check_crc(data[: length + 12])
                found.append((base, last, data[16 : length + 12]))
                data = data[length + 12 :]
                offset = last + 1

    return read
