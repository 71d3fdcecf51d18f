"""Requests and responses that are too large for the control loop.

Another thread decodes, encodes and lets go of them.

The one thread for them lets go of the GIL every millisecond. Requests of many elements are served one at a time, so
that one of them bounds their memory (256 MB, see kafkapy/_speedups/protocol/codec.pyx), and not the number of
connections. The garbage collector rests while one is served (kafkapy/garbage.py).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from kafkapy._speedups.protocol.discard import discard
from kafkapy.garbage import begin_rest, end_rest

T = TypeVar("T")

LARGE_BYTES: Final = 32 * 1024
"""A smaller body is decoded on the control loop, within a slice."""

MANY_ELEMENTS: Final = 5000
"""Below that a request is served beside others of its size, and what it has made is let go of at once."""

LONGEST_TURN_S: Final = 10.0
"""A request that takes longer (it waits for something) keeps others from being served no longer."""

LONGEST_REST_S: Final = 60.0
"""A request that takes longer keeps the garbage collector from its work no longer."""


class LargeTurn:
    """The turn of one large request.

    It ends when the request's objects are gone. LONGEST_TURN_S after the start the next turn begins all the same, and
    LONGEST_REST_S after it the garbage collector works again.
    """

    def __init__(self, owner: LargeMessages, rests: bool) -> None:
        """`rests`: whether the garbage collector rests for it."""
        loop = asyncio.get_running_loop()
        self._owner = owner
        self._blocks, self._rests = True, rests
        self._limits = (loop.call_later(LONGEST_TURN_S, self._let_others), loop.call_later(LONGEST_REST_S, self.end))

    def end(self) -> None:
        """Let the next one begin, and the garbage collector work.

        Used on the control loop. A second call does nothing.
        """
        for limit in self._limits:
            limit.cancel()
        if self._rests:
            self._rests = False
            end_rest()
        self._let_others()

    def _let_others(self) -> None:
        if self._blocks:
            self._blocks = False
            self._owner.ended()


class LargeMessages:
    """Owns the thread for large messages and the line of waiting requests.

    The first large message starts the thread. Made by KafkaApis; the control loop.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kafka-large-messages")
        self._closed = False
        self._busy = False
        self._line: deque[asyncio.Future[None]] = deque()

    def is_large(self, body: memoryview) -> bool:
        """Whether a request's body is to be decoded on the thread."""
        return len(body) >= LARGE_BYTES

    def are_many(self, elements: int) -> bool:
        """Whether a request of so many elements keeps its turn until it is answered."""
        return elements >= MANY_ELEMENTS

    async def turn(self) -> LargeTurn:
        """Wait for those that came before. Its `end` has to be called."""
        if self._busy:
            mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._line.append(mine)
            try:
                await mine
            except asyncio.CancelledError:
                if mine.done() and not mine.cancelled():
                    self.ended()
                raise
        self._busy = True
        return LargeTurn(self, begin_rest())

    def ended(self) -> None:
        """The next one's turn."""
        while self._line:
            following = self._line.popleft()
            if not following.done():
                following.set_result(None)
                return
        self._busy = False

    async def run(self, call: Callable[..., T], *arguments: Any) -> T:
        """The result of a call on the thread. CancelledError once the broker stops."""
        if self._closed:
            raise asyncio.CancelledError
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *arguments)

    def discard(self, things: list[Any], turn: LargeTurn | None) -> None:
        """Let go of what nobody else has a reference to, then end the turn."""
        loop = asyncio.get_running_loop()

        def work() -> None:
            try:
                discard(things)
            finally:
                if turn is not None:
                    with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                        loop.call_soon_threadsafe(turn.end)

        if not self._closed:
            self._thread.submit(work)
        elif turn is not None:
            turn.end()

    def close(self) -> None:
        """End the thread; what it has begun is finished."""
        self._closed = True
        self._thread.shutdown(wait=False, cancel_futures=True)
