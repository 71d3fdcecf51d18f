"""UpdateFeatures as a client sees it."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy.broker.features import FEATURES
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.api_versions import ApiVersionsRequest
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


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("kind", [UPGRADE, SAFE, UNSAFE])
def test_levels_in_force_may_be_asked_for_again(client: Any, version: int, kind: int) -> None:
    response = update(client, version, *((each.name, each.finalized_level, kind) for each in FEATURES))
    assert response.error_code == ErrorCode.NONE
    named = [each.name for each in FEATURES] if version < 2 else []
    assert [(each.feature, each.error_code) for each in response.results] == [(name, ErrorCode.NONE) for name in named]


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize(
    ("name", "level", "kind"),
    [
        ("group.version", 0, UPGRADE),
        ("group.version", 0, UNSAFE),
        ("group.version", 2, UPGRADE),
        ("group.version", -1, SAFE),
        ("metadata.version", 20, UPGRADE),
        ("", 1, UPGRADE),
    ],
)
def test_other_levels_are_refused_and_nothing_changes(
    client: Any, version: int, name: str, level: int, kind: int
) -> None:
    response = update(client, version, ("transaction.version", 2, UPGRADE), (name, level, kind))
    assert (response.error_code, response.results) == (ErrorCode.INVALID_UPDATE_VERSION, [])
    assert name in response.error_message
    shown = client(ApiVersionsRequest(client_software_name="test", client_software_version="1"), 4)
    assert {each.name: each.max_version_level for each in shown.finalized_features} == {
        each.name: each.finalized_level for each in FEATURES
    }


def test_an_upgrade_type_that_there_is_not(client: Any) -> None:
    response = update(client, 1, ("group.version", 1, 7), validate_only=True)
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION


def test_one_who_may_not_alter_the_cluster_is_told_so(group_client: Any, deny: Any) -> None:
    deny((ResourceType.CLUSTER, "kafka-cluster"))
    response = update(group_client, 2, ("group.version", 1, UPGRADE))
    assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
