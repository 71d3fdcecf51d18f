"""Interceptors: a user's objects that see all records and results.

    class Audit:
        def on_send(self, record): return record                        # or another ProducerRecord
        def on_acknowledgement(self, metadata, exception): ...
        def close(self): ...

on_send sees a record before its serialization. All methods are optional. Their errors are logged and have no effect, as
in Kafka's ProducerInterceptors.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterable
from importlib import import_module
from typing import Any, NamedTuple

from kafkapy.errors import ConfigError
from kafkapy.types import RecordMetadata

__all__ = ["ProducerInterceptors", "ProducerRecord"]

log = logging.getLogger("kafkapy.producer")


class ProducerRecord(NamedTuple):
    """A record before serialization."""

    topic: str
    value: Any = None
    key: Any = None
    headers: Any = None
    partition: int | None = None
    timestamp_ms: int | None = None


class ProducerInterceptors:
    """The interceptors of one producer, in order.

    on_send runs on threads that send, the other methods run on the producer's loop.
    """

    def __init__(self, interceptors: Iterable[Any]) -> None:
        """Takes objects, classes, or dotted names of classes. ConfigError."""
        self._interceptors = [_made(each) for each in interceptors]

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """The record after all interceptors."""
        for interceptor in self._interceptors:
            try:
                method = getattr(interceptor, "on_send", None)
                if method is not None:
                    record = method(record) or record
            except Exception:
                log.exception("An interceptor's on_send failed with a record for %s", record.topic)
        return record

    def on_acknowledgement(self, metadata: RecordMetadata | None, exception: BaseException | None) -> None:
        """Passes a result to all interceptors."""
        for interceptor in self._interceptors:
            try:
                method = getattr(interceptor, "on_acknowledgement", None)
                if method is not None:
                    method(metadata, exception)
            except Exception:
                log.exception("An interceptor's on_acknowledgement failed")

    def close(self) -> None:
        """Closes all interceptors."""
        for interceptor in self._interceptors:
            try:
                method = getattr(interceptor, "close", None)
                if method is not None:
                    method()
            except Exception:
                log.exception("An interceptor failed to close")


def _made(given: Any) -> Any:
    if isinstance(given, str):
        module, _, name = given.rpartition(".")
        try:
            given = getattr(import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise ConfigError("interceptor.classes", given, f"cannot be imported: {error}") from None
    return given() if inspect.isclass(given) else given
