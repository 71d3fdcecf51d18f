"""The rules of a resource pattern as masks.

Bit n allows operation n, bit n + 16 denies it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from functools import cache, lru_cache
from typing import Final

from kafkapy.security.authorizer.bindings import AccessControlEntry
from kafkapy.types import AclOperation, AclPermissionType

__all__ = ["DENY_SHIFT", "Key", "Rules", "bit_of", "bits_of", "entries_of", "pascal_name"]

DENY_SHIFT: Final = 16
"""The distance of an operation's denying bit from its allowing one."""

Key = tuple[str, str]
"""A principal and a host."""
Rules = Mapping[Key, int]
"""The masks of one resource pattern. Not changed once others have them."""


def bit_of(operation: AclOperation, permission_type: AclPermissionType) -> int:
    """The bit of a mask that an entry sets."""
    return 1 << (operation + (DENY_SHIFT if permission_type is AclPermissionType.DENY else 0))


def bits_of(mask: int) -> Iterator[int]:
    """The bits of a mask, each as a mask."""
    while mask:
        lowest = mask & -mask
        mask ^= lowest
        yield lowest


def entries_of(rules: Rules) -> Iterator[AccessControlEntry]:
    """The rules of a resource pattern, one by one."""
    for (principal, host), mask in rules.items():
        for bit in bits_of(mask):
            yield AccessControlEntry(principal, host, *_rule(bit.bit_length() - 1))


@cache
def _rule(bit: int) -> tuple[AclOperation, AclPermissionType]:
    denied, operation = divmod(bit, DENY_SHIFT)
    return AclOperation(operation), AclPermissionType.DENY if denied else AclPermissionType.ALLOW


@lru_cache(maxsize=None, typed=True)
def pascal_name(value: IntEnum) -> str:
    """The name of an enum's value in nodes and log lines: TransactionalId."""
    # Typed: values of different enums with the same number are equal.
    return "".join(word.capitalize() for word in value.name.split("_"))
