"""Work between the user's thread and the loop.

Only records of earlier polls count as processed. So the effects of a rebalance on the user (no more records of some
partitions, the positions to commit for them, the listener) happen only within poll(), which the user's thread enters
through `ConsumerCore.enter_poll`. `need_poll` makes the thread enter before it takes another record, and wakes it when
it waits.

    loop: await revoke(partitions)     user: poll() -> enter_poll() -> serve(): no more records of them; the positions
          commits those                      goes on with other partitions, or waits
          await tell_listener(...)           enter_poll(), next_work() -> calls the listener -> done
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from kafkapy.clients.consumer.subscription import SubscriptionState
from kafkapy.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kafkapy._speedups.clients.consumer.record_iterator import FetchBuffer

__all__ = ["Attendance", "ListenerKind", "Work"]

logger = logging.getLogger("kafka.consumer")

ListenerKind = Literal["revoked", "assigned", "lost"]
Work = Callable[[], None]
Positions = dict[TopicPartition, OffsetAndMetadata]


class Attendance:
    """The queue of work and errors for the user's thread.

    On the loop's thread. `ring` wakes the user's thread. Without `attended` there is no such thread, and everything
    happens here at once.
    """

    def __init__(
        self, buffer: FetchBuffer, subscription: SubscriptionState, ring: Callable[[], None], attended: bool
    ) -> None:
        self.attended = attended
        self._buffer = buffer
        self._subscription = subscription
        self._ring = ring
        self._work: deque[Work] = deque()
        self._errors: deque[Exception] = deque()
        self._revocations: list[tuple[set[TopicPartition], asyncio.Future[Positions]]] = []

    def need_poll(self) -> None:
        """Makes the user's thread enter poll() before it takes another record."""
        self._buffer.attention = True
        self._ring()

    def report(self, error: Exception) -> None:
        """Makes a poll raise this error, once."""
        if not any(type(each) is type(error) and str(each) == str(error) for each in self._errors):
            self._errors.append(error)
        self.need_poll()

    @property
    def has_errors(self) -> bool:
        """Whether a poll will raise an error."""
        return bool(self._errors)

    def next_error(self) -> Exception | None:
        """The error to raise now, or None. Any thread."""
        return self._errors.popleft() if self._errors else None

    def next_work(self) -> Work | None:
        """The next piece of work for the user's thread, or None.

        One piece at a time, so that an interrupt loses none.
        """
        try:
            return self._work.popleft()
        except IndexError:
            return None

    def serve(self) -> None:
        """Settles revocations; the user's thread is in poll()."""
        revocations, self._revocations = self._revocations, []
        for partitions, future in revocations:
            if not future.done():
                future.set_result(self._revoke_now(partitions))

    def callback(self, call: Work) -> None:
        """Runs a user's callback within the next poll; without polls, at once."""
        if self.attended:
            self._work.append(call)
            self.need_poll()
        else:
            call()

    async def revoke(self, partitions: set[TopicPartition]) -> Positions:
        """Stops the records of these partitions while the user is in poll().

        Returns their positions, to commit.
        """
        if not self.attended:
            return self._revoke_now(partitions)
        future: asyncio.Future[Positions] = asyncio.get_running_loop().create_future()
        self._revocations.append((partitions, future))
        self.need_poll()
        return await future

    def _revoke_now(self, partitions: set[TopicPartition]) -> Positions:
        self._subscription.mark_pending_revocation(partitions)
        return {
            partition: position
            for partition, position in self._subscription.all_consumed().items()
            if partition in partitions
        }

    async def tell_listener(self, kind: ListenerKind, partitions: set[TopicPartition]) -> None:
        """Calls the listener on the user's thread, and waits for it.

        poll() raises the listener's errors.
        """
        listener = self._subscription.listener
        method = None if listener is None else getattr(listener, f"on_partitions_{kind}", None)
        if method is None:
            return
        if self.attended:
            if partitions or kind == "assigned":
                ordered = sorted(partitions)
                loop = asyncio.get_running_loop()
                await self._on_users_thread(lambda: _tell(method, ordered, loop))
            return
        try:
            # As in aiokafka: sets, and `revoked` is called before each rebalance, even if it revokes nothing.
            result = method(set(partitions))
            if inspect.isawaitable(result):
                await result
        except Exception as error:
            logger.exception("on_partitions_%s of the rebalance listener failed", kind)
            self.report(error)

    async def _on_users_thread(self, call: Work) -> None:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def finish() -> None:
            if not done.done():
                done.set_result(None)

        def work() -> None:
            try:
                call()
            finally:
                # Also after an error, which poll() raises: the rebalance continues.
                loop.call_soon_threadsafe(finish)

        self._work.append(work)
        self.need_poll()
        try:
            await done
        finally:
            with contextlib.suppress(ValueError):
                self._work.remove(work)


def _tell(method: Callable[..., Any], partitions: list[TopicPartition], loop: asyncio.AbstractEventLoop) -> None:
    """Calls a listener, on the user's thread.

    The coroutine of an AsyncConsumerRebalanceListener runs on the consumer's loop meanwhile.
    """
    result = method(partitions)
    if inspect.iscoroutine(result):
        asyncio.run_coroutine_threadsafe(result, loop).result()
