"""/feature of a ZooKeeper cluster: clients hear what it says, and a feature that is unknown ends the broker."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

import pytest
from broker.conftest import Client, config
from waiting import wait_until

from kafkapy.broker.broker_state import BrokerState
from kafkapy.broker.meta_properties import StartupError
from kafkapy.broker.server import KafkaServer
from kafkapy.errors import ErrorCode
from kafkapy.metadata.znodes import FEATURE, encode_feature
from kafkapy.metadata.zookeeper import ZooKeeperStore
from kafkapy.protocol.messages.api_versions import ApiVersionsRequest
from kafkapy.protocol.messages.update_features import UpdateFeaturesRequest

pytestmark = pytest.mark.filterwarnings("ignore:No chroot path exists")  # the store makes it


def finalize(connect: str, name: str, level: int) -> None:
    async def write() -> None:
        store = ZooKeeperStore(connect)
        await store.start()
        await store.set(FEATURE, encode_feature(True, {name: level}))
        await store.close()

    asyncio.run(write())


def update(*updates: tuple[str, int, int]) -> UpdateFeaturesRequest:
    wanted = [
        UpdateFeaturesRequest.FeatureUpdate(feature=name, max_version_level=level, upgrade_type=kind)
        for name, level, kind in updates
    ]
    return UpdateFeaturesRequest(timeout_ms=30_000, feature_updates=wanted)


def outcomes(client: Client, *updates: tuple[str, int, int]) -> dict[str, str | None]:
    """The error texts of the features."""
    answer = client(update(*updates), 1)
    assert answer.error_code == ErrorCode.NONE
    for each in answer.results:
        assert each.error_code == (ErrorCode.INVALID_REQUEST if each.error_message else ErrorCode.NONE)
    return {each.feature: each.error_message for each in answer.results}


def test_a_feature_that_another_broker_finalizes_ends_this_one(zookeeper: str, tmp_path: Path) -> None:
    connect = f"{zookeeper}/{uuid.uuid4().hex}"
    server = KafkaServer(config(tmp_path, zookeeper_connect=connect))
    with server:
        client = Client(server.endpoints[0].host, server.endpoints[0].port)
        asked = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        seen = client(asked, 3)
        assert (seen.finalized_features, seen.finalized_features_epoch) == ([], server.context.features.epoch)
        assert client(asked, 4).supported_features == []
        assert outcomes(client, ("group.version", 1, 1), ("x", 0, 2), ("x", 0, 1), ("", 1, 1), ("y", 1, 7)) == {
            "group.version": "Could not apply finalized feature update because the provided feature is not supported.",
            "x": "Can not provide versionLevel: 0 less than 1 without setting the SAFE downgradeType in the request.",
            "": "Feature name can not be empty.",
            "y": "Received unknown upgrade type.",
        }
        assert outcomes(client, ("x", 0, 2)) == {"x": "Can not delete non-existing finalized feature."}
        finalize(connect, "group.version", 1)
        wait_until(lambda: client(asked, 3).finalized_features, "clients hear of the feature")
        # Version 2 has no results: one refusal refuses the whole request.
        for refused in (("group.version", 1, 1), ("x", 0, 2)):
            answer = client(update(("group.version", 0, 2), refused), 2)
            assert answer.error_code == ErrorCode.INVALID_REQUEST
            assert answer.error_message.startswith("The update failed for all features since")
        assert client(asked, 3).finalized_features
        assert client(update(("group.version", 0, 2)), 2).error_code == ErrorCode.NONE
        assert client(asked, 3).finalized_features == []
        finalize(connect, "group.version", 1)
        wait_until(lambda: client(asked, 3).finalized_features, "clients hear of the feature again")
        assert outcomes(client, ("group.version", 0, 2)) == {"group.version": None}
        assert client(asked, 3).finalized_features == []
        client.close()
        finalize(connect, "metadata.version", 21)
        wait_until(lambda: server.state is BrokerState.NOT_RUNNING, "the broker has stopped")
    with pytest.raises(StartupError, match=r"finalized feature metadata\.version at level 21"):
        KafkaServer(config(tmp_path, zookeeper_connect=connect)).start()
