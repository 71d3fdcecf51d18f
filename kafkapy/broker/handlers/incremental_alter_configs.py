"""IncrementalAlterConfigs, API key 44: versions 0 to 1.

The request sets, deletes, appends to and subtracts from single keys of topics, groups, client-metrics subscriptions,
this broker and all brokers (empty name), and sets or deletes the levels of this broker's loggers. The change takes
effect at once; one bad key keeps the whole resource as it was.

Versions:
0: the API (KIP-339).
1: flexible encoding with tagged fields (KIP-482).

Known gaps: none.
"""

from __future__ import annotations

from kafkapy.broker.alter_configs import Alteration, OpType, alter_each, failed_each, has_secrets, increment
from kafkapy.broker.context import RequestContext
from kafkapy.errors import ErrorCode, error_for
from kafkapy.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kafkapy.slices import in_slices

REQUEST = IncrementalAlterConfigsRequest
RESPONSE = IncrementalAlterConfigsResponse
SECRETS = has_secrets

Result = IncrementalAlterConfigsResponse.ResourceResponse


async def handle(context: RequestContext, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    """One result for each resource; a failing resource does not stop the others."""

    async def alter(resource: IncrementalAlterConfigsRequest.Resource) -> None:
        changes = [_alteration(each) async for each in in_slices(resource.configs)]
        await increment(context, resource.resource_type, resource.resource_name, changes, request.validate_only)

    return IncrementalAlterConfigsResponse(responses=await alter_each(context, request.resources, alter, Result))


def error_response(
    request: IncrementalAlterConfigsRequest, error: ErrorCode, message: str
) -> IncrementalAlterConfigsResponse:
    """The error for every resource."""
    return IncrementalAlterConfigsResponse(responses=failed_each(request.resources, error, message, Result))


def _alteration(config: IncrementalAlterConfigsRequest.Resource.Config) -> Alteration:
    try:
        operation = OpType(config.config_operation)
    except ValueError:
        raise error_for(
            ErrorCode.INVALID_REQUEST, f"Unknown operations type {config.config_operation} for {config.name}"
        ) from None
    return Alteration(config.name, operation, config.value)
