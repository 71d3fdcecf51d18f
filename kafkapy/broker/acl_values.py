"""ACLs of requests: from numbers on the wire to values, and back."""

from __future__ import annotations

from collections.abc import Awaitable
from enum import IntEnum
from typing import Any, TypeVar, cast

from kafkapy.security.authorizer.base import AclBinding, AclBindingFilter
from kafkapy.types import AclOperation, AclPermissionType, PatternType, ResourceType

__all__ = ["binding_of", "filter_of", "settled"]

E = TypeVar("E", bound=IntEnum)
T = TypeVar("T")


def _value(kind: type[E], code: int) -> E:
    """The value of a code; UNKNOWN for codes that this version does not know."""
    found = kind._value2member_map_.get(code)
    return cast(E, kind(0) if found is None else found)


def binding_of(creation: Any) -> AclBinding:
    """The ACL of one entry of CreateAcls."""
    return AclBinding(
        _value(ResourceType, creation.resource_type),
        creation.resource_name,
        _value(PatternType, creation.resource_pattern_type),
        creation.principal,
        creation.host,
        _value(AclOperation, creation.operation),
        _value(AclPermissionType, creation.permission_type),
    )


def filter_of(asked: Any) -> AclBindingFilter:
    """The filter of DescribeAcls, or of one entry of DeleteAcls."""
    return AclBindingFilter(
        _value(ResourceType, asked.resource_type_filter),
        asked.resource_name_filter,
        _value(PatternType, asked.pattern_type_filter),
        asked.principal_filter,
        asked.host_filter,
        _value(AclOperation, asked.operation),
        _value(AclPermissionType, asked.permission_type),
    )


async def settled(result: list[T] | Awaitable[list[T]]) -> list[T]:
    """The result of an authorizer that answers at once, or later."""
    return result if isinstance(result, list) else await result
