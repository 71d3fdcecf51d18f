"""The subscriptions of a consumer group: topic names and regular expressions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class ResolvedRegex(NamedTuple):
    """The topics an expression matched, and when in ms since the epoch. `version` is that of the metadata, of Kafka's
    own counting; this broker has no such number and writes 0.
    """

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class Subscriptions(NamedTuple):
    """What the members of a group subscribe to, or will after a change. Immutable."""

    names: Mapping[str, int]
    """Topic to the members that name it."""
    regexes: Mapping[str, int]
    """Expression to the members that subscribe with it."""
    topics: frozenset[str]
    """All topics: those that are named, and those that expressions match."""

    def is_homogeneous(self, member_count: int) -> bool:
        """Whether all members subscribe to the same topics, as far as that is plain to see."""
        if not self.regexes:
            return all(count == member_count for count in self.names.values())
        return not self.names and len(self.regexes) == 1 and next(iter(self.regexes.values())) == member_count
