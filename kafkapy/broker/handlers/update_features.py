"""UpdateFeatures, API key 57: versions 0 to 2.

The controller finalizes levels of features, all of a request or none; see kafkapy.controller.feature_updates. The
response comes when this broker has the new levels in force; other brokers follow within moments. Of two updates of one
feature the last counts. A ZooKeeper cluster supports no feature: versions 0 and 1 name the error of each feature, and
version 2, which has no results, the first error.

Versions:
0: the API (KIP-584). `allow_downgrade` allows a safe downgrade; Kafka 4 reads it as an upgrade.
1: upgrade type, validate_only (KIP-778).
2: one error for the whole request: no results for each feature (KIP-1022).

Known gaps: none.
"""

from __future__ import annotations

import asyncio

from kafkapy.broker.context import RequestContext
from kafkapy.controller.feature_updates import FeatureUpdate
from kafkapy.errors import ErrorCode, KafkaError, code_of, error_for
from kafkapy.metadata.metadata_version import IBP, MetadataVersion
from kafkapy.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from kafkapy.slices import in_slices
from kafkapy.types import AclOperation, UpdateFeatureType

REQUEST = UpdateFeaturesRequest
RESPONSE = UpdateFeaturesResponse

FIRST_WITH_TYPES = 1
LAST_WITH_RESULTS = 1

Result = UpdateFeaturesResponse.Result


async def handle(context: RequestContext, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    """Success when every level is in force. CLUSTER_AUTHORIZATION_FAILED without ALTER on the cluster."""
    context.authorize_cluster(AclOperation.ALTER)
    broker = context.broker
    if not broker.controller.is_active:
        raise error_for(ErrorCode.NOT_CONTROLLER)
    updates: dict[str, FeatureUpdate] = {}
    context.leave(updates)
    async for each in in_slices(request.feature_updates):
        kind = each.upgrade_type
        if context.api_version < FIRST_WITH_TYPES:
            kind = UpdateFeatureType.SAFE_DOWNGRADE if each.allow_downgrade else UpdateFeatureType.UPGRADE
        updates[each.feature] = FeatureUpdate(each.feature, each.max_version_level, kind)
    if broker.features.zookeeper:
        return await _with_zookeeper(context, request, updates)
    epoch = await broker.controller.update_features(list(updates.values()), request.validate_only)
    await _in_force(context, request, epoch)
    if context.api_version > LAST_WITH_RESULTS:
        return UpdateFeaturesResponse(results=[])
    return UpdateFeaturesResponse(results=[Result(feature=each.feature) for each in request.feature_updates])


async def _with_zookeeper(
    context: RequestContext, request: UpdateFeaturesRequest, updates: dict[str, FeatureUpdate]
) -> UpdateFeaturesResponse:
    broker = context.broker
    if not MetadataVersion.parse(broker.config.get_str(IBP)).has_features:
        raise error_for(ErrorCode.INVALID_REQUEST, "Feature versioning system is disabled.")
    has_results = context.api_version <= LAST_WITH_RESULTS
    failure = ErrorCode.NONE
    refusals: dict[str, str] = dict.fromkeys(updates, "")
    try:
        refusals, epoch = await broker.controller.update_features_with_zookeeper(
            list(updates.values()), request.validate_only, all_or_none=not has_results
        )
        await _in_force(context, request, epoch)
    except KafkaError as error:
        if code_of(error) is not ErrorCode.FEATURE_UPDATE_FAILED or not has_results:
            raise
        failure = ErrorCode.FEATURE_UPDATE_FAILED
    if not has_results:
        return UpdateFeaturesResponse(results=[])
    return UpdateFeaturesResponse(
        results=[
            Result(feature=name, error_code=ErrorCode.INVALID_REQUEST, error_message=reason)
            if reason
            else Result(feature=name, error_code=failure)
            async for name, reason in in_slices(refusals.items())
        ]
    )


async def _in_force(context: RequestContext, request: UpdateFeaturesRequest, epoch: int) -> None:
    """Wait until this broker follows /feature in that version. REQUEST_TIMED_OUT."""
    try:
        await asyncio.wait_for(context.broker.features.wait_for(epoch), max(request.timeout_ms, 1) / 1000)
    except TimeoutError:
        raise error_for(ErrorCode.REQUEST_TIMED_OUT) from None
