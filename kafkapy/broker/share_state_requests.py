"""The frame that the five APIs of share-partitions' state have in common (KIP-932).

Each names a group and partitions of topics, and has a result for each partition. As in Kafka, a request that names no
group, or a topic without partitions, has no results; InitializeShareGroupState leaves out only such a topic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from kafkapy.coordinator.result import Later
from kafkapy.coordinator.share.state import ShareKey
from kafkapy.errors import ErrorCode, KafkaError, code_of
from kafkapy.slices import in_slices
from kafkapy.types import AclOperation

if TYPE_CHECKING:
    from kafkapy.broker.context import RequestContext

__all__ = ["answer", "refuse"]

T = TypeVar("T")


async def answer(
    context: RequestContext,
    request: Any,
    response: Any,
    ask: Callable[[ShareKey, Any], Later[T]],
    fields: Callable[[T], Mapping[str, Any]] = lambda _: {},
    *,
    skips_empty_topics: bool = False,
) -> Any:
    """The response; `ask` begins a partition's operation, `fields` fill its result.

    CLUSTER_AUTHORIZATION_FAILED without CLUSTER_ACTION on the cluster.
    """
    context.authorize_cluster(AclOperation.CLUSTER_ACTION)
    if not request.group_id:
        return response(results=[])
    # All of them begin before the first is waited for: they are written and replicated together.
    begun: list[list[Later[T]]] = []
    context.leave(begun)
    topics = [topic async for topic in in_slices(request.topics) if topic.partitions]
    if len(topics) < len(request.topics) and not skips_empty_topics:
        return response(results=[])
    async for topic in in_slices(topics):
        begun.append(
            [
                ask(ShareKey(request.group_id, topic.topic_id, each.partition), each)
                async for each in in_slices(topic.partitions)
            ]
        )
    results = []
    async for topic, replies in in_slices(zip(topics, begun, strict=True)):
        partitions = [
            await _result(response.Topic.Partition, each.partition, reply, fields)
            async for each, reply in in_slices(zip(topic.partitions, replies, strict=True))
        ]
        results.append(response.Topic(topic_id=topic.topic_id, partitions=partitions))
    return response(results=results)


async def _result(
    kind: Callable[..., Any], partition: int, reply: Later[T], fields: Callable[[T], Mapping[str, Any]]
) -> Any:
    try:
        return kind(partition=partition, **fields(await reply))
    except KafkaError as error:
        return kind(partition=partition, error_code=code_of(error), error_message=str(error))


def refuse(request: Any, response: Any, error: ErrorCode, message: str) -> Any:
    """The response with an error for every partition."""
    return response(
        results=[
            response.Topic(
                topic_id=topic.topic_id,
                partitions=[
                    response.Topic.Partition(partition=each.partition, error_code=error, error_message=message)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
