"""InitProducerId, API key 22: versions 0 to 6.

A new producer id with epoch 0 for idempotent producers.

Known gaps: transactions. A request with a transactional id is answered with COORDINATOR_NOT_AVAILABLE, which clients
retry, as a broker does whose transaction coordinator is not up.
"""

from __future__ import annotations

from kafkapy.broker.context import RequestContext
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafkapy.protocol.schema import VersionRange
from kafkapy.types import AclOperation, ResourceType

REQUEST = InitProducerIdRequest
RESPONSE = InitProducerIdResponse
VERSIONS = VersionRange(0, 6)

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1


async def handle(context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """A producer id, or the error."""
    transactional_id = request.transactional_id
    if transactional_id is not None:
        if not context.authorize(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
            return _error(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    elif not (
        context.authorize(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, log_if_denied=False)
        or context.authorize_by_resource_type(AclOperation.WRITE, ResourceType.TOPIC)
    ):
        return _error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return _error(ErrorCode.INVALID_REQUEST)
    if transactional_id is None:
        return InitProducerIdResponse(producer_id=await context.broker.producer_ids.next_id(), producer_epoch=0)
    if transactional_id == "":
        return _error(ErrorCode.INVALID_REQUEST)
    return _error(ErrorCode.COORDINATOR_NOT_AVAILABLE)


def error_response(request: InitProducerIdRequest, error: ErrorCode, message: str) -> InitProducerIdResponse:
    """The error, with no producer id."""
    del request, message
    return _error(error)


def _error(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)
