"""Configuration of single groups (resource type GROUP).

A group's key overrides the broker's key. Source: org.apache.kafka.coordinator.group.GroupConfig.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkapy.config.broker_keys import NO_EFFECT
from kafkapy.config.config_def import (
    ConfigDef,
    ConfigKey,
    Importance,
    Validator,
    at_least,
    format_value,
    matches,
    one_of,
)
from kafkapy.config.entries import ConfigEntry, ConfigSynonym
from kafkapy.config.suggestions import did_you_mean
from kafkapy.errors import ConfigError
from kafkapy.types import ConfigSource, ConfigType

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig

BOOLEAN, STRING, INT = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT
_RESET = matches(r"(?i:latest|earliest|by_duration:P.+)", "latest, earliest or by_duration:PnDTnHnMn.nS")

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"


class _BrokerKeys(NamedTuple):
    """The broker's default of a group key, and its bounds."""

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


def _accepted(
    name: str, type_: ConfigType, default: Any, validator: Validator | None = None, internal: bool = False
) -> ConfigKey:
    return ConfigKey(name, type_, default, validator, Importance.MEDIUM, NO_EFFECT, internal=internal)


ACCEPTED: Final = (
    _accepted("consumer.assignment.interval.ms", INT, 1000, at_least(0)),
    _accepted("consumer.assignor.offload.enable", BOOLEAN, True, internal=True),
    _accepted("errors.deadletterqueue.copy.record.enable", BOOLEAN, False),
    _accepted("errors.deadletterqueue.topic.name", STRING, ""),
    _accepted("share.assignment.interval.ms", INT, 1000, at_least(0)),
    _accepted("share.assignor.offload.enable", BOOLEAN, True, internal=True),
    _accepted("share.auto.offset.reset", STRING, "latest", _RESET),
    _accepted("share.delivery.count.limit", INT, 5, at_least(2)),
    _accepted("share.heartbeat.interval.ms", INT, 5000, at_least(1)),
    _accepted("share.isolation.level", STRING, "read_uncommitted", one_of("read_committed", "read_uncommitted")),
    _accepted("share.partition.max.record.locks", INT, 2000, at_least(100)),
    _accepted("share.record.lock.duration.ms", INT, 30000, at_least(1000)),
    _accepted("share.renew.acknowledge.enable", BOOLEAN, True),
    _accepted("share.session.timeout.ms", INT, 45000, at_least(1)),
    _accepted("streams.acceptable.recovery.lag", ConfigType.LONG, 10000, at_least(0), internal=True),
    _accepted("streams.assignment.interval.ms", INT, 1000, at_least(0)),
    _accepted("streams.assignor.name", STRING, None),
    _accepted("streams.assignor.offload.enable", BOOLEAN, True, internal=True),
    _accepted("streams.heartbeat.interval.ms", INT, 5000, at_least(1)),
    _accepted("streams.initial.rebalance.delay.ms", INT, 3000, at_least(0)),
    _accepted("streams.num.standby.replicas", INT, 0, at_least(0)),
    _accepted("streams.num.warmup.replicas", INT, 2, at_least(0), internal=True),
    _accepted("streams.rack.aware.assignment.tags", ConfigType.LIST, []),
    _accepted("streams.session.timeout.ms", INT, 45000, at_least(1)),
    _accepted("streams.task.offset.interval.ms", INT, 60000, at_least(1), internal=True),
)
"""Keys of Kafka 4.4 without effect in the group coordinator."""

_OTHER_DEFAULTS: Final = {"streams.assignor.name": "streams.assignors"}

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
        *ACCEPTED,
    ]
)


def _broker_key(name: str, broker: BrokerConfig) -> str | None:
    """The broker's key behind a group key, or None."""
    found = f"group.{_OTHER_DEFAULTS.get(name, name)}"
    return found if found in broker.definition else None


def parse_group(overrides: Mapping[str, str]) -> dict[str, int]:
    """The group's keys with an effect, parsed.

    ConfigError (INVALID_CONFIG) for an unknown key, and for a value that is not allowed.
    """
    values: dict[str, int] = {}
    for name, raw in overrides.items():
        key = GROUP_CONFIG_DEF.get(name)
        if key is None:
            question = did_you_mean(name, GROUP_CONFIG_DEF.names)
            raise ConfigError(name, raw, "is not a group configuration key" + (f"; {question}" if question else ""))
        value = key.parse(raw)
        if name in BROKER_KEYS:
            values[name] = value
    return values


def validate_group(overrides: Mapping[str, str], broker: BrokerConfig) -> None:
    """Check a group's configuration: each key, its bounds, contradictions. ConfigError."""
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
    """A group's entries for DescribeConfigs, also for an unknown group.

    None: all keys, except unset internal ones.
    """
    if names is None:
        wanted = [key.name for key in GROUP_CONFIG_DEF if not key.internal or key.name in overrides]
    else:
        wanted = [name for name in names if name in GROUP_CONFIG_DEF]
    entries = []
    for name in wanted:
        key = GROUP_CONFIG_DEF[name]
        broker_key = _broker_key(name, broker)
        if broker_key is None:
            value = format_value(key.type, key.default)
            synonyms = [ConfigSynonym(name, value, ConfigSource.DEFAULT_CONFIG)]
        else:
            value = format_value(key.type, broker[broker_key])
            synonyms = list(broker.synonyms(broker_key))
        if name in overrides:
            value = overrides[name]
            synonyms.insert(0, ConfigSynonym(name, value, ConfigSource.DYNAMIC_GROUP_CONFIG))
        entries.append(ConfigEntry(name, value, False, synonyms[0].source, False, tuple(synonyms), key.type, key.doc))
    return entries
