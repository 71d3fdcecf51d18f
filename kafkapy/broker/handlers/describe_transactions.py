"""DescribeTransactions, API key 65: version 0.

The response gives state, timeout, producer and partitions of transactional ids. It leaves out partitions of topics
that the client may not describe.

Versions:
0: the API (KIP-664).

Known gaps: none.
"""

from __future__ import annotations

from kafkapy.broker.context import RequestContext
from kafkapy.coordinator.transaction.metadata import TransactionMetadata
from kafkapy.errors import ErrorCode, KafkaError, code_of
from kafkapy.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from kafkapy.slices import in_slices
from kafkapy.types import AclOperation, ResourceType

REQUEST = DescribeTransactionsRequest
RESPONSE = DescribeTransactionsResponse

State = DescribeTransactionsResponse.TransactionState


async def handle(context: RequestContext, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
    """One answer for each id, in the order asked."""
    return DescribeTransactionsResponse(
        transaction_states=[await _describe(context, each) async for each in in_slices(request.transactional_ids)]
    )


def error_response(
    request: DescribeTransactionsRequest, error: ErrorCode, message: str
) -> DescribeTransactionsResponse:
    """The error for every id."""
    del message
    return DescribeTransactionsResponse(transaction_states=[_failed(each, error) for each in request.transactional_ids])


async def _describe(context: RequestContext, transactional_id: str) -> State:
    if not context.authorize(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return _failed(transactional_id, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    try:
        found = await context.broker.coordinators.transaction.describe(transactional_id)
    except KafkaError as error:
        return _failed(transactional_id, code_of(error))
    return State(
        error_code=ErrorCode.NONE,
        transactional_id=transactional_id,
        transaction_state=found.state.label,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.start_ms,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        topics=await _topics(context, found),
    )


async def _topics(context: RequestContext, found: TransactionMetadata) -> list[State.Topic]:
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(found.partitions):
        topics.setdefault(topic, []).append(number)
    allowed = await context.authorized_names_in_slices(AclOperation.DESCRIBE, ResourceType.TOPIC, topics)
    return [State.Topic(topic=topic, partitions=numbers) for topic, numbers in topics.items() if topic in allowed]


def _failed(transactional_id: str, error: ErrorCode) -> State:
    return State(
        error_code=error,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=[],
    )
