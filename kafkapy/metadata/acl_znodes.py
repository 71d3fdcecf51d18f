"""The nodes of ACLs: Kafka 3.9's paths and encoding.

    /kafka-acl/<Type>/<name>                       the ACLs of one resource, or of all resources of the type (*)
    /kafka-acl-extended/prefixed/<Type>/<name>     the ACLs of the resources with a prefix
    /kafka-acl-changes/acl_changes_<seq>           notification: TYPE:name
    /kafka-acl-extended-changes/acl_changes_<seq>  notification: version, resourceType, name, patternType

The ACLs are {"version":1,"acls":[{"principal":"..","permissionType":"Allow","operation":"Read","host":"*"}]}. Names of
types, operations and permissions in paths and entries are in Pascal case (TransactionalId). Sources:
kafka.zk.ZkAclStore, kafka.zk.ZkAclChangeStore and org.apache.kafka.security.authorizer.AclEntry.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from enum import IntEnum
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar

from kafkapy.security.authorizer.bindings import ResourcePattern
from kafkapy.security.authorizer.masks import Key, Rules, bit_of, entries_of, pascal_name
from kafkapy.slices import in_slices
from kafkapy.types import AclOperation, AclPermissionType, PatternType, ResourceType

__all__ = [
    "ACL_CHANGES",
    "ACL_CHANGE_PREFIX",
    "ACL_PATHS",
    "EXTENDED_ACL_CHANGES",
    "StoredAcls",
    "acl_path",
    "decode_acl_change",
    "decode_acls",
    "decode_extended_acl_change",
    "encode_acl_change",
    "encode_acls",
    "resource_type_of",
]

ACLS: Final = {PatternType.LITERAL: "/kafka-acl", PatternType.PREFIXED: "/kafka-acl-extended/prefixed"}
"""The parent of the resource types, by pattern type."""
ACL_CHANGES: Final = "/kafka-acl-changes"
EXTENDED_ACL_CHANGES: Final = "/kafka-acl-extended-changes"
ACL_CHANGE_PREFIX: Final = "acl_changes_"
RESOURCE_TYPES: Final = tuple(kind for kind in ResourceType if kind > ResourceType.ANY)

E = TypeVar("E", bound=IntEnum)


class StoredAcls(NamedTuple):
    """The content of a node. Immutable.

    `unreadable` are the entries of newer brokers, which are kept when the node is written again.
    """

    rules: Rules = {}
    unreadable: tuple[Mapping[str, Any], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.rules or self.unreadable)


def _named(kind: type[E], name: object) -> E | None:
    """The value with this name, in any of the cases that Kafka reads. None for an unknown one."""
    return _values(kind).get(name.replace("_", "").upper()) if isinstance(name, str) else None


@cache
def _values(kind: type[E]) -> dict[str, E]:
    return {value.name.replace("_", ""): value for value in kind if value.name not in ("UNKNOWN", "ANY", "MATCH")}


def resource_type_of(name: str) -> ResourceType | None:
    """The resource type of a node's name. None for an unknown one."""
    return _named(ResourceType, name)


# --- paths --------------------------------------------------------------------------------------------------------


def acl_type_path(pattern_type: PatternType, resource_type: ResourceType) -> str:
    """The path of the parent of a type's patterns."""
    return f"{ACLS[pattern_type]}/{pascal_name(resource_type)}"


ACL_PATHS: Final = (
    *(acl_type_path(pattern_type, resource_type) for pattern_type in ACLS for resource_type in RESOURCE_TYPES),
    ACL_CHANGES,
    EXTENDED_ACL_CHANGES,
)
"""Nodes that a broker with ACLs creates at its start where they are missing."""


def acl_path(pattern: ResourcePattern) -> str:
    """The path of a pattern's ACLs."""
    return f"{acl_type_path(pattern.pattern_type, pattern.resource_type)}/{pattern.name}"


# --- ACLs ---------------------------------------------------------------------------------------------------------


async def encode_acls(acls: StoredAcls) -> bytes:
    """The ACLs of a pattern, encoded in slices."""
    parts: list[str] = []
    async for principal, host, operation, permission_type in in_slices(entries_of(acls.rules)):
        parts.append(
            f'{{"principal":{_text(principal)},"permissionType":"{pascal_name(permission_type)}",'
            f'"operation":"{pascal_name(operation)}","host":{_text(host)}}}'
        )
    parts += [json.dumps(each, separators=(",", ":"), ensure_ascii=False) for each in acls.unreadable]
    return f'{{"version":1,"acls":[{",".join(parts)}]}}'.encode()


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


async def decode_acls(pattern: ResourcePattern, data: bytes) -> StoredAcls:
    """The ACLs of a pattern, decoded in slices; none for an empty node.

    ValueError for another content.
    """
    if not data:
        return StoredAcls()
    what = f"the ACLs of {pattern}"
    try:
        value = json.loads(data)
    except ValueError as error:
        raise ValueError(f"{what} are not JSON: {error}") from None
    if not isinstance(value, dict) or value.get("version") != 1 or not isinstance(value.get("acls"), list):
        raise ValueError(f"{what} have not the format of version 1")
    rules: dict[Key, int] = {}
    unreadable: list[Mapping[str, Any]] = []
    async for each in _dicts(what, value["acls"]):
        principal, host = each.get("principal"), each.get("host")
        operation = _named(AclOperation, each.get("operation"))
        permission_type = _named(AclPermissionType, each.get("permissionType"))
        if (
            not isinstance(principal, str)
            or not isinstance(host, str)
            or operation is None
            or permission_type is None
            or not is_principal(principal)
        ):
            unreadable.append(each)
        else:
            key = (principal, host)
            rules[key] = rules.get(key, 0) | bit_of(operation, permission_type)
    return StoredAcls(rules, tuple(unreadable))


async def _dicts(what: str, values: list[Any]) -> AsyncIterator[Mapping[str, Any]]:
    async for each in in_slices(values):
        if not isinstance(each, dict):
            raise ValueError(f"{what} have an entry that is no object")
        yield each


def is_principal(text: str) -> bool:
    """Whether a text has the form Type:name."""
    kind, colon, name = text.partition(":")
    return bool(kind and colon and name)


# --- changes ------------------------------------------------------------------------------------------------------


def encode_acl_change(pattern: ResourcePattern) -> bytes:
    """The notification that the ACLs of a pattern have changed."""
    if pattern.pattern_type is PatternType.LITERAL:
        return f"{pattern.resource_type.name}:{pattern.name}".encode()
    value = {
        "version": 1,
        "resourceType": pattern.resource_type.name,
        "name": pattern.name,
        "patternType": pattern.pattern_type.name,
    }
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def decode_acl_change(data: bytes) -> ResourcePattern:
    """The literal pattern of a notification. ValueError."""
    kind, colon, name = data.decode().partition(":")
    resource_type = _named(ResourceType, kind)
    if not colon or resource_type is None:
        raise ValueError(f"{data!r} is no notification of a changed ACL")
    return ResourcePattern(resource_type, name, PatternType.LITERAL)


def decode_extended_acl_change(data: bytes) -> ResourcePattern:
    """The pattern of a notification about prefixes. ValueError."""
    value = json.loads(data)
    if not isinstance(value, dict) or value.get("version") != 1 or not isinstance(value.get("name"), str):
        raise ValueError(f"{data!r} is no notification of a changed ACL")
    resource_type = _named(ResourceType, value.get("resourceType"))
    pattern_type = _named(PatternType, value.get("patternType"))
    if resource_type is None or pattern_type not in ACLS:
        raise ValueError(f"{data!r} names an unknown kind of resources")
    return ResourcePattern(resource_type, value["name"], pattern_type)
