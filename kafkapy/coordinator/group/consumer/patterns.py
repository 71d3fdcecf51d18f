"""Subscriptions by regular expression: their matches against the cluster's topics.

A new expression is compiled at once, so that a bad one is refused, and matched right after, in a worker thread. All
expressions of a group are matched again when topics were created, at least every
group.consumer.regex.refresh.interval.ms, and at most every ten seconds. Source: GroupMetadataManager
(maybeUpdateRegularExpressions, handleRegularExpressionsResult).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kafkapy.coordinator.group.consumer import records as records_of
from kafkapy.coordinator.group.consumer.group import ConsumerGroup
from kafkapy.coordinator.group.consumer.member import ConsumerGroupMember
from kafkapy.coordinator.group.consumer.rebalance import ConsumerRebalance
from kafkapy.coordinator.group.consumer.subscriptions import ResolvedRegex
from kafkapy.coordinator.group.modern.group import Refresh
from kafkapy.coordinator.group.modern.rebalance import Records
from kafkapy.coordinator.group.modern.topics import GroupTopics
from kafkapy.coordinator.group.subscription_patterns import compile_pattern, resolve
from kafkapy.coordinator.result import Result
from kafkapy.metadata.cache import MetadataSnapshot

if TYPE_CHECKING:
    from kafkapy.coordinator.clock import Clock
    from kafkapy.coordinator.group.config import GroupConfig
    from kafkapy.coordinator.shard_timer import ShardTimer

logger = logging.getLogger("kafka.coordinator.group.GroupCoordinator")

LEAST_REFRESH_INTERVAL_MS: Final = 10_000
NO_VERSION: Final = 0
MOST_ATTEMPTS: Final = 3
"""Most attempts to write a match that may be too large for one batch.

The next heartbeat repeats the match.
"""

Visible = Callable[[Iterable[str]], set[str]]
"""Returns the topics, out of some, that a member may describe."""


@dataclass(slots=True)
class _Match:
    """Expressions with their matched topics, before the log holds them."""

    group_id: str
    topics: Mapping[str, object]
    found: dict[str, frozenset[str]]
    visible: Visible
    attempts: int = 0


class ConsumerPatterns:
    """The matches of a shard's expressions.

    Owned by a GroupShard; used on the control loop's thread.
    """

    def __init__(
        self,
        rebalance: ConsumerRebalance,
        timer: ShardTimer[Any],
        clock: Clock,
        config: GroupConfig,
        metadata: Callable[[], MetadataSnapshot],
    ) -> None:
        self._rebalance = rebalance
        self._timer = timer
        self._clock = clock
        self._config = config
        self._metadata = metadata
        self._matching: set[str] = set()
        """Groups whose expressions are being matched."""

    def changed(
        self,
        group: ConsumerGroup,
        before: ConsumerGroupMember,
        after: ConsumerGroupMember,
        visible: Visible,
        records: Records,
    ) -> bool:
        """Whether a changed expression of a member requires a new epoch.

        It starts a match of the group's expressions when it is due. INVALID_REGULAR_EXPRESSION.
        """
        old, new = before.topic_regex, after.topic_regex
        if not old and not new and not group.subscribed_regexes:
            return False
        bump, is_new = False, False
        if old != new:
            if old in group.resolved:
                if group.subscribed_regexes.get(old) == 1:
                    records.append(records_of.regular_expression_tombstone(group.group_id, old))
                # Kafka waits for the next expression, and for good when there is none.
                bump = not new
            if new and new not in group.subscribed_regexes:
                compile_pattern(new)
                is_new = True
            elif new:
                bump = new in group.resolved
        wanted = group.subscriptions([before], after).regexes
        if wanted and self._is_due(group, wanted, is_new):
            self._match(group.group_id, sorted(wanted), visible)
        return bump

    def _match(self, group_id: str, patterns: list[str], visible: Visible) -> None:
        """Match in a worker thread, as there may be many topics.

        An operation then applies the result.
        """
        topics = self._metadata().topics
        self._matching.add(group_id)

        def done(found: dict[str, frozenset[str]]) -> None:
            self._matching.discard(group_id)
            match = _Match(group_id, topics, found, visible)
            self._timer.schedule(("consumer-regex", group_id), 0, lambda _shard, now: self._take_over(match, now))

        def failed(error: Exception) -> None:
            self._matching.discard(group_id)
            logger.error("The regular expressions of group %s cannot be resolved: %s", group_id, error)

        self._clock.run_blocking(lambda: resolve(patterns, topics), done, failed)

    def _is_due(self, group: ConsumerGroup, wanted: Mapping[str, int], is_new: bool) -> bool:
        if group.group_id in self._matching or ("consumer-regex", group.group_id) in self._timer:
            return False
        last = next((each.timestamp_ms for each in group.resolved.values()), None)
        now = self._clock.time_ms()
        if last is not None and now <= last + LEAST_REFRESH_INTERVAL_MS:
            return False
        return (
            is_new
            or last is None
            or wanted.keys() != group.resolved.keys()
            or now > last + self._config.consumer_regex_refresh_interval_ms
            or self._has_new_topics(group)
        )

    def _has_new_topics(self, group: ConsumerGroup) -> bool:
        topics = self._metadata().topics
        seen = group.regex_topics
        if seen is topics:
            return False
        if seen is None or topics.keys() - seen.keys():
            return True
        group.regex_topics = topics
        return False

    def _take_over(self, match: _Match, now_ms: int) -> Result[None]:
        group = self._rebalance.find(match.group_id)
        match.attempts += 1
        if match.attempts > MOST_ATTEMPTS:
            logger.error("The topics that the regular expressions of group %s match cannot be written", match.group_id)
            return Result(None)
        if group is None:
            return Result(None)
        allowed = match.visible(frozenset().union(*match.found.values()))
        records: Records = []
        resolved = dict(group.resolved)
        changed = False
        for pattern, matched in match.found.items():
            if pattern not in group.subscribed_regexes:
                continue
            before = resolved.get(pattern)
            now = resolved[pattern] = ResolvedRegex(matched & allowed, NO_VERSION, now_ms)
            # A member may have another expression's topics until the first result of its own, even one without topics.
            changed = changed or before is None or now.topics != before.topics
            records.append(records_of.regular_expression(group.group_id, pattern, now))
        names = frozenset(group.subscriptions().names).union(
            *(resolved[pattern].topics for pattern in group.subscribed_regexes if pattern in resolved)
        )
        group.regex_topics = match.topics
        snapshot = self._metadata()
        metadata_hash = GroupTopics(snapshot).hash_of(names)
        if changed or metadata_hash != group.metadata_hash:
            epoch = self._rebalance.next_epoch(group, metadata_hash, records)
            group.refreshed = Refresh(snapshot.topics, snapshot.brokers_version, epoch, names, metadata_hash)
        return self._rebalance.announced(group.group_id, Result(None, records))
