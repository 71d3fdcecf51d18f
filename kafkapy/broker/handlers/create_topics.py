"""CreateTopics, API key 19: versions 0 to 7.

The request creates topics, or with validate_only only checks them. Each topic has its own result. The response comes
when the topics exist.

Versions:
0: the API (KIP-4).
1: validate_only, and an error message for each topic.
2: throttle time in the response.
3: the response leaves before the pause of a throttled client (KIP-219).
4: the broker's default number of partitions and replication factor, as -1 (KIP-464).
5: partitions, replication factor and configuration in the response (KIP-525), flexible encoding.
6: THROTTLING_QUOTA_EXCEEDED as an error (KIP-599).
7: topic id in the response (KIP-516).

Known gaps: none.
"""

from __future__ import annotations

from typing import Final

from kafkapy.broker.context import RequestContext
from kafkapy.config.topic import describe_topic
from kafkapy.controller.admin_requests import CreatedTopic, NewTopic
from kafkapy.errors import ErrorCode, code_of
from kafkapy.metadata.topic_names import CLUSTER_METADATA_TOPIC
from kafkapy.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from kafkapy.slices import counted, in_slices
from kafkapy.types import AclOperation, ResourceType

REQUEST = CreateTopicsRequest
RESPONSE = CreateTopicsResponse

Result = CreateTopicsResponse.Topic

STRICT_SINCE: Final = 6
"""First version that refuses mutations which exceed the quota of the client."""


async def handle(context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """One result for each topic name, in the order asked."""
    counts = await counted(topic.name for topic in request.topics)
    everything = context.authorize(AclOperation.CREATE, ResourceType.CLUSTER, log_if_denied=False)
    allowed: set[str] = set()
    if not everything:
        unique = [name async for name, count in in_slices(counts.items()) if count == 1]
        allowed = await context.authorized_names_in_slices(
            AclOperation.CREATE, ResourceType.TOPIC, (name for name in unique if name != CLUSTER_METADATA_TOPIC)
        )
    described = await context.authorized_names_in_slices(
        AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, counts, log_if_denied=False
    )
    results: dict[str, Result] = {}
    wanted: list[NewTopic] = []
    context.leave(counts, results, wanted)
    async for topic in in_slices(request.topics):
        name = topic.name
        if name in results:
            continue
        if name == CLUSTER_METADATA_TOPIC:
            results[name] = _failed(
                name, ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited."
            )
        elif counts[name] > 1:
            results[name] = _failed(name, ErrorCode.INVALID_REQUEST, "Found multiple entries for this topic.")
        elif not everything and name not in allowed:
            results[name] = _failed(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
        else:
            new = _new_topic(topic)
            results[name] = new if isinstance(new, Result) else Result(name=name)
            if isinstance(new, NewTopic):
                wanted.append(new)
    if wanted:
        quota = context.mutation_quota(STRICT_SINCE)
        created = await context.broker.topic_admin.create_topics(
            wanted,
            validate_only=request.validate_only,
            timeout_ms=request.timeout_ms,
            record=quota.record,
        )
        context.throttle_ms = quota.throttle_time_ms
        context.leave(created)
        async for name, outcome in in_slices(created.items()):
            if isinstance(outcome, CreatedTopic):
                results[name] = _created(context, outcome, name in described)
            else:
                results[name] = _failed(name, code_of(outcome), str(outcome))
    return CreateTopicsResponse(topics=list(results.values()))


def error_response(request: CreateTopicsRequest, error: ErrorCode, message: str) -> CreateTopicsResponse:
    """The error for every topic."""
    return CreateTopicsResponse(topics=[_failed(topic.name, error, message) for topic in request.topics])


def _new_topic(topic: CreateTopicsRequest.Topic) -> NewTopic | Result:
    assignments: dict[int, tuple[int, ...]] = {}
    for each in topic.assignments:
        if each.partition_index in assignments:
            message = f"Partition {each.partition_index} is assigned more than once."
            return _failed(topic.name, ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        assignments[each.partition_index] = tuple(each.broker_ids)
    configs: dict[str, str | None] = {config.name: config.value for config in topic.configs}
    return NewTopic(topic.name, topic.num_partitions, topic.replication_factor, assignments, configs)


def _failed(name: str, error: ErrorCode, message: str) -> Result:
    return Result(name=name, error_code=error, error_message=message, configs=[])


def _created(context: RequestContext, topic: CreatedTopic, described: bool) -> Result:
    result = Result(name=topic.name, topic_id=topic.topic_id)
    if not described:
        result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return result
    result.num_partitions = topic.num_partitions
    result.replication_factor = topic.replication_factor
    if context.api_version >= 5:
        result.configs = [
            Result.Config(
                name=entry.name,
                value=None if entry.sensitive else entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.sensitive,
            )
            for entry in describe_topic(context.broker.dynamic_config.config, topic.configs)
        ]
    return result
