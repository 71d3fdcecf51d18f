"""DescribeCluster, API key 60: versions 0 to 2.

The response gives cluster id, controller and brokers. An endpoint type other than "brokers" is refused, because there
are no controller endpoints.

Versions:
0: the API (KIP-700).
1: endpoint type: brokers or controllers (KIP-919).
2: fenced brokers (KIP-1073).

Known gaps: no broker is ever fenced, so include_fenced_brokers changes nothing.
"""

from __future__ import annotations

from kafkapy.broker.context import NO_AUTHORIZED_OPERATIONS, RequestContext
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kafkapy.types import AclOperation, ResourceType

REQUEST = DescribeClusterRequest
RESPONSE = DescribeClusterResponse

BROKERS, CONTROLLERS = 1, 2


async def handle(context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """The cluster as the client's listener shows it."""
    if request.endpoint_type != BROKERS:
        known = request.endpoint_type == CONTROLLERS
        error = ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        return DescribeClusterResponse(
            error_code=error,
            error_message=f"This is a broker endpoint; endpoint type {request.endpoint_type} is not served here.",
            cluster_id="",
            brokers=[],
        )
    operations = NO_AUTHORIZED_OPERATIONS
    if request.include_cluster_authorized_operations:
        described = context.authorize(AclOperation.DESCRIBE, ResourceType.CLUSTER)
        operations = context.authorized_operations(ResourceType.CLUSTER) if described else 0
    snapshot = context.broker.metadata_cache.snapshot
    nodes = snapshot.nodes(context.listener_name)
    reachable = any(node.id == snapshot.controller_id for node in nodes)
    return DescribeClusterResponse(
        cluster_id=context.broker.cluster_id,
        controller_id=snapshot.controller_id if reachable else -1,
        brokers=[
            DescribeClusterResponse.Broker(broker_id=node.id, host=node.host, port=node.port, rack=node.rack)
            for node in nodes
        ],
        cluster_authorized_operations=operations,
    )
