"""Configuration of single groups (resource type GROUP).

A group's key overrides the broker's key. Source: org.apache.kafka.coordinator.group.GroupConfig.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkapy.config.broker_keys import NO_EFFECT
from kafkapy.config.config_def import (
    ConfigDef,
    ConfigKey,
    Importance,
    Validator,
    at_least,
    checked_by,
    format_value,
    one_of,
)
from kafkapy.config.durations import is_reset
from kafkapy.config.entries import ConfigEntry, ConfigSynonym
from kafkapy.config.suggestions import did_you_mean
from kafkapy.errors import ConfigError
from kafkapy.types import ConfigSource, ConfigType

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig

BOOLEAN, STRING, INT = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL: Final = "consumer.assignment.interval.ms"
SHARE_SESSION_TIMEOUT: Final = "share.session.timeout.ms"
SHARE_HEARTBEAT_INTERVAL: Final = "share.heartbeat.interval.ms"
SHARE_ASSIGNMENT_INTERVAL: Final = "share.assignment.interval.ms"
SHARE_RECORD_LOCK_DURATION: Final = "share.record.lock.duration.ms"
SHARE_DELIVERY_COUNT_LIMIT: Final = "share.delivery.count.limit"
SHARE_MAX_RECORD_LOCKS: Final = "share.partition.max.record.locks"
SHARE_OFFSET_RESET: Final = "share.auto.offset.reset"
SHARE_ISOLATION_LEVEL: Final = "share.isolation.level"
SHARE_RENEW: Final = "share.renew.acknowledge.enable"
DEAD_LETTER_TOPIC: Final = "errors.deadletterqueue.topic.name"
DEAD_LETTER_COPY: Final = "errors.deadletterqueue.copy.record.enable"


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
    ASSIGNMENT_INTERVAL: _BrokerKeys(
        "group.consumer.assignment.interval.ms",
        "group.consumer.min.assignment.interval.ms",
        "group.consumer.max.assignment.interval.ms",
    ),
    SHARE_SESSION_TIMEOUT: _BrokerKeys(
        "group.share.session.timeout.ms", "group.share.min.session.timeout.ms", "group.share.max.session.timeout.ms"
    ),
    SHARE_HEARTBEAT_INTERVAL: _BrokerKeys(
        "group.share.heartbeat.interval.ms",
        "group.share.min.heartbeat.interval.ms",
        "group.share.max.heartbeat.interval.ms",
    ),
    SHARE_ASSIGNMENT_INTERVAL: _BrokerKeys(
        "group.share.assignment.interval.ms",
        "group.share.min.assignment.interval.ms",
        "group.share.max.assignment.interval.ms",
    ),
    SHARE_RECORD_LOCK_DURATION: _BrokerKeys(
        "group.share.record.lock.duration.ms",
        "group.share.min.record.lock.duration.ms",
        "group.share.max.record.lock.duration.ms",
    ),
    SHARE_DELIVERY_COUNT_LIMIT: _BrokerKeys(
        "group.share.delivery.count.limit",
        "group.share.min.delivery.count.limit",
        "group.share.max.delivery.count.limit",
    ),
    SHARE_MAX_RECORD_LOCKS: _BrokerKeys(
        "group.share.partition.max.record.locks",
        "group.share.min.partition.max.record.locks",
        "group.share.max.partition.max.record.locks",
    ),
}

_LIVES: Final = ((SESSION_TIMEOUT, HEARTBEAT_INTERVAL), (SHARE_SESSION_TIMEOUT, SHARE_HEARTBEAT_INTERVAL))
"""Sessions, and the heartbeats that keep them alive."""


def _accepted(
    name: str, type_: ConfigType, default: Any, validator: Validator | None = None, internal: bool = False
) -> ConfigKey:
    return ConfigKey(name, type_, default, validator, Importance.MEDIUM, NO_EFFECT, internal=internal)


ACCEPTED: Final = (
    _accepted("consumer.assignor.offload.enable", BOOLEAN, True, internal=True),
    _accepted("share.assignor.offload.enable", BOOLEAN, True, internal=True),
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


def _key(name: str, type_: ConfigType, default: Any, validator: Validator | None, doc: str) -> ConfigKey:
    return ConfigKey(name, type_, default, validator, Importance.MEDIUM, doc)


# fmt: off
SHARE_KEYS: Final = (
    _key(SHARE_SESSION_TIMEOUT, INT, 45000, at_least(1), "Session timeout in ms of a share group's members."),
    _key(SHARE_HEARTBEAT_INTERVAL, INT, 5000, at_least(1), "Heartbeat interval in ms of a share group's members."),
    _key(SHARE_ASSIGNMENT_INTERVAL, INT, 1000, at_least(0),
         "Least time in ms between two assignments of a share group."),
    _key(SHARE_RECORD_LOCK_DURATION, INT, 30000, at_least(1000), "Lock time in ms of a delivered record."),
    _key(SHARE_DELIVERY_COUNT_LIMIT, INT, 5, at_least(2), "Largest number of deliveries of a record."),
    _key(SHARE_MAX_RECORD_LOCKS, INT, 2000, at_least(100), "Largest number of records in flight in a partition."),
    _key(SHARE_OFFSET_RESET, STRING, "latest",
         checked_by(partial(is_reset, words=("latest", "earliest")), "latest, earliest or by_duration:PnDTnHnMn.nS"),
         "Start of a share group in a partition that it has not read: latest, earliest, or by_duration:PT1H (the "
         "records of the last hour)."),
    _key(SHARE_ISOLATION_LEVEL, STRING, "read_uncommitted", one_of("read_committed", "read_uncommitted"),
         "read_committed: the group gets no records of aborted and open transactions."),
    _key(SHARE_RENEW, BOOLEAN, True, None, "Whether members may renew the lock of a record (KIP-1222)."),
    _key(DEAD_LETTER_TOPIC, STRING, "",
         checked_by(lambda name: not name.startswith("__"), 'a name that does not begin with "__"'),
         "Topic for records that the group rejects or delivers too often (KIP-1191). Empty: they are dropped."),
    _key(DEAD_LETTER_COPY, BOOLEAN, False, None,
         "Whether a dead letter has the record's key and value, and not only headers about it."),
)
# fmt: on

GROUP_CONFIG_DEF: Final = ConfigDef(
    [
        _key(SESSION_TIMEOUT, INT, 45000, at_least(1), "Session timeout in ms of the consumer protocol (KIP-848)."),
        _key(HEARTBEAT_INTERVAL, INT, 5000, at_least(1), "Heartbeat interval in ms of the consumer protocol."),
        _key(ASSIGNMENT_INTERVAL, INT, 1000, at_least(0), "Least time in ms between two assignments of the group."),
        *SHARE_KEYS,
        *ACCEPTED,
    ]
)

WITH_EFFECT: Final = BROKER_KEYS.keys() | {key.name for key in SHARE_KEYS}
"""Keys that the coordinators read."""


def _broker_key(name: str, broker: BrokerConfig) -> str | None:
    """The broker's key behind a group key, or None."""
    found = f"group.{_OTHER_DEFAULTS.get(name, name)}"
    return found if found in broker.definition else None


def bounds_of(broker: BrokerConfig) -> dict[str, tuple[int, int]]:
    """The least and the largest value of the group keys that the broker bounds."""
    return {name: (broker.get_int(keys.least), broker.get_int(keys.most)) for name, keys in BROKER_KEYS.items()}


def parse_group(overrides: Mapping[str, str]) -> dict[str, Any]:
    """The group's keys with an effect, parsed.

    ConfigError (INVALID_CONFIG) for an unknown key, and for a value that is not allowed.
    """
    values: dict[str, Any] = {}
    for name, raw in overrides.items():
        key = GROUP_CONFIG_DEF.get(name)
        if key is None:
            question = did_you_mean(name, GROUP_CONFIG_DEF.names)
            raise ConfigError(name, raw, "is not a group configuration key" + (f"; {question}" if question else ""))
        value = key.parse(raw)
        if name in WITH_EFFECT:
            values[name] = value
    return values


def validate_group(overrides: Mapping[str, str], broker: BrokerConfig) -> None:
    """Check a group's configuration: each key, its bounds, contradictions. ConfigError."""
    given = parse_group(overrides)
    for name, keys in BROKER_KEYS.items():
        if name not in given:
            continue
        value = given[name]
        if value < broker.get_int(keys.least):
            raise ConfigError(name, value, f"must be greater than or equal to {keys.least}")
        if value > broker.get_int(keys.most):
            raise ConfigError(name, value, f"must be less than or equal to {keys.most}")
    for session, heartbeat in _LIVES:
        values = {name: given.get(name, broker.get_int(BROKER_KEYS[name].default)) for name in (session, heartbeat)}
        if given.keys() & values.keys() and values[session] <= values[heartbeat]:
            raise ConfigError(session, values[session], f"must be greater than {heartbeat}")


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
