"""AlterConfigs, API key 33: versions 0 to 2.

The request replaces the whole configuration of topics, of this broker or (empty name) of all brokers: a key that is
not named goes back to its default. The change takes effect at once. IncrementalAlterConfigs replaces this API;
loggers can only be altered there.

Versions:
0: the API (KIP-133).
1: the response leaves before the pause of a throttled client (KIP-219).
2: flexible encoding with tagged fields (KIP-482).

Known gaps: none.
"""

from __future__ import annotations

from kafkapy.broker.alter_configs import authorize, replace
from kafkapy.broker.context import RequestContext
from kafkapy.errors import ErrorCode, KafkaError, error_for
from kafkapy.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from kafkapy.slices import counted, in_slices

REQUEST = AlterConfigsRequest
RESPONSE = AlterConfigsResponse

Result = AlterConfigsResponse.ResourceResponse


async def handle(context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
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
                names = [each.name for each in resource.configs]
                if len(set(names)) < len(names):
                    raise error_for(ErrorCode.INVALID_REQUEST, "Each key must appear at most once.")
                keys = {each.name: each.value for each in resource.configs}
                await replace(context, kind, name, keys, request.validate_only)
            except KafkaError as failure:
                error, message = failure.code, failure.message
        responses.append(Result(error_code=error, error_message=message, resource_type=kind, resource_name=name))
    return AlterConfigsResponse(responses=responses)


def error_response(request: AlterConfigsRequest, error: ErrorCode, message: str) -> AlterConfigsResponse:
    """The error for every resource."""
    return AlterConfigsResponse(
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
