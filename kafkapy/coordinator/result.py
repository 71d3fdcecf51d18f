"""A coordinator operation's result: records, and a reply now or later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

from kafkapy.coordinator.records import CoordinatorRecord
from kafkapy.errors import ErrorCode, KafkaError, error_for

T = TypeVar("T")
U = TypeVar("U")

TOO_LARGE: Final = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE)
"""Errors of an operation whose records do not fit into one batch; a retry would fail too."""

_PENDING: Final = object()


class Later(Generic[T]):
    """A reply that may arrive later.

    Unlike a future it needs no loop and calls back at once, so that a state machine can be tested by itself. Used on
    the coordinator's thread only; set or failed once, the first one counts.
    """

    __slots__ = ("_callbacks", "_error", "_value")

    def __init__(self) -> None:
        self._value: Any = _PENDING
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Later[T]], None]] | None = None

    @classmethod
    def of(cls, value: T) -> Later[T]:
        """A reply that is set already."""
        made: Later[T] = cls()
        made._value = value
        return made

    @classmethod
    def failure(cls, error: BaseException) -> Later[T]:
        """A reply that has failed already."""
        made: Later[T] = cls()
        made._error = error
        return made

    @property
    def done(self) -> bool:
        """Whether the reply was set or failed."""
        return self._value is not _PENDING or self._error is not None

    @property
    def error(self) -> BaseException | None:
        """The error of a failed reply, else None."""
        return self._error

    def result(self) -> T:
        """The reply; raises its error. RuntimeError before it is done."""
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
        """Set the reply."""
        if self._value is _PENDING and self._error is None:
            self._value = value
            if self._callbacks is not None:
                self._call()

    def fail(self, error: BaseException) -> None:
        """Fail with an error in place of a reply."""
        if self._value is _PENDING and self._error is None:
            self._error = error
            if self._callbacks is not None:
                self._call()

    def replace_error(self, error: BaseException) -> None:
        """Put another error in place of this failed reply's; for its first callback."""
        self._error = error

    def then(self, callback: Callable[[Later[T]], None]) -> None:
        """Call back with this reply, at once if it is done."""
        if self._value is not _PENDING or self._error is not None:
            callback(self)
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    def map(self, convert: Callable[[Later[T]], U]) -> Later[U]:
        """A reply with the result of `convert` for this reply.

        An error that `convert` raises becomes the error of the new reply.
        """
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

    def __await__(self) -> Generator[Any, None, T]:
        """`await later` waits as `await later.wait()` does."""
        return self.wait().__await__()

    def _call(self) -> None:
        callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            callback(self)


def hand_over(done: Later[T], later: Later[T]) -> None:
    """Give one reply's outcome to another."""
    if done.error is not None:
        later.fail(done.error)
    else:
        later.set(done.result())


def without_too_large(reply: Later[T]) -> Later[T]:
    """The reply; records that do not fit into a batch are UNKNOWN_SERVER_ERROR.

    The coordinator's record is too large, not the client's message. Nobody else may wait for the reply yet.
    """
    reply.then(hide_too_large)
    return reply


def hide_too_large(reply: Later[Any]) -> None:
    """Change the error of a reply as without_too_large does; its first callback."""
    error = reply.error
    if error is not None and isinstance(error, KafkaError) and error.code in TOO_LARGE:
        reply.replace_error(error_for(ErrorCode.UNKNOWN_SERVER_ERROR, error.message))


class ProducerStamp(NamedTuple):
    """The producer whose transaction the records belong to."""

    producer_id: int
    producer_epoch: int


@dataclass(slots=True)
class Result(Generic[T]):
    """The result of one operation.

    The reply is sent when the records, and all earlier ones, are committed.
    """

    reply: T | Later[T]
    records: Sequence[CoordinatorRecord] = ()
    """Written in one batch: all or none.

    Applied to the shard before the next operation runs.
    """
    after: Callable[[BaseException | None], None] | None = None
    """Called once, before the reply is sent, when the records are committed (None) or fail (the error).

    For effects that must not be visible before, such as answers to other members. Not called any more once the shard is
    unloaded.
    """
    producer: ProducerStamp | None = None
    """The producer whose transaction the records belong to."""
