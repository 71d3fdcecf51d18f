"""UnregisterBroker, API key 64: version 0.

A registration ends with the broker's session, so a broker that is gone is BROKER_ID_NOT_REGISTERED. A running broker
keeps its registration: INVALID_REQUEST.

Versions:
0: the API (KIP-631).

Known gaps: none.
"""

from __future__ import annotations

from kafkapy.broker.context import RequestContext
from kafkapy.errors import ErrorCode, error_for
from kafkapy.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from kafkapy.types import AclOperation

REQUEST = UnregisterBrokerRequest
RESPONSE = UnregisterBrokerResponse


async def handle(context: RequestContext, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
    """Always an error. CLUSTER_AUTHORIZATION_FAILED without ALTER on the cluster."""
    context.authorize_cluster(AclOperation.ALTER)
    if request.broker_id in context.broker.metadata_cache.snapshot.brokers:
        raise error_for(
            ErrorCode.INVALID_REQUEST,
            f"Broker {request.broker_id} is running; its registration ends when the broker stops.",
        )
    raise error_for(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker {request.broker_id} is not registered.")
