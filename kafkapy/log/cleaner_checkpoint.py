"""The cleaner-offset-checkpoint file of each log directory: each partition's compacted offset.

The format is that of the other offset checkpoints (see checkpoints.py).
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from kafkapy.log.checkpoints import CheckpointError, read_checkpoint, write_checkpoint
from kafkapy.types import TopicPartition

__all__ = ["CLEANER_OFFSET_FILE", "CleanerCheckpoints"]

CLEANER_OFFSET_FILE = "cleaner-offset-checkpoint"

logger = logging.getLogger("kafka.log.LogCleanerManager")


class CleanerCheckpoints:
    """Owns the files and a copy of them in memory, under one lock.

    Any thread; `update` and `forget` write a file and may raise OSError. A broker that keeps nothing has the tables
    only (`files` False).
    """

    def __init__(self, *, files: bool = True) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._tables: dict[Path, dict[TopicPartition, int]] = {}

    def get(self, directory: Path, tp: TopicPartition) -> int | None:
        """The first offset not cleaned yet; None when the partition was never cleaned."""
        with self._lock:
            return self._table(directory).get(tp)

    def update(self, directory: Path, tp: TopicPartition, offset: int) -> None:
        """The partition is clean below `offset`."""
        with self._lock:
            table = self._table(directory)
            table[tp] = offset
            self._write(directory, table)

    def forget(self, directory: Path, tp: TopicPartition) -> None:
        """The partition is gone from that directory."""
        with self._lock:
            table = self._table(directory)
            if table.pop(tp, None) is not None:
                self._write(directory, table)

    def _write(self, directory: Path, table: dict[TopicPartition, int]) -> None:
        if self._files:
            write_checkpoint(directory / CLEANER_OFFSET_FILE, table)

    def _table(self, directory: Path) -> dict[TopicPartition, int]:
        table = self._tables.get(directory)
        if table is None:
            try:
                table = read_checkpoint(directory / CLEANER_OFFSET_FILE) if self._files else {}
            except CheckpointError as error:
                # Nothing is lost: everything counts as dirty once more.
                logger.warning(
                    "Checkpoint %s cannot be read: %s; the cleaner begins at the start of its logs",
                    error.filename,
                    error.strerror,
                )
                table = {}
            self._tables[directory] = table
        return table
