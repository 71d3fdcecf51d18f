"""ApiVersions, API key 18: versions 0 to 5.

What this broker serves, as `handlers.SERVED` has it. A version this broker does not know is answered in version
0 with UNSUPPORTED_VERSION and the whole list (KIP-511), so that any client can fall back. From version 3 on, a client
that names itself with other characters than letters, digits, "-" and "." gets INVALID_REQUEST. From version 5 on, a
client that expected another cluster or node gets REBOOTSTRAP_REQUIRED (KIP-1242). Features: those of
kafkapy.broker.features; below version 4 clients cannot read one that is supported from level 0 on (KAFKA-17492).

Known gaps: none.
"""

from __future__ import annotations

import re

from kafkapy.broker.context import RequestContext
from kafkapy.broker.features import FEATURES, FEATURES_EPOCH
from kafkapy.broker.handlers import SERVED
from kafkapy.errors import ErrorCode
from kafkapy.network.api_table import DATA_PLANE_APIS
from kafkapy.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

REQUEST = ApiVersionsRequest
RESPONSE = ApiVersionsResponse

FIRST_WITH_LEVEL_0 = 4
ANY_NODE = -1

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


async def handle(context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """The served versions; `context.api_version` is -1 for a request in a version this broker does not know."""
    if context.api_version < 0:
        error = ErrorCode.UNSUPPORTED_VERSION
    elif context.api_version >= 3 and not _valid(request):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    elif not _meant(context, request):
        return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED, api_keys=[])
    else:
        error = ErrorCode.NONE
        context.request.set_client_software(request.client_software_name, request.client_software_version)
    keys = [
        ApiVersionsResponse.ApiVersion(api_key=key, min_version=served.low, max_version=served.high)
        for key, served in sorted({**SERVED, **DATA_PLANE_APIS}.items())
    ]
    return ApiVersionsResponse(
        error_code=error,
        api_keys=keys,
        throttle_time_ms=0,
        supported_features=[
            ApiVersionsResponse.SupportedFeature(name=each.name, min_version=each.min_level, max_version=each.max_level)
            for each in FEATURES
            if context.api_version >= FIRST_WITH_LEVEL_0 or each.min_level > 0
        ],
        finalized_features_epoch=FEATURES_EPOCH,
        finalized_features=[
            ApiVersionsResponse.FinalizedFeature(
                name=each.name, max_version_level=each.finalized_level, min_version_level=each.finalized_level
            )
            for each in FEATURES
        ],
    )


def _valid(request: ApiVersionsRequest) -> bool:
    """Whether the client names itself well, and cluster and node both or neither."""
    if (request.cluster_id is None) != (request.node_id == ANY_NODE):
        return False
    return all(_SOFTWARE.fullmatch(text) for text in (request.client_software_name, request.client_software_version))


def _meant(context: RequestContext, request: ApiVersionsRequest) -> bool:
    """Whether the client wanted this node of this cluster, or did not say which."""
    broker = context.broker
    return request.cluster_id is None or (request.cluster_id, request.node_id) == (broker.cluster_id, broker.node_id)
