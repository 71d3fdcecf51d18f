"""The data plane's events about logs.

A segment is wanted or was rolled, a flush is due, a disk failed.

events.on(SEGMENT_ROLLED, log_manager.events.segment_rolled)
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy.log.log_table import LogTable
from kafkapy.log.log_work import LogWork
from kafkapy.types import TopicPartition

__all__ = ["LogEvents", "SegmentSealed"]

SegmentSealed = Callable[[TopicPartition, int, int, int], None]
"""Hears of a segment that takes no more records: its partition, base offset, next offset and size in bytes."""


class LogEvents:
    """Takes the data plane's events on the control loop and returns at once.

    A separate thread does the work on files. `handle` is the number of the log.
    """

    def __init__(self, table: LogTable, work: LogWork, on_segment_sealed: SegmentSealed | None = None) -> None:
        self._table = table
        self._work = work
        self._on_segment_sealed = on_segment_sealed
        # For storage backends that make segments in Python, and for what follows a roll.
        self._segments = ThreadPoolExecutor(max_workers=2, thread_name_prefix="kafka-log-segment")

    def segment_wanted(self, handle: int, argument: int = 0, text: bytes = b"") -> None:
        """A log needs its next segment, soon or now.

        Its storage backend makes segments in Python.
        """
        self._on_segment_worker(handle, lambda log: log.prepare_segment())

    def segment_rolled(self, handle: int, argument: int = 0, text: bytes = b"") -> None:
        """A log has a new active segment.

        The closed one is cut to size and, in the background, synced.
        """
        self._on_segment_worker(handle, self._after_roll)
        log = self._table.by_handle(handle)
        if log is not None and self._on_segment_sealed is not None:
            for base_offset, size, *_ in reversed(log.segments()):
                if base_offset < argument:
                    tp = TopicPartition(log.topic, log.partition)
                    self._on_segment_sealed(tp, base_offset, argument, size)
                    break

    def flush_wanted(self, handle: int, argument: int = 0, text: bytes = b"") -> None:
        """Produces wait for a flush that flush.messages has made due.

        No native thread could take it over.
        """
        log = self._table.by_handle(handle)
        if log is not None:
            self._work.flush_later(log, lambda each: each.flush_due())

    def log_offline(self, handle: int, argument: int, text: bytes = b"") -> None:
        """A log met a disk error; its whole directory goes offline.

        `argument` is the errno.
        """
        log = self._table.by_handle(handle)
        path = self._table.path_of(log) if log is not None else None
        if path is not None:
            self._table.fail_dir(path, OSError(argument, text.decode(errors="replace")))

    def stop(self) -> None:
        """Finishes what was begun. Blocking."""
        self._segments.shutdown(wait=True)

    def _on_segment_worker(self, handle: int, work: Callable[[PartitionLog], object]) -> None:
        log = self._table.by_handle(handle)
        if log is not None and not self._table.closed:
            self._segments.submit(self._work.guarded, log, work)

    def _after_roll(self, log: PartitionLog) -> None:
        log.seal_segments()
        self._work.flush_later(log, PartitionLog.flush)
