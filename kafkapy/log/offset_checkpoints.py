"""The offset checkpoints of all log directories: recovery points, log starts, high watermarks.

checkpoints = OffsetCheckpoints(table)
failed = checkpoints.write_recovery_points()    # of every directory
checkpoints.write_directory(log_dir)            # all three of one
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy.log.log_dir import LogDir
from kafkapy.log.log_table import LogTable
from kafkapy.types import TopicPartition

__all__ = ["OffsetCheckpoints"]


class OffsetCheckpoints:
    """Writes the offsets of logs and future logs into checkpoint files.

    Worker threads. A directory whose file cannot be written goes offline.
    """

    def __init__(self, table: LogTable) -> None:
        self._table = table

    def write_recovery_points(self) -> set[Path]:
        """Writes recovery-point-offset-checkpoint in every directory; those where it failed."""
        return self._write(LogDir.write_recovery_points, lambda log: log.recovery_point)

    def write_log_starts(self) -> set[Path]:
        """Writes log-start-offset-checkpoint: only logs that start above their first segment need an entry."""
        return self._write(LogDir.write_log_starts, _start_to_keep)

    def write_high_watermarks(self) -> set[Path]:
        """Writes replication-offset-checkpoint in every directory; those where it failed."""
        return self._write(LogDir.write_high_watermarks, lambda log: log.high_watermark)

    def write_all(self) -> set[Path]:
        """Writes all three in every directory; those where one failed."""
        return self.write_recovery_points() | self.write_log_starts() | self.write_high_watermarks()

    def write_directory(self, log_dir: LogDir) -> None:
        """Writes all offsets of one directory. OSError."""
        logs = [(tp, log) for tp, each, log in self._table.with_files() if each is log_dir]
        log_dir.write_recovery_points({tp: log.recovery_point for tp, log in logs})
        log_dir.write_log_starts({tp: start for tp, log in logs if (start := _start_to_keep(log)) is not None})
        log_dir.write_high_watermarks({tp: log.high_watermark for tp, log in logs})

    def _write(
        self, write: Callable[[LogDir, Mapping[TopicPartition, int]], None], value: Callable[[PartitionLog], int | None]
    ) -> set[Path]:
        failed: set[Path] = set()
        tables: dict[Path, dict[TopicPartition, int]] = {log_dir.path: {} for log_dir in self._table.dirs}
        for tp, log_dir, log in self._table.with_files():
            offset = value(log)
            if offset is not None:
                tables[log_dir.path][tp] = offset
        for log_dir in self._table.live_dirs:
            try:
                write(log_dir, tables[log_dir.path])
            except OSError as error:
                failed.add(log_dir.path)
                self._table.fail_dir(log_dir.path, error)
        return failed


def _start_to_keep(log: PartitionLog) -> int | None:
    """The log start for the checkpoint; None when it is that of the first segment."""
    segments = log.segments()
    offset = log.log_start_offset
    return offset if not segments or offset > segments[0][0] else None
