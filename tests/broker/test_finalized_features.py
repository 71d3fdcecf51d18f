"""/feature of a cluster: what clients are told, and a finalized feature that this broker does not support."""

from __future__ import annotations

import asyncio

import pytest
from waiting import until

from kafkapy.broker.finalized_features import FeatureChanges, FinalizedFeatures, unsupported
from kafkapy.broker.meta_properties import StartupError
from kafkapy.metadata.features import FEATURES, LATEST_LEVELS
from kafkapy.metadata.memory import MemoryStore
from kafkapy.metadata.metadata_version import LATEST, MetadataVersion
from kafkapy.metadata.znodes import FEATURE, encode_feature

KNOWN = {each.name: each.max_level for each in FEATURES}


def test_features_that_are_known_are_supported_up_to_their_level() -> None:
    assert unsupported({}) == ""
    assert unsupported(KNOWN) == ""
    assert "kraft.version at level 1, which this broker does not know" in unsupported({**KNOWN, "kraft.version": 1})
    assert "supports levels 0 to 2" in unsupported({"transaction.version": 3})
    assert "does not know" in unsupported({"metadata.version": 21}, zookeeper=True)


def test_the_node_of_a_zookeeper_cluster_is_followed() -> None:
    async def test() -> None:
        store, stops = MemoryStore(), []
        await store.start()
        features = FinalizedFeatures(zookeeper=True)
        changes = FeatureChanges(store, features, lambda: stops.append(True))
        await changes.start()
        assert (features.levels, features.epoch, features.supported) == ({}, -1, ())
        assert (features.transaction_version, features.has_consumer_protocol) == (0, True)
        await store.create(FEATURE, encode_feature(True, {"group.version": 1}))
        await until(lambda: features.epoch == 0, "the node was read")
        assert features.levels == {"group.version": 1}
        # What is disabled is not in force, whatever it is.
        await store.set(FEATURE, encode_feature(False, {"unknown": 1}))
        await until(lambda: features.epoch == 1, "the node was read again")
        assert features.levels == {}
        assert stops == []
        await store.set(FEATURE, encode_feature(True, {"unknown": 1}))
        await until(lambda: bool(stops), "the broker stops")
        assert (features.levels, features.epoch) == ({}, 1)
        await changes.stop()
        await store.close()

    asyncio.run(test())


def test_the_node_of_another_cluster_is_followed() -> None:
    async def test() -> None:
        store, stops = MemoryStore(), []
        await store.start()
        features = FinalizedFeatures()
        changes = FeatureChanges(store, features, lambda: stops.append(True))
        await changes.start()
        # Before the first controller: the levels that it will finalize.
        assert (features.levels, features.epoch) == (LATEST_LEVELS, 0)
        # A node of an earlier kafkapy.
        await store.create(FEATURE, encode_feature(True, {}))
        await store.set(FEATURE, encode_feature(True, {}))
        await asyncio.wait_for(features.wait_for(1), 30)
        assert features.levels == LATEST_LEVELS
        await store.set(FEATURE, encode_feature(True, {"metadata.version": 33, "transaction.version": 1}))
        await asyncio.wait_for(features.wait_for(2), 30)
        assert (features.transaction_version, features.has_consumer_protocol) == (1, False)
        await store.set(FEATURE, encode_feature(True, {"metadata.version": 34}))
        await until(lambda: bool(stops), "the broker stops")
        await changes.stop()
        await store.close()

    asyncio.run(test())


def test_the_protocol_follows_the_metadata_level() -> None:
    features = FinalizedFeatures()
    old = MetadataVersion.parse("3.5")
    assert features.protocol(LATEST) == LATEST
    assert features.protocol(old) == old
    features.put({"metadata.version": 8}, 1)
    assert features.protocol(LATEST) == features.protocol(old) == MetadataVersion.parse("3.4")
    assert features.protocol(MetadataVersion.parse("2.8")) == MetadataVersion.parse("2.8")


@pytest.mark.parametrize("value", [b"{", encode_feature(True, {"kraft.version": 1})])
def test_a_broker_does_not_join_a_cluster_whose_features_it_does_not_support(value: bytes) -> None:
    async def test() -> None:
        store = MemoryStore()
        await store.start()
        await store.create(FEATURE, value)
        changes = FeatureChanges(store, FinalizedFeatures(), lambda: None)
        with pytest.raises(StartupError, match="This broker cannot join the cluster: "):
            await changes.start()
        await changes.stop()
        await store.close()

    asyncio.run(test())
