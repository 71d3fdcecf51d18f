"""The group coordinator's configuration: the broker's and single groups' keys."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from kafkapy.metadata.metadata_version import IBP, MetadataVersion

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig


PROTOCOLS: Final = "group.coordinator.rebalance.protocols"


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
    consumer_max_size: int = 2**31 - 1
    consumer_regex_refresh_interval_ms: int = 600_000
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
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
        return cls(
            min_session_timeout_ms=config.get_int("group.min.session.timeout.ms"),
            max_session_timeout_ms=config.get_int("group.max.session.timeout.ms"),
            initial_rebalance_delay_ms=config.get_int("group.initial.rebalance.delay.ms"),
            max_size=config.get_int("group.max.size"),
            offset_metadata_max_bytes=config.get_int("offset.metadata.max.bytes"),
            offsets_retention_ms=config.get_int("offsets.retention.minutes") * 60_000,
            offsets_retention_check_interval_ms=config.get_int("offsets.retention.check.interval.ms"),
            offset_commit_timeout_ms=config.get_int("offsets.commit.timeout.ms"),
            consumer_protocol=alone and "consumer" in {name.lower() for name in config.get_list(PROTOCOLS)},
            consumer_session_timeout_ms=config.get_int("group.consumer.session.timeout.ms"),
            consumer_heartbeat_interval_ms=config.get_int("group.consumer.heartbeat.interval.ms"),
            consumer_max_size=config.get_int("group.consumer.max.size"),
            consumer_regex_refresh_interval_ms=config.get_int("group.consumer.regex.refresh.interval.ms"),
            migration_policy=MigrationPolicy(config.get_str("group.consumer.migration.policy").lower()),
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
        self._groups: dict[str, Mapping[str, int]] = {}

    def put(self, group_id: str, values: Mapping[str, int]) -> None:
        """Replace a group's own keys, such as consumer.session.timeout.ms."""
        if values:
            self._groups[group_id] = dict(values)
        else:
            self._groups.pop(group_id, None)

    def session_timeout_ms(self, group_id: str) -> int:
        """The group's session timeout in ms."""
        own = self._groups.get(group_id, {})
        return own.get("consumer.session.timeout.ms", self._config.consumer_session_timeout_ms)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """The group's heartbeat interval in ms."""
        own = self._groups.get(group_id, {})
        return own.get("consumer.heartbeat.interval.ms", self._config.consumer_heartbeat_interval_ms)
