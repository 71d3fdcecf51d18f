"""DeleteAcls, API key 31: versions 0 to 3.

The request deletes the ACLs that match any of its filters. It needs ALTER on the cluster. Each filter has a result with
the ACLs that it deleted; an ACL that several filters match stands in the first result. INVALID_REQUEST for a filter
with an unknown field, SECURITY_DISABLED without an authorizer that keeps ACLs.

Versions:
0: the API (KIP-140); literal patterns only.
1: pattern types (KIP-290).
2: flexible encoding with tagged fields (KIP-482).
3: resource type User (KIP-373).

Known gaps: none.
"""

from __future__ import annotations

from kafkapy.broker.acl_values import filter_of, settled
from kafkapy.broker.context import RequestContext
from kafkapy.errors import ErrorCode, KafkaError
from kafkapy.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from kafkapy.security.authorizer.base import AclBinding, AclBindingFilter
from kafkapy.slices import in_slices
from kafkapy.types import AclOperation

REQUEST = DeleteAclsRequest
RESPONSE = DeleteAclsResponse

FilterResult = DeleteAclsResponse.FilterResult
MatchingAcl = FilterResult.MatchingAcl


async def handle(context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """One result for each filter, in the order of the request."""
    context.authorize_cluster(AclOperation.ALTER)
    filters: list[AclBindingFilter] = []
    context.leave(filters)
    async for asked in in_slices(request.filters):
        filters.append(filter_of(asked))
    deleted = await settled(context.broker.authorizer.delete_acls(context, filters))
    context.leave(deleted)
    results = []
    async for each in in_slices(deleted):
        matching = [_matching(binding, None) async for binding in in_slices(each.deleted)]
        matching += [_matching(binding, error) for binding, error in each.failed]
        code, message = (ErrorCode.NONE, None) if each.error is None else (each.error.code, each.error.message)
        results.append(FilterResult(error_code=code, error_message=message, matching_acls=matching))
    return DeleteAclsResponse(filter_results=results)


def _matching(binding: AclBinding, error: KafkaError | None) -> MatchingAcl:
    return MatchingAcl(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
        resource_type=binding.resource_type,
        resource_name=binding.resource_name,
        pattern_type=binding.pattern_type,
        principal=binding.principal,
        host=binding.host,
        operation=binding.operation,
        permission_type=binding.permission_type,
    )


def error_response(request: DeleteAclsRequest, error: ErrorCode, message: str) -> DeleteAclsResponse:
    """The error for every filter."""
    return DeleteAclsResponse(
        filter_results=[
            FilterResult(error_code=error, error_message=message, matching_acls=[]) for _ in request.filters
        ]
    )
