"""The data plane's events, which need no answer.

They are log lines, segments wanted, logs that have failed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from kafkapy._speedups.base.event_queue import LOG_LINE, EventQueue
from kafkapy.slices import SlicedQueue

EventHandler = Callable[[int, int, bytes], None]
"""Called on the control loop with an event's handle, argument and text."""

LEVEL_FACTOR: Final = 100
"""A log line's argument is its level (Python's numbers) times this, plus the logger's number."""
DEFAULT_LOGGER: Final = "kafka.network.Processor"


class DataPlaneEvents:
    """Drains the EventQueue on the control loop and dispatches events by kind.

    Owned by KafkaServer.
    """

    def __init__(self, queue: EventQueue, logger_names: Mapping[int, str]) -> None:
        self.queue = queue
        self._loggers = {number: logging.getLogger(name) for number, name in logger_names.items()}
        self._handlers: dict[int, EventHandler] = {LOG_LINE: self._log}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting = SlicedQueue(self._hand_out)

    def on(self, kind: int, handler: EventHandler) -> None:
        """Have `handler` called for each event of a kind. One handler for each kind."""
        self._handlers[kind] = handler

    def start(self) -> None:
        """Begin to drain, on the running loop."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self.queue.fileno(), self.drain)

    def stop(self) -> None:
        """Hand out what is queued, then drain no more."""
        if self._loop is not None:
            self._loop.remove_reader(self.queue.fileno())
            self._loop = None
            self.drain()
            self._waiting.flush()
            self._waiting.close()
            self._handlers.clear()

    def drain(self) -> None:
        """Hand out everything that is queued, in slices.

        100,000 followers may catch up at once.
        """
        self._waiting.put(self.queue.drain())

    def _hand_out(self, event: tuple[int, int, int, bytes]) -> None:
        kind, handle, argument, text = event
        handler = self._handlers.get(kind)
        if handler is None:
            return
        try:
            handler(handle, argument, text)
        except Exception:
            # One event that cannot be handled must not hold up those behind it.
            logging.getLogger("kafka.server.KafkaServer").exception(
                "The handler of data-plane events of kind %d failed", kind
            )

    def _log(self, handle: int, argument: int, text: bytes) -> None:
        del handle
        level, number = divmod(argument, LEVEL_FACTOR)
        log = self._loggers.get(number) or logging.getLogger(DEFAULT_LOGGER)
        log.log(level, "%s", text.decode("utf-8", "replace"))
