"""The metadata versions of Apache Kafka's releases, and the formats that each one selects.

A cluster on ZooKeeper or etcd takes its version from `inter.broker.protocol.version` (the IBP): brokers of several
releases then talk to each other in requests and records that all of them know. The IBP counts in `IV` steps within a
release; a release alone (`3.6`) means its newest step. Source: org.apache.kafka.server.common.MetadataVersion.

    version = MetadataVersion.parse("3.6")
    version.fetch_version                  # 15
    version >= IBP_2_7_IV2                 # versions compare by age
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kafkapy.errors import ConfigError

__all__ = [
    "IBP",
    "IBP_0_11_0_IV2",
    "IBP_1_0_IV0",
    "IBP_2_7_IV0",
    "IBP_2_7_IV1",
    "IBP_2_7_IV2",
    "IBP_2_8_IV0",
    "IBP_2_8_IV1",
    "IBP_3_0_IV0",
    "IBP_3_0_IV1",
    "IBP_3_1_IV0",
    "IBP_3_2_IV0",
    "IBP_3_3_IV0",
    "IBP_3_4_IV0",
    "IBP_3_5_IV1",
    "LATEST",
    "VERSIONS",
    "MetadataVersion",
]

IBP: Final = "inter.broker.protocol.version"
"""The key of the broker's configuration."""

_STEPS: Final = (
    ("0.8.0", None),
    ("0.8.1", None),
    ("0.8.2", None),
    ("0.9.0", None),
    ("0.10.0", 2),
    ("0.10.1", 3),
    ("0.10.2", 1),
    ("0.11.0", 3),
    ("1.0", 1),
    ("1.1", 1),
    ("2.0", 2),
    ("2.1", 3),
    ("2.2", 2),
    ("2.3", 2),
    ("2.4", 2),
    ("2.5", 1),
    ("2.6", 1),
    ("2.7", 3),
    ("2.8", 2),
    ("3.0", 2),
    ("3.1", 1),
    ("3.2", 1),
    ("3.3", 4),
    ("3.4", 1),
    ("3.5", 3),
    ("3.6", 3),
    ("3.7", 5),
    ("3.8", 1),
    ("3.9", 1),
)
"""(release, number of its IV steps); None for a release without steps."""


class MetadataVersion(NamedTuple):
    """One metadata version. Immutable; a later version is greater."""

    ordinal: int
    """The position in the order of all versions."""
    name: str
    """As the configuration has it, for instance "3.9-IV0"."""
    release: str
    """The first release with it, for instance "3.9"."""

    @staticmethod
    def parse(text: str) -> MetadataVersion:
        """The version of a configured `inter.broker.protocol.version`.

        An exact version ("3.6-IV2"), or a release with or without its patch level ("3.6", "3.6.1"): then its newest.

        ConfigError for an unknown version.
        """
        pieces = text.split(".")
        wanted = ".".join(pieces[: 3 if text.startswith("0.") else 2])
        found = _BY_NAME.get(wanted)
        if found is None:
            raise ConfigError(IBP, text, f"expected a version of Apache Kafka up to {LATEST.name}")
        return found

    def __str__(self) -> str:
        return self.name

    # --- what the version allows ----------------------------------------------------------------------------------

    @property
    def feature_level(self) -> int:
        """The level of the feature metadata.version, -1 for a version from before that feature."""
        return max(self.ordinal - IBP_3_0_IV0.ordinal, 0) or -1

    @property
    def truncates_on_fetch(self) -> bool:
        """Whether a follower truncates by Fetch responses (`DivergingEpoch`), without OffsetForLeaderEpoch."""
        return self >= IBP_2_7_IV1

    @property
    def has_offsets_for_leader_epoch(self) -> bool:
        """Whether a follower asks for the ends of leader epochs (KIP-101)."""
        return self >= IBP_0_11_0_IV2

    @property
    def has_features(self) -> bool:
        """Whether registrations and /feature have features (KIP-584)."""
        return self >= IBP_2_7_IV0

    @property
    def has_alter_partition(self) -> bool:
        """Whether the ISR changes through AlterPartition; below, the leader writes the store itself."""
        return self >= IBP_2_7_IV2

    @property
    def has_topic_ids(self) -> bool:
        """Whether the controller gives topics their ids."""
        return self >= IBP_2_8_IV0

    @property
    def has_allocated_producer_ids(self) -> bool:
        """Whether the controller hands out blocks of producer ids (KIP-730)."""
        return self >= IBP_3_0_IV0

    @property
    def has_leader_recovery(self) -> bool:
        """Whether partition states have a leader recovery state (KIP-704)."""
        return self >= IBP_3_2_IV0

    @property
    def feature_znode_version(self) -> int:
        """The layout of /feature."""
        return 2 if self >= IBP_3_3_IV0 else 1

    @property
    def registration_version(self) -> int:
        """The version of a broker's registration."""
        return self._first((("2.7-IV0", 5), ("0.10.0-IV1", 4)), 2)

    # --- the versions of requests between brokers ---------------------------------------------------------------------

    @property
    def fetch_version(self) -> int:
        """The Fetch version of followers.

        At most 12 for a request with a topic that has no id.
        """
        return self._first(_FETCH, 3)

    @property
    def offset_for_leader_epoch_version(self) -> int:
        """The OffsetForLeaderEpoch version of followers."""
        return self._first((("2.8-IV0", 4), ("2.3-IV1", 3), ("2.1-IV1", 2), ("2.0-IV0", 1)), 0)

    @property
    def list_offsets_version(self) -> int:
        """The ListOffsets version of followers."""
        return self._first(_LIST_OFFSETS, 0)

    @property
    def leader_and_isr_version(self) -> int:
        """The LeaderAndIsr version of the controller."""
        return self._first(_LEADER_AND_ISR, 0)

    @property
    def stop_replica_version(self) -> int:
        """The StopReplica version of the controller."""
        return self._first((("3.4-IV0", 4), ("2.6-IV0", 3), ("2.4-IV1", 2), ("2.2-IV0", 1)), 0)

    @property
    def update_metadata_version(self) -> int:
        """The UpdateMetadata version of the controller."""
        return self._first(_UPDATE_METADATA, 0)

    @property
    def controlled_shutdown_version(self) -> int:
        """The ControlledShutdown version of a stopping broker."""
        return self._first((("2.4-IV1", 3), ("2.2-IV0", 2), ("0.9.0", 1)), 0)

    # --- the versions of records of internal topics -------------------------------------------------------------------

    @property
    def group_metadata_value_version(self) -> int:
        """The version of the value of a group's metadata record."""
        return self._first((("2.3-IV0", 3), ("2.1-IV0", 2), ("0.10.1-IV0", 1)), 0)

    def offset_commit_value_version(self, has_expire_timestamp: bool = False) -> int:
        """The version of the value of an offset's record.

        Version 1 alone has an expire timestamp.
        """
        return 1 if has_expire_timestamp else self._first((("2.1-IV1", 3), ("2.1-IV0", 2)), 1)

    @property
    def transaction_log_value_version(self) -> int:
        """The version of the value of a transaction's record: 0 before Kafka 4."""
        return 0

    def _first(self, table: tuple[tuple[str, int], ...], otherwise: int) -> int:
        return next((value for name, value in table if self.ordinal >= _BY_NAME[name].ordinal), otherwise)


_FETCH: Final = (
    ("3.9-IV0", 17),
    ("3.7-IV4", 16),
    ("3.5-IV1", 15),
    ("3.5-IV0", 14),
    ("3.1-IV0", 13),
    ("2.7-IV1", 12),
    ("2.3-IV1", 11),
    ("2.1-IV2", 10),
    ("2.0-IV1", 8),
    ("1.1-IV0", 7),
    ("0.11.0-IV1", 5),
    ("0.11.0-IV0", 4),
)
_LIST_OFFSETS: Final = (
    ("3.9-IV0", 9),
    ("3.5-IV0", 8),
    ("3.0-IV1", 7),
    ("2.8-IV0", 6),
    ("2.2-IV1", 5),
    ("2.1-IV1", 4),
    ("2.0-IV1", 3),
    ("0.11.0-IV0", 2),
    ("0.10.1-IV2", 1),
)
_LEADER_AND_ISR: Final = (
    ("3.4-IV0", 7),
    ("3.2-IV0", 6),
    ("2.8-IV1", 5),
    ("2.4-IV1", 4),
    ("2.4-IV0", 3),
    ("2.2-IV0", 2),
    ("1.0-IV0", 1),
)
_UPDATE_METADATA: Final = (
    ("3.4-IV0", 8),
    ("2.8-IV1", 7),
    ("2.4-IV1", 6),
    ("2.2-IV0", 5),
    ("1.0-IV0", 4),
    ("0.10.2-IV0", 3),
    ("0.10.0-IV1", 2),
    ("0.9.0", 1),
)


def _all_versions() -> tuple[MetadataVersion, ...]:
    names = [
        (release if steps is None else f"{release}-IV{step}", release)
        for release, steps in _STEPS
        for step in range(steps or 1)
    ]
    return tuple(MetadataVersion(ordinal, name, release) for ordinal, (name, release) in enumerate(names))


VERSIONS: Final = _all_versions()
"""All versions, the oldest first."""
LATEST: Final = VERSIONS[-1]
"""The newest version with a ZooKeeper mode, and the default of `inter.broker.protocol.version`."""
_BY_NAME: Final = {version.release: version for version in VERSIONS} | {version.name: version for version in VERSIONS}

IBP_0_11_0_IV2: Final = _BY_NAME["0.11.0-IV2"]
IBP_1_0_IV0: Final = _BY_NAME["1.0-IV0"]
IBP_2_7_IV0: Final = _BY_NAME["2.7-IV0"]
IBP_2_7_IV1: Final = _BY_NAME["2.7-IV1"]
IBP_2_7_IV2: Final = _BY_NAME["2.7-IV2"]
IBP_2_8_IV0: Final = _BY_NAME["2.8-IV0"]
IBP_2_8_IV1: Final = _BY_NAME["2.8-IV1"]
IBP_3_0_IV0: Final = _BY_NAME["3.0-IV0"]
IBP_3_0_IV1: Final = _BY_NAME["3.0-IV1"]
IBP_3_1_IV0: Final = _BY_NAME["3.1-IV0"]
IBP_3_2_IV0: Final = _BY_NAME["3.2-IV0"]
IBP_3_3_IV0: Final = _BY_NAME["3.3-IV0"]
IBP_3_4_IV0: Final = _BY_NAME["3.4-IV0"]
IBP_3_5_IV1: Final = _BY_NAME["3.5-IV1"]
