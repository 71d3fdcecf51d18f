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

from kafkapy.broker.alter_configs import alter_each, failed_each, has_secrets, replace
from kafkapy.broker.context import RequestContext
from kafkapy.errors import ErrorCode, error_for
from kafkapy.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from kafkapy.slices import in_slices

REQUEST = AlterConfigsRequest
RESPONSE = AlterConfigsResponse
SECRETS = has_secrets

Result = AlterConfigsResponse.ResourceResponse


async def handle(context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """One result for each resource; a failing resource does not stop the others."""

    async def alter(resource: AlterConfigsRequest.Resource) -> None:
        keys = {each.name: each.value async for each in in_slices(resource.configs)}
        if len(keys) < len(resource.configs):
            raise error_for(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
        await replace(context, resource.resource_type, resource.resource_name, keys, request.validate_only)

    return AlterConfigsResponse(responses=await alter_each(context, request.resources, alter, Result))


def error_response(request: AlterConfigsRequest, error: ErrorCode, message: str) -> AlterConfigsResponse:
    """The error for every resource."""
    return AlterConfigsResponse(responses=failed_each(request.resources, error, message, Result))
