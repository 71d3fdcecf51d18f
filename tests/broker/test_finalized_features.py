"""/feature of a cluster: what clients are told, and a finalized feature that this broker does not support."""

from __future__ import annotations

import asyncio

import pytest
from waiting import until

from kafkapy.broker.features import FEATURES
from kafkapy.broker.finalized_features import FeatureChanges, FinalizedFeatures, unsupported
from kafkapy.broker.meta_properties import StartupError
from kafkapy.metadata.memory import MemoryStore
from kafkapy.metadata.znodes import FEATURE, encode_feature

KNOWN = {each.name: each.max_level for each in FEATURES}


def test_features_that_are_known_are_supported_up_to_their_level() -> None:
    assert unsupported({}) == ""
    assert unsupported(KNOWN) == ""
    assert "kraft.version at level 1, which this broker does not know" in unsupported({**KNOWN, "kraft.version": 1})
    assert "supports levels 0 to 2" in unsupported({"transaction.version": 3})


@pytest.mark.parametrize("follows", [True, False])
def test_the_node_is_followed(follows: bool) -> None:
    async def test() -> None:
        store, stops = MemoryStore(), []
        await store.start()
        features = FinalizedFeatures(follows_node=follows)
        fixed = None if follows else (dict(features.levels), features.epoch)
        changes = FeatureChanges(store, features, lambda: stops.append(True))
        await changes.start()
        assert (features.levels, features.epoch) == (fixed or ({}, -1))
        await store.create(FEATURE, encode_feature(True, {"group.version": 1}))
        await until(lambda: not follows or features.epoch == 0, "the node was read")
        assert (features.levels, features.epoch) == (fixed or ({"group.version": 1}, 0))
        # What is disabled is not in force, whatever it is.
        await store.set(FEATURE, encode_feature(False, {"unknown": 1}))
        await until(lambda: not follows or features.epoch == 1, "the node was read again")
        assert (features.levels, features.epoch) == (fixed or ({}, 1))
        assert stops == []
        await store.set(FEATURE, encode_feature(True, {"unknown": 1}))
        await until(lambda: bool(stops), "the broker stops")
        assert (features.levels, features.epoch) == (fixed or ({}, 1))
        await changes.stop()
        await store.close()

    asyncio.run(test())


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
