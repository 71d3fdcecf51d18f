"""UpdateFeatures as a client sees it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from broker.conftest import Client, config

from kafkapy.broker.server import KafkaServer
from kafkapy.errors import ErrorCode
from kafkapy.metadata.features import LATEST_LEVELS
from kafkapy.protocol.messages.api_versions import ApiVersionsRequest
from kafkapy.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kafkapy.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from kafkapy.protocol.messages.update_features import UpdateFeaturesRequest
from kafkapy.types import ResourceType

UPGRADE, SAFE, UNSAFE = 1, 2, 3
Update = UpdateFeaturesRequest.FeatureUpdate


def update(client: Any, version: int, *wanted: tuple[str, int, int], **fields: Any) -> Any:
    updates = [
        Update(feature=name, max_version_level=level, upgrade_type=kind)
        if version
        else Update(feature=name, max_version_level=level, allow_downgrade=kind != UPGRADE)
        for name, level, kind in wanted
    ]
    return client(UpdateFeaturesRequest(feature_updates=updates, **fields), version)


def finalized(client: Any) -> tuple[dict[str, int], int]:
    shown = client(ApiVersionsRequest(client_software_name="test", client_software_version="1"), 4)
    levels = {each.name: each.max_version_level for each in shown.finalized_features}
    return levels, shown.finalized_features_epoch


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("kind", [UPGRADE, SAFE, UNSAFE])
def test_levels_in_force_may_be_asked_for_again(client: Any, version: int, kind: int) -> None:
    before = finalized(client)
    response = update(client, version, *((name, level, kind) for name, level in LATEST_LEVELS.items()))
    assert response.error_code == ErrorCode.NONE
    named = list(LATEST_LEVELS) if version < 2 else []
    assert [(each.feature, each.error_code) for each in response.results] == [(name, ErrorCode.NONE) for name in named]
    assert finalized(client) == before


@pytest.mark.parametrize("version", range(3))
def test_levels_go_down_and_up(client: Any, version: int) -> None:
    _, epoch = finalized(client)
    assert update(client, version, ("transaction.version", 1, SAFE), ("group.version", 0, SAFE)).error_code == 0
    assert finalized(client) == (
        {"metadata.version": 33, "transaction.version": 1, "share.version": 2},
        epoch + 1,
    )
    assert update(client, version, ("group.version", 1, UPGRADE), ("transaction.version", 2, UPGRADE)).error_code == 0
    assert finalized(client) == (LATEST_LEVELS, epoch + 2)


@pytest.mark.parametrize("version", [1, 2])
def test_validate_only_changes_nothing(client: Any, version: int) -> None:
    before = finalized(client)
    assert update(client, version, ("group.version", 0, SAFE), validate_only=True).error_code == ErrorCode.NONE
    refused = update(client, version, ("group.version", 0, UPGRADE), validate_only=True)
    assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert finalized(client) == before


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize(
    ("name", "level", "kind"),
    [
        ("group.version", 0, UPGRADE),
        ("group.version", 2, UPGRADE),
        ("group.version", -1, SAFE),
        ("metadata.version", 20, UPGRADE),
        ("metadata.version", 32, SAFE),
        ("share.version", 1, UPGRADE),
        ("share.version", 3, UPGRADE),
        ("streams.version", 1, UPGRADE),
        ("", 1, UPGRADE),
    ],
)
def test_one_refused_level_changes_nothing(client: Any, version: int, name: str, level: int, kind: int) -> None:
    before = finalized(client)
    response = update(client, version, ("transaction.version", 0, SAFE), (name, level, kind))
    assert (response.error_code, response.results) == (ErrorCode.INVALID_UPDATE_VERSION, [])
    assert name in response.error_message
    assert finalized(client) == before


def test_group_version_0_refuses_the_consumer_protocol(client: Any) -> None:
    heartbeat = ConsumerGroupHeartbeatRequest(group_id="g", member_id="", member_epoch=0)
    assert update(client, 2, ("group.version", 0, SAFE)).error_code == ErrorCode.NONE
    assert client(heartbeat, 0).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert update(client, 2, ("group.version", 1, UPGRADE)).error_code == ErrorCode.NONE
    assert client(heartbeat, 0).error_code != ErrorCode.UNSUPPORTED_VERSION


def test_share_version_0_refuses_share_groups(client: Any) -> None:
    heartbeat = ShareGroupHeartbeatRequest(group_id="g", member_id="", member_epoch=0)
    assert update(client, 2, ("share.version", 0, SAFE)).error_code == ErrorCode.NONE
    assert client(heartbeat, 1).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert update(client, 2, ("share.version", 1, UPGRADE)).error_code == ErrorCode.NONE
    assert client(heartbeat, 1).error_code == ErrorCode.INVALID_REQUEST
    assert update(client, 2, ("share.version", 2, UPGRADE)).error_code == ErrorCode.NONE


def test_levels_outlive_the_broker(tmp_path: Path) -> None:
    # The embedded store is a file.
    keys = {"log_dirs": str(tmp_path / "logs"), "kafkapy_metadata_store": "embedded"}
    with KafkaServer(config(tmp_path, **keys)) as server:
        client = Client(server.endpoints[0].host, server.endpoints[0].port)
        assert update(client, 2, ("transaction.version", 0, SAFE)).error_code == ErrorCode.NONE
        before = finalized(client)
        client.close()
    with KafkaServer(config(tmp_path, **keys)) as server:
        client = Client(server.endpoints[0].host, server.endpoints[0].port)
        levels = {"metadata.version": 33, "group.version": 1, "share.version": 2}
        assert finalized(client) == before == (levels, 1)
        client.close()


def test_an_upgrade_type_that_there_is_not(client: Any) -> None:
    response = update(client, 1, ("group.version", 1, 7), validate_only=True)
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION


def test_one_who_may_not_alter_the_cluster_is_told_so(group_client: Any, deny: Any) -> None:
    deny((ResourceType.CLUSTER, "kafka-cluster"))
    response = update(group_client, 2, ("group.version", 1, UPGRADE))
    assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
