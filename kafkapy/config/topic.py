"""Topic configuration: topic keys, their broker keys, and `LogConfig`.

    log_config = LogConfig.create(broker_config, {"retention.ms": "60000"})
    log_config.segment_bytes, log_config.retention_ms, log_config.compact

A value comes from the topic's own configuration, else from the broker's key(s) for it, else from the default. Sources:
org.apache.kafka.storage.internals.log.LogConfig, org.apache.kafka.server.config.ServerTopicConfigSynonyms.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkapy.config.broker_keys import (
    CLEANUP_POLICIES,
    CODECS,
    GZIP_LEVEL,
    LZ4_LEVEL,
    NO_EFFECT,
    SEGMENT_BYTES,
    TIMESTAMP_AFTER_MAX_MS,
    TIMESTAMP_TYPES,
    ZSTD_LEVEL,
)
from kafkapy.config.compatibility import TOPIC_REMOVED
from kafkapy.config.config_def import (
    MAX_LONG,
    ConfigDef,
    ConfigKey,
    Importance,
    UpdateMode,
    at_least,
    between,
    checked_by,
    format_value,
    matches,
    non_empty,
    one_of,
)
from kafkapy.config.entries import ConfigEntry, ConfigSynonym
from kafkapy.errors import ConfigError
from kafkapy.types import ConfigSource, ConfigType, TimestampType

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig

BOOLEAN, STRING, INT, LONG = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG
DOUBLE, LIST = ConfigType.DOUBLE, ConfigType.LIST
MEDIUM, LOW = Importance.MEDIUM, Importance.LOW
DYNAMIC = UpdateMode.CLUSTER_WIDE
MS_PER_MINUTE: Final = 60_000
MS_PER_HOUR: Final = 3_600_000

_THROTTLED = re.compile(r"\s*([0-9]+:[0-9]+)?\s*")
_THROTTLED_REPLICAS = checked_by(
    lambda items: list(items) == ["*"] or all(_THROTTLED.fullmatch(item) for item in items),
    "*, or partition:broker pairs separated by commas",
)


def _key(name: str, type_: ConfigType, default: Any, validator: Any, importance: Importance, doc: str) -> ConfigKey:
    return ConfigKey(name, type_, default, validator, importance, doc, DYNAMIC)


# fmt: off
TOPIC_CONFIG_DEF: Final = ConfigDef(
    [
        _key("cleanup.policy", LIST, ["delete"], CLEANUP_POLICIES, MEDIUM,
             "Treatment of old segments: delete (by time and size), compact (keep the last record of each key), or "
             "both."),
        _key("compression.gzip.level", INT, -1, GZIP_LEVEL, MEDIUM,
             "Level for compression.type=gzip; -1 is the codec's default."),
        _key("compression.lz4.level", INT, 9, LZ4_LEVEL, MEDIUM, "Level for compression.type=lz4."),
        _key("compression.type", STRING, "producer", one_of(*CODECS), MEDIUM,
             "Codec of stored batches; producer keeps the producer's codec."),
        _key("compression.zstd.level", INT, 3, ZSTD_LEVEL, MEDIUM, "Level for compression.type=zstd."),
        _key("delete.retention.ms", LONG, 86400000, at_least(0), MEDIUM,
             "Time in ms that tombstones stay in a compacted log, for readers that start at its beginning."),
        _key("file.delete.delay.ms", LONG, 60000, at_least(0), MEDIUM,
             "Time in ms between the removal of a segment from the log and the deletion of its file."),
        _key("errors.deadletterqueue.group.enable", BOOLEAN, False, None, MEDIUM,
             "Whether the topic takes dead letters of share groups (KIP-1191)."),
        _key("flush.messages", LONG, MAX_LONG, at_least(1), MEDIUM,
             "Messages after which the broker flushes the log to disk. 1: after every batch."),
        _key("flush.ms", LONG, MAX_LONG, at_least(0), MEDIUM, "Largest time in ms that a message stays unflushed."),
        _key("follower.replication.throttled.replicas", LIST, [], _THROTTLED_REPLICAS, MEDIUM,
             "Follower replicas with throttled fetches: partition:broker pairs, or *."),
        _key("index.interval.bytes", INT, 4096, at_least(0), MEDIUM, "Bytes of log between two index entries."),
        _key("leader.replication.throttled.replicas", LIST, [], _THROTTLED_REPLICAS, MEDIUM,
             "Leader replicas with throttled sending: partition:broker pairs, or *."),
        _key("local.retention.bytes", LONG, -2, at_least(-2), MEDIUM,
             "Bytes of a tiered log that stay on local disk. -2: the value of retention.bytes."),
        _key("local.retention.ms", LONG, -2, at_least(-2), MEDIUM,
             "Time in ms that segments of a tiered log stay on local disk. -2: the value of retention.ms."),
        _key("max.compaction.lag.ms", LONG, MAX_LONG, at_least(1), MEDIUM,
             "Largest time in ms that a record stays uncompacted. Compacted topics only."),
        _key("max.decompressed.message.bytes", INT, 2147483639, between(1, 2147483639), MEDIUM, NO_EFFECT),
        _key("max.message.bytes", INT, 1024 * 1024 + 12, at_least(0), MEDIUM,
             "Largest record batch in bytes, after compression."),
        _key("message.downconversion.enable", BOOLEAN, True, None, LOW,
             "Whether the broker converts records to an old format for clients that fetch with an old version."),
        _key("message.format.version", STRING, "3.0-IV1",
             matches(r"[0-9]+\.[0-9]+(\.[0-9]+)?(-IV[0-9]+)?", "a version, as in 3.0 or 3.0-IV1"), MEDIUM, NO_EFFECT),
        _key("message.timestamp.after.max.ms", LONG, TIMESTAMP_AFTER_MAX_MS, at_least(0), MEDIUM,
             "Largest time in ms by which a record's timestamp may lie ahead of the broker's clock (CreateTime only)."),
        _key("message.timestamp.before.max.ms", LONG, MAX_LONG, at_least(0), MEDIUM,
             "Largest time in ms by which a record's timestamp may lie behind the broker's clock (CreateTime only)."),
        _key("message.timestamp.difference.max.ms", LONG, MAX_LONG, at_least(0), MEDIUM,
             "Deprecated: the value of both bounds above when they are not set."),
        _key("message.timestamp.type", STRING, "CreateTime", TIMESTAMP_TYPES, MEDIUM,
             "Timestamp of records: the producer's (CreateTime) or the broker's at the append (LogAppendTime)."),
        _key("min.cleanable.dirty.ratio", DOUBLE, 0.5, between(0, 1), MEDIUM,
             "Share of uncleaned bytes in a log before the cleaner compacts it."),
        _key("min.compaction.lag.ms", LONG, 0, at_least(0), MEDIUM,
             "Least age in ms of a record before the cleaner may remove it."),
        _key("min.insync.replicas", INT, 1, at_least(1), MEDIUM,
             "In-sync replicas that a produce with acks=all needs."),
        _key("preallocate", BOOLEAN, False, None, MEDIUM,
             "Whether the broker reserves the space of a segment at its creation."),
        _key("remote.copy.lag.bytes", LONG, -1, at_least(-1), MEDIUM, NO_EFFECT),
        _key("remote.copy.lag.ms", LONG, 0, at_least(-1), MEDIUM, NO_EFFECT),
        _key("remote.log.copy.disable", BOOLEAN, False, None, MEDIUM,
             "Whether a tiered topic stops copying segments to remote storage."),
        _key("remote.log.delete.on.disable", BOOLEAN, False, None, MEDIUM,
             "Whether turning remote.storage.enable off deletes the remote data."),
        _key("remote.storage.enable", BOOLEAN, False, None, MEDIUM, "Whether the topic uses tiered storage."),
        _key("retention.bytes", LONG, -1, None, MEDIUM,
             "Largest size in bytes of a partition; retention deletes the oldest segments. -1: no limit."),
        _key("retention.ms", LONG, 604800000, at_least(-1), MEDIUM, "Retention of records in ms. -1: for ever."),
        _key("segment.bytes", INT, 1024 * 1024 * 1024, SEGMENT_BYTES, MEDIUM, "Largest size in bytes of a segment."),
        _key("segment.index.bytes", INT, 10 * 1024 * 1024, at_least(4), MEDIUM, "Largest size in bytes of an index."),
        _key("segment.jitter.ms", LONG, 0, at_least(0), MEDIUM,
             "Largest random reduction of segment.ms, in ms, so that segments do not all roll at once."),
        _key("segment.ms", LONG, 604800000, at_least(1), MEDIUM, "The log rolls a segment older than this many ms."),
        _key("unclean.leader.election.enable", BOOLEAN, False, None, MEDIUM,
             "Whether an out-of-sync replica may become leader as a last resort, which loses records."),
        _key("kafkapy.storage.backend", STRING, "local", non_empty(), LOW,
             "Name of the registered storage backend that holds the topic's segments. Fixed at creation."),
        _key("kafkapy.validate.compressed", STRING, "full", one_of("header", "full"), LOW,
             "Validation of compressed batches: full (every record) or header (batch header and CRC)."),
    ]
)
# fmt: on
"""Kafka's and kafkapy's own topic keys."""

BROKER_SYNONYMS: Final[Mapping[str, tuple[tuple[str, int], ...]]] = {
    "segment.bytes": (("log.segment.bytes", 1),),
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", MS_PER_HOUR)),
    "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", MS_PER_HOUR)),
    "segment.index.bytes": (("log.index.size.max.bytes", 1),),
    "flush.messages": (("log.flush.interval.messages", 1),),
    "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    "retention.bytes": (("log.retention.bytes", 1),),
    "retention.ms": (
        ("log.retention.ms", 1),
        ("log.retention.minutes", MS_PER_MINUTE),
        ("log.retention.hours", MS_PER_HOUR),
    ),
    "max.decompressed.message.bytes": (("max.decompressed.message.bytes", 1),),
    "max.message.bytes": (("message.max.bytes", 1),),
    "index.interval.bytes": (("log.index.interval.bytes", 1),),
    "delete.retention.ms": (("log.cleaner.delete.retention.ms", 1),),
    "min.compaction.lag.ms": (("log.cleaner.min.compaction.lag.ms", 1),),
    "max.compaction.lag.ms": (("log.cleaner.max.compaction.lag.ms", 1),),
    "file.delete.delay.ms": (("log.segment.delete.delay.ms", 1),),
    "min.cleanable.dirty.ratio": (("log.cleaner.min.cleanable.ratio", 1),),
    "cleanup.policy": (("log.cleanup.policy", 1),),
    "unclean.leader.election.enable": (("unclean.leader.election.enable", 1),),
    "min.insync.replicas": (("min.insync.replicas", 1),),
    "compression.type": (("compression.type", 1),),
    "compression.gzip.level": (("compression.gzip.level", 1),),
    "compression.lz4.level": (("compression.lz4.level", 1),),
    "compression.zstd.level": (("compression.zstd.level", 1),),
    "preallocate": (("log.preallocate", 1),),
    "message.format.version": (("log.message.format.version", 1),),
    "message.timestamp.type": (("log.message.timestamp.type", 1),),
    "message.timestamp.difference.max.ms": (("log.message.timestamp.difference.max.ms", 1),),
    "message.timestamp.before.max.ms": (("log.message.timestamp.before.max.ms", 1),),
    "message.timestamp.after.max.ms": (("log.message.timestamp.after.max.ms", 1),),
    "message.downconversion.enable": (("log.message.downconversion.enable", 1),),
    "remote.copy.lag.bytes": (("log.remote.copy.lag.bytes", 1),),
    "remote.copy.lag.ms": (("log.remote.copy.lag.ms", 1),),
    "local.retention.ms": (("log.local.retention.ms", 1),),
    "local.retention.bytes": (("log.local.retention.bytes", 1),),
    "kafkapy.storage.backend": (("kafkapy.storage.backend", 1),),
    "kafkapy.validate.compressed": (("kafkapy.validate.compressed", 1),),
}
"""The broker keys of each topic key, the strongest first, with the factor from their unit to the topic's."""


class LogConfig(NamedTuple):
    """A topic's effective configuration, one field per key.

    Dots become underscores. The log manager creates it when it loads a log, and when the topic's or the broker's
    configuration changes. Immutable; any thread may read it.
    """

    cleanup_policy: tuple[str, ...]
    compression_gzip_level: int
    compression_lz4_level: int
    compression_type: str
    compression_zstd_level: int
    delete_retention_ms: int
    errors_deadletterqueue_group_enable: bool
    file_delete_delay_ms: int
    flush_messages: int
    flush_ms: int
    follower_replication_throttled_replicas: tuple[str, ...]
    index_interval_bytes: int
    leader_replication_throttled_replicas: tuple[str, ...]
    local_retention_bytes: int
    local_retention_ms: int
    max_compaction_lag_ms: int
    max_decompressed_message_bytes: int
    max_message_bytes: int
    message_downconversion_enable: bool
    message_format_version: str
    message_timestamp_after_max_ms: int
    message_timestamp_before_max_ms: int
    message_timestamp_difference_max_ms: int
    message_timestamp_type: str
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    min_insync_replicas: int
    preallocate: bool
    remote_copy_lag_bytes: int
    remote_copy_lag_ms: int
    remote_log_copy_disable: bool
    remote_log_delete_on_disable: bool
    remote_storage_enable: bool
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    segment_jitter_ms: int
    segment_ms: int
    unclean_leader_election_enable: bool
    kafkapy_storage_backend: str
    kafkapy_validate_compressed: str
    overridden: frozenset[str] = frozenset()
    """The topic's own keys."""

    @classmethod
    def create(cls, broker: BrokerConfig | None = None, overrides: Mapping[str, str] | None = None) -> LogConfig:
        """Effective values from the broker's and the topic's configuration.

        None as broker: Kafka's defaults. ConfigError when an override is unknown or not allowed.
        """
        return _effective(broker, tuple(sorted((overrides or {}).items())))

    def get(self, name: str) -> Any:
        """The value of a key by Kafka's name.

        KeyError for an unknown key.
        """
        if name not in TOPIC_CONFIG_DEF:
            raise KeyError(name)
        return getattr(self, name.replace(".", "_"))

    @property
    def compact(self) -> bool:
        """Whether the cleaner compacts the log."""
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        """Whether retention deletes old segments by time and size."""
        return "delete" in self.cleanup_policy

    @property
    def timestamp_type(self) -> TimestampType:
        """The source of record timestamps."""
        if self.message_timestamp_type == "LogAppendTime":
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME

    @property
    def timestamp_before_max_ms(self) -> int:
        """Largest age in ms of a record's timestamp.

        It includes the deprecated key.
        """
        before = self.message_timestamp_before_max_ms
        return before if before != MAX_LONG else self._difference_or(before)

    @property
    def timestamp_after_max_ms(self) -> int:
        """Largest lead in ms of a record's timestamp over the clock.

        It includes the deprecated key.
        """
        after = self.message_timestamp_after_max_ms
        return after if after not in (MAX_LONG, TIMESTAMP_AFTER_MAX_MS) else self._difference_or(after)

    def _difference_or(self, default: int) -> int:
        """The deprecated key when it is set, else the default."""
        difference = self.message_timestamp_difference_max_ms
        return difference if difference != MAX_LONG else default


@lru_cache(maxsize=128)
def _effective(broker: BrokerConfig | None, overrides: tuple[tuple[str, str], ...]) -> LogConfig:
    """The configuration of topics with these overrides.

    Most topics share one, so it is created once and not for each partition.
    """
    values: dict[str, Any] = TOPIC_CONFIG_DEF.defaults() if broker is None else broker_defaults(broker)
    values.update(parse_overrides(dict(overrides)))
    arguments: dict[str, Any] = {
        name.replace(".", "_"): tuple(value) if isinstance(value, list) else value for name, value in values.items()
    }
    return LogConfig(**arguments, overridden=frozenset(name for name, _ in overrides))


def parse_overrides(overrides: Mapping[str, str | None]) -> dict[str, Any]:
    """A topic's own configuration, parsed.

    ConfigError for an unknown key, None, or a value that is not allowed.
    """
    values: dict[str, Any] = {}
    for name, raw in overrides.items():
        key = TOPIC_CONFIG_DEF.get(name)
        if key is None:
            raise TOPIC_CONFIG_DEF.unknown_key(name, raw)
        if raw is None:
            raise ConfigError(name, "null", f"must have a value ({key.type.label})")
        values[name] = key.parse(raw)
    return values


def validate_overrides(
    overrides: Mapping[str, str | None], broker: BrokerConfig | None = None, previous: Mapping[str, str] | None = None
) -> None:
    """Check a topic's configuration as CreateTopics and AlterConfigs do.

    `previous` is the topic's configuration before the change. ConfigError (INVALID_CONFIG) for a wrong value, or for
    keys that contradict each other.
    """
    parsed = parse_overrides(overrides)
    defaults = TOPIC_CONFIG_DEF.defaults() if broker is None else broker_defaults(broker)
    values = {**defaults, **parsed}

    def require(condition: bool, name: str, reason: str) -> None:
        if not condition:
            raise ConfigError(name, format_value(TOPIC_CONFIG_DEF[name].type, values[name]), reason)

    smallest, largest = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    allowed = f"must be at most max.compaction.lag.ms ({largest})"
    require(smallest <= largest, "min.compaction.lag.ms", allowed)
    if previous is not None and "kafkapy.storage.backend" in parsed:
        current = previous.get("kafkapy.storage.backend", defaults["kafkapy.storage.backend"])
        same = parsed["kafkapy.storage.backend"] == current
        require(same, "kafkapy.storage.backend", f"cannot be changed after creation (it is {current})")
    if broker is not None and broker.keeps_nothing:
        memory = values["kafkapy.storage.backend"] != "local"
        require(memory, "kafkapy.storage.backend", "must not be local on a broker that keeps nothing")
    if values["remote.storage.enable"]:
        _require_tiered(values, broker, require)
    elif previous is not None and str(previous.get("remote.storage.enable", "")).strip().lower() == "true":
        deleting = bool(values["remote.log.delete.on.disable"])
        reason = "cannot be turned off unless remote.log.delete.on.disable is true"
        require(deleting, "remote.storage.enable", reason)


def _require_tiered(values: Mapping[str, Any], broker: BrokerConfig | None, require: Any) -> None:
    enabled = broker is None or broker.get_bool("remote.log.storage.system.enable")
    require(enabled, "remote.storage.enable", "needs remote.log.storage.system.enable=true on the brokers")
    require("compact" not in values["cleanup.policy"], "cleanup.policy", "tiered storage cannot hold compacted topics")
    for unit in ("ms", "bytes"):
        local, whole = values[f"local.retention.{unit}"], values[f"retention.{unit}"]
        if whole != -1 and local != -2:
            allowed = f"must not be above retention.{unit} ({whole})"
            require(local != -1 and local <= whole, f"local.retention.{unit}", allowed)


def broker_defaults(broker: BrokerConfig) -> dict[str, Any]:
    """The topic keys of a topic without own configuration."""
    values = TOPIC_CONFIG_DEF.defaults()
    for name, synonyms in BROKER_SYNONYMS.items():
        for broker_key, factor in synonyms:
            value = broker[broker_key]
            if value is not None:
                values[name] = value if factor == 1 else value * factor
                break
    values["retention.ms"] = broker.log_retention_ms
    return values


def describe_topic(
    broker: BrokerConfig, overrides: Mapping[str, str], names: Iterable[str] | None = None
) -> list[ConfigEntry]:
    """A topic's entries for DescribeConfigs, with Kafka's sources and synonyms.

    None: all keys, except unset keys that Kafka 4 has removed.
    """
    config = LogConfig.create(broker, {name: raw for name, raw in overrides.items() if name in TOPIC_CONFIG_DEF})
    if names is None:
        wanted = [name for name in TOPIC_CONFIG_DEF.names if name not in TOPIC_REMOVED or name in overrides]
    else:
        wanted = [name for name in names if name in TOPIC_CONFIG_DEF]
    entries = []
    for name in wanted:
        key = TOPIC_CONFIG_DEF[name]
        value = format_value(key.type, config.get(name))
        synonyms: list[ConfigSynonym] = []
        if name in overrides:
            synonyms.append(ConfigSynonym(name, value, ConfigSource.DYNAMIC_TOPIC_CONFIG))
        if name in BROKER_SYNONYMS:
            synonyms += broker.synonyms(BROKER_SYNONYMS[name][0][0])
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG
        entries.append(ConfigEntry(name, value, False, source, key.sensitive, tuple(synonyms), key.type, key.doc))
    return entries
