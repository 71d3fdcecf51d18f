"""ListTransactions, API key 66: versions 0 and 1.

The transactional ids coordinated here that the principal may describe, by state, producer id and age (KIP-664,
KIP-994).

Known gaps: version 2, whose pattern for transactional ids (KIP-1152) wants a regular expression engine that no pattern
can hold up for long.
"""

from __future__ import annotations

from kafkapy.broker.context import RequestContext
from kafkapy.coordinator.transaction.state import TransactionState
from kafkapy.errors import ErrorCode, KafkaError, code_of
from kafkapy.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from kafkapy.protocol.schema import VersionRange
from kafkapy.types import AclOperation, ResourceType

REQUEST = ListTransactionsRequest
RESPONSE = ListTransactionsResponse
VERSIONS = VersionRange(0, 1)


async def handle(context: RequestContext, request: ListTransactionsRequest) -> ListTransactionsResponse:
    """The ids that match all filters; names of states that Kafka does not have are given back."""
    states = {name: TransactionState.of_label(name) for name in request.state_filters}
    wanted = {state for state in states.values() if state is not None} if states else None
    try:
        found = context.broker.coordinators.transaction.list_transactions(
            request.producer_id_filters, wanted, request.duration_filter
        )
    except KafkaError as error:
        return _answer(code_of(error))
    names = [each.transactional_id for each in found]
    allowed = context.authorized_names(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, names, log_if_denied=False)
    response = _answer(ErrorCode.NONE)
    response.unknown_state_filters = [name for name, state in states.items() if state is None]
    response.transaction_states = [
        ListTransactionsResponse.TransactionState(
            transactional_id=each.transactional_id,
            producer_id=each.producer_id,
            transaction_state=each.state.label,
        )
        for each in found
        if each.transactional_id in allowed
    ]
    return response


def error_response(request: ListTransactionsRequest, error: ErrorCode, message: str) -> ListTransactionsResponse:
    """The error, with no ids."""
    del request, message
    return _answer(error)


def _answer(error: ErrorCode) -> ListTransactionsResponse:
    return ListTransactionsResponse(error_code=error, unknown_state_filters=[], transaction_states=[])
