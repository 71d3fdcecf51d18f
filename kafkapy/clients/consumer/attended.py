"""AttendedConsumer: the common part of consumers with a background loop.

The user's thread takes records out of the buffers itself; a core on the loop's thread fetches them, and gives the
user's thread work and errors through its `attendance`.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeVar

from kafkapy._speedups.clients.consumer.consumer_record import ConsumerRecord
from kafkapy._speedups.clients.consumer.record_iterator import RecordIterator
from kafkapy.clients.background import BackgroundLoop
from kafkapy.config.config_def import MAX_LONG
from kafkapy.errors import IllegalStateError, KafkaTimeoutError, NoBrokersAvailableError, WakeupError

if TYPE_CHECKING:
    from uuid import UUID

    from kafkapy._speedups.clients.consumer.record_iterator import FetchBuffer
    from kafkapy.clients.consumer.attendance import Attendance
    from kafkapy.clients.consumer.metrics import PollMetrics
    from kafkapy.clients.consumer.topics import Topics
    from kafkapy.clients.network_client import NetworkClient
    from kafkapy.clients.telemetry import TelemetryReporter
    from kafkapy.config.clients import ClientConfig

__all__ = ["AttendedConsumer", "AttendedCore", "check_names"]

T = TypeVar("T")

logger = logging.getLogger("kafka.consumer")

SLICE_S: Final = 0.5
"""Longest single wait in seconds: a signal just before a wait begins does not interrupt it."""
SERVE_S: Final = 0.1

_open: weakref.WeakSet[AttendedConsumer] = weakref.WeakSet()


def _stop_in_child() -> None:
    """Abandons the parent's consumers in a forked child.

    Their next call raises an error.
    """
    for consumer in list(_open):
        consumer.fetch_buffer.attention = True


os.register_at_fork(after_in_child=_stop_in_child)


class Doorbell:
    """Wakes one waiting thread.

    A ring without a waiting thread ends the next wait. Signals interrupt a wait.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def ring(self) -> None:
        """Rings. Any thread, and signal handlers."""
        try:
            self._lock.release()
        except RuntimeError:
            pass  # already rung

    def wait(self, seconds: float) -> None:
        """Waits for a ring, for `seconds`, or for one slice."""
        self._lock.acquire(timeout=min(seconds, SLICE_S))


class AttendedCore(Protocol):
    """The part of a consumer's core that the user's thread needs here."""

    buffer: FetchBuffer
    attendance: Attendance
    network: NetworkClient
    polls: PollMetrics
    telemetry: TelemetryReporter
    topics: Topics
    user_waits: bool

    async def start(self) -> None:
        """Connects to the cluster. NoBrokersAvailableError."""

    def enter_poll(self) -> None:
        """Enters poll(): the user's thread then does the attendance's work."""

    def all_metrics(self) -> dict[str, dict[str, Any]]:
        """The metrics by group and name."""


class AttendedConsumer(RecordIterator):
    """Base of the consumers with a background loop.

    A subclass makes the core. One thread at a time may use the consumer; others may call `wakeup`, and methods that
    change nothing.
    """

    _core: AttendedCore

    def __init__(self, config: ClientConfig, thread: str) -> None:
        self.config = config
        self._bell = Doorbell()
        self._lock = threading.RLock()
        self._woken = False
        self._closed = False
        self._closing = False
        """Whether close() is running: its callbacks may still commit."""
        consumer_timeout_ms = config["consumer.timeout.ms"]
        self._consumer_timeout_s = (
            None if consumer_timeout_ms < 0 or consumer_timeout_ms == MAX_LONG else consumer_timeout_ms / 1000
        )
        self._api_timeout_ms: int = config["default.api.timeout.ms"]
        self._max_poll_records: int = config["max.poll.records"]
        self._background = BackgroundLoop(thread)
        try:
            self._core = self._background.run(self._start_core())
        except BaseException:
            self._background.stop()
            raise
        super().__init__(self._core.buffer)
        self._finalizer = weakref.finalize(self, self._background.stop)
        _open.add(self)

    async def _start_core(self) -> Any:
        core = self._make_core()
        try:
            await core.start()
        except BaseException:
            await core.network.close()
            raise
        core.network.learn_api_version(self.config)
        return core

    def _make_core(self) -> AttendedCore:
        """The core of this consumer, on the loop's thread; not started."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- one thread at a time -------------------------------------------------------------------------------------

    def _acquire(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise IllegalStateError(f"{type(self).__name__} is not safe for use by several threads at a time")
        if self._closed:
            self._lock.release()
            raise IllegalStateError("This consumer has already been closed")

    def _call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Calls a function of the core on the loop's thread."""
        self._acquire()
        try:
            return self._background.call(function, *arguments)
        finally:
            self._lock.release()

    def _look(self, function: Callable[[], T]) -> T:
        """As `_call`, for functions that change nothing.

        It works while another thread is in poll().
        """
        if self._closed:
            raise IllegalStateError("This consumer has already been closed")
        return self._background.call(function)

    def _run(self, coroutine: Any) -> Any:
        """Runs a coroutine of the core on the loop's thread.

        The coroutine has its own timeout.
        """
        try:
            self._acquire()
        except BaseException:
            coroutine.close()
            raise
        try:
            return self._background.run(coroutine)
        finally:
            self._lock.release()

    def _serve(self, coroutine: Any) -> Any:
        """As `_run`; meanwhile listeners and callbacks run on this thread."""
        try:
            self._background.check()
        except BaseException:
            coroutine.close()
            raise
        future = asyncio.run_coroutine_threadsafe(coroutine, self._background.loop)
        future.add_done_callback(lambda _: self._bell.ring())
        error: Exception | None = None
        while not future.done():
            self._background.call(self._core.attendance.serve)
            error = self._do_work(error)
            self._bell.wait(SERVE_S)
        error = self._do_work(error)
        result = future.result()
        if error is not None:
            raise error
        return result

    # --- records --------------------------------------------------------------------------------------------------

    def _max_records(self, timeout_ms: float, max_records: int | None) -> int:
        if timeout_ms < 0:
            raise ValueError("timeout_ms must not be negative")
        limit = self._max_poll_records if max_records is None else max_records
        if not isinstance(limit, int):
            raise TypeError("max_records must be an integer")
        if limit <= 0:
            raise ValueError("max_records must be positive")
        return limit

    def next_slowly(self) -> ConsumerRecord:
        """The next record of an iteration.

        It waits up to consumer.timeout.ms, then raises StopIteration.
        """
        if self._closed:
            raise StopIteration
        self._acquire()
        try:
            record = self._next_record()
        finally:
            self._lock.release()
        if record is None:
            raise StopIteration
        return record

    def _next_record(self) -> ConsumerRecord | None:
        """The next record, None after consumer.timeout.ms."""
        record: ConsumerRecord | None = self._wait_for(self.fetch_buffer.next, self._consumer_timeout_s)
        return record

    def _wait_for(self, take: Callable[[], T], seconds: float | None) -> T:
        """The first true result of `take`, or its last result after `seconds`: one poll."""
        self._core.polls.begin()
        try:
            return self._wait(take, seconds)
        finally:
            self._core.polls.end()

    def _wait(self, take: Callable[[], T], seconds: float | None) -> T:
        buffer = self.fetch_buffer
        deadline = None
        while True:
            if buffer.attention:
                self._attend()
            taken = take()
            if taken:
                return taken
            if deadline is None:
                self._hungry()
                if seconds == 0:
                    time.sleep(0)  # a poll without waiting yields to the loop's thread
                    return taken
                deadline = math.inf if seconds is None else time.monotonic() + seconds
            left = deadline - time.monotonic()
            if left <= 0:
                return taken
            self._core.user_waits = True
            try:
                self._bell.wait(left)
            finally:
                self._core.user_waits = False

    def _hungry(self) -> None:
        """Called once in a poll that found no record in the buffer."""

    def _attend(self) -> None:
        """Does the loop's work for this thread, and raises a pending error."""
        if self._woken:
            self._woken = False
            raise WakeupError
        try:
            self._background.call(self._core.enter_poll)
            error = self._do_work(None) or self._core.attendance.next_error()
        except BaseException:
            self.fetch_buffer.attention = True  # interrupted: the next call does the rest
            raise
        if self._woken:
            # wakeup() ran after the check above, and enter_poll() may have cleared its flag.
            self.fetch_buffer.attention = True
        if error is not None:
            raise error

    def _do_work(self, error: Exception | None) -> Exception | None:
        """Runs listeners and callbacks; returns `error` or the first new error."""
        while (work := self._core.attendance.next_work()) is not None:
            try:
                work()
            except Exception as raised:
                if error is not None:
                    logger.error("This poll already raises another error", exc_info=raised)
                error = error or raised
        return error

    def wakeup(self) -> None:
        """Ends the current or next wait of the consumer with WakeupError.

        The wait is in poll() or an iteration. Any thread.
        """
        self._woken = True
        self.fetch_buffer.attention = True
        self._bell.ring()

    # --- the cluster ----------------------------------------------------------------------------------------------

    def bootstrap(self, timeout_ms: int | None = None, refresh: bool = False) -> None:
        """Waits for the cluster if the constructor did not (api_version).

        `refresh` requests new metadata. KafkaTimeoutError.
        """
        timeout = self._timeout(timeout_ms)
        if self._core.network.cluster.bootstrapping:
            try:
                self._run(self._core.network.bootstrap(timeout))
            except NoBrokersAvailableError as error:
                raise KafkaTimeoutError(str(error)) from None
        elif refresh:
            self._run(self._core.topics.refresh(timeout))

    def bootstrap_connected(self) -> bool:
        """Whether the client has reached the cluster."""
        return not self._closed and not self._core.network.cluster.bootstrapping

    def metrics(self, raw: bool = False) -> dict[str, dict[str, Any]]:
        """The metrics by group and name; the names are Kafka's. Any thread.

        `raw` has no effect.
        """
        return self._look(self._core.all_metrics)

    def client_instance_id(self, timeout_ms: float) -> UUID | None:
        """The client's id in the metrics that it pushes, as KafkaProducer's method. Any thread."""
        return self._background.run(self._core.telemetry.client_instance_id(timeout_ms / 1000))

    # --- the end --------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Leaves the group, and closes all connections."""
        raise NotImplementedError

    def _close(self, timeout_ms: float | None, finish: Callable[[int], Any], done: Callable[[], None]) -> None:
        """Runs the core's coroutine `finish(timeout in ms)`, then `done`, and ends the thread, once.

        The timeout is at most 30 s by default. A child after fork() only drops the consumer.
        """
        if self._closed or self._closing:
            return
        if self._background.foreign:
            self._closed = True
            return
        self._acquire()
        try:
            self._closing = True
            self.fetch_buffer.attention = True
            limit = int(min(self.config["request.timeout.ms"], 30_000) if timeout_ms is None else timeout_ms)
            try:
                self._serve(finish(limit))
            finally:
                self._closed = True
                self._finalizer()
                done()
                for name in ("key.deserializer", "value.deserializer"):
                    if hasattr(self.config[name], "deserialize") and hasattr(self.config[name], "close"):
                        self.config[name].close()
        finally:
            self._lock.release()

    def _timeout(self, timeout_ms: float | None) -> int:
        return self._api_timeout_ms if timeout_ms is None else int(timeout_ms)


def check_names(topics: Sequence[str]) -> None:
    """TypeError unless these are names of topics."""
    if isinstance(topics, str) or not all(isinstance(topic, str) for topic in topics):
        raise TypeError("topics must be a sequence of names")
