"""The subscriptions of a consumer group: topic names and regular expressions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class ResolvedRegex(NamedTuple):
    """The topics that an expression matched, and the time.

    The time is in ms since the epoch. `version` is the metadata version in Kafka's own counting; this broker
    has no such number and writes 0.
    """

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class Subscriptions(NamedTuple):
    """The subscriptions of a group's members, now or after a change. Immutable."""

    names: Mapping[str, int]
    """Topic to the number of members that name it."""
    regexes: Mapping[str, int]
    """Expression to the number of members that subscribe with it."""
    topics: frozenset[str]
    """All topics, by name or by expression."""

    def is_homogeneous(self, member_count: int) -> bool:
        """Whether all members evidently subscribe to the same topics."""
        if not self.regexes:
            return all(count == member_count for count in self.names.values())
        return not self.names and len(self.regexes) == 1 and next(iter(self.regexes.values())) == member_count
