"""Replication throttles (KIP-73): which replicas the topics' keys name."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

__all__ = ["ALL", "names_replica"]

ALL: Final = "*"
"""The entry that names all replicas of a topic."""


def names_replica(listed: Collection[str], partition: int, broker_id: int) -> bool:
    """Whether a list of `partition:broker` pairs, or `*`, names that replica."""
    if not listed:
        return False
    replica = f"{partition}:{broker_id}"
    return any(entry.strip() in (ALL, replica) for entry in listed)
