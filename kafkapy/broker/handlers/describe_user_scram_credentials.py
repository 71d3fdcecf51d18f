"""DescribeUserScramCredentials, API key 50: version 0.

The response has the mechanisms and iterations of users' SCRAM credentials, never salts or keys. No list or an empty one
means all users with credentials, sorted. A user without credentials is RESOURCE_NOT_FOUND, a user that is named twice
DUPLICATE_RESOURCE.

Versions:
0: the API (KIP-554).

Known gaps: none.
"""

from __future__ import annotations

from typing import Final

from kafkapy.broker.context import RequestContext
from kafkapy.broker.scram_credentials import CredentialInfo
from kafkapy.errors import ErrorCode, KafkaError, code_of
from kafkapy.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from kafkapy.slices import counted, in_chunks
from kafkapy.types import AclOperation

REQUEST = DescribeUserScramCredentialsRequest
RESPONSE = DescribeUserScramCredentialsResponse

Result = DescribeUserScramCredentialsResponse.Result
NO_CREDENTIAL: Final = "Attempt to describe a user credential that does not exist"


async def handle(
    context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """One result for each user. CLUSTER_AUTHORIZATION_FAILED without DESCRIBE on the cluster."""
    context.authorize_cluster(AclOperation.DESCRIBE)
    credentials = context.broker.logins.scram_credentials
    results: list[Result] = []
    if not request.users:
        async for chunk in in_chunks(await credentials.users()):
            described = await credentials.describe(chunk)
            results += [_result(user, found) for user, found in described.items() if found]
        return DescribeUserScramCredentialsResponse(error_message="", results=results)
    counts = await counted(each.name for each in request.users)
    context.leave(counts, results)
    async for chunk in in_chunks(counts):
        described = await credentials.describe([user for user in chunk if user and counts[user] == 1])
        results += [_named(user, counts[user], described.get(user, [])) for user in chunk]
    return DescribeUserScramCredentialsResponse(error_message="", results=results)


def _named(user: str, count: int, found: list[CredentialInfo] | KafkaError) -> Result:
    """The result of a user that the request names."""
    if not user:
        return _failed(user, ErrorCode.RESOURCE_NOT_FOUND, "Username must not be empty")
    if count > 1:
        text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        return _failed(user, ErrorCode.DUPLICATE_RESOURCE, text)
    if isinstance(found, list) and not found:
        return _failed(user, ErrorCode.RESOURCE_NOT_FOUND, f"{NO_CREDENTIAL}: {user}")
    return _result(user, found)


def _result(user: str, found: list[CredentialInfo] | KafkaError) -> Result:
    if isinstance(found, KafkaError):
        return _failed(user, code_of(found), str(found))
    infos = [Result.CredentialInfo(mechanism=each.mechanism, iterations=each.iterations) for each in found]
    return Result(user=user, error_message="", credential_infos=infos)


def _failed(user: str, error: ErrorCode, message: str) -> Result:
    return Result(user=user, error_code=error, error_message=message, credential_infos=[])
