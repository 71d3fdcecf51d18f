"""The regular expressions that members of a consumer group subscribe with."""

from __future__ import annotations

from typing import NamedTuple


class ResolvedRegex(NamedTuple):
    """The topics that an expression matched, and the time.

    The time is in ms since the epoch. `version` is the metadata version in Kafka's own counting; this broker
    has no such number and writes 0.
    """

    topics: frozenset[str]
    version: int
    timestamp_ms: int
