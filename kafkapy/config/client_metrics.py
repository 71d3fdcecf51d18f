"""Configuration of client-metrics subscriptions (resource type CLIENT_METRICS, KIP-714).

A subscription names metrics, an interval, and the clients that push them. Source:
org.apache.kafka.server.metrics.ClientMetricsConfigs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from kafkapy.config.config_def import ConfigDef, ConfigKey, Importance, format_value
from kafkapy.config.entries import ConfigEntry, ConfigSynonym
from kafkapy.errors import ErrorCode, error_for
from kafkapy.types import ConfigSource, ConfigType

METRICS: Final = "metrics"
INTERVAL_MS: Final = "interval.ms"
MATCH: Final = "match"

DEFAULT_INTERVAL_MS: Final = 300_000
LEAST_INTERVAL_MS: Final = 100
MOST_INTERVAL_MS: Final = 3_600_000
MATCH_MEMORY: Final = 1 << 20
"""Bytes that a compiled client pattern may take."""
SELECTORS: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""Properties of a client that a pattern may match."""

CLIENT_METRICS_CONFIG_DEF: Final = ConfigDef(
    [
        ConfigKey(
            METRICS,
            ConfigType.LIST,
            [],
            None,
            Importance.MEDIUM,
            "Beginnings of the names of the metrics that matching clients push, or * for all. Empty: none.",
        ),
        ConfigKey(
            INTERVAL_MS,
            ConfigType.INT,
            DEFAULT_INTERVAL_MS,
            None,
            Importance.MEDIUM,
            "Pause in ms between two pushes of a client, from 100 to 3600000.",
        ),
        ConfigKey(
            MATCH,
            ConfigType.LIST,
            [],
            None,
            Importance.MEDIUM,
            f"Clients that push, SELECTOR=PATTERN, comma-separated. Every pattern must match; SELECTOR is one of "
            f"{', '.join(SELECTORS)}. Empty: every client.",
        ),
    ]
)


class ClientMetricsSubscription(NamedTuple):
    """A parsed subscription.

    `match` has a compiled pattern (RE2) for each selector.
    """

    metrics: tuple[str, ...]
    interval_ms: int
    match: Mapping[str, Any]

    def matches(self, client: Mapping[str, str]) -> bool:
        """Whether the client's properties, by selector, match every pattern."""
        return all(pattern.fullmatch(client.get(name, "")) for name, pattern in self.match.items())


def parse_subscription(keys: Mapping[str, str]) -> ClientMetricsSubscription:
    """A subscription's own keys, parsed.

    KafkaError: INVALID_REQUEST for an unknown key or an interval out of bounds, else INVALID_CONFIG.
    """
    for name in keys:
        if name not in CLIENT_METRICS_CONFIG_DEF:
            raise error_for(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {name}")
    values = _values(keys)
    interval = values[INTERVAL_MS]
    if not LEAST_INTERVAL_MS <= interval <= MOST_INTERVAL_MS:
        raise error_for(
            ErrorCode.INVALID_REQUEST,
            f"Invalid value {interval} for {INTERVAL_MS}, interval must be between {LEAST_INTERVAL_MS} and "
            f"{MOST_INTERVAL_MS} (1 hour)",
        )
    return ClientMetricsSubscription(tuple(values[METRICS]), interval, _patterns(values[MATCH]))


def _values(keys: Mapping[str, str]) -> dict[str, Any]:
    values = CLIENT_METRICS_CONFIG_DEF.parse(keys)
    for name in (METRICS, MATCH):
        if "" in values[name]:
            raise error_for(ErrorCode.INVALID_CONFIG, f"Configuration '{name}' values must not be empty.")
        values[name] = list(dict.fromkeys(values[name]))
    return values


def validate_subscription(name: str, keys: Mapping[str, str]) -> None:
    """Check a subscription. KafkaError."""
    if not name:
        raise error_for(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
    parse_subscription(keys)


def describe_subscription(keys: Mapping[str, str], names: Iterable[str] | None = None) -> list[ConfigEntry]:
    """A subscription's entries for DescribeConfigs, also for an unknown one.

    A default has no synonyms, as in Kafka.
    """
    entries = []
    values = _values(keys)
    wanted = None if names is None else set(names)
    for key in CLIENT_METRICS_CONFIG_DEF:
        if wanted is None or key.name in wanted:
            value = format_value(key.type, values[key.name])
            source = ConfigSource.DEFAULT_CONFIG
            synonyms: tuple[ConfigSynonym, ...] = ()
            if key.name in keys:
                source = ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG
                synonyms = (ConfigSynonym(key.name, value, source),)
            entries.append(ConfigEntry(key.name, value, False, source, False, synonyms, key.type, key.doc))
    return entries


def _patterns(texts: Sequence[str]) -> dict[str, Any]:
    re2, options = _engine()
    patterns = {}
    for text in texts:
        parts = text.split("=")
        selector = parts[0].strip()
        try:
            if len(parts) != 2 or not parts[1] or selector not in SELECTORS:
                raise ValueError
            patterns[selector] = re2.compile(parts[1].strip(), options)
        except (ValueError, re2.error):
            raise error_for(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {text}") from None
    return patterns


@cache
def _engine() -> tuple[Any, Any]:
    """RE2 and its options, loaded with the first pattern: most brokers have no subscription."""
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = MATCH_MEMORY
    options.never_capture = True
    return re2, options
