"""One log directory of the broker: its lock, its clean-shutdown marker, its checkpoints.

.lock                               flock()ed while a broker runs on the directory
.kafka_cleanshutdown                {"version":0,"brokerEpoch":5}: the last stop was clean
recovery-point-offset-checkpoint    what is synced
log-start-offset-checkpoint         log starts that DeleteRecords or retention moved above the first segment
replication-offset-checkpoint       high watermarks
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import threading
from collections.abc import Mapping
from pathlib import Path

from kafkapy.errors import KafkaError
from kafkapy.log.checkpoints import (
    HIGH_WATERMARK_FILE,
    LOG_START_OFFSET_FILE,
    RECOVERY_POINT_FILE,
    CheckpointError,
    read_checkpoint,
    sync_directory,
    write_atomically,
    write_checkpoint,
)
from kafkapy.log.shortage import insist
from kafkapy.types import TopicPartition

__all__ = ["UNKNOWN_BYTES", "LogDir", "LogDirError", "MemoryLogDir"]

logger = logging.getLogger("kafka.log.LogManager")

LOCK_FILE = ".lock"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
UNKNOWN_BYTES = -1


class LogDirError(KafkaError):
    """A log directory cannot be used; the message is one sentence for the operator."""


class LogDir:
    """A log directory that this process has locked.

    Owned by LogManager, which calls it on worker threads; each file has one writer at a time.
    """

    persistent = True
    """Whether it is a directory, and not only the name of one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.failure: OSError | None = None
        """Why the directory is offline, or None."""
        self._lock_fd = -1
        self._files = threading.Lock()
        self._written: dict[str, Mapping[TopicPartition, int]] = {}

    def __repr__(self) -> str:
        return f"<LogDir {self.path}{' offline' if self.failure else ''}>"

    def acquire(self) -> None:
        """Makes the directory if needed and locks it.

        LogDirError when another process has it, OSError when it cannot be used.
        """
        try:
            insist(self.path.mkdir, parents=True, exist_ok=True)
        except FileExistsError:
            raise LogDirError(f"The log directory {self.path} is not a directory.") from None
        fd = insist(os.open, self.path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The kind of lock that Apache Kafka takes on the same file.
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise LogDirError(
                    f"Another broker is running on the log directory {self.path}: its file {LOCK_FILE} is locked."
                ) from None
            raise
        self._lock_fd = fd

    def release(self) -> None:
        """Gives the lock back."""
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def volume(self) -> tuple[int, int]:
        """The volume's size and its free space for the broker, in bytes. OSError."""
        found = os.statvfs(self.path)
        return found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail

    def take_clean_shutdown_marker(self) -> bool:
        """Whether the last stop was clean.

        The marker is gone afterwards, so that a crash from here on is noticed.
        """
        path = self.path / CLEAN_SHUTDOWN_FILE
        try:
            insist(path.unlink)
        except FileNotFoundError:
            return False
        sync_directory(self.path)
        return True

    def write_clean_shutdown_marker(self, broker_epoch: int) -> None:
        """The last act of a clean stop."""
        content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
        write_atomically(self.path / CLEAN_SHUTDOWN_FILE, content.encode())

    def read_offsets(self) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Recovery points, log starts and high watermarks.

        A malformed file counts as empty, which costs a longer recovery.
        """
        found = []
        for name in (RECOVERY_POINT_FILE, LOG_START_OFFSET_FILE, HIGH_WATERMARK_FILE):
            try:
                found.append(insist(read_checkpoint, self.path / name))
            except CheckpointError as error:
                logger.warning("Checkpoint %s is ignored: %s", error.filename, error.strerror)
                found.append({})
        self._written = {RECOVERY_POINT_FILE: found[0], LOG_START_OFFSET_FILE: found[1]}
        return found[0], found[1], found[2]

    def forget(self, tp: TopicPartition) -> None:
        """Takes a partition out of the recovery points and log starts.

        The files are rewritten too, if they name it: a new partition of that name must not inherit the log start of a
        deleted one.

        OSError.
        """
        for name in (RECOVERY_POINT_FILE, LOG_START_OFFSET_FILE):
            with self._files:
                known = self._written.get(name)
                if known is not None and tp in known:
                    offsets = {other: offset for other, offset in known.items() if other != tp}
                    write_checkpoint(self.path / name, offsets)
                    self._written[name] = offsets

    def write_recovery_points(self, offsets: Mapping[TopicPartition, int]) -> None:
        """OSError."""
        self._write(RECOVERY_POINT_FILE, offsets)

    def write_log_starts(self, offsets: Mapping[TopicPartition, int]) -> None:
        """OSError."""
        self._write(LOG_START_OFFSET_FILE, offsets)

    def write_high_watermarks(self, offsets: Mapping[TopicPartition, int]) -> None:
        """OSError."""
        self._write(HIGH_WATERMARK_FILE, offsets)

    def _write(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        with self._files:
            write_checkpoint(self.path / name, offsets)
            self._written[name] = offsets


class MemoryLogDir(LogDir):
    """A log directory's name, for a broker that keeps nothing.

    There are no files, and nothing to lock. The logs are those of backends that need no directory.
    """

    persistent = False

    def acquire(self) -> None:
        """Does nothing: any number of brokers may use the name."""

    def volume(self) -> tuple[int, int]:
        """Unknown."""
        return UNKNOWN_BYTES, UNKNOWN_BYTES

    def take_clean_shutdown_marker(self) -> bool:
        """Always: there is nothing that could have been left in disorder."""
        return True

    def write_clean_shutdown_marker(self, broker_epoch: int) -> None:
        """Nothing."""

    def read_offsets(self) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int], dict[TopicPartition, int]]:
        """None."""
        return {}, {}, {}

    def _write(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Nothing."""
