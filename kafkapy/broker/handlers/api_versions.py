"""ApiVersions, API key 18: versions 0 to 5.

The response lists the versions in `handlers.SERVED`; a broker that can have no other leaves out the APIs between
brokers, one with ZooKeeper those of KRaft clusters, and one without readers of telemetry those of client metrics. An
unknown version gets UNSUPPORTED_VERSION and the whole list in version 0 (KIP-511), so that any client can fall back. A
client name with other characters than letters, digits, "-" and "." gets INVALID_REQUEST. A client that expected another
cluster or node gets REBOOTSTRAP_REQUIRED. Features come from kafkapy.broker.finalized_features.

Versions:
0: the API (KIP-35).
1: throttle time in the response.
2: the response leaves before the pause of a throttled client (KIP-219).
3: name and version of the client (KIP-511), features (KIP-584), flexible encoding.
4: features that are supported from level 0 on (KAFKA-17011).
5: cluster id and node id that the client expects (KIP-1242).

Known gaps: none.
"""

from __future__ import annotations

import re

from kafkapy.broker.context import RequestContext
from kafkapy.broker.handlers import NOT_WITH_ZOOKEEPER, served_apis
from kafkapy.errors import ErrorCode
from kafkapy.network.api_table import DATA_PLANE_APIS
from kafkapy.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

REQUEST = ApiVersionsRequest
RESPONSE = ApiVersionsResponse

FIRST_WITH_NAMES = 3
FIRST_WITH_LEVEL_0 = 4
ANY_NODE = -1

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


async def handle(context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """The served versions.

    `context.api_version` is -1 for a request in a version this broker does not know.
    """
    error = _error(context, request)
    if context.security_protocol.sasl:
        # Before the authentication a client may ask once.
        authentication = context.broker.authentication
        answer = authentication.authenticator(context.request).versions_asked(error is ErrorCode.NONE)
        context.send = authentication.sender(context.request, answer)
        if answer.error:
            return ApiVersionsResponse(error_code=answer.error, api_keys=[])
    if error in (ErrorCode.INVALID_REQUEST, ErrorCode.REBOOTSTRAP_REQUIRED):
        return ApiVersionsResponse(error_code=error, api_keys=[])
    if error is ErrorCode.NONE:
        context.request.set_client_software(request.client_software_name, request.client_software_version)
    broker = context.broker
    zookeeper = broker.config.metadata_store == "zookeeper"
    offered = served_apis(broker.store.is_shared, zookeeper, broker.telemetry is not None)
    in_data_plane = {
        key: served for key, served in DATA_PLANE_APIS.items() if not (zookeeper and key in NOT_WITH_ZOOKEEPER)
    }
    keys = [
        ApiVersionsResponse.ApiVersion(api_key=key, min_version=served.low, max_version=served.high)
        for key, served in sorted({**offered, **in_data_plane}.items())
    ]
    return ApiVersionsResponse(
        error_code=error,
        api_keys=keys,
        throttle_time_ms=0,
        supported_features=[
            ApiVersionsResponse.SupportedFeature(name=each.name, min_version=each.min_level, max_version=each.max_level)
            for each in context.broker.features.supported
            if context.api_version >= FIRST_WITH_LEVEL_0 or each.min_level > 0
        ],
        finalized_features_epoch=context.broker.features.epoch,
        finalized_features=[
            ApiVersionsResponse.FinalizedFeature(name=name, max_version_level=level, min_version_level=level)
            for name, level in context.broker.features.levels.items()
        ],
    )


def _error(context: RequestContext, request: ApiVersionsRequest) -> ErrorCode:
    if context.api_version < 0:
        return ErrorCode.UNSUPPORTED_VERSION
    if context.api_version >= FIRST_WITH_NAMES and not _valid(request):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE if _meant(context, request) else ErrorCode.REBOOTSTRAP_REQUIRED


def _valid(request: ApiVersionsRequest) -> bool:
    """Whether the client names itself well, and cluster and node both or neither."""
    if (request.cluster_id is None) != (request.node_id == ANY_NODE):
        return False
    return all(_SOFTWARE.fullmatch(text) for text in (request.client_software_name, request.client_software_version))


def _meant(context: RequestContext, request: ApiVersionsRequest) -> bool:
    """Whether the client wanted this node of this cluster, or did not say which."""
    broker = context.broker
    return request.cluster_id is None or (request.cluster_id, request.node_id) == (broker.cluster_id, broker.node_id)
