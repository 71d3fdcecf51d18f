"""DescribeAcls, API key 29: versions 0 to 3.

The response has the ACLs that match a filter, by resource pattern. It needs DESCRIBE on the cluster. The error is
SECURITY_DISABLED without an authorizer that keeps ACLs. A filter with an unknown type, operation or permission matches
no ACL, and the value UNKNOWN (0) is an INVALID_REQUEST.

Versions:
0: the API (KIP-140); literal patterns only.
1: pattern types (KIP-290).
2: flexible encoding with tagged fields (KIP-482).
3: resource type User (KIP-373).

Known gaps: none.
"""

from __future__ import annotations

from kafkapy.broker.acl_values import filter_of
from kafkapy.broker.context import RequestContext
from kafkapy.errors import ErrorCode, error_for
from kafkapy.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from kafkapy.security.authorizer.bindings import ResourcePattern
from kafkapy.slices import in_slices
from kafkapy.types import AclOperation

REQUEST = DescribeAclsRequest
RESPONSE = DescribeAclsResponse

Resource = DescribeAclsResponse.Resource
Acl = Resource.Acl


async def handle(context: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """The ACLs of each resource pattern."""
    context.authorize_cluster(AclOperation.DESCRIBE)
    codes = (request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type)
    if 0 in codes:
        raise error_for(ErrorCode.INVALID_REQUEST, "The filter has a field with the value UNKNOWN.")
    found: dict[ResourcePattern, list[Acl]] = {}
    context.leave(found)
    async for binding in in_slices(context.broker.authorizer.acls(filter_of(request))):
        found.setdefault(binding.pattern, []).append(
            Acl(
                principal=binding.principal,
                host=binding.host,
                operation=binding.operation,
                permission_type=binding.permission_type,
            )
        )
    return DescribeAclsResponse(
        resources=[
            Resource(
                resource_type=pattern.resource_type,
                resource_name=pattern.name,
                pattern_type=pattern.pattern_type,
                acls=acls,
            )
            async for pattern, acls in in_slices(found.items())
        ]
    )


def error_response(request: DescribeAclsRequest, error: ErrorCode, message: str) -> DescribeAclsResponse:
    """The error at the top level."""
    del request
    return DescribeAclsResponse(error_code=error, error_message=message, resources=[])
