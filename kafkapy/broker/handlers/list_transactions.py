"""ListTransactions, API key 66: versions 0 to 2.

The response lists the transactional ids coordinated here that the client may describe, filtered by state, producer
id, age, and a pattern for the whole id. Patterns have the syntax of RE2, as in consumer groups; constructs of Java's
engine alone (look-around, back references, possessive quantifiers) are INVALID_REGULAR_EXPRESSION. A pattern that
takes too long is REQUEST_TIMED_OUT.

Versions:
0: filters by state and producer id (KIP-664).
1: filter by age (KIP-994).
2: filter by pattern (KIP-1152).

Known gaps: none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from kafkapy.broker.context import RequestContext
from kafkapy.coordinator.group.subscription_patterns import compile_pattern
from kafkapy.coordinator.transaction.state import TransactionState
from kafkapy.errors import ErrorCode, KafkaError, code_of, error_for
from kafkapy.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from kafkapy.types import AclOperation, ResourceType

REQUEST = ListTransactionsRequest
RESPONSE = ListTransactionsResponse


async def handle(context: RequestContext, request: ListTransactionsRequest) -> ListTransactionsResponse:
    """The ids that match all filters.

    Names of states that Kafka does not have are given back.
    """
    states = {name: TransactionState.of_label(name) for name in request.state_filters}
    wanted = {state for state in states.values() if state is not None} if states else None
    try:
        found = context.broker.coordinators.transaction.list_transactions(
            request.producer_id_filters, wanted, request.duration_filter
        )
    except KafkaError as error:
        return _answer(code_of(error))
    names = [each.transactional_id for each in found]
    allowed = await context.authorized_names_in_slices(
        AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, names, log_if_denied=False
    )
    if request.transactional_id_pattern:
        try:
            # Not on the control loop: a pattern may take a while with many ids.
            allowed = await asyncio.to_thread(_matching, request.transactional_id_pattern, allowed)
        except KafkaError as error:
            return _answer(code_of(error))
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


def _matching(pattern: str, names: Iterable[str]) -> set[str]:
    """INVALID_REGULAR_EXPRESSION, REQUEST_TIMED_OUT. Worker threads."""
    try:
        return set(compile_pattern(pattern).matching(names))
    except TimeoutError as error:
        raise error_for(ErrorCode.REQUEST_TIMED_OUT) from error


def _answer(error: ErrorCode) -> ListTransactionsResponse:
    return ListTransactionsResponse(error_code=error, unknown_state_filters=[], transaction_states=[])
