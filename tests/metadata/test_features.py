"""The levels of features, beside values written down from Apache Kafka's sources."""

from __future__ import annotations

import pytest

from kafkapy.metadata.features import (
    FEATURES,
    GROUP_VERSION,
    LATEST_LEVELS,
    METADATA_VERSION,
    SHARE_VERSION,
    TRANSACTION_VERSION,
    changes_metadata,
    initial_levels,
    levels_of,
    metadata_level_of,
    metadata_name,
    protocol_at,
    unsupported_levels,
)
from kafkapy.metadata.metadata_version import MetadataVersion

NAMES = [
    "3.3-IV3", "3.4-IV0", "3.5-IV0", "3.5-IV1", "3.5-IV2", "3.6-IV0", "3.6-IV1", "3.6-IV2", "3.7-IV0", "3.7-IV1",
    "3.7-IV2", "3.7-IV3", "3.7-IV4", "3.8-IV0", "3.9-IV0", "4.0-IV0", "4.0-IV1", "4.0-IV2", "4.0-IV3", "4.1-IV0",
    "4.1-IV1", "4.2-IV0", "4.2-IV1", "4.3-IV0", "4.4-IV0", "4.4-IV1", "4.4-IV2",
]  # fmt: skip
"""The metadata versions of KRaft from level 7 on."""


def test_each_level_has_its_name_and_each_release_its_last_level() -> None:
    assert [metadata_name(level) for level in range(7, 7 + len(NAMES))] == NAMES
    assert [metadata_level_of(name) for name in NAMES] == list(range(7, 7 + len(NAMES)))
    assert [metadata_name(level) for level in (6, 34)] == ["6", "34"], "levels that are not known"
    last = {name.partition("-")[0]: level for level, name in enumerate(NAMES, 7)}
    assert {release: metadata_level_of(release) for release in last} == last
    assert [metadata_level_of(each) for each in ("3.2", "4.5", "4.4-IV3", "")] == [None] * 4


def test_which_levels_are_supported() -> None:
    assert [(each.name, each.min_level, each.max_level) for each in FEATURES] == [
        ("metadata.version", 7, 33),
        ("group.version", 0, 1),
        ("transaction.version", 0, 2),
        ("share.version", 0, 2),
    ]


@pytest.mark.parametrize(
    ("release", "group", "transaction", "share"),
    [
        ("3.9", 0, 0, 0),
        ("4.0-IV0", 1, 0, 0),
        ("4.0-IV1", 1, 0, 0),
        ("4.0-IV2", 1, 2, 0),
        ("4.1", 1, 2, 0),
        ("4.2-IV0", 1, 2, 1),
        ("4.3", 1, 2, 1),
        ("4.4-IV0", 1, 2, 2),
        ("4.4", 1, 2, 2),
    ],
)
def test_the_levels_of_a_new_cluster(release: str, group: int, transaction: int, share: int) -> None:
    """A level of 0 is that of a feature which is not finalized."""
    level = metadata_level_of(release)
    assert level is not None
    wanted = {METADATA_VERSION: level, GROUP_VERSION: group, TRANSACTION_VERSION: transaction, SHARE_VERSION: share}
    assert levels_of(level) == {name: each for name, each in wanted.items() if each}


@pytest.mark.parametrize(
    ("protocol", "level"), [("2.8", 7), ("3.2", 7), ("3.3", 7), ("3.4", 8), ("3.8", 20), ("3.9", 33)]
)
def test_the_levels_of_a_new_cluster_with_an_older_protocol(protocol: str, level: int) -> None:
    """Groups and transactions do not follow it."""
    assert initial_levels(MetadataVersion.parse(protocol)) == {**LATEST_LEVELS, METADATA_VERSION: level}


@pytest.mark.parametrize(
    ("level", "protocol"),
    [(7, "3.3-IV3"), (8, "3.4-IV0"), (19, "3.7-IV4"), (20, "3.8-IV0"), (21, "3.9-IV0"), (33, "3.9-IV0")],
)
def test_the_protocol_that_a_level_allows(level: int, protocol: str) -> None:
    assert protocol_at(level).name == protocol


@pytest.mark.parametrize(
    ("supported", "problem"),
    [
        ([], ""),
        ([("a", 1, 3), ("b", 0, 2)], ""),
        ([("a", 3, 3), ("b", 2, 2), ("c", 1, 1)], ""),
        ([("a", 4, 5), ("b", 0, 2)], "a at level 3"),
        ([("a", 1, 2), ("b", 0, 2)], "a at level 3"),
        ([("a", 1, 3)], "b at level 2"),
        ([("c", 1, 1)], "a at level 3, b at level 2"),
    ],
)
def test_levels_that_a_broker_does_not_support(supported: list[tuple[str, int, int]], problem: str) -> None:
    assert unsupported_levels(supported, {"b": 2, "a": 3}) == problem


def test_a_feature_that_is_not_finalized_is_supported_by_all() -> None:
    assert unsupported_levels([("b", 1, 1)], {"a": 0, "b": 1}) == ""


def test_between_which_levels_the_format_of_the_metadata_changes() -> None:
    """Source: the flags didMetadataChange of MetadataVersion."""
    changed = [level for level in range(8, 34) if changes_metadata(level - 1, level)]
    assert changed == [level for level in range(8, 34) if changes_metadata(level, level - 1)]
    assert changed == [8, 11, 13, 14, 15, 17, 23, 30, 32, 33]
    assert changes_metadata(7, 33) and changes_metadata(21, 23)
    assert not changes_metadata(8, 10) and not changes_metadata(8, 8)
