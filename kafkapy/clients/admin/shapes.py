"""The form of results: dicts, names of bits, texts of errors."""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar
from uuid import UUID

from kafkapy.errors import KafkaError, NoError, error_class, error_for
from kafkapy.protocol.schema import Struct
from kafkapy.types import ZERO_UUID, AclOperation, TopicPartition

__all__ = [
    "OK",
    "as_dict",
    "by_topic",
    "checked",
    "error_of",
    "error_text",
    "error_type",
    "member_of",
    "operation_names",
    "partitions_argument",
]

OK = "OK"
"""The successful outcome in results by name."""
NOT_TOLD = -(2**31)
"""The value of authorized operations that are unknown or were not requested."""

E = TypeVar("E", bound=enum.Enum)


def as_dict(message: Struct, *without: str) -> dict[str, Any]:
    """The fields of a message and its structs by name.

    uuids are text (None for the null one), bytes are text with escapes.
    """
    return {
        field.name: _plain(getattr(message, field.name)) for field in type(message)._fields if field.name not in without
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Struct):
        return as_dict(value)
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, UUID):
        return None if value == ZERO_UUID else str(value)
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return value


def operation_names(bits: int) -> list[str] | None:
    """The names of the ACL operations in a bit field, or None.

    None: the broker did not return them.
    """
    if bits == NOT_TOLD:
        return None
    return [each.name for each in AclOperation if each > AclOperation.ALL and bits >> each & 1]


def error_type(code: int) -> type[KafkaError]:
    """The error class of a code; `NoError` for 0."""
    return error_class(code) if code else NoError


def error_of(code: int, message: str | None = None) -> KafkaError | None:
    """The error of a code, None for 0.

    The default message is the error's own.
    """
    return error_for(code, message or None) if code else None


def checked(response: Any) -> Any:
    """The response, unless it has an error of the whole request, which is raised."""
    error = error_of(response.error_code, getattr(response, "error_message", None))
    if error is not None:
        raise error
    return response


def error_text(code: int, message: str | None = None) -> str | None:
    """The error's name and sentence as text, None for 0."""
    error = error_of(code, message)
    return None if error is None else f"{type(error).__name__}: {error}"


def member_of(kind: type[E], value: object) -> E:
    """An enum member from itself, its value, or its name.

    Names are accepted in any case, and with - for _. ValueError with the names for other values.
    """
    if isinstance(value, kind):
        return value
    folded = str(value).strip().replace("-", "_").replace("_", "").lower()
    for member in kind:
        if member.value == value or folded in (member.name.replace("_", "").lower(), str(member.value).lower()):
            return member
    raise ValueError(f"{value!r} is not a {kind.__name__}: expected one of {', '.join(each.name for each in kind)}")


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partition numbers by topic, in the given order."""
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, partition in partitions:
        topics[topic].append(partition)
    return dict(topics)


def partitions_argument(
    partitions: Mapping[str, Iterable[int]] | Iterable[TopicPartition],
) -> list[TopicPartition]:
    """TopicPartitions from a {topic: [partition]} dict or from (topic, partition) pairs."""
    if isinstance(partitions, Mapping):
        return [TopicPartition(topic, each) for topic, numbers in partitions.items() for each in numbers]
    return [TopicPartition(*each) for each in partitions]
