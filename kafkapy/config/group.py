"""The configuration of single groups (resource type GROUP): keys over those of the broker that say the same of all.

Source: org.apache.kafka.coordinator.group.GroupConfig.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkapy.config.config_def import ConfigDef, ConfigKey, Importance, at_least, format_value
from kafkapy.config.entries import ConfigEntry, ConfigSynonym
from kafkapy.errors import ConfigError
from kafkapy.types import ConfigSource, ConfigType

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"


class _BrokerKeys(NamedTuple):
    """The broker's key that says the same of all groups, and those that say what a group may be given."""

    default: str
    least: str
    most: str


BROKER_KEYS: Final[Mapping[str, _BrokerKeys]] = {
    SESSION_TIMEOUT: _BrokerKeys(
        "group.consumer.session.timeout.ms",
        "group.consumer.min.session.timeout.ms",
        "group.consumer.max.session.timeout.ms",
    ),
    HEARTBEAT_INTERVAL: _BrokerKeys(
        "group.consumer.heartbeat.interval.ms",
        "group.consumer.min.heartbeat.interval.ms",
        "group.consumer.max.heartbeat.interval.ms",
    ),
}

GROUP_CONFIG_DEF: Final = ConfigDef(
    [
        ConfigKey(
            SESSION_TIMEOUT,
            ConfigType.INT,
            45000,
            at_least(1),
            Importance.MEDIUM,
            "Session timeout in ms of the consumer protocol (KIP-848).",
        ),
        ConfigKey(
            HEARTBEAT_INTERVAL,
            ConfigType.INT,
            5000,
            at_least(1),
            Importance.MEDIUM,
            "Heartbeat interval in ms of the consumer protocol.",
        ),
    ]
)


def parse_group(overrides: Mapping[str, str]) -> dict[str, int]:
    """A group's own keys as numbers. ConfigError (INVALID_CONFIG) for one that is not known or not a number."""
    values: dict[str, int] = {}
    for name, raw in overrides.items():
        key = GROUP_CONFIG_DEF.get(name)
        if key is None:
            raise ConfigError(name, raw, "is not a configuration of groups")
        values[name] = key.parse(raw)
    return values


def validate_group(overrides: Mapping[str, str], broker: BrokerConfig) -> None:
    """Check a group's whole configuration: each key, its bounds, and keys against each other. ConfigError."""
    values: dict[str, Any] = {name: broker.get_int(keys.default) for name, keys in BROKER_KEYS.items()}
    values.update(parse_group(overrides))
    for name, keys in BROKER_KEYS.items():
        value = values[name]
        if value < broker.get_int(keys.least):
            raise ConfigError(name, value, f"must be greater than or equal to {keys.least}")
        if value > broker.get_int(keys.most):
            raise ConfigError(name, value, f"must be less than or equal to {keys.most}")
    if values[SESSION_TIMEOUT] <= values[HEARTBEAT_INTERVAL]:
        raise ConfigError(SESSION_TIMEOUT, values[SESSION_TIMEOUT], f"must be greater than {HEARTBEAT_INTERVAL}")


def describe_group(
    broker: BrokerConfig, overrides: Mapping[str, str], names: Iterable[str] | None = None
) -> list[ConfigEntry]:
    """A group's entries for DescribeConfigs (None: all keys), whether there is such a group or not."""
    wanted = GROUP_CONFIG_DEF.names if names is None else [name for name in names if name in GROUP_CONFIG_DEF]
    entries = []
    for name in wanted:
        key = GROUP_CONFIG_DEF[name]
        synonyms = list(broker.synonyms(BROKER_KEYS[name].default))
        value = format_value(key.type, broker.get_int(BROKER_KEYS[name].default))
        if name in overrides:
            value = overrides[name]
            synonyms.insert(0, ConfigSynonym(name, value, ConfigSource.DYNAMIC_GROUP_CONFIG))
        entries.append(ConfigEntry(name, value, False, synonyms[0].source, False, tuple(synonyms), key.type, key.doc))
    return entries
