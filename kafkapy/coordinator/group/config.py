"""The group coordinator's configuration: the broker's and single groups' keys."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, cast

from kafkapy.config import group as keys
from kafkapy.config.group import bounds_of
from kafkapy.coordinator.group.share.config import ShareGroupConfigs
from kafkapy.metadata.metadata_version import IBP, MetadataVersion
from kafkapy.types import IsolationLevel

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig


logger = logging.getLogger("kafka.coordinator.group.GroupCoordinator")

PROTOCOLS: Final = "group.coordinator.rebalance.protocols"
ASSIGNMENT_INTERVAL: Final = "group.consumer.assignment.interval.ms"


class MigrationPolicy(Enum):
    """Whether groups with members may change their protocol.

    Source: ConsumerGroupMigrationPolicy.
    """

    DISABLED = "disabled"
    DOWNGRADE = "downgrade"
    """Only from the consumer protocol to the classic one."""
    UPGRADE = "upgrade"
    """Only from the classic protocol to the consumer one."""
    BIDIRECTIONAL = "bidirectional"

    @property
    def may_upgrade(self) -> bool:
        """Whether consumer members may join a classic group that has members."""
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def may_downgrade(self) -> bool:
        """Whether a group becomes classic when its last consumer member has left."""
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


class GroupConfig(NamedTuple):
    """The broker's group and offset keys.

    Immutable; the defaults are Kafka's. Times in ms.
    """

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1
    new_member_join_timeout_ms: int = 5 * 60 * 1000
    """Time after which a member without an answer to its first JoinGroup is removed.

    Not configurable.
    """
    offset_metadata_max_bytes: int = 4096
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1000
    offsets_retention_check_interval_ms: int = 600_000
    offset_commit_timeout_ms: int = 5_000
    consumer_protocol: bool = True
    """Whether members may use the consumer protocol (KIP-848)."""
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_assignment_interval_ms: int | None = None
    """None: by the group's size."""
    consumer_max_size: int = 2**31 - 1
    consumer_regex_refresh_interval_ms: int = 600_000
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    share_session_timeout_ms: int = 45_000
    share_heartbeat_interval_ms: int = 5_000
    share_assignment_interval_ms: int = 1_000
    share_max_size: int = 200
    share_initialize_retry_interval_ms: int = 30_000
    share: ShareGroupConfigs = ShareGroupConfigs()
    """The defaults of share groups' keys for the leaders of their partitions."""
    bounds: Mapping[str, tuple[int, int]] = {}
    """The least and the largest value of single groups' keys."""
    offset_commit_version: int = 3
    """The newest version of an offset's record that all brokers of the cluster can read."""
    group_metadata_version: int = 3
    """The newest version of a group's record that all brokers of the cluster can read."""

    @classmethod
    def from_broker_config(cls, config: BrokerConfig) -> Self:
        """The configuration with the keys of a broker's configuration.

        Brokers of Apache Kafka may share a cluster on ZooKeeper. They do not know the consumer protocol, so there it is
        served only where group.coordinator.rebalance.protocols says so.
        """
        version = MetadataVersion.parse(config.get_str(IBP))
        alone = config.metadata_store != "zookeeper" or config.is_set(PROTOCOLS)
        protocols = {name.lower() for name in config.get_list(PROTOCOLS)}
        return cls(
            min_session_timeout_ms=config.get_int("group.min.session.timeout.ms"),
            max_session_timeout_ms=config.get_int("group.max.session.timeout.ms"),
            initial_rebalance_delay_ms=config.get_int("group.initial.rebalance.delay.ms"),
            max_size=config.get_int("group.max.size"),
            offset_metadata_max_bytes=config.get_int("offset.metadata.max.bytes"),
            offsets_retention_ms=config.get_int("offsets.retention.minutes") * 60_000,
            offsets_retention_check_interval_ms=config.get_int("offsets.retention.check.interval.ms"),
            offset_commit_timeout_ms=config.get_int("offsets.commit.timeout.ms"),
            consumer_protocol=alone and "consumer" in protocols,
            consumer_session_timeout_ms=config.get_int("group.consumer.session.timeout.ms"),
            consumer_heartbeat_interval_ms=config.get_int("group.consumer.heartbeat.interval.ms"),
            consumer_assignment_interval_ms=(
                config.get_int(ASSIGNMENT_INTERVAL) if config.is_set(ASSIGNMENT_INTERVAL) else None
            ),
            consumer_max_size=config.get_int("group.consumer.max.size"),
            consumer_regex_refresh_interval_ms=config.get_int("group.consumer.regex.refresh.interval.ms"),
            migration_policy=MigrationPolicy(config.get_str("group.consumer.migration.policy").lower()),
            share_session_timeout_ms=config.get_int("group.share.session.timeout.ms"),
            share_heartbeat_interval_ms=config.get_int("group.share.heartbeat.interval.ms"),
            share_assignment_interval_ms=config.get_int("group.share.assignment.interval.ms"),
            share_max_size=config.get_int("group.share.max.size"),
            share_initialize_retry_interval_ms=config.get_int("group.share.initialize.retry.interval.ms"),
            share=ShareGroupConfigs(
                record_lock_duration_ms=config.get_int("group.share.record.lock.duration.ms"),
                delivery_count_limit=config.get_int("group.share.delivery.count.limit"),
                max_record_locks=config.get_int("group.share.partition.max.record.locks"),
            ),
            bounds=bounds_of(config),
            offset_commit_version=version.offset_commit_value_version(),
            group_metadata_version=version.group_metadata_value_version,
        )


class GroupOverrides:
    """The keys of single groups, over those of the broker.

    Their resource type is GROUP. Made by the broker, changed and read on the control loop. Source:
    org.apache.kafka.coordinator.group.GroupConfigManager.
    """

    def __init__(self, config: GroupConfig) -> None:
        self._config = config
        self._groups: dict[str, Mapping[str, Any]] = {}

    def update(self, config: GroupConfig) -> None:
        """Take over the broker's keys as they are now."""
        self._config = config

    def put(self, group_id: str, values: Mapping[str, Any]) -> None:
        """Replace a group's own keys, such as consumer.session.timeout.ms.

        Values beyond the broker's bounds, which may have changed since, are cut.
        """
        if values:
            self._groups[group_id] = {name: self._bounded(group_id, name, value) for name, value in values.items()}
        else:
            self._groups.pop(group_id, None)

    def _bounded(self, group_id: str, name: str, value: Any) -> Any:
        if name not in self._config.bounds:
            return value
        least, most = self._config.bounds[name]
        bounded = max(least, min(value, most))
        if bounded != value:
            logger.warning(
                "Key %s of group %s is %d, and the broker allows %d to %d; %d is in force",
                name,
                group_id,
                value,
                least,
                most,
                bounded,
            )
        return bounded

    def _get(self, group_id: str, name: str, default: int) -> int:
        own = self._groups.get(group_id)
        return default if own is None else cast(int, own.get(name, default))

    def session_timeout_ms(self, group_id: str) -> int:
        """A consumer group's session timeout in ms."""
        return self._get(group_id, keys.SESSION_TIMEOUT, self._config.consumer_session_timeout_ms)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """A consumer group's heartbeat interval in ms."""
        return self._get(group_id, keys.HEARTBEAT_INTERVAL, self._config.consumer_heartbeat_interval_ms)

    def assignment_interval_ms(self, group_id: str) -> int | None:
        """A consumer group's least time in ms between two assignments; None: by its size."""
        own = self._groups.get(group_id)
        default = self._config.consumer_assignment_interval_ms
        return default if own is None else cast("int | None", own.get(keys.ASSIGNMENT_INTERVAL, default))

    def share_session_timeout_ms(self, group_id: str) -> int:
        """A share group's session timeout in ms."""
        return self._get(group_id, keys.SHARE_SESSION_TIMEOUT, self._config.share_session_timeout_ms)

    def share_heartbeat_interval_ms(self, group_id: str) -> int:
        """A share group's heartbeat interval in ms."""
        return self._get(group_id, keys.SHARE_HEARTBEAT_INTERVAL, self._config.share_heartbeat_interval_ms)

    def share_assignment_interval_ms(self, group_id: str) -> int:
        """The least time in ms between two assignments of a share group."""
        return self._get(group_id, keys.SHARE_ASSIGNMENT_INTERVAL, self._config.share_assignment_interval_ms)

    def share_group(self, group_id: str) -> ShareGroupConfigs:
        """A share group's keys for the leaders of its partitions."""
        own, defaults = self._groups.get(group_id), self._config.share
        if own is None:
            return defaults
        isolation: str = own.get(keys.SHARE_ISOLATION_LEVEL, defaults.isolation_level.name)
        return ShareGroupConfigs(
            record_lock_duration_ms=own.get(keys.SHARE_RECORD_LOCK_DURATION, defaults.record_lock_duration_ms),
            delivery_count_limit=own.get(keys.SHARE_DELIVERY_COUNT_LIMIT, defaults.delivery_count_limit),
            max_record_locks=own.get(keys.SHARE_MAX_RECORD_LOCKS, defaults.max_record_locks),
            auto_offset_reset=own.get(keys.SHARE_OFFSET_RESET, defaults.auto_offset_reset),
            isolation_level=IsolationLevel[isolation.upper()],
            renew_acknowledge=own.get(keys.SHARE_RENEW, defaults.renew_acknowledge),
            dead_letter_topic=own.get(keys.DEAD_LETTER_TOPIC, defaults.dead_letter_topic),
            dead_letter_copy=own.get(keys.DEAD_LETTER_COPY, defaults.dead_letter_copy),
        )
