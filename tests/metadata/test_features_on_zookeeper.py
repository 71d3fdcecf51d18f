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


def test_a_feature_that_another_broker_finalizes_ends_this_one(zookeeper: str, tmp_path: Path) -> None:
    connect = f"{zookeeper}/{uuid.uuid4().hex}"
    server = KafkaServer(config(tmp_path, zookeeper_connect=connect))
    with server:
        client = Client(server.endpoints[0].host, server.endpoints[0].port)
        asked = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        seen = client(asked, 3)
        assert (seen.finalized_features, seen.finalized_features_epoch) == ([], server.context.features.epoch)
        update = UpdateFeaturesRequest.FeatureUpdate(feature="group.version", max_version_level=1, upgrade_type=1)
        refused = client(UpdateFeaturesRequest(timeout_ms=1000, feature_updates=[update]), 1)
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        finalize(connect, "group.version", 1)
        wait_until(lambda: client(asked, 3).finalized_features, "clients hear of the feature")
        client.close()
        finalize(connect, "metadata.version", 21)
        wait_until(lambda: server.state is BrokerState.NOT_RUNNING, "the broker has stopped")
    with pytest.raises(StartupError, match=r"finalized feature metadata\.version at level 21"):
        KafkaServer(config(tmp_path, zookeeper_connect=connect)).start()
