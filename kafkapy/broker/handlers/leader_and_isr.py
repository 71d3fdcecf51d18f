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

from collections.abc import Iterable
from itertools import chain

from kafkapy.broker.context import RequestContext
from kafkapy.broker.controller_requests import late, refusal
from kafkapy.errors import ErrorCode
from kafkapy.metadata.broker_requests import LeaderAndIsr, LeaderAndIsrPartition
from kafkapy.metadata.znodes import BrokerRegistration, PartitionState
from kafkapy.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
)
from kafkapy.slices import in_slices
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
        return _answer(context.api_version, request, refused, {partition: refused for partition, _ in _states(request)})
    partitions = {partition: _wanted(each) async for partition, each in in_slices(_states(request))}
    refused = late(context, request)
    if refused is not ErrorCode.NONE:
        return _answer(context.api_version, request, refused, dict.fromkeys(partitions, refused))
    response = await context.broker.replica_manager.become_leader_or_follower(
        LeaderAndIsr(
            request.controller_id,
            request.controller_epoch,
            request.broker_epoch,
            {topic.topic_name: topic.topic_id for topic in request.topic_states if topic.topic_id != ZERO_UUID},
            partitions,
            {each.broker_id: _leader(context, each) for each in request.live_leaders},
        )
    )
    errors = {
        partition: response.error or response.partition_errors.get(partition, ErrorCode.NONE)
        async for partition in in_slices(partitions)
    }
    return _answer(context.api_version, request, response.error, errors)


def error_response(request: LeaderAndIsrRequest, error: ErrorCode, message: str) -> LeaderAndIsrResponse:
    """The error for the whole and for every partition."""
    del message
    by_id = any(topic.topic_id != ZERO_UUID for topic in request.topic_states)
    errors = {partition: error for partition, _ in _states(request)}
    return _answer(FIRST_BY_ID if by_id else 0, request, error, errors)


def _states(request: LeaderAndIsrRequest) -> Iterable[tuple[TopicPartition, LeaderAndIsrPartitionState]]:
    return chain(
        (
            (TopicPartition(topic.topic_name, each.partition_index), each)
            for topic in request.topic_states
            for each in topic.partition_states
        ),
        ((TopicPartition(each.topic_name, each.partition_index), each) for each in request.ungrouped_partition_states),
    )


def _wanted(each: LeaderAndIsrPartitionState) -> LeaderAndIsrPartition:
    return LeaderAndIsrPartition(
        PartitionState(
            each.leader,
            each.leader_epoch,
            tuple(each.isr),
            each.controller_epoch,
            each.leader_recovery_state == RECOVERING,
            each.partition_epoch,
        ),
        tuple(each.replicas),
        tuple(each.adding_replicas),
        tuple(each.removing_replicas),
        each.is_new,
    )


def _leader(context: RequestContext, leader: LeaderAndIsrRequest.LiveLeader) -> BrokerRegistration:
    """A leader under its address on this broker's inter-broker listener, the only one that the request has."""
    config = context.broker.config
    name = config.inter_broker_listener_name
    endpoint = Endpoint(name, leader.host_name, leader.port, config.security_protocols[name])
    return BrokerRegistration(leader.broker_id, (endpoint,))


def _answer(
    version: int, request: LeaderAndIsrRequest, error: ErrorCode, errors: dict[TopicPartition, ErrorCode]
) -> LeaderAndIsrResponse:
    if version < FIRST_BY_ID:
        return LeaderAndIsrResponse(
            error_code=error,
            partition_errors=[
                LeaderAndIsrPartitionError(topic_name=topic, partition_index=number, error_code=code)
                for (topic, number), code in errors.items()
            ],
        )
    topics = [
        LeaderAndIsrResponse.Topic(
            topic_id=topic.topic_id,
            partition_errors=[
                LeaderAndIsrPartitionError(
                    partition_index=each.partition_index,
                    error_code=errors[TopicPartition(topic.topic_name, each.partition_index)],
                )
                for each in topic.partition_states
            ],
        )
        for topic in request.topic_states
    ]
    return LeaderAndIsrResponse(error_code=error, topics=topics)
