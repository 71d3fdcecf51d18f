"""The wire form of the controller's requests, in the versions of an inter-broker protocol.

A RemoteBrokerChannel turns a LeaderAndIsr, UpdateMetadata or StopReplica into the request of the same name, and the
response into a BrokerResponse. The encodings are those of a controller in ZooKeeper mode: `isKRaftController` is false
and `Type` is unknown. Source: kafka.controller.AbstractControllerBrokerRequestBatch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from kafkapy.errors import ErrorCode
from kafkapy.metadata.broker_requests import (
    BrokerRequest,
    BrokerResponse,
    LeaderAndIsr,
    StopReplica,
    UpdateMetadata,
    UpdateMetadataPartition,
)
from kafkapy.metadata.metadata_version import MetadataVersion
from kafkapy.metadata.znodes import BrokerRegistration
from kafkapy.protocol.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest
from kafkapy.protocol.messages.stop_replica import StopReplicaRequest
from kafkapy.protocol.messages.update_metadata import UpdateMetadataPartitionState, UpdateMetadataRequest
from kafkapy.protocol.schema import Request, Response
from kafkapy.slices import in_slices
from kafkapy.types import ZERO_UUID, SecurityProtocol, TopicPartition

__all__ = ["request_of", "response_of", "version_of"]

FIRST_LEADER_AND_ISR_BY_TOPIC = 2
FIRST_LEADER_AND_ISR_BY_TOPIC_ID = 5
"""The first version whose response names topics by their ids."""
FIRST_METADATA_WITH_ENDPOINTS = 1
FIRST_METADATA_BY_TOPIC = 5
FIRST_STOP_BY_TOPIC = 1
FIRST_STOP_WITH_STATES = 3
"""The first version that deletes some partitions and only stops others."""


def version_of(request: BrokerRequest, metadata_version: MetadataVersion) -> int:
    """The version of a request in a cluster of that inter-broker protocol version."""
    if isinstance(request, LeaderAndIsr):
        return metadata_version.leader_and_isr_version
    if isinstance(request, UpdateMetadata):
        return metadata_version.update_metadata_version
    return metadata_version.stop_replica_version


async def request_of(request: BrokerRequest, version: int, listener: str) -> list[Request]:
    """The requests on the wire.

    `listener` is the inter-broker listener, whose addresses leaders get. A StopReplica below version 3 that deletes
    some partitions and only stops others becomes two.
    """
    if isinstance(request, LeaderAndIsr):
        return [await _leader_and_isr(request, version, listener)]
    if isinstance(request, UpdateMetadata):
        return [await _update_metadata(request, version, listener)]
    return await _stop_replica(request, version)


def response_of(request: BrokerRequest, version: int, responses: Iterable[Response]) -> BrokerResponse:
    """The answer of the broker, with the partitions that failed."""
    error = ErrorCode.NONE
    failed: dict[TopicPartition, ErrorCode] = {}
    for response in responses:
        each: Any = response
        if each.error_code:
            error = ErrorCode.of(each.error_code)
        if isinstance(request, LeaderAndIsr) and version >= FIRST_LEADER_AND_ISR_BY_TOPIC_ID:
            failed |= _errors_by_id(request, each)
        elif not isinstance(request, UpdateMetadata):
            failed |= {
                TopicPartition(one.topic_name, one.partition_index): ErrorCode.of(one.error_code)
                for one in each.partition_errors
                if one.error_code
            }
    return BrokerResponse(error, failed)


# --- LeaderAndIsr -----------------------------------------------------------------------------------------------------


async def _leader_and_isr(request: LeaderAndIsr, version: int, listener: str) -> LeaderAndIsrRequest:
    by_topic: dict[str, list[LeaderAndIsrPartitionState]] = {}
    async for (topic, number), each in in_slices(request.partitions.items()):
        state = each.state
        by_topic.setdefault(topic, []).append(
            LeaderAndIsrPartitionState(
                topic_name=topic,
                partition_index=number,
                controller_epoch=state.controller_epoch,
                leader=state.leader,
                leader_epoch=state.leader_epoch,
                isr=list(state.isr),
                partition_epoch=state.version,
                replicas=list(each.replicas),
                adding_replicas=list(each.adding),
                removing_replicas=list(each.removing),
                is_new=each.is_new,
                leader_recovery_state=int(state.recovering) if version >= 6 else 0,
            )
        )
    result = LeaderAndIsrRequest(
        controller_id=request.controller_id,
        controller_epoch=request.controller_epoch,
        broker_epoch=request.broker_epoch,
        live_leaders=[
            LeaderAndIsrRequest.LiveLeader(broker_id=broker.id, host_name=endpoint.host, port=endpoint.port)
            for broker in request.live_leaders.values()
            if (endpoint := broker.endpoint(listener)) is not None
        ],
    )
    _put_states(result, by_topic, request.topic_ids, version >= FIRST_LEADER_AND_ISR_BY_TOPIC)
    return result


def _put_states(
    result: LeaderAndIsrRequest | UpdateMetadataRequest,
    by_topic: Mapping[str, list[Any]],
    topic_ids: Mapping[str, UUID],
    grouped: bool,
) -> None:
    """Put the states of partitions into a request, below their topics or, in its older versions, without."""
    if not grouped:
        result.ungrouped_partition_states = [state for states in by_topic.values() for state in states]
        return
    topics: list[Any] = [
        result.TopicState(topic_name=topic, topic_id=topic_ids.get(topic, ZERO_UUID), partition_states=states)
        for topic, states in by_topic.items()
    ]
    result.topic_states = topics


def _errors_by_id(request: LeaderAndIsr, response: Any) -> dict[TopicPartition, ErrorCode]:
    names: Mapping[UUID, str] = {topic_id: topic for topic, topic_id in request.topic_ids.items()}
    return {
        TopicPartition(names[topic.topic_id], one.partition_index): ErrorCode.of(one.error_code)
        for topic in response.topics
        if topic.topic_id in names
        for one in topic.partition_errors
        if one.error_code
    }


# --- UpdateMetadata ---------------------------------------------------------------------------------------------------


async def _update_metadata(request: UpdateMetadata, version: int, listener: str) -> UpdateMetadataRequest:
    by_topic: dict[str, list[UpdateMetadataPartitionState]] = {}
    async for (topic, number), each in in_slices(request.partitions.items()):
        by_topic.setdefault(topic, []).append(_metadata_of(topic, number, each))
    result = UpdateMetadataRequest(
        controller_id=request.controller_id,
        controller_epoch=request.controller_epoch,
        broker_epoch=request.broker_epoch,
        live_brokers=[
            _live_broker(broker, version, listener) async for broker in in_slices(request.live_brokers.values())
        ],
    )
    _put_states(result, by_topic, request.topic_ids, version >= FIRST_METADATA_BY_TOPIC)
    return result


def _metadata_of(topic: str, number: int, each: UpdateMetadataPartition) -> UpdateMetadataPartitionState:
    state = each.state
    return UpdateMetadataPartitionState(
        topic_name=topic,
        partition_index=number,
        controller_epoch=state.controller_epoch,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        zk_version=state.version,
        replicas=list(each.replicas),
        offline_replicas=list(each.offline_replicas),
    )


def _live_broker(broker: BrokerRegistration, version: int, listener: str) -> UpdateMetadataRequest.LiveBroker:
    result = UpdateMetadataRequest.LiveBroker(id=broker.id, rack=broker.rack)
    if version < FIRST_METADATA_WITH_ENDPOINTS:
        endpoint = broker.endpoint(listener)
        if endpoint is not None:
            result.v0_host, result.v0_port = endpoint.host, endpoint.port
        return result
    named = version >= 3
    seen: set[SecurityProtocol] = set()
    for endpoint in broker.endpoints:
        # Versions 1 and 2 name an endpoint by its protocol, so each protocol stands there once.
        if named or endpoint.security_protocol not in seen:
            seen.add(endpoint.security_protocol)
            result.endpoints.append(
                UpdateMetadataRequest.LiveBroker.Endpoint(
                    port=endpoint.port,
                    host=endpoint.host,
                    listener=endpoint.listener_name,
                    security_protocol=endpoint.security_protocol.value,
                )
            )
    return result


# --- StopReplica ------------------------------------------------------------------------------------------------------


async def _stop_replica(request: StopReplica, version: int) -> list[Request]:
    if version >= FIRST_STOP_WITH_STATES:
        result = _stop_header(request)
        states: dict[str, list[StopReplicaRequest.TopicState.PartitionState]] = {}
        async for (topic, number), each in in_slices(request.partitions.items()):
            states.setdefault(topic, []).append(
                StopReplicaRequest.TopicState.PartitionState(
                    partition_index=number, leader_epoch=each.leader_epoch, delete_partition=each.delete
                )
            )
        result.topic_states = [
            StopReplicaRequest.TopicState(topic_name=topic, partition_states=partitions)
            for topic, partitions in states.items()
        ]
        return [result]
    results: list[Request] = []
    for delete in (False, True):
        partitions = [partition for partition, each in request.partitions.items() if each.delete is delete]
        if not partitions:
            continue
        result = _stop_header(request)
        result.delete_partitions = delete
        if version < FIRST_STOP_BY_TOPIC:
            result.ungrouped_partitions = [
                StopReplicaRequest.UngroupedPartition(topic_name=topic, partition_index=number)
                for topic, number in partitions
            ]
        else:
            numbers: dict[str, list[int]] = {}
            for topic, number in partitions:
                numbers.setdefault(topic, []).append(number)
            result.topics = [
                StopReplicaRequest.Topic(name=topic, partition_indexes=indexes) for topic, indexes in numbers.items()
            ]
        results.append(result)
    return results


def _stop_header(request: StopReplica) -> StopReplicaRequest:
    return StopReplicaRequest(
        controller_id=request.controller_id,
        controller_epoch=request.controller_epoch,
        broker_epoch=request.broker_epoch,
    )
