"""InitProducerId, API key 22: versions 0 to 6.

An idempotent producer gets a new producer id with epoch 0. A transactional producer gets the producer id of its
transactional id with a new epoch, which fences earlier producers. Two-phase commit needs
transaction.two.phase.commit.enable and TWO_PHASE_COMMIT on the id; else the error is
TRANSACTIONAL_ID_AUTHORIZATION_FAILED. keepPreparedTxn takes an open transaction over instead of aborting it; Kafka 4.4
answers it with UNSUPPORTED_VERSION, and so does this broker where transaction.version is 0.

Versions:
0: the API (KIP-98).
1: the response leaves before the pause of a throttled client (KIP-219).
2: flexible encoding with tagged fields (KIP-482).
3: a producer names its id and epoch to go on with a higher epoch (KIP-360).
4: PRODUCER_FENCED; clients below know INVALID_PRODUCER_EPOCH (KIP-588).
5: TRANSACTION_ABORTABLE tells producers to abort (KIP-890).
6: two-phase commit: enable2Pc and keepPreparedTxn (KIP-939).

Known gaps: none.
"""

from __future__ import annotations

from kafkapy.broker.context import RequestContext
from kafkapy.coordinator.transaction.metadata import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    ProducerIdAndEpoch,
    TakenOver,
)
from kafkapy.errors import ErrorCode, KafkaError, code_of
from kafkapy.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafkapy.types import AclOperation, ResourceType

REQUEST = InitProducerIdRequest
RESPONSE = InitProducerIdResponse

FIRST_WITH_PRODUCER_FENCED = 4


async def handle(context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """A producer id, or the error."""
    transactional_id = request.transactional_id
    if transactional_id == "":
        return _error(ErrorCode.INVALID_REQUEST)
    if transactional_id is not None:
        if not context.authorize(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
            return _error(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if request.enable2_pc and not context.authorize(
            AclOperation.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID, transactional_id
        ):
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
    expected = None
    if request.producer_id != NO_PRODUCER_ID:
        expected = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    try:
        producer = await context.broker.coordinators.transaction.init_producer_id(
            transactional_id,
            request.transaction_timeout_ms,
            expected,
            two_phase=request.enable2_pc,
            keep_prepared=request.keep_prepared_txn,
        )
    except KafkaError as error:
        code = code_of(error)
        if code is ErrorCode.PRODUCER_FENCED and context.api_version < FIRST_WITH_PRODUCER_FENCED:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        return _error(code)
    if isinstance(producer, TakenOver):
        (producer_id, producer_epoch), ongoing = producer
        return InitProducerIdResponse(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            ongoing_txn_producer_id=ongoing.producer_id,
            ongoing_txn_producer_epoch=ongoing.producer_epoch,
        )
    return InitProducerIdResponse(producer_id=producer.producer_id, producer_epoch=producer.producer_epoch)


def error_response(request: InitProducerIdRequest, error: ErrorCode, message: str) -> InitProducerIdResponse:
    """The error, with no producer id."""
    del request, message
    return _error(error)


def _error(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)
