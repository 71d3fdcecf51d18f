"""Objects that make bytes of keys and values, and the other way round, with kafka-python's names.

    producer = KafkaProducer(value_serializer=JsonSerializer())

Clients take plain functions of one argument as well.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["DefaultSerializer", "Deserializer", "JsonSerializer", "Serializer", "made", "serialize_with"]

Headers = Sequence[tuple[str, bytes | None]]
Serialize = Callable[[str, Any, Any], Any]
"""(topic, headers or None, data) -> bytes or None."""


class Serializer(ABC):
    """Makes the bytes of keys or values. Used on the threads that send; closed with its producer."""

    @abstractmethod
    def serialize(self, topic: str, headers: Headers, data: Any) -> bytes | None:
        """The bytes of one key or value; None stays null."""

    def close(self) -> None:  # noqa: B027 - most have nothing to release
        """Release what it holds."""


class Deserializer(ABC):
    """Makes keys or values out of bytes. Used on the thread that consumes; closed with its consumer."""

    @abstractmethod
    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> Any:
        """The key or value that the bytes stand for."""

    def close(self) -> None:  # noqa: B027 - most have nothing to release
        """Release what it holds."""


class DefaultSerializer(Serializer, Deserializer):
    """Text in an encoding. What is bytes already is sent as it is."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self.encoding = encoding

    def serialize(self, topic: str, headers: Headers, data: Any) -> bytes | None:
        """The encoded text."""
        if data is None or isinstance(data, (bytes, bytearray, memoryview)):
            return data  # type: ignore[return-value]
        encoded: bytes = data.encode(self.encoding)
        return encoded

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> Any:
        """The decoded text, None for null."""
        return None if data is None else bytes(data).decode(self.encoding)


class JsonSerializer(DefaultSerializer):
    """JSON in an encoding. None is null, not JSON's null."""

    def serialize(self, topic: str, headers: Headers, data: Any) -> bytes | None:
        """The encoded JSON."""
        return None if data is None else json.dumps(data).encode(self.encoding)

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> Any:
        """What the JSON says, None for null."""
        return None if data is None else json.loads(bytes(data).decode(self.encoding))


def made(serializer: Any) -> Any:
    """A configured serializer; where it is a class with serialize(), an object of it."""
    return serializer() if isinstance(serializer, type) and hasattr(serializer, "serialize") else serializer


def serialize_with(serializer: Any) -> Serialize | None:
    """How a producer calls a serializer: an object with serialize(), or a function of the data. None for none.
    TypeError.
    """
    if serializer is None:
        return None
    method = getattr(serializer, "serialize", None)
    if callable(method):

        def serialize(topic: str, headers: Any, data: Any) -> Any:
            return method(topic, headers or [], data)

        return serialize
    if not callable(serializer):
        raise TypeError(f"a serializer must be callable or have serialize(), not {serializer!r}")

    def call(topic: str, headers: Any, data: Any) -> Any:
        return serializer(data)

    return call
