"""The features of this broker and their levels (KIP-584, KIP-778, KIP-1022).

Clients and other brokers may count on a finalized level. /feature of the metadata store holds the cluster's levels; the
controller writes it. Source: org.apache.kafka.server.common.Feature and MetadataVersion, Kafka 4.4.

share.version, streams.version and eligible.leader.replicas.version are not here: this broker has none of the three, so
no level of them can be finalized. kraft.version belongs to KRaft's quorum.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kafkapy.metadata.metadata_version import IBP_3_0_IV0, LATEST, VERSIONS, MetadataVersion

METADATA_VERSION: Final = "metadata.version"
GROUP_VERSION: Final = "group.version"
"""1: the consumer protocol (KIP-848)."""
TRANSACTION_VERSION: Final = "transaction.version"
"""1: version 1 of the transaction log's values. 2: an epoch for each transaction, and partitions that the broker adds
(KIP-890)."""

_RELEASES: Final = (
    ("3.3", 3, 7, ""),
    ("3.4", 0, 8, "8"),
    ("3.5", 0, 9, "11"),
    ("3.6", 0, 12, "13,14"),
    ("3.7", 0, 15, "15,17"),
    ("3.8", 0, 20, ""),
    ("3.9", 0, 21, ""),
    ("4.0", 0, 22, "23"),
    ("4.1", 0, 26, ""),
    ("4.2", 0, 28, ""),
    ("4.3", 0, 30, "30"),
    ("4.4", 0, 31, "32,33"),
)
"""(release, its first IV step, that step's level, levels that changed the format of Kafka's metadata)."""

MIN_METADATA_LEVEL: Final = 7
MAX_METADATA_LEVEL: Final = 33
_CHANGES: Final = frozenset(int(level) for *_, levels in _RELEASES for level in levels.split(",") if level)


class Feature(NamedTuple):
    """A feature's supported levels."""

    name: str
    min_level: int
    max_level: int
    since: Mapping[int, int] = {}
    """Level to the metadata level from which a release has it by default."""

    def level_at(self, metadata_level: int) -> int:
        """The level that a release with this metadata level finalizes."""
        return max((level for level, since in self.since.items() if since <= metadata_level), default=0)


FEATURES: Final = (
    Feature(METADATA_VERSION, MIN_METADATA_LEVEL, MAX_METADATA_LEVEL),
    Feature(GROUP_VERSION, 0, 1, {1: 22}),
    Feature(TRANSACTION_VERSION, 0, 2, {2: 24}),
)
BY_NAME: Final[Mapping[str, Feature]] = {each.name: each for each in FEATURES}


def levels_of(metadata_level: int) -> dict[str, int]:
    """The finalized levels of a new cluster with a metadata level."""
    levels = {each.name: each.level_at(metadata_level) for each in FEATURES if each.since}
    return {METADATA_VERSION: metadata_level} | {name: level for name, level in levels.items() if level}


LATEST_LEVELS: Final[Mapping[str, int]] = levels_of(MAX_METADATA_LEVEL)
"""The finalized levels of a new cluster."""


def unsupported_levels(supported: Iterable[tuple[str, int, int]], levels: Mapping[str, int]) -> str:
    """The finalized levels that a broker's registration does not support; "" for none.

    `supported`: (name, lowest level, highest level). Nothing is asked of a broker that names none: it is older than
    KIP-584.
    """
    known = {name: (low, high) for name, low, high in supported}
    if not known:
        return ""
    outside = []
    for name, level in sorted(levels.items()):
        low, high = known.get(name, (0, 0))
        if not low <= level <= high:
            outside.append(f"{name} at level {level}")
    return ", ".join(outside)


def initial_levels(protocol: MetadataVersion) -> dict[str, int]:
    """The finalized levels of a new cluster with an inter-broker protocol version."""
    if protocol >= LATEST:
        return dict(LATEST_LEVELS)
    # The layout of records and requests follows the protocol version; groups and transactions do not.
    return {**LATEST_LEVELS, METADATA_VERSION: max(protocol.feature_level, MIN_METADATA_LEVEL)}


def protocol_at(metadata_level: int) -> MetadataVersion:
    """The newest inter-broker protocol version that a metadata level allows."""
    return VERSIONS[IBP_3_0_IV0.ordinal + min(metadata_level, LATEST.feature_level)]


def metadata_level_of(release: str) -> int | None:
    """The metadata level of a release ("4.2") or a step ("4.0-IV1"), or None."""
    return _LEVELS.get(release)


def metadata_name(level: int) -> str:
    """The name of a metadata level, such as "4.4-IV2", or its number."""
    return _NAMES.get(level, str(level))


def changes_metadata(old_level: int, new_level: int) -> bool:
    """Whether metadata formats differ between two levels of metadata.version."""
    low, high = sorted((old_level, new_level))
    return any(low < level <= high for level in _CHANGES)


def _named() -> dict[int, str]:
    names: dict[int, str] = {}
    ends = [first for _, _, first, _ in _RELEASES[1:]] + [MAX_METADATA_LEVEL + 1]
    for (release, step, first, _), end in zip(_RELEASES, ends, strict=True):
        names |= {level: f"{release}-IV{step + level - first}" for level in range(first, end)}
    return names


_NAMES: Final = _named()
_LEVELS: Final = {name.partition("-")[0]: level for level, name in _NAMES.items()} | {
    name: level for level, name in _NAMES.items()
}
