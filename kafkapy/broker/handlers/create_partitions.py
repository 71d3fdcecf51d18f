"""CreatePartitions, API key 37: versions 0 to 3.

The request raises the number of partitions of topics, or with validate_only only checks it. The response comes when
the partitions exist.

Versions:
0: the API (KIP-195).
1: the response leaves before the pause of a throttled client (KIP-219).
2: flexible encoding with tagged fields (KIP-482).
3: THROTTLING_QUOTA_EXCEEDED as an error (KIP-599).

Known gaps: none.
"""

from __future__ import annotations

from typing import Final

from kafkapy.broker.context import RequestContext
from kafkapy.controller.admin_requests import NewPartitions
from kafkapy.errors import ErrorCode, code_of
from kafkapy.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from kafkapy.slices import counted, in_slices
from kafkapy.types import AclOperation, ResourceType

REQUEST = CreatePartitionsRequest
RESPONSE = CreatePartitionsResponse

Result = CreatePartitionsResponse.Result

STRICT_SINCE: Final = 3
"""First version that refuses mutations which exceed the quota of the client."""


async def handle(context: RequestContext, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    """One result for each topic name, in the order asked."""
    counts = await counted(topic.name for topic in request.topics)
    unique = [name async for name, count in in_slices(counts.items()) if count == 1]
    allowed = await context.authorized_names_in_slices(AclOperation.ALTER, ResourceType.TOPIC, unique)
    results: dict[str, Result] = {}
    wanted: list[NewPartitions] = []
    context.leave(counts, unique, results, wanted)
    async for topic in in_slices(request.topics):
        name = topic.name
        if counts[name] > 1:
            results[name] = _failed(name, ErrorCode.INVALID_REQUEST, "Duplicate topic in request.")
        elif name not in allowed:
            results[name] = _failed(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "The topic authorization is failed.")
        else:
            results[name] = Result(name=name)
            given = topic.assignments
            assignments = None if given is None else [tuple(each.broker_ids) for each in given]
            wanted.append(NewPartitions(name, topic.count, assignments))
    if wanted:
        quota = context.mutation_quota(STRICT_SINCE)
        errors = await context.broker.topic_admin.create_partitions(
            wanted,
            validate_only=request.validate_only,
            timeout_ms=request.timeout_ms,
            record=quota.record,
        )
        context.throttle_ms = quota.throttle_time_ms
        context.leave(errors)
        async for name, error in in_slices(errors.items()):
            if error is not None:
                results[name] = _failed(name, code_of(error), str(error))
    return CreatePartitionsResponse(results=list(results.values()))


def error_response(request: CreatePartitionsRequest, error: ErrorCode, message: str) -> CreatePartitionsResponse:
    """The error for every topic."""
    return CreatePartitionsResponse(results=[_failed(topic.name, error, message) for topic in request.topics])


def _failed(name: str, error: ErrorCode, message: str) -> Result:
    return Result(name=name, error_code=error, error_message=message)
