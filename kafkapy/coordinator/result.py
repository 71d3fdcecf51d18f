"""What an operation of a coordinator gives back: records to write, and a reply now or later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

from kafkapy.coordinator.records import CoordinatorRecord
from kafkapy.errors import ErrorCode

T = TypeVar("T")
U = TypeVar("U")

TOO_LARGE: Final = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE)
"""What an operation fails with whose records do not fit into one batch: they would not a second time either."""

_PENDING: Final = object()


class Later(Generic[T]):
    """A reply that is not there yet. Unlike a future it needs no loop and calls back at once, so that a state machine
    can be tested by itself. Used on the coordinator's thread only; set or failed once, the first one counts.
    """

    __slots__ = ("_callbacks", "_error", "_value")

    def __init__(self) -> None:
        self._value: Any = _PENDING
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Later[T]], None]] | None = None

    @classmethod
    def of(cls, value: T) -> Later[T]:
        """One that is there already."""
        made: Later[T] = cls()
        made._value = value
        return made

    @classmethod
    def failure(cls, error: BaseException) -> Later[T]:
        """One that has failed already."""
        made: Later[T] = cls()
        made._error = error
        return made

    @property
    def done(self) -> bool:
        """Whether it was set or failed."""
        return self._value is not _PENDING or self._error is not None

    @property
    def error(self) -> BaseException | None:
        """What it failed with."""
        return self._error

    def result(self) -> T:
        """The reply. Raises what it failed with; RuntimeError when it is not there yet."""
        if self._error is not None:
            try:
                raise self._error
            finally:
                # The error holds this frame, and would be garbage that only the collector finds.
                del self
        if self._value is _PENDING:
            raise RuntimeError("the reply is not there yet")
        return cast(T, self._value)

    def set(self, value: T) -> None:
        """Give the reply."""
        if not self.done:
            self._value = value
            self._call()

    def fail(self, error: BaseException) -> None:
        """There will be no reply but this error."""
        if not self.done:
            self._error = error
            self._call()

    def then(self, callback: Callable[[Later[T]], None]) -> None:
        """Call back with this object when it is done; at once if it is."""
        if self.done:
            callback(self)
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    def map(self, convert: Callable[[Later[T]], U]) -> Later[U]:
        """What `convert` makes of this object when it is done; what it raises is what the new one fails with."""
        made: Later[U] = Later()

        def done(later: Later[T]) -> None:
            try:
                value = convert(later)
            except Exception as error:
                made.fail(error)
            else:
                made.set(value)

        self.then(done)
        return made

    async def wait(self) -> T:
        """The reply, for handlers on the control loop."""
        if not self.done:
            arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.then(lambda _: None if arrived.done() else arrived.set_result(None))
            await arrived
        try:
            return self.result()
        finally:
            del self  # see result

    def _call(self) -> None:
        callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            callback(self)


class ProducerStamp(NamedTuple):
    """The producer in whose transaction records are written."""

    producer_id: int
    producer_epoch: int


@dataclass(slots=True)
class Result(Generic[T]):
    """Of one operation. The reply goes out when the records, and all that was written before them, are committed."""

    reply: T | Later[T]
    records: Sequence[CoordinatorRecord] = ()
    """Written in one batch: all or none. Applied to the shard before the next operation runs."""
    after: Callable[[BaseException | None], None] | None = None
    """Called once when the records are committed (None) or not to be (the error), before the reply goes out. For what
    must not be seen before, such as answers to other members. Not called any more once the shard is unloaded."""
    producer: ProducerStamp | None = None
    """Write the records as part of this producer's transaction."""
