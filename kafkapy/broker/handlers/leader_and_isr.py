"""LeaderAndIsr, API key 4: versions 0 to 7.

The controller tells this broker which partitions it leads and follows. A request for an earlier registration of this
broker, or from a controller that was replaced, is refused whole: STALE_BROKER_EPOCH, STALE_CONTROLLER_EPOCH. The
ReplicaManager decides about each partition.

Versions:
0: the API.
1: replicas that are new (KIP-106).
2: broker epoch (KIP-380), partitions grouped by topic.
3: replicas that a reassignment adds and removes (KIP-455).
4: flexible encoding with tagged fields (KIP-482).
5: topic ids, and the type of the request (KIP-516).
6: leader recovery state (KIP-704).
7: whether the controller is one of KRaft (KIP-866).

Known gaps: the type of the request is used in a migration to KRaft only, which is not supported; it changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from kafkapy.broker.context import RequestContext
from kafkapy.broker.controller_requests import BrokerTuples, late, refusal
from kafkapy.errors import ErrorCode
from kafkapy.metadata.broker_requests import LeaderAndIsr, LeaderAndIsrPartition
from kafkapy.metadata.znodes import BrokerRegistration, PartitionState
from kafkapy.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
)
from kafkapy.slices import emptied, in_slices
from kafkapy.types import ZERO_UUID, Endpoint, TopicPartition

REQUEST = LeaderAndIsrRequest
RESPONSE = LeaderAndIsrResponse

RECOVERING = 1
FIRST_BY_ID = 5


async def handle(context: RequestContext, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
    """The outcome for every partition.

    CLUSTER_AUTHORIZATION_FAILED, STALE_BROKER_EPOCH and STALE_CONTROLLER_EPOCH for the whole.
    """
    refused = refusal(context, request.broker_epoch)
    if refused is not ErrorCode.NONE:
        refusals: dict[TopicPartition, ErrorCode] = {
            partition: refused async for partition, _ in in_slices(_states(request))
        }
        return await _answer(context.api_version, request, refused, refusals)
    topic_ids = {topic.topic_name: topic.topic_id async for topic in in_slices(request.topic_states)}
    brokers = BrokerTuples()
    partitions = {partition: _wanted(each, brokers) async for partition, each in in_slices(_states(request))}
    wanted = LeaderAndIsr(
        request.controller_id,
        request.controller_epoch,
        request.broker_epoch,
        {name: topic_id async for name, topic_id in in_slices(topic_ids.items()) if topic_id != ZERO_UUID},
        partitions,
        {each.broker_id: _leader(context, each) async for each in in_slices(request.live_leaders)},
    )
    refused = late(context, request)
    if refused is not ErrorCode.NONE:
        refusals = {partition: refused async for partition in in_slices(partitions)}
        return await _answer(context.api_version, request, refused, refusals)
    response = await context.broker.replica_manager.become_leader_or_follower(wanted)
    errors = {
        partition: response.error or response.partition_errors.get(partition, ErrorCode.NONE)
        async for partition in in_slices(partitions)
    }
    await emptied(partitions)
    return await _answer(context.api_version, request, response.error, errors)


def error_response(request: LeaderAndIsrRequest, error: ErrorCode, message: str) -> LeaderAndIsrResponse:
    """The error for the whole and for every partition."""
    del message
    by_id = any(topic.topic_id != ZERO_UUID for topic in request.topic_states)
    errors = {partition: error for partition, _ in _states(request)}
    response = LeaderAndIsrResponse(error_code=error)
    for _ in _filling(response, FIRST_BY_ID if by_id else 0, request, errors):
        continue
    return response


def _states(request: LeaderAndIsrRequest) -> Iterable[tuple[TopicPartition, LeaderAndIsrPartitionState]]:
    return chain(
        (
            (TopicPartition(topic.topic_name, each.partition_index), each)
            for topic in request.topic_states
            for each in topic.partition_states
        ),
        ((TopicPartition(each.topic_name, each.partition_index), each) for each in request.ungrouped_partition_states),
    )


def _wanted(each: LeaderAndIsrPartitionState, brokers: BrokerTuples) -> LeaderAndIsrPartition:
    return LeaderAndIsrPartition(
        PartitionState(
            each.leader,
            each.leader_epoch,
            brokers(each.isr),
            each.controller_epoch,
            each.leader_recovery_state == RECOVERING,
            each.partition_epoch,
        ),
        brokers(each.replicas),
        brokers(each.adding_replicas),
        brokers(each.removing_replicas),
        each.is_new,
    )


def _leader(context: RequestContext, leader: LeaderAndIsrRequest.LiveLeader) -> BrokerRegistration:
    """A leader under its address on this broker's inter-broker listener, the only one that the request has."""
    config = context.broker.config
    name = config.inter_broker_listener_name
    endpoint = Endpoint(name, leader.host_name, leader.port, config.security_protocols[name])
    return BrokerRegistration(leader.broker_id, (endpoint,))


async def _answer(
    version: int, request: LeaderAndIsrRequest, error: ErrorCode, errors: dict[TopicPartition, ErrorCode]
) -> LeaderAndIsrResponse:
    response = LeaderAndIsrResponse(error_code=error)
    async for _ in in_slices(_filling(response, version, request, errors)):
        continue
    await emptied(errors)
    return response


def _filling(
    response: LeaderAndIsrResponse,
    version: int,
    request: LeaderAndIsrRequest,
    errors: Mapping[TopicPartition, ErrorCode],
) -> Iterator[None]:
    """Add the partitions to the response, one in each step."""
    if version < FIRST_BY_ID:
        for (topic, number), code in errors.items():
            response.partition_errors.append(
                LeaderAndIsrPartitionError(topic_name=topic, partition_index=number, error_code=code)
            )
            yield
        return
    for each in request.topic_states:
        answered = LeaderAndIsrResponse.Topic(topic_id=each.topic_id, partition_errors=[])
        response.topics.append(answered)
        for state in each.partition_states:
            number = state.partition_index
            code = errors[TopicPartition(each.topic_name, number)]
            answered.partition_errors.append(LeaderAndIsrPartitionError(partition_index=number, error_code=code))
            yield
