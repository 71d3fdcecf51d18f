"""ControlledShutdown, API key 7: versions 0 to 3.

A broker that is about to stop asks the controller to move its leaderships to other replicas. The response has the
replicated partitions that it still leads.

Versions:
0: the API, with a request header that has no client id.
1: the usual request header.
2: broker epoch (KIP-380).
3: flexible encoding with tagged fields (KIP-482).

Known gaps: none.
"""

from __future__ import annotations

from kafkapy.broker.context import RequestContext
from kafkapy.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from kafkapy.slices import in_slices
from kafkapy.types import AclOperation

REQUEST = ControlledShutdownRequest
RESPONSE = ControlledShutdownResponse


async def handle(context: RequestContext, request: ControlledShutdownRequest) -> ControlledShutdownResponse:
    """The partitions that remain.

    CLUSTER_AUTHORIZATION_FAILED without CLUSTER_ACTION on the cluster; BROKER_NOT_AVAILABLE, STALE_BROKER_EPOCH,
    NOT_CONTROLLER.
    """
    context.authorize_cluster(AclOperation.CLUSTER_ACTION)
    remaining = await context.broker.controller.controlled_shutdown(request.broker_id, request.broker_epoch)
    return ControlledShutdownResponse(
        remaining_partitions=[
            ControlledShutdownResponse.RemainingPartition(topic_name=topic, partition_index=index)
            async for topic, index in in_slices(remaining)
        ]
    )
