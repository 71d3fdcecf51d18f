"""IncrementalAlterConfigs, API key 44: versions 0 to 1.

The request sets, deletes, appends to and subtracts from single keys of topics, groups, this broker and all brokers
(empty name), and sets or deletes the levels of this broker's loggers. The change takes effect at once; one bad key
keeps the whole resource as it was.

Versions:
0: the API (KIP-339).
1: flexible encoding with tagged fields (KIP-482).

Known gaps: resource type CLIENT_METRICS is INVALID_REQUEST, because there are no client metrics.
"""

from __future__ import annotations

from kafkapy.broker.alter_configs import Alteration, OpType, authorize, increment
from kafkapy.broker.context import RequestContext
from kafkapy.errors import ErrorCode, KafkaError, error_for
from kafkapy.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kafkapy.slices import counted, in_slices

REQUEST = IncrementalAlterConfigsRequest
RESPONSE = IncrementalAlterConfigsResponse

Result = IncrementalAlterConfigsResponse.ResourceResponse


async def handle(context: RequestContext, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    """One result for each resource; a resource that fails does not hold up the others."""
    asked = await counted((each.resource_type, each.resource_name) for each in request.resources)
    context.leave(asked)
    responses = []
    async for resource in in_slices(request.resources):
        kind, name = resource.resource_type, resource.resource_name
        error, message = ErrorCode.NONE, None
        if asked[kind, name] > 1:
            error, message = ErrorCode.INVALID_REQUEST, "Each resource must appear at most once."
        else:
            try:
                authorize(context, kind, name)
                changes = [_alteration(each) for each in resource.configs]
                await increment(context, kind, name, changes, request.validate_only)
            except KafkaError as failure:
                error, message = failure.code, failure.message
        responses.append(Result(error_code=error, error_message=message, resource_type=kind, resource_name=name))
    return IncrementalAlterConfigsResponse(responses=responses)


def error_response(
    request: IncrementalAlterConfigsRequest, error: ErrorCode, message: str
) -> IncrementalAlterConfigsResponse:
    """The error for every resource."""
    return IncrementalAlterConfigsResponse(
        responses=[
            Result(
                error_code=error,
                error_message=message,
                resource_type=each.resource_type,
                resource_name=each.resource_name,
            )
            for each in request.resources
        ]
    )


def _alteration(config: IncrementalAlterConfigsRequest.Resource.Config) -> Alteration:
    try:
        operation = OpType(config.config_operation)
    except ValueError:
        raise error_for(
            ErrorCode.INVALID_REQUEST, f"Unknown operations type {config.config_operation} for {config.name}"
        ) from None
    return Alteration(config.name, operation, config.value)
