"""The control loop's lag: a beat every second and its delay in ms."""

from __future__ import annotations

import asyncio
from typing import Final

BEAT_S: Final = 1.0


class LoopLag:
    """Owns the beat. Started and stopped by KafkaServer on the control loop.

    Its numbers may be read on any thread.
    """

    def __init__(self) -> None:
        self.last_ms = 0.0
        self.max_ms = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to beat on the running loop."""
        self._loop = asyncio.get_running_loop()
        self._arm(self._loop)

    def stop(self) -> None:
        """Beat no more."""
        if self._handle is not None:
            self._handle.cancel()
        self._loop = None

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        due = loop.time() + BEAT_S
        self._handle = loop.call_at(due, self._beat, loop, due)

    def _beat(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        self.last_ms = max(0.0, (loop.time() - due) * 1000)
        self.max_ms = max(self.max_ms, self.last_ms)
        if self._loop is loop:
            self._arm(loop)
