"""DeleteTopics, API key 20: versions 0 to 6.

The request deletes topics by name or by id. The response comes when clients cannot see the topics any more; the files
go after file.delete.delay.ms.

Versions:
0: the API (KIP-4).
1: throttle time in the response.
2: the response leaves before the pause of a throttled client (KIP-219).
3: TOPIC_DELETION_DISABLED as an error (KIP-322).
4: flexible encoding with tagged fields (KIP-482).
5: error message for each topic; THROTTLING_QUOTA_EXCEEDED as an error (KIP-599).
6: topics by id (KIP-516).

Known gaps: none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from uuid import UUID

from kafkapy.broker.context import RequestContext
from kafkapy.errors import ErrorCode, code_of, error_for
from kafkapy.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from kafkapy.protocol.schema import ZERO_UUID
from kafkapy.slices import counted, in_slices
from kafkapy.types import AclOperation, ResourceType

REQUEST = DeleteTopicsRequest
RESPONSE = DeleteTopicsResponse

Result = DeleteTopicsResponse.TopicResponse

STRICT_SINCE: Final = 5
"""First version that refuses mutations which exceed the quota of the client."""


async def handle(context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """One result for each topic.

    INVALID_REQUEST for a topic with both name and id, or neither.

    A topic that is named twice, or once by name and once by id, is not deleted.
    """
    broker = context.broker
    if not broker.config.get_bool("delete.topic.enable"):
        disabled = ErrorCode.INVALID_REQUEST if context.api_version < 3 else ErrorCode.TOPIC_DELETION_DISABLED
        return error_response(request, disabled, "Topic deletion is disabled.")
    snapshot = broker.metadata_cache.snapshot
    results: list[Result] = []
    twice: list[Result] = []
    counts = await counted(_asked(request))
    context.leave(counts, results)
    async for (name, topic_id), count in in_slices(counts.items()):
        if topic_id != ZERO_UUID and name is not None:
            raise error_for(ErrorCode.INVALID_REQUEST, "Topic name and topic ID can not both be specified.")
        if topic_id == ZERO_UUID and name is None:
            raise error_for(ErrorCode.INVALID_REQUEST, "A topic to delete has neither a name nor an id.")
        if count > 1:
            twice.append(Result(name=name, topic_id=topic_id))
            continue
        found = snapshot.topic_names.get(topic_id) if name is None else name
        results.append(Result(name=found, topic_id=topic_id))
    meant = await counted(result.name for result in results if result.name is not None)
    context.leave(meant)
    described = await context.authorized_names_in_slices(AclOperation.DESCRIBE, ResourceType.TOPIC, meant)
    deletable = await context.authorized_names_in_slices(AclOperation.DELETE, ResourceType.TOPIC, meant)
    # A topic that is meant twice, under its name and its id, is deleted by neither. Only clients that may describe it
    # learn that the name belongs to the id.
    doubled = {name async for name, count in in_slices(meant.items()) if count > 1 and name in described}
    context.leave(doubled)
    twice += [each async for each in in_slices(results) if each.name in doubled and each.topic_id != ZERO_UUID]
    results = [result async for result in in_slices(results) if result.name not in doubled]
    async for result in in_slices(twice):
        _fail(result, ErrorCode.INVALID_REQUEST, "Found multiple entries for this topic.")
    wanted: dict[str, Result] = {}
    context.leave(wanted)
    async for result in in_slices(results):
        if result.name is None:
            _fail(result, ErrorCode.UNKNOWN_TOPIC_ID)
        elif result.topic_id != ZERO_UUID and result.name not in described:
            # An id is no secret, but the name behind it is.
            result.name = None
            _fail(result, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        elif result.name not in deletable:
            _fail(result, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        elif result.name not in snapshot.topics:
            _fail(result, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            wanted[result.name] = result
    if wanted:
        quota = context.mutation_quota(STRICT_SINCE)
        errors = await broker.topic_admin.delete_topics(
            list(wanted), timeout_ms=request.timeout_ms, record=quota.record
        )
        context.throttle_ms = quota.throttle_time_ms
        async for name, result in in_slices(wanted.items()):
            error = errors[name]
            if error is None:
                result.topic_id = snapshot.topics[name].topic_id
            else:
                _fail(result, code_of(error), str(error))
    return DeleteTopicsResponse(responses=twice + results)


def error_response(request: DeleteTopicsRequest, error: ErrorCode, message: str) -> DeleteTopicsResponse:
    """The error for every topic."""
    return DeleteTopicsResponse(
        responses=[
            Result(name=name, topic_id=topic_id, error_code=error, error_message=message)
            for name, topic_id in _asked(request)
        ]
    )


def _asked(request: DeleteTopicsRequest) -> Iterator[tuple[str | None, UUID]]:
    """(name, id) of each topic; version 6 has a separate list of them."""
    for topic in request.topics:
        yield topic.name, topic.topic_id
    if not request.topics:
        for name in request.topic_names:
            yield name, ZERO_UUID


def _fail(result: Result, error: ErrorCode, message: str | None = None) -> None:
    result.error_code = error
    result.error_message = message or error.message
