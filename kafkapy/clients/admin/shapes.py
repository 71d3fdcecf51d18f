"""The form of results: dicts, names of bits, texts of errors."""

from __future__ import annotations

import asyncio
import enum
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar

from kafkapy.errors import KafkaError, NoError, error_class, error_for
from kafkapy.protocol.schema import Field, Struct
from kafkapy.types import ZERO_UUID, AclOperation, TopicPartition

__all__ = [
    "OK",
    "as_dict",
    "as_dicts",
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

PIECE = 2000
"""The structs that become dicts in one turn of the loop."""

E = TypeVar("E", bound=enum.Enum)


def as_dict(message: Struct, *without: str) -> dict[str, Any]:
    """The fields of a message and its structs by name.

    uuids are text (None for the null one), bytes are text with escapes.
    """
    return _dict_of(type(message), without)(message)


async def as_dicts(messages: Sequence[Struct], *without: str) -> list[dict[str, Any]]:
    """`as_dict` of many messages. Other tasks of the loop run between pieces of them."""
    rows: list[dict[str, Any]] = []
    for start in range(0, len(messages), PIECE):
        rows += [as_dict(message, *without) for message in messages[start : start + PIECE]]
        if len(messages) - start > PIECE:
            await asyncio.sleep(0)
    return rows


@cache
def _dict_of(struct: type[Struct], without: tuple[str, ...] = ()) -> Callable[[Struct], dict[str, Any]]:
    """The function that makes the dict of a struct.

    A metadata response has 100,000 structs: the declaration is read once for all of them.
    """
    fields = [field for field in struct._fields if field.name not in without]
    names = tuple(field.name for field in fields)
    plain = {field.name: each for field in fields if (each := _plain(field)) is not None}
    read: Callable[[Struct], Iterable[Any]] = attrgetter(*names) if len(names) > 1 else _one_by_one(names)

    def dict_of(message: Struct) -> dict[str, Any]:
        row = dict(zip(names, read(message), strict=True))
        for name, convert in plain.items():
            row[name] = convert(row[name])
        return row

    return dict_of


def _one_by_one(names: tuple[str, ...]) -> Callable[[Struct], list[Any]]:
    return lambda message: [getattr(message, name) for name in names]


def _plain(field: Field) -> Callable[[Any], Any] | None:
    """The conversion of a field's values; None for values that stay."""
    if field.kind == "uuid":
        return lambda value: None if value == ZERO_UUID else str(value)
    if field.kind == "bytes":
        return lambda value: None if value is None else value.decode(errors="backslashreplace")
    if field.struct is not None:
        dict_of = _dict_of(field.struct)
        return lambda value: None if value is None else dict_of(value)
    if field.element is None:
        return None
    element = _plain(field.element)
    if element is None:
        return lambda values: None if values is None else list(values)
    return lambda values: None if values is None else [element(value) for value in values]


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
