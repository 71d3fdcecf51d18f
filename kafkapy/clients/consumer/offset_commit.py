"""The future of commit_async()."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kafkapy.types import OffsetAndMetadata, TopicPartition

__all__ = ["OffsetCommitFuture"]


class OffsetCommitFuture:
    """The result of a commit.

    A later poll() completes it, on the user's thread. `value`: the committed offsets.
    """

    def __init__(self) -> None:
        self.is_done = False
        self.value: Mapping[TopicPartition, OffsetAndMetadata] | None = None
        self.exception: Exception | None = None
        self._callbacks: list[Callable[[Any], Any]] = []
        self._errbacks: list[Callable[[Exception], Any]] = []

    def succeeded(self) -> bool:
        """Whether the commit succeeded."""
        return self.is_done and self.exception is None

    def failed(self) -> bool:
        """Whether the commit failed."""
        return self.is_done and self.exception is not None

    def retriable(self) -> bool:
        """Whether the same commit may succeed later."""
        return bool(getattr(self.exception, "retriable", False))

    def add_callback(self, callback: Callable[[Any], Any]) -> OffsetCommitFuture:
        """Registers a callback for the offsets.

        It is called at once if the commit has succeeded.
        """
        if self.succeeded():
            callback(self.value)
        elif not self.is_done:
            self._callbacks.append(callback)
        return self

    def add_errback(self, errback: Callable[[Exception], Any]) -> OffsetCommitFuture:
        """Registers a callback for the error.

        It is called at once if the commit has failed.
        """
        if self.exception is not None:
            errback(self.exception)
        elif not self.is_done:
            self._errbacks.append(errback)
        return self

    def resolve(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], error: Exception | None) -> None:
        """Completes the future."""
        self.is_done = True
        self.value, self.exception = (offsets, None) if error is None else (None, error)
        if error is None:
            for callback in self._callbacks:
                callback(offsets)
        else:
            for errback in self._errbacks:
                errback(error)
