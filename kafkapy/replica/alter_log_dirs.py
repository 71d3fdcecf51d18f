"""The threads that move replicas between this broker's log directories.

Source: kafka.server.ReplicaAlterLogDirsManager and ReplicaAlterLogDirsThread.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import TYPE_CHECKING, Final

from kafkapy.log.future_logs import Progress
from kafkapy.types import TopicPartition

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig
    from kafkapy.log.log_manager import LogManager

__all__ = ["ReplicaAlterLogDirsManager"]

logger = logging.getLogger("kafka.server.ReplicaAlterLogDirsManager")

BACKOFF_S: Final = 0.1
"""Pause in seconds after a step that had nothing to move."""


class ReplicaAlterLogDirsManager:
    """Owns num.replica.alter.log.dirs.threads threads, which live only while replicas move.

    Each thread moves one partition after the other, because a log that is alone on a disk is copied fastest. Any thread
    may call it.
    """

    def __init__(self, config: BrokerConfig, log_manager: LogManager) -> None:
        self._log_manager = log_manager
        self._lock = threading.Lock()
        self._queue: deque[TopicPartition] = deque()
        self._known: set[TopicPartition] = set()
        self._threads: set[threading.Thread] = set()
        self._made = 0
        self._stopping = threading.Event()
        self.update_config(config)

    def update_config(self, config: BrokerConfig) -> None:
        """Apply the current pace and the current number of threads.

        The pace is replica.alter.log.dirs.io.max.bytes.per.second.
        """
        self._limit = config.get_optional_int("num.replica.alter.log.dirs.threads") or len(config.log_dirs)
        rate = config.get_int("replica.alter.log.dirs.io.max.bytes.per.second")
        self._log_manager.futures.pace.bytes_per_second = float(max(rate, 1))

    def add(self, tp: TopicPartition) -> None:
        """Queue a partition that has a future log.

        A partition that a thread is moving already stays as it is.
        """
        with self._lock:
            if tp in self._known or self._stopping.is_set():
                return
            self._known.add(tp)
            self._queue.append(tp)
            if len(self._threads) < self._limit:
                name = f"ReplicaAlterLogDirsThread-{self._made}"
                self._made += 1
                thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._threads.add(thread)
                thread.start()

    def stop(self) -> None:
        """End the threads; unfinished moves go on after a restart. Blocking."""
        self._stopping.set()
        self._log_manager.futures.pace.stop()
        for future in self._log_manager.futures.all().values():
            if future.copy is not None:
                future.copy.stop()
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.join()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._queue or self._stopping.is_set():
                    self._threads.discard(threading.current_thread())
                    return
                tp = self._queue.popleft()
            try:
                self._move(tp)
            except Exception:
                logger.exception("The move of %s failed", tp)
            if self._log_manager.futures.is_moving(tp):
                self._stopping.wait(BACKOFF_S)
            with self._lock:
                self._known.discard(tp)
                # This partition may have begun another move, to a third directory, since this one ended.
                if self._log_manager.futures.is_moving(tp):
                    self._known.add(tp)
                    self._queue.append(tp)

    def _move(self, tp: TopicPartition) -> None:
        futures = self._log_manager.futures
        while not self._stopping.is_set():
            before = futures.position(tp)
            if futures.advance(tp) is not Progress.COPYING:
                return
            if futures.position(tp) == before:
                self._stopping.wait(BACKOFF_S)
