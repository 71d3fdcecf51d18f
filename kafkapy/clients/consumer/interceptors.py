"""Interceptors of a consumer: they see, and may change, what poll() returns, and see what was committed (KIP-42).

Source: org.apache.kafka.clients.consumer.ConsumerInterceptor and internals.ConsumerInterceptors (4.1).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from kafkapy.types import OffsetAndMetadata, TopicPartition

__all__ = ["ConsumerInterceptor", "ConsumerInterceptors"]

logger = logging.getLogger("kafka.consumer.interceptors")


class ConsumerInterceptor:
    """A base with methods that do nothing; any object with some of these methods will do. Called on the user's thread,
    `on_commit` on the loop's. What a method raises is logged, and the next interceptor has its turn.
    """

    def on_consume(self, records: dict[TopicPartition, list[Any]]) -> dict[TopicPartition, list[Any]]:
        """Called with what poll() is about to return; returns what it returns instead."""
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Called when these offsets have been committed."""

    def close(self) -> None:
        """Called when the consumer is closed."""


class ConsumerInterceptors:
    """The interceptors of one consumer, in their order. `given`: objects, or classes that are called without
    arguments.
    """

    def __init__(self, given: Iterable[Any]) -> None:
        self._all = [each() if isinstance(each, type) else each for each in given]

    def __bool__(self) -> bool:
        return bool(self._all)

    def on_consume(self, records: dict[TopicPartition, list[Any]]) -> dict[TopicPartition, list[Any]]:
        """What the interceptors make of the records."""
        for each in self._all:
            method = getattr(each, "on_consume", None)
            if method is not None:
                try:
                    records = method(records)
                except Exception:
                    logger.warning("Interceptor %r failed in on_consume", each, exc_info=True)
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Tells the interceptors."""
        self._tell("on_commit", offsets)

    def close(self) -> None:
        """Closes the interceptors."""
        self._tell("close")

    def _tell(self, name: str, *arguments: Any) -> None:
        for each in self._all:
            method = getattr(each, name, None)
            if method is not None:
                try:
                    method(*arguments)
                except Exception:
                    logger.warning("Interceptor %r failed in %s", each, name, exc_info=True)
