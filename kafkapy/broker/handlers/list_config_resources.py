"""ListConfigResources, API key 74: versions 0 to 1.

The response lists the names that DescribeConfigs describes: topics, brokers, loggers of brokers, client-metrics
subscriptions, and groups with a configuration. An unknown resource type is UNSUPPORTED_VERSION.

Versions:
0: client metrics subscriptions only (KIP-714).
1: resource types (KIP-1142).

Known gaps: none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kafkapy.broker.context import RequestContext
from kafkapy.errors import ErrorCode, error_for
from kafkapy.protocol.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from kafkapy.slices import in_chunks, in_slices
from kafkapy.types import AclOperation, ConfigResourceType

REQUEST = ListConfigResourcesRequest
RESPONSE = ListConfigResourcesResponse

Resource = ListConfigResourcesResponse.ConfigResource
FIRST_WITH_TYPES: Final = 1
KNOWN: Final = frozenset(ConfigResourceType) - {ConfigResourceType.UNKNOWN}


async def handle(context: RequestContext, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    """The resources by type and name. CLUSTER_AUTHORIZATION_FAILED without DESCRIBE_CONFIGS on the cluster."""
    context.authorize_cluster(AclOperation.DESCRIBE_CONFIGS)
    asked: set[int] = set()
    async for chunk in in_chunks(request.resource_types):
        asked.update(chunk)
    if unknown := asked - KNOWN:
        raise error_for(ErrorCode.UNSUPPORTED_VERSION, f"There are no resource types {sorted(unknown)}.")
    if context.api_version < FIRST_WITH_TYPES:
        asked = {ConfigResourceType.CLIENT_METRICS}
    return ListConfigResourcesResponse(
        config_resources=[
            Resource(resource_name=name, resource_type=kind)
            for kind in sorted(asked or KNOWN)
            async for name in in_slices(_names(context, kind))
        ]
    )


def _names(context: RequestContext, kind: int) -> Iterable[str]:
    snapshot = context.broker.metadata_cache.snapshot
    if kind == ConfigResourceType.TOPIC:
        return snapshot.topics
    if kind in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER):
        return map(str, sorted(snapshot.brokers))
    if kind == ConfigResourceType.GROUP:
        return context.broker.dynamic_config.groups()
    return context.broker.dynamic_config.client_metrics()
