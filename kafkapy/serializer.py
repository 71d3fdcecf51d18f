"""Serializers and deserializers of keys and values, with kafka-python's names.

    producer = KafkaProducer(value_serializer=JsonSerializer())

Clients also accept plain functions of one argument.
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
    """Turns keys or values into bytes.

    It runs on the threads that send. The producer closes it.
    """

    @abstractmethod
    def serialize(self, topic: str, headers: Headers, data: Any) -> bytes | None:
        """The bytes of one key or value; None is null."""

    def close(self) -> None:  # noqa: B027 - most have nothing to release
        """Releases the serializer's resources."""


class Deserializer(ABC):
    """Turns bytes into keys or values.

    It runs on the thread that consumes. The consumer closes it.
    """

    @abstractmethod
    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> Any:
        """The key or value for these bytes."""

    def close(self) -> None:  # noqa: B027 - most have nothing to release
        """Releases the deserializer's resources."""


class DefaultSerializer(Serializer, Deserializer):
    """Text in an encoding. Bytes are sent unchanged."""

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
    """JSON in an encoding.

    None becomes a null record value, not JSON's null.
    """

    def serialize(self, topic: str, headers: Headers, data: Any) -> bytes | None:
        """The encoded JSON."""
        return None if data is None else json.dumps(data).encode(self.encoding)

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> Any:
        """The decoded JSON value, None for null."""
        return None if data is None else json.loads(bytes(data).decode(self.encoding))


def made(serializer: Any) -> Any:
    """An instance of a class with serialize(), or the serializer unchanged."""
    return serializer() if isinstance(serializer, type) and hasattr(serializer, "serialize") else serializer


def serialize_with(serializer: Any) -> Serialize | None:
    """A function (topic, headers, data) that calls the serializer, or None.

    The serializer is an object with serialize(), or a function of the data. TypeError for other objects.
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
