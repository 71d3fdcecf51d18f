"""UnregisterBroker, API key 64: version 0 (KIP-631).

A broker that is gone has no registration here, which ends with its session: BROKER_ID_NOT_REGISTERED. A broker that is
running keeps its registration: INVALID_REQUEST.

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
