"""AlterClientQuotas, API key 49: versions 0 to 1.

The request sets and removes quotas of users, client ids, both together, and addresses; with validate_only it only
checks them. Any broker serves it. Each entity has its own result, and its changes succeed together or not at all:
unknown keys and types, an address together with a user or client id, an entity that appears twice, and values that are
not above 0 or too large are INVALID_REQUEST. All brokers have the new quotas within a moment, without a restart.

Versions:
0: the API (KIP-546).
1: flexible encoding with tagged fields (KIP-482).

Known gaps: none.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafkapy.broker.context import RequestContext
from kafkapy.broker.quota_admin import QuotaAlteration, alter_quotas
from kafkapy.errors import ErrorCode, KafkaError, code_of
from kafkapy.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from kafkapy.slices import in_slices
from kafkapy.types import AclOperation

REQUEST = AlterClientQuotasRequest
RESPONSE = AlterClientQuotasResponse

Entry = AlterClientQuotasResponse.Entry


async def handle(context: RequestContext, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    """One result for each entity. CLUSTER_AUTHORIZATION_FAILED without ALTER_CONFIGS on the cluster."""
    context.authorize_cluster(AclOperation.ALTER_CONFIGS)
    alterations = [_alteration(entry) async for entry in in_slices(request.entries)]
    repository = context.broker.dynamic_config.repository
    results = await alter_quotas(repository, alterations, request.validate_only)
    context.leave(alterations, results)
    return AlterClientQuotasResponse(
        entries=[await _entry(alteration.parts.items(), error) async for alteration, error in in_slices(results)]
    )


def error_response(request: AlterClientQuotasRequest, error: ErrorCode, message: str) -> AlterClientQuotasResponse:
    """The error for every entity."""
    return AlterClientQuotasResponse(
        entries=[
            Entry(
                error_code=error,
                error_message=message,
                entity=[
                    Entry.Entity(entity_type=part.entity_type, entity_name=part.entity_name) for part in entry.entity
                ],
            )
            for entry in request.entries
        ]
    )


def _alteration(entry: AlterClientQuotasRequest.Entry) -> QuotaAlteration:
    return QuotaAlteration(
        {part.entity_type: part.entity_name for part in entry.entity},
        [(op.key, None if op.remove else op.value) for op in entry.ops],
    )


async def _entry(parts: Iterable[tuple[str, str | None]], error: KafkaError | None) -> Entry:
    entity = [Entry.Entity(entity_type=kind, entity_name=name) async for kind, name in in_slices(parts)]
    if error is None:
        return Entry(entity=entity)
    return Entry(error_code=code_of(error), error_message=str(error), entity=entity)
