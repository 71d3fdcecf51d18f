"""The largest valid bodies of every request that a broker serves, made from the declarations alone: an API that is
added is covered without a line here.

Each array of a request, at any depth, is made long in turn, with the same entry over and over, with entries that all
differ, and with names as long as they may be. What surrounds it is there once.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from enum import Enum
from typing import Any, NamedTuple

from kafkapy.protocol.registry import ApiKeys
from kafkapy.protocol.schema import ZERO_UUID, Field, Request, Struct

NAME = "bounded"
"""A topic that exists, and a group."""
LONGEST_NAME = 249
FEW = 100
"""Partitions of the topic."""
TOPIC_RESOURCE = 2

VALUES: dict[str, Any] = {
    "acks": 1,
    "timeout_ms": 1000,
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
    "partition_max_bytes": 1024,
    "max_bytes": 1024,
    "resource_type": TOPIC_RESOURCE,
    "timestamp": -1,
    "replica_id": -1,
    "current_leader_epoch": -1,
    "partition_leader_epoch": -1,
    "generation_id": -1,
    "generation_id_or_member_epoch": -1,
    "replication_factor": 1,
    "num_partitions": 1,
    "count": FEW + 1,
    "session_epoch": -1,
    "response_partition_limit": 2000,
    "endpoint_type": 1,
    "producer_id": 1,
    "protocol_type": "consumer",
    "assignment_configs": None,
    "v3_and_below_transactional_id": NAME,
    "server_assignor": None,
    "group_instance_id": None,
    "instance_id": None,
    "rack_id": "",
    "subscribed_topic_regex": None,
    "assignments": [],
    "member_id": "",
    "max_num_offsets": 1,
}
"""Where the zero of a kind would end a request early, by the field's name."""


class Entries(Enum):
    """What the long array holds."""

    SAME = "same"
    EXISTING = "existing"
    """Every partition that exists, in turn."""
    DISTINCT = "distinct"
    LONG = "long names"


class Body(NamedTuple):
    """One request class in one version with one of its arrays made long."""

    request: type[Request]
    version: int
    path: tuple[str, ...]
    entries: Entries

    def __str__(self) -> str:
        return f"{self.request.NAME} v{self.version} {'.'.join(self.path)} ({self.entries.value})"

    def made(self, count: int, topic_id: uuid.UUID, records: bytes, unique: str) -> Request:
        """The request with so many entries. `unique` is a name that no other body has."""
        maker = _Maker(self, count, topic_id, records, unique)
        message: Request = maker.struct(self.request, self.path, 0, Entries.SAME)
        return message


def bodies(keys: list[int], *, all_versions: bool) -> Iterator[Body]:
    """Those of the newest version of each layout, or only of the newest of all."""
    for key in sorted(keys):
        request = ApiKeys(key).request
        seen = set()
        for version in reversed(range(request.VERSIONS.low, request.VERSIONS.high + 1)):
            layout = _layout(request, version)
            if layout in seen:
                continue
            seen.add(layout)
            for path in _arrays(request, version):
                for entries in Entries:
                    yield Body(request, version, path, entries)
            if not all_versions:
                break


def _layout(struct: type[Struct], version: int) -> tuple[Any, ...]:
    found: list[Any] = []
    for field in struct._fields:
        if version in field.versions:
            inner = field.element.struct if field.element is not None else field.struct
            found.append((field.name, () if inner is None else _layout(inner, version)))
    return tuple(found)


def _arrays(struct: type[Struct], version: int) -> Iterator[tuple[str, ...]]:
    for field in struct._fields:
        if version not in field.versions or field.element is None:
            continue
        yield (field.name,)
        if field.element.struct is not None:
            for path in _arrays(field.element.struct, version):
                yield (field.name, *path)


class _Maker:
    def __init__(self, body: Body, count: int, topic_id: uuid.UUID, records: bytes, unique: str) -> None:
        self.body = body
        self.count = count
        self.topic_id = topic_id
        self.records = records
        self.unique = unique

    def struct(self, cls: type[Any], path: tuple[str, ...], i: int, entries: Entries) -> Any:
        carried = [field for field in cls._fields if self.body.version in field.versions]
        named = any(field.name in ("name", "topic") for field in carried)
        made = cls()
        for field in carried:
            inside = path[1:] if path[:1] == (field.name,) else None
            setattr(made, field.name, self.value(field, inside, i, entries, named))
        return made

    def value(self, field: Field, path: tuple[str, ...] | None, i: int, entries: Entries, named: bool) -> Any:
        if field.element is not None and (path is not None or field.name not in VALUES):
            return self.array(field.element, path)
        if field.name in VALUES:
            return VALUES[field.name]
        if field.kind == "string":
            return self.text(field.name, i, entries)
        if field.kind == "boolean":
            return True
        if field.kind == "uuid":
            if named:
                return ZERO_UUID
            return self.topic_id if entries in (Entries.SAME, Entries.EXISTING) else uuid.UUID(int=i + 1)
        if field.kind in ("int8", "int16", "int32", "int64"):
            return self.number(field.name, i, entries)
        if field.kind == "records":
            return self.records
        if field.kind == "bytes":
            return b""
        return field.default if field.kind != "struct" or not isinstance(field.default, type) else field.default()

    def array(self, element: Field, path: tuple[str, ...] | None) -> list[Any]:
        long = path == ()
        entries = self.body.entries if long else Entries.SAME
        if element.struct is not None:
            struct = element.struct
            return [self.struct(struct, path or (), i, entries) for i in range(self.count if long else 1)]
        if element.kind == "string":
            return [self.text("", i, entries) for i in range(self.count if long else 1)]
        if element.kind == "uuid":
            same = entries in (Entries.SAME, Entries.EXISTING)
            return [self.topic_id if same else uuid.UUID(int=i + 1) for i in range(self.count if long else 1)]
        if element.kind == "int8":
            # A kind of something, of which there are no more than fit: the one of topics, or all in turn.
            same = entries in (Entries.SAME, Entries.EXISTING)
            return [TOPIC_RESOURCE if same else i % 128 for i in range(self.count if long else 1)]
        return [self.number("partition", i, entries) for i in range(self.count if long else 1)]

    def text(self, name: str, i: int, entries: Entries) -> str:
        if name == "group_id" and entries is Entries.SAME:
            return self.unique
        if entries is Entries.DISTINCT:
            return f"{NAME}-{i}"
        if entries is Entries.LONG:
            return f"{i:0{LONGEST_NAME}}"
        return NAME

    def number(self, name: str, i: int, entries: Entries) -> int:
        if "partition" in name or "index" in name:
            return 0 if entries is Entries.SAME else i % FEW if entries is Entries.EXISTING else i
        return 0
