"""AllocateProducerIds, API key 67: version 0.

A broker asks the controller for a block of producer ids. No other broker of the cluster gets any of them.

Versions:
0: the API (KIP-730).

Known gaps: none.
"""

from __future__ import annotations

from kafkapy.broker.context import RequestContext
from kafkapy.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from kafkapy.types import AclOperation

REQUEST = AllocateProducerIdsRequest
RESPONSE = AllocateProducerIdsResponse


async def handle(context: RequestContext, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
    """The block.

    CLUSTER_AUTHORIZATION_FAILED without CLUSTER_ACTION on the cluster; BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH,
    NOT_CONTROLLER.
    """
    context.authorize_cluster(AclOperation.CLUSTER_ACTION)
    block = await context.broker.controller.allocate_producer_ids(request.broker_id, request.broker_epoch)
    return AllocateProducerIdsResponse(producer_id_start=block.first, producer_id_len=block.last - block.first + 1)
