"""ElectLeaders, API key 43: versions 0 to 2.

The request elects preferred leaders (type 0) or, as a last resort, leaders outside the ISR (type 1). The response comes
when the metadata cache shows the new leaders, or after the request's timeout: REQUEST_TIMED_OUT. Without partitions the
request covers all, and the response has those that needed an election. Only the controller serves it.

Versions:
0: preferred leaders only (KIP-183).
1: election type, and an error code of the whole response (KIP-460).
2: flexible encoding with tagged fields (KIP-482).

Known gaps: none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kafkapy.broker.context import RequestContext
from kafkapy.errors import ErrorCode, KafkaError, error_for
from kafkapy.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from kafkapy.slices import in_slices
from kafkapy.types import AclOperation, TopicPartition

REQUEST = ElectLeadersRequest
RESPONSE = ElectLeadersResponse

TopicResult = ElectLeadersResponse.ReplicaElectionResult
PREFERRED, UNCLEAN = 0, 1
FIRST_WITH_ERROR = 1


async def handle(context: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """One result for each partition asked for, in the order asked."""
    try:
        return await _elect(context, request)
    except KafkaError as error:
        refusal = error_response(request, error.code, error.message)
        if context.api_version >= FIRST_WITH_ERROR:
            refusal.error_code = error.code
        return refusal


async def _elect(context: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """The answer to a request that is not refused as a whole. KafkaError."""
    context.authorize_cluster(AclOperation.ALTER)
    if request.election_type not in (PREFERRED, UNCLEAN):
        raise error_for(ErrorCode.INVALID_REQUEST, f"There is no election type {request.election_type}.")
    asked = request.topic_partitions
    if asked is None:
        topics = context.broker.metadata_cache.snapshot.topics.values()
        wanted = {
            TopicPartition(topic.name, index): None
            async for topic in in_slices(topics)
            async for index in in_slices(topic.partitions)
        }
    else:
        wanted = {partition: None async for partition in in_slices(_partitions(asked))}
    outcomes = await context.broker.controller.elect_leaders(
        wanted, request.election_type == UNCLEAN, request.timeout_ms
    )
    context.leave(wanted, outcomes)
    if asked is None:
        return ElectLeadersResponse(replica_election_results=await _needed(outcomes))
    return ElectLeadersResponse(
        replica_election_results=[
            TopicResult(
                topic=topic.topic,
                partition_result=[
                    _result(index, outcomes[TopicPartition(topic.topic, index)])
                    async for index in in_slices(topic.partitions)
                ],
            )
            async for topic in in_slices(asked)
        ]
    )


def error_response(request: ElectLeadersRequest, error: ErrorCode, message: str) -> ElectLeadersResponse:
    """The error for every partition: version 0 has no other place."""
    return ElectLeadersResponse(
        replica_election_results=[
            TopicResult(
                topic=topic.topic,
                partition_result=[
                    TopicResult.PartitionResult(partition_id=index, error_code=error, error_message=message)
                    for index in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )


def _partitions(topics: Iterable[ElectLeadersRequest.TopicPartitions]) -> Iterator[TopicPartition]:
    return (TopicPartition(topic.topic, index) for topic in topics for index in topic.partitions)


async def _needed(outcomes: dict[TopicPartition, KafkaError | None]) -> list[TopicResult]:
    """The outcomes of all partitions without those whose leader is the right one, by topic."""
    results: dict[str, TopicResult] = {}
    async for (topic, index), error in in_slices(outcomes.items()):
        if error is None or error.code is not ErrorCode.ELECTION_NOT_NEEDED:
            found = results.get(topic)
            if found is None:
                found = results[topic] = TopicResult(topic=topic, partition_result=[])
            found.partition_result.append(_result(index, error))
    return list(results.values())


def _result(index: int, error: KafkaError | None) -> TopicResult.PartitionResult:
    if error is None:
        return TopicResult.PartitionResult(partition_id=index)
    return TopicResult.PartitionResult(partition_id=index, error_code=error.code, error_message=error.message)
