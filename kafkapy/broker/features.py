"""The features of this broker and their levels (KIP-584).

Clients and other brokers may count on them.

Source: org.apache.kafka.server.common.Feature. Levels are fixed here: a cluster has the latest of each.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Feature(NamedTuple):
    """The levels that are supported, and the one that is in force."""

    name: str
    min_level: int
    max_level: int
    finalized_level: int


FEATURES: Final = (
    # 1: the consumer protocol (KIP-848).
    Feature("group.version", 0, 1, 1),
    # 2: an epoch for each transaction, and partitions that the broker adds (KIP-890).
    Feature("transaction.version", 0, 2, 2),
)

FEATURES_EPOCH: Final = 0
"""Grows when a finalized level changes; clients keep what they know of the highest."""
