"""CreateAcls, API key 30: versions 0 to 3.

The request adds ACLs. It needs ALTER on the cluster. Each entry has a result: INVALID_REQUEST for an entry that is no
ACL, SECURITY_DISABLED without an authorizer that keeps ACLs. An ACL that exists already is a success. The response
leaves when the ACLs are stored and this broker decides by them; other brokers follow soon after.

Versions:
0: the API (KIP-140); literal patterns only.
1: pattern types (KIP-290).
2: flexible encoding with tagged fields (KIP-482).
3: resource type User (KIP-373).

Known gaps: none.
"""

from __future__ import annotations

from kafkapy.broker.acl_values import binding_of, settled
from kafkapy.broker.context import CLUSTER_NAME, RequestContext
from kafkapy.errors import ErrorCode, KafkaError, error_for
from kafkapy.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from kafkapy.security.authorizer.base import AclBinding
from kafkapy.slices import in_slices
from kafkapy.types import AclOperation, ResourceType

REQUEST = CreateAclsRequest
RESPONSE = CreateAclsResponse

Result = CreateAclsResponse.Result


async def handle(context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    """One result for each ACL, in the order of the request."""
    context.authorize_cluster(AclOperation.ALTER)
    bindings: list[AclBinding] = []
    errors: list[KafkaError | None] = []
    context.leave(bindings, errors)
    async for creation in in_slices(request.creations):
        binding = binding_of(creation)
        reason = _refused(binding)
        errors.append(None if reason is None else error_for(ErrorCode.INVALID_REQUEST, reason))
        if reason is None:
            bindings.append(binding)
    created = iter(await settled(context.broker.authorizer.create_acls(context, bindings)))
    results = []
    async for refused in in_slices(errors):
        error = next(created) if refused is None else refused
        results.append(Result() if error is None else Result(error_code=error.code, error_message=error.message))
    return CreateAclsResponse(results=results)


def _refused(binding: AclBinding) -> str | None:
    if binding.resource_type is ResourceType.CLUSTER and binding.resource_name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    return None if binding.resource_name else "Invalid empty resource name"


def error_response(request: CreateAclsRequest, error: ErrorCode, message: str) -> CreateAclsResponse:
    """The error for every ACL."""
    return CreateAclsResponse(results=[Result(error_code=error, error_message=message) for _ in request.creations])
