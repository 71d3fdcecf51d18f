"""The levels that the controller finalizes, and Kafka's texts for those that it refuses."""

from __future__ import annotations

from typing import Any

import pytest
from controller.several import SeveralBrokers, run_several
from waiting import until

from kafkapy.controller.feature_updates import FeatureUpdate, changed_levels
from kafkapy.errors import ErrorCode, KafkaError, code_of
from kafkapy.metadata.features import (
    FEATURES,
    LATEST_LEVELS,
    MAX_METADATA_LEVEL,
    changes_metadata,
    initial_levels,
    levels_of,
    metadata_level_of,
    metadata_name,
    protocol_at,
    unsupported_levels,
)
from kafkapy.metadata.metadata_version import LATEST, MetadataVersion
from kafkapy.metadata.znodes import BrokerRegistration, broker_path, decode_broker, encode_broker
from kafkapy.types import Endpoint

UPGRADE, SAFE, UNSAFE = 1, 2, 3
ALL = tuple((each.name, each.min_level, each.max_level) for each in FEATURES)
BEGIN = "The update failed for all features since the following feature had an error: "


def refusal(*updates: tuple[str, int, int], brokers: dict[int, BrokerRegistration] | None = None) -> str:
    with pytest.raises(KafkaError) as raised:
        changed_levels(LATEST_LEVELS, [FeatureUpdate(*each) for each in updates], 1, brokers or {})
    assert code_of(raised.value) is ErrorCode.INVALID_UPDATE_VERSION
    text = raised.value.message
    assert text.startswith(BEGIN)
    return text.removeprefix(BEGIN)


def test_a_new_cluster_has_the_levels_of_kafka_4_4() -> None:
    assert LATEST_LEVELS == {"metadata.version": 33, "group.version": 1, "transaction.version": 2}
    assert levels_of(21) == {"metadata.version": 21}
    assert levels_of(23) == {"metadata.version": 23, "group.version": 1}
    assert initial_levels(LATEST) == LATEST_LEVELS
    assert initial_levels(MetadataVersion.parse("3.6"))["metadata.version"] == 14
    assert initial_levels(MetadataVersion.parse("2.8"))["metadata.version"] == 7


@pytest.mark.parametrize(
    ("level", "name"),
    [(7, "3.3-IV3"), (8, "3.4-IV0"), (14, "3.6-IV2"), (21, "3.9-IV0"), (25, "4.0-IV3"), (33, "4.4-IV2")],
)
def test_names_of_metadata_levels(level: int, name: str) -> None:
    assert metadata_name(level) == name
    assert metadata_level_of(name) == level


def test_releases_mean_their_newest_step() -> None:
    assert [metadata_level_of(release) for release in ("3.6", "4.0", "4.2", "4.4", "5.0")] == [14, 25, 29, 33, None]


def test_the_protocol_follows_the_metadata_level() -> None:
    assert protocol_at(7) == MetadataVersion.parse("3.3")
    assert protocol_at(14) == MetadataVersion.parse("3.6")
    assert protocol_at(21) == protocol_at(MAX_METADATA_LEVEL) == LATEST
    assert all(protocol_at(level).feature_level in (level, 21) for level in range(7, 34))


def test_formats_that_changed() -> None:
    assert changes_metadata(33, 32)
    assert changes_metadata(31, 29)
    assert not changes_metadata(31, 30)
    assert not changes_metadata(29, 23)
    assert changes_metadata(23, 22)
    assert not changes_metadata(20, 20)


def test_upgrades_downgrades_and_removals() -> None:
    down = changed_levels(
        LATEST_LEVELS, [FeatureUpdate("transaction.version", 1, SAFE), FeatureUpdate("group.version", 0, UNSAFE)], 1, {}
    )
    assert down == {"metadata.version": 33, "transaction.version": 1}
    up = [FeatureUpdate("transaction.version", 2, UPGRADE), FeatureUpdate("group.version", 1, UPGRADE)]
    assert changed_levels(down, up, 1, {}) == LATEST_LEVELS
    low = {"metadata.version": 29}
    assert changed_levels(low, [FeatureUpdate("metadata.version", 25, SAFE)], 1, {}) == {"metadata.version": 25}


@pytest.mark.parametrize(
    ("name", "level", "kind", "text"),
    [
        ("group.version", 0, UPGRADE, "Can't downgrade the version of this feature without setting the upgrade type"),
        ("group.version", 2, UPGRADE, "Local controller 1 only supports versions 0-1"),
        ("group.version", -1, SAFE, "A feature version cannot be less than 0."),
        ("group.version", 1, 7, "The controller does not support the given upgrade type."),
        ("metadata.version", 0, SAFE, "Local controller 1 only supports versions 7-33"),
        ("metadata.version", 34, UPGRADE, "Local controller 1 only supports versions 7-33"),
        ("share.version", 1, UPGRADE, "Local controller 1 does not support this feature."),
        ("share.version", 0, SAFE, "Feature share.version not found."),
        ("", 1, UPGRADE, "Local controller 1 does not support this feature."),
    ],
)
def test_refused_levels(name: str, level: int, kind: int, text: str) -> None:
    told = refusal((name, level, kind))
    assert told.startswith(f"Invalid update version {level} for feature {name}. {text}")


def test_a_level_above_cannot_be_a_downgrade() -> None:
    with pytest.raises(KafkaError, match="Can't downgrade to a newer version"):
        changed_levels({"metadata.version": 33}, [FeatureUpdate("group.version", 1, SAFE)], 1, {})


def test_a_downgrade_that_loses_metadata_is_refused() -> None:
    begin = "Unsupported metadata.version downgrade from 33 to 32. "
    assert refusal(("metadata.version", 32, SAFE)) == (
        begin + "Refusing to perform the requested downgrade because it might delete metadata information."
    )
    assert refusal(("metadata.version", 32, UNSAFE)) == (
        begin + "Unsafe metadata downgrade is not supported in this version."
    )


def test_one_refusal_keeps_all_levels() -> None:
    assert "share.version" in refusal(("transaction.version", 0, SAFE), ("share.version", 1, UPGRADE))


def test_every_live_broker_must_support_a_level() -> None:
    old = BrokerRegistration(2, (), features=(("group.version", 0, 0), ("transaction.version", 0, 1)))
    brokers = {1: BrokerRegistration(1, ()), 2: old, 3: BrokerRegistration(3, (), features=ALL)}
    assert "Broker 2 does not support this feature." in refusal(("group.version", 1, UPGRADE), brokers=brokers)
    assert "Broker 2 only supports versions 0-1" in refusal(("transaction.version", 2, UPGRADE), brokers=brokers)
    changed_levels(LATEST_LEVELS, [FeatureUpdate("transaction.version", 1, SAFE)], 1, brokers)


def test_the_controller_ignores_a_broker_that_cannot_keep_the_finalized_levels(caplog: Any) -> None:
    async def test(cluster: SeveralBrokers) -> None:
        features = (*ALL[:2], ("transaction.version", 0, 1))
        registration = BrokerRegistration(7, (Endpoint("PLAINTEXT", "h", 9007),), features=features)
        await cluster.active.store.create(broker_path(7), encode_broker(registration))
        said = "ignores broker 7, which does not support transaction.version at level 2"
        await until(lambda: said in caplog.text, "the controller has seen the broker")
        assert sorted(cluster.context.live_brokers) == [0]

    run_several(test, brokers=1)


@pytest.mark.parametrize(
    ("supported", "text"),
    [
        (ALL, ""),
        ((), ""),
        ((("metadata.version", 7, 32), *ALL[1:]), "metadata.version at level 33"),
        (ALL[:1], "group.version at level 1, transaction.version at level 2"),
    ],
)
def test_the_levels_that_a_broker_lacks_are_named(supported: tuple[tuple[str, int, int], ...], text: str) -> None:
    assert unsupported_levels(supported, LATEST_LEVELS) == text


def test_registrations_carry_features() -> None:
    broker = BrokerRegistration(3, (), features=ALL)
    assert decode_broker(3, encode_broker(broker)).features == ALL
