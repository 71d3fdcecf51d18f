"""UpdateFeatures, API key 57: versions 0 to 2.

The levels of kafkapy.broker.features are fixed. A request for the level in force succeeds; any other level is
INVALID_UPDATE_VERSION for the whole request.

Versions:
0: the API (KIP-584).
1: upgrade type, validate_only (KIP-778).
2: one error for the whole request: no results for each feature (KIP-1022).

Known gaps: levels do not change.
"""

from __future__ import annotations

from typing import Final

from kafkapy.broker.context import RequestContext
from kafkapy.broker.features import FEATURES, Feature
from kafkapy.errors import ErrorCode, error_for
from kafkapy.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from kafkapy.slices import in_slices
from kafkapy.types import AclOperation

REQUEST = UpdateFeaturesRequest
RESPONSE = UpdateFeaturesResponse

Update = UpdateFeaturesRequest.FeatureUpdate
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
_FEATURES: Final = {each.name: each for each in FEATURES}


async def handle(context: RequestContext, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    """Success when every level is in force. CLUSTER_AUTHORIZATION_FAILED without ALTER on the cluster."""
    context.authorize_cluster(AclOperation.ALTER)
    if context.broker.features.follows_node:
        if not context.broker.controller.is_active:
            raise error_for(ErrorCode.NOT_CONTROLLER)
        if request.feature_updates:
            raise error_for(
                ErrorCode.INVALID_REQUEST, "No feature was changed: brokers of a ZooKeeper cluster support no feature."
            )
    async for update in in_slices(request.feature_updates):
        reason = _refusal(_FEATURES.get(update.feature), update, context.api_version)
        if reason:
            raise error_for(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"No feature was changed: {update.feature} cannot have level {update.max_version_level}. {reason}",
            )
    return UpdateFeaturesResponse(
        results=[
            UpdateFeaturesResponse.Result(feature=each.feature) async for each in in_slices(request.feature_updates)
        ]
    )


def _refusal(feature: Feature | None, update: Update, version: int) -> str:
    """Why the level cannot be in force, "" when it is."""
    if feature is None:
        return "There is no such feature here."
    kind = update.upgrade_type
    if version == 0:
        kind = SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE
    if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return f"There is no upgrade type {kind}."
    level = update.max_version_level
    if not feature.min_level <= level <= feature.max_level:
        return f"Supported are levels {feature.min_level} to {feature.max_level}."
    if level < feature.finalized_level and kind == UPGRADE:
        return f"Level {feature.finalized_level} is in force, and a downgrade has to be asked for as such."
    if level != feature.finalized_level:
        return f"Level {feature.finalized_level} is in force, and levels are fixed in this broker."
    return ""
