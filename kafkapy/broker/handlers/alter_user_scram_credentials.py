"""AlterUserScramCredentials, API key 51: version 0.

The request adds, replaces and deletes SCRAM credentials of users; the controller serves it. The client has salted the
password itself. All changes of one user succeed or none. An empty name and iterations outside 4096 to 16384 are
UNACCEPTABLE_CREDENTIAL, an unknown mechanism is UNSUPPORTED_SASL_MECHANISM, a mechanism of a user that appears twice
DUPLICATE_RESOURCE, and a missing credential to delete RESOURCE_NOT_FOUND.

Versions:
0: the API (KIP-554).

Known gaps: none.
"""

from __future__ import annotations

from kafkapy.broker.context import RequestContext
from kafkapy.broker.scram_credentials import Deletion, Upsertion
from kafkapy.errors import ErrorCode, code_of
from kafkapy.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from kafkapy.slices import in_slices
from kafkapy.types import AclOperation

REQUEST = AlterUserScramCredentialsRequest
RESPONSE = AlterUserScramCredentialsResponse
SECRETS = True

Result = AlterUserScramCredentialsResponse.Result


async def handle(
    context: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """One result for each user. CLUSTER_AUTHORIZATION_FAILED without ALTER on the cluster, NOT_CONTROLLER elsewhere."""
    if not context.broker.controller.is_active:
        return error_response(request, ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_CONTROLLER.message)
    context.authorize_cluster(AclOperation.ALTER)
    deletions = [Deletion(each.name, each.mechanism) async for each in in_slices(request.deletions)]
    upsertions = [
        Upsertion(each.name, each.mechanism, each.iterations, each.salt, each.salted_password)
        async for each in in_slices(request.upsertions)
    ]
    errors = await context.broker.logins.scram_credentials.alter(deletions, upsertions)
    context.leave(deletions, upsertions, errors)
    return AlterUserScramCredentialsResponse(
        results=[
            Result(user=user, error_message="")
            if error is None
            else Result(user=user, error_code=code_of(error), error_message=str(error))
            async for user, error in in_slices(errors.items())
        ]
    )


def error_response(
    request: AlterUserScramCredentialsRequest, error: ErrorCode, message: str
) -> AlterUserScramCredentialsResponse:
    """The error for every user, sorted."""
    users = {each.name for entries in (request.deletions, request.upsertions) for each in entries}
    return AlterUserScramCredentialsResponse(
        results=[Result(user=user, error_code=error, error_message=message) for user in sorted(users)]
    )
