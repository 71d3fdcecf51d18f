"""The partition of a coordinator topic for a group or transactional id."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

REMEMBERED_KEY: Final = 100
"""Characters of a group or transactional id whose partition is remembered; of longer ones it is computed each time."""


def partition_of(key: str, partition_count: int) -> int:
    """The partition of a coordinator topic that a key belongs to.

    It is the absolute value of Java's hash of the text, 0 for the least number
    (org.apache.kafka.common.utils.Utils.abs).
    """
    # Clients choose the keys, and may send any number of them with 32,767 characters each: those are not remembered.
    return (_remembered if len(key) <= REMEMBERED_KEY else _partition_of)(key, partition_count)


def _partition_of(key: str, partition_count: int) -> int:
    value = abs(java_hash(key))
    return 0 if value > 0x7FFFFFFF else value % partition_count


_remembered = lru_cache(10_000)(_partition_of)


def java_hash(text: str) -> int:
    """Java's String.hashCode: over UTF-16 code units, as a signed 32-bit number."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(units), 2):
        value = (31 * value + (units[index] << 8 | units[index + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value
