"""The table of metadata versions, beside values written down from Apache Kafka's sources."""

from __future__ import annotations

import pytest

from kafkapy.errors import ConfigError
from kafkapy.metadata import metadata_version
from kafkapy.metadata.metadata_version import IBP_2_7_IV2, LATEST, VERSIONS, MetadataVersion


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("3.9-IV0", "3.9-IV0"),
        ("3.9", "3.9-IV0"),
        ("3.9.1", "3.9-IV0"),
        ("3.6", "3.6-IV2"),
        ("3.6-IV1", "3.6-IV1"),
        ("2.8.2", "2.8-IV1"),
        ("0.10.2", "0.10.2-IV0"),
        ("0.10.1.1", "0.10.1-IV2"),
        ("0.11.0-IV2", "0.11.0-IV2"),
        ("0.9.0", "0.9.0"),
        ("0.9.0.1", "0.9.0"),
    ],
)
def test_versions_are_read_as_apache_kafka_reads_them(text: str, name: str) -> None:
    assert MetadataVersion.parse(text).name == name


@pytest.mark.parametrize("text", ["4.0", "3.10", "3.9-IV1", "0.9", "3", "3.6-IV", ""])
def test_unknown_versions_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="inter.broker.protocol.version"):
        MetadataVersion.parse(text)


def test_each_release_has_its_steps() -> None:
    """All versions of Kafka's MetadataVersion up to 3.9."""
    assert [version.name for version in VERSIONS] == [
        "0.8.0", "0.8.1", "0.8.2", "0.9.0", "0.10.0-IV0", "0.10.0-IV1", "0.10.1-IV0", "0.10.1-IV1", "0.10.1-IV2",
        "0.10.2-IV0", "0.11.0-IV0", "0.11.0-IV1", "0.11.0-IV2", "1.0-IV0", "1.1-IV0", "2.0-IV0", "2.0-IV1", "2.1-IV0",
        "2.1-IV1", "2.1-IV2", "2.2-IV0", "2.2-IV1", "2.3-IV0", "2.3-IV1", "2.4-IV0", "2.4-IV1", "2.5-IV0", "2.6-IV0",
        "2.7-IV0", "2.7-IV1", "2.7-IV2", "2.8-IV0", "2.8-IV1", "3.0-IV0", "3.0-IV1", "3.1-IV0", "3.2-IV0", "3.3-IV0",
        "3.3-IV1", "3.3-IV2", "3.3-IV3", "3.4-IV0", "3.5-IV0", "3.5-IV1", "3.5-IV2", "3.6-IV0", "3.6-IV1", "3.6-IV2",
        "3.7-IV0", "3.7-IV1", "3.7-IV2", "3.7-IV3", "3.7-IV4", "3.8-IV0", "3.9-IV0",
    ]  # fmt: skip
    assert [version.ordinal for version in VERSIONS] == list(range(len(VERSIONS)))


def test_versions_compare_by_age() -> None:
    assert MetadataVersion.parse("0.9.0") < MetadataVersion.parse("0.10.0") < MetadataVersion.parse("1.0")
    assert MetadataVersion.parse("2.7-IV1") < IBP_2_7_IV2 <= MetadataVersion.parse("2.7")
    assert list(VERSIONS) == sorted(VERSIONS)
    assert LATEST.name == "3.9-IV0"


@pytest.mark.parametrize(
    ("name", "level"),
    [("2.8", -1), ("3.0-IV0", -1), ("3.0-IV1", 1), ("3.1", 2), ("3.2", 3), ("3.3-IV0", 4), ("3.3", 7), ("3.4", 8),
     ("3.5", 11), ("3.6", 14), ("3.7", 19), ("3.8", 20), ("3.9", 21)],
)  # fmt: skip
def test_feature_levels(name: str, level: int) -> None:
    assert MetadataVersion.parse(name).feature_level == level


@pytest.mark.parametrize(
    ("name", "fetch", "epochs", "offsets", "leader_and_isr", "stop", "update", "shutdown"),
    [
        ("3.9", 17, 4, 9, 7, 4, 8, 3),
        ("3.8", 16, 4, 8, 7, 4, 8, 3),
        ("3.6", 15, 4, 8, 7, 4, 8, 3),
        ("3.5-IV0", 14, 4, 8, 7, 4, 8, 3),
        ("3.4", 13, 4, 7, 7, 4, 8, 3),
        ("3.3", 13, 4, 7, 6, 3, 7, 3),
        ("3.0", 12, 4, 7, 5, 3, 7, 3),
        ("2.8-IV0", 12, 4, 6, 4, 3, 6, 3),
        ("2.7-IV0", 11, 3, 5, 4, 3, 6, 3),
        ("2.4-IV0", 11, 3, 5, 3, 1, 5, 2),
        ("2.2-IV0", 10, 2, 4, 2, 1, 5, 2),
        ("2.0-IV0", 7, 1, 2, 1, 0, 4, 1),
        ("1.1", 7, 0, 2, 1, 0, 4, 1),
        ("1.0", 5, 0, 2, 1, 0, 4, 1),
        ("0.11.0-IV0", 4, 0, 2, 0, 0, 3, 1),
        ("0.10.1", 3, 0, 1, 0, 0, 2, 1),
        ("0.9.0", 3, 0, 0, 0, 0, 1, 1),
        ("0.8.2", 3, 0, 0, 0, 0, 0, 0),
    ],
)
def test_request_versions(
    name: str, fetch: int, epochs: int, offsets: int, leader_and_isr: int, stop: int, update: int, shutdown: int
) -> None:
    version = MetadataVersion.parse(name)
    assert version.fetch_version == fetch
    assert version.offset_for_leader_epoch_version == epochs
    assert version.list_offsets_version == offsets
    assert version.leader_and_isr_version == leader_and_isr
    assert version.stop_replica_version == stop
    assert version.update_metadata_version == update
    assert version.controlled_shutdown_version == shutdown


@pytest.mark.parametrize(
    ("name", "group", "offset"), [("3.9", 3, 3), ("2.3-IV0", 3, 3), ("2.1-IV1", 2, 3), ("2.1-IV0", 2, 2), ("2.0", 1, 1)]
)
def test_record_versions(name: str, group: int, offset: int) -> None:
    version = MetadataVersion.parse(name)
    assert version.group_metadata_value_version == group
    assert version.offset_commit_value_version() == offset
    assert version.offset_commit_value_version(has_expire_timestamp=True) == 1
    assert version.transaction_log_value_version == 0


@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("has_alter_partition", "2.7-IV2"),
        ("has_allocated_producer_ids", "3.0-IV0"),
        ("has_features", "2.7-IV0"),
        ("has_leader_recovery", "3.2-IV0"),
        ("has_offsets_for_leader_epoch", "0.11.0-IV2"),
        ("has_topic_ids", "2.8-IV0"),
        ("truncates_on_fetch", "2.7-IV1"),
    ],
)
def test_what_a_version_allows_it_allows_for_good(question: str, first: str) -> None:
    allowed = [version.name for version in VERSIONS if getattr(version, question)]
    assert allowed[0] == first
    assert allowed == [version.name for version in VERSIONS if version >= MetadataVersion.parse(first)]


def test_named_versions_are_what_they_are_called() -> None:
    for name in metadata_version.__all__:
        if name.startswith("IBP_"):
            assert getattr(metadata_version, name).name == name[4:].replace("_IV", "-IV").replace("_", ".")


def test_layouts_of_nodes() -> None:
    assert [MetadataVersion.parse(each).registration_version for each in ("3.9", "2.6", "0.10.0-IV0")] == [5, 4, 2]
    assert [MetadataVersion.parse(each).feature_znode_version for each in ("3.3-IV0", "3.2")] == [2, 1]
