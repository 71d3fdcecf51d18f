"""Small files that are replaced at once, and Kafka's offset checkpoints.

An offset checkpoint (recovery-point-offset-checkpoint, replication-offset-checkpoint, log-start-offset-checkpoint) is
text:

    0                       version
    2                       number of entries
    orders 0 1234           topic, partition, offset
    orders 1 99
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from kafkapy.log.shortage import insist
from kafkapy.types import TopicPartition

__all__ = [
    "HIGH_WATERMARK_FILE",
    "LOG_START_OFFSET_FILE",
    "RECOVERY_POINT_FILE",
    "CheckpointError",
    "read_checkpoint",
    "sync_directory",
    "sync_file",
    "write_atomically",
    "write_checkpoint",
]

RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"
HIGH_WATERMARK_FILE = "replication-offset-checkpoint"
LOG_START_OFFSET_FILE = "log-start-offset-checkpoint"
VERSION = 0
READ_SIZE = 1 << 16


class CheckpointError(OSError):
    """A checkpoint file does not hold what it should. `filename` is its path."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(5, reason, str(path))


def sync_directory(directory: Path) -> None:
    """fsync of a directory, for names created or changed in it.

    They survive a power failure then.
    """
    insist(_sync_directory, directory)


def _sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_file(path: Path) -> None:
    """fsync of a file; nothing happens when it is not there. OSError."""
    insist(_sync_file, path)


def _sync_file(path: Path) -> None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_atomically(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Replaces a file by way of `<name>.tmp`. OSError.

    With `sync` the content and the name are on disk when this returns.
    """
    insist(_write_atomically, path, data, sync)


def _write_atomically(path: Path, data: bytes, sync: bool) -> None:
    temporary = path.with_name(path.name + ".tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)
    temporary.replace(path)
    if sync:
        sync_directory(path.parent)


def write_checkpoint(path: Path, offsets: Mapping[TopicPartition, int], *, sync: bool = True) -> None:
    """Replaces an offset checkpoint. OSError."""
    lines = [str(VERSION), str(len(offsets))]
    lines += [f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())]
    write_atomically(path, ("\n".join(lines) + "\n").encode(), sync=sync)


def _read(path: Path) -> bytes:
    # Not a file object, which takes EAGAIN for an empty answer.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        pieces = []
        while piece := os.read(fd, READ_SIZE):
            pieces.append(piece)
        return b"".join(pieces)
    finally:
        os.close(fd)


def read_checkpoint(path: Path) -> dict[TopicPartition, int]:
    """The offsets of a checkpoint; empty when there is none.

    CheckpointError when it is malformed.
    """
    try:
        lines = _read(path).decode().splitlines()
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError:
        raise CheckpointError(path, "is not text") from None
    if not lines:
        return {}
    try:
        version, count = int(lines[0]), int(lines[1])
        if version != VERSION:
            raise CheckpointError(path, f"has version {version}, known is {VERSION}")
        found: dict[TopicPartition, int] = {}
        for line in lines[2:]:
            if line:
                topic, partition, offset = line.split(" ")
                found[TopicPartition(topic, int(partition))] = int(offset)
    except (ValueError, IndexError):
        raise CheckpointError(path, "is malformed") from None
    if len(found) != count:
        raise CheckpointError(path, f"should hold {count} entries and holds {len(found)}")
    return found
