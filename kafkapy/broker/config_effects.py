"""Warnings about configuration keys that have no effect, or make the broker slower.

The broker logs them at start, and when a key is set later.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kafkapy.config.costs import Cost, costly_settings
from kafkapy.config.effects import ineffective_group_keys, ineffective_keys, ineffective_topic_keys

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig

logger = logging.getLogger("kafka.server.KafkaConfig")

TOPICS_NAMED: Final = 5
"""Topics that one warning names; the others are counted."""


class ConfigEffects:
    """Logs each such key once for as long as it stays set.

    Broker keys and topic keys. Owned by KafkaServer; control loop.
    """

    def __init__(self) -> None:
        self._broker: set[str] = set()
        self._unknown: set[str] = set()
        self._costs: set[Cost] = set()
        self._topics: dict[str, set[str]] = {}
        self._groups: dict[str, set[str]] = {}

    def check_broker(self, config: BrokerConfig) -> None:
        """Warn about the keys of a configuration that were not set before."""
        found = set(ineffective_keys(config))
        new = sorted(found - self._broker)
        self._broker = found
        unknown = [name for name in config.unknown_keys if name not in self._unknown]
        self._unknown.update(unknown)
        if unknown:
            logger.warning("The broker ignores unknown configuration keys: %s", ", ".join(unknown))
        costs = set(costly_settings(config, len(os.sched_getaffinity(0))))
        for cost in sorted(costs - self._costs):
            logger.warning("Configuration %s=%s makes the broker slower: %s", *cost)
        self._costs = costs
        if new:
            logger.warning("Configuration keys that are set have no effect in this broker: %s", ", ".join(new))

    def check_group(self, group: str, keys: Mapping[str, str]) -> None:
        """Warn about a group's own keys that were not set before."""
        found = set(ineffective_group_keys(keys))
        if new := sorted(found - self._groups.get(group, set())):
            logger.warning("Configuration keys of group %s have no effect in this broker: %s", group, ", ".join(new))
        if found:
            self._groups[group] = found
        else:
            self._groups.pop(group, None)

    def check_topics(self, topics: Mapping[str, Mapping[str, str]]) -> None:
        """Warn about topics' own keys, one line for each key.

        An empty mapping of keys forgets the topic.
        """
        new: dict[str, list[str]] = {}
        for topic, keys in topics.items():
            found = set(ineffective_topic_keys(keys))
            for key in sorted(found - self._topics.get(topic, set())):
                new.setdefault(key, []).append(topic)
            if found:
                self._topics[topic] = found
            else:
                self._topics.pop(topic, None)
        for key, names in sorted(new.items()):
            more = f" and {len(names) - TOPICS_NAMED} more" if len(names) > TOPICS_NAMED else ""
            logger.warning(
                "Topic configuration %s has no effect in this broker; topics that set it: %s%s",
                key,
                ", ".join(names[:TOPICS_NAMED]),
                more,
            )
