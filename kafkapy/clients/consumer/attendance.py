"""The user's thread and the loop, when one needs the other: work, errors, and what happens only within poll().

Records that earlier polls returned count as processed, and no others do. So what a rebalance does to the user (an end
to the records of some partitions, the positions to commit for them, the listener) waits until its thread is in poll(),
which it enters through `ConsumerCore.enter_poll`; `need_poll` makes it do so before it takes another record, and wakes
it where it waits.

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
    """On the loop's thread. `ring` wakes the user's; without `attended` nobody comes by, and everything happens here
    at once.
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
        """The user's thread is to come by before it takes another record."""
        self._buffer.attention = True
        self._ring()

    def report(self, error: Exception) -> None:
        """A poll raises this; the same error only once."""
        if not any(type(each) is type(error) and str(each) == str(error) for each in self._errors):
            self._errors.append(error)
        self.need_poll()

    @property
    def has_errors(self) -> bool:
        """Whether a poll is going to raise something."""
        return bool(self._errors)

    def next_error(self) -> Exception | None:
        """What is to be raised now. Any thread."""
        return self._errors.popleft() if self._errors else None

    def next_work(self) -> Work | None:
        """What the user's thread has to do next, one piece at a time, so that an interrupt loses none of them."""
        try:
            return self._work.popleft()
        except IndexError:
            return None

    def serve(self) -> None:
        """The user's thread is there: settles revocations."""
        revocations, self._revocations = self._revocations, []
        for partitions, future in revocations:
            if not future.done():
                future.set_result(self._revoke_now(partitions))

    def callback(self, call: Work) -> None:
        """Runs a user's callback within the next poll, or at once where nobody polls."""
        if self.attended:
            self._work.append(call)
            self.need_poll()
        else:
            call()

    async def revoke(self, partitions: set[TopicPartition]) -> Positions:
        """Ends the handing out of records of these while the user is in poll(); returns their positions, to be
        committed.
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
        """Calls the listener on the user's thread, and returns when it was called. poll() raises what it raises."""
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
            # As aiokafka: a set, and `revoked` is told before each rebalance, also where nothing is revoked.
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
                # Also after an error, which poll() raises: the rebalance goes on.
                loop.call_soon_threadsafe(finish)

        self._work.append(work)
        self.need_poll()
        try:
            await done
        finally:
            with contextlib.suppress(ValueError):
                self._work.remove(work)


def _tell(
    method: Callable[..., Any], partitions: list[TopicPartition], loop: asyncio.AbstractEventLoop
) -> None:
    """On the user's thread. A coroutine (AsyncConsumerRebalanceListener) runs on the consumer's loop meanwhile."""
    result = method(partitions)
    if inspect.iscoroutine(result):
        asyncio.run_coroutine_threadsafe(result, loop).result()
