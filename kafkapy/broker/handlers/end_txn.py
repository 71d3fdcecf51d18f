"""EndTxn, API key 26: versions 0 to 5.

The request commits or aborts a transaction. The response comes when the outcome is certain; the markers may be on
their way. A producer whose epochs have run out gets a new producer id.

Versions:
0: the API (KIP-98).
1: the response leaves before the pause of a throttled client (KIP-219).
2: PRODUCER_FENCED tells producers apart from a wrong epoch (KIP-588).
3: flexible encoding with tagged fields (KIP-482).
4: TRANSACTION_ABORTABLE tells producers to abort (KIP-890).
5: a new producer epoch with each transaction (KIP-890).

Known gaps: none.
"""

from __future__ import annotations

from kafkapy.broker.context import RequestContext
from kafkapy.coordinator.transaction.metadata import (
    TRANSACTION_VERSION_0,
    TRANSACTION_VERSION_2,
    ProducerIdAndEpoch,
)
from kafkapy.errors import ErrorCode, KafkaError, code_of
from kafkapy.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from kafkapy.types import AclOperation, ResourceType

REQUEST = EndTxnRequest
RESPONSE = EndTxnResponse

FIRST_WITH_PRODUCER_FENCED = 2
FIRST_WITH_EPOCH_BUMP = 5


async def handle(context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    """The outcome, and who the producer is from then on."""
    transactional_id = request.transactional_id
    if not context.authorize(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return EndTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    bumps = context.api_version >= FIRST_WITH_EPOCH_BUMP
    try:
        producer = await context.broker.coordinators.transaction.end_transaction(
            transactional_id,
            ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            request.committed,
            TRANSACTION_VERSION_2 if bumps else TRANSACTION_VERSION_0,
        )
    except KafkaError as error:
        code = code_of(error)
        if code is ErrorCode.PRODUCER_FENCED and context.api_version < FIRST_WITH_PRODUCER_FENCED:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        return EndTxnResponse(error_code=code)
    return EndTxnResponse(
        error_code=ErrorCode.NONE, producer_id=producer.producer_id, producer_epoch=producer.producer_epoch
    )
