"""How answers are shown: messages as dicts, bit fields as names, errors as kafka-python shows them."""

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
"""What stands in results by name where all went well."""
NOT_TOLD = -(2**31)
"""Authorized operations that were not asked for, or are not known."""

E = TypeVar("E", bound=enum.Enum)


def as_dict(message: Struct, *without: str) -> dict[str, Any]:
    """The fields of a message and of all structs in it by name; uuids as text (None for the null one), bytes as text
    with escapes."""
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
    """The names of the ACL operations in a bit field, None where the broker did not tell."""
    if bits == NOT_TOLD:
        return None
    return [each.name for each in AclOperation if each > AclOperation.ALL and bits >> each & 1]


def error_type(code: int) -> type[KafkaError]:
    """The class of a code, `NoError` for 0: what stands in results by partition."""
    return error_class(code) if code else NoError


def error_of(code: int, message: str | None = None) -> KafkaError | None:
    """The error of a code, None for 0; without a message of the broker's it has its own."""
    return error_for(code, message or None) if code else None


def checked(response: Any) -> Any:
    """The response, unless it has an error of the whole request, which is raised."""
    error = error_of(response.error_code, getattr(response, "error_message", None))
    if error is not None:
        raise error
    return response


def error_text(code: int, message: str | None = None) -> str | None:
    """What stands as text in results: the error's name and sentence; None for 0."""
    error = error_of(code, message)
    return None if error is None else f"{type(error).__name__}: {error}"


def member_of(kind: type[E], value: object) -> E:
    """A member from itself, its value, or its name in any case and with - for _. ValueError says what there is."""
    if isinstance(value, kind):
        return value
    folded = str(value).strip().replace("-", "_").replace("_", "").lower()
    for member in kind:
        if member.value == value or folded in (member.name.replace("_", "").lower(), str(member.value).lower()):
            return member
    raise ValueError(f"{value!r} is no {kind.__name__}: one of {', '.join(each.name for each in kind)} is expected")


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partition numbers by topic, in the order given."""
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, partition in partitions:
        topics[topic].append(partition)
    return dict(topics)


def partitions_argument(
    partitions: Mapping[str, Iterable[int]] | Iterable[TopicPartition],
) -> list[TopicPartition]:
    """TopicPartitions from a {topic: [partition]} dict or from themselves (any (topic, partition) pairs)."""
    if isinstance(partitions, Mapping):
        return [TopicPartition(topic, each) for topic, numbers in partitions.items() for each in numbers]
    return [TopicPartition(*each) for each in partitions]
