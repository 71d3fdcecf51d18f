"""Interceptors of a consumer: they see polled records and committed offsets (KIP-42).

They may change the records. Source: org.apache.kafka.clients.consumer.ConsumerInterceptor and
internals.ConsumerInterceptors (4.1).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from kafkapy.types import OffsetAndMetadata, TopicPartition

__all__ = ["ConsumerInterceptor", "ConsumerInterceptors"]

logger = logging.getLogger("kafka.consumer.interceptors")


class ConsumerInterceptor:
    """A base class with methods that do nothing.

    Any object with some of these methods is an interceptor. `on_commit` runs on the loop's thread, the others on the
    user's. Errors are logged, and the next interceptor runs.
    """

    def on_consume(self, records: dict[TopicPartition, list[Any]]) -> dict[TopicPartition, list[Any]]:
        """Called with the records that poll() returns; returns their replacement."""
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Called after a commit of these offsets."""

    def close(self) -> None:
        """Called when the consumer closes."""


class ConsumerInterceptors:
    """The interceptors of one consumer, in order.

    `given`: objects, or classes with a constructor without arguments.
    """

    def __init__(self, given: Iterable[Any]) -> None:
        self._all = [each() if isinstance(each, type) else each for each in given]

    def __bool__(self) -> bool:
        return bool(self._all)

    def on_consume(self, records: dict[TopicPartition, list[Any]]) -> dict[TopicPartition, list[Any]]:
        """The records after all interceptors."""
        for each in self._all:
            method = getattr(each, "on_consume", None)
            if method is not None:
                try:
                    records = method(records)
                except Exception:
                    logger.warning("Interceptor %r failed in on_consume", each, exc_info=True)
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Passes committed offsets to all interceptors."""
        self._tell("on_commit", offsets)

    def close(self) -> None:
        """Closes all interceptors."""
        self._tell("close")

    def _tell(self, name: str, *arguments: Any) -> None:
        for each in self._all:
            method = getattr(each, name, None)
            if method is not None:
                try:
                    method(*arguments)
                except Exception:
                    logger.warning("Interceptor %r failed in %s", each, name, exc_info=True)
