"""UpdateMetadata, API key 6: versions 0 to 8.

The controller tells this broker which brokers are alive, and the leaders of some partitions; the metadata cache takes
them over for clients. A request for an earlier registration of this broker, or from a controller that was replaced, is
refused: STALE_BROKER_EPOCH, STALE_CONTROLLER_EPOCH.

Versions:
0: the API.
1: addresses of several security protocols (KIP-12).
2: rack of brokers (KIP-36).
3: names of listeners (KIP-103).
4: offline replicas (KIP-112).
5: broker epoch (KIP-380), partitions grouped by topic.
6: flexible encoding with tagged fields (KIP-482).
7: topic ids (KIP-516).
8: whether the controller is one of KRaft, and the type of the request (KIP-866).

Known gaps: the type of the request is used in a migration to KRaft only, which is not supported; it changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from kafkapy.broker.context import RequestContext
from kafkapy.broker.controller_requests import BrokerTuples, late, refusal
from kafkapy.errors import ErrorCode, error_for
from kafkapy.metadata.broker_requests import UpdateMetadata, UpdateMetadataPartition
from kafkapy.metadata.znodes import BrokerRegistration, PartitionState
from kafkapy.protocol.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from kafkapy.slices import emptied, in_slices
from kafkapy.types import ZERO_UUID, Endpoint, SecurityProtocol, TopicPartition

REQUEST = UpdateMetadataRequest
RESPONSE = UpdateMetadataResponse

LiveBroker = UpdateMetadataRequest.LiveBroker


async def handle(context: RequestContext, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
    """Nothing but the error of the whole.

    CLUSTER_AUTHORIZATION_FAILED, STALE_BROKER_EPOCH, STALE_CONTROLLER_EPOCH; INVALID_REQUEST for an unknown security
    protocol.
    """
    refused = refusal(context, request.broker_epoch)
    if refused is not ErrorCode.NONE:
        return UpdateMetadataResponse(error_code=refused)
    brokers = BrokerTuples()
    partitions = {partition: _known(each, brokers) async for partition, each in in_slices(_states(request))}
    topic_ids = {topic.topic_name: topic.topic_id async for topic in in_slices(request.topic_states)}
    update = UpdateMetadata(
        request.controller_id,
        request.controller_epoch,
        request.broker_epoch,
        {name: topic_id async for name, topic_id in in_slices(topic_ids.items()) if topic_id != ZERO_UUID},
        partitions,
        {
            each.id: BrokerRegistration(each.id, _endpoints(each), each.rack or None)
            async for each in in_slices(request.live_brokers)
        },
    )
    refused = late(context, request)
    if refused is not ErrorCode.NONE:
        return UpdateMetadataResponse(error_code=refused)
    response = await context.broker.replica_manager.update_metadata(update)
    await emptied(partitions)
    return UpdateMetadataResponse(error_code=response.error)


def _states(request: UpdateMetadataRequest) -> Iterable[tuple[TopicPartition, UpdateMetadataPartitionState]]:
    return chain(
        (
            (TopicPartition(topic.topic_name, each.partition_index), each)
            for topic in request.topic_states
            for each in topic.partition_states
        ),
        ((TopicPartition(each.topic_name, each.partition_index), each) for each in request.ungrouped_partition_states),
    )


def _known(each: UpdateMetadataPartitionState, brokers: BrokerTuples) -> UpdateMetadataPartition:
    state = PartitionState(
        each.leader, each.leader_epoch, brokers(each.isr), each.controller_epoch, version=each.zk_version
    )
    return UpdateMetadataPartition(state, brokers(each.replicas), brokers(each.offline_replicas))


def _endpoints(broker: LiveBroker) -> tuple[Endpoint, ...]:
    """A broker's addresses; up to version 2, a listener has the name of its security protocol."""
    if not broker.endpoints:
        return (Endpoint("PLAINTEXT", broker.v0_host, broker.v0_port),)
    found = []
    for each in broker.endpoints:
        try:
            protocol = SecurityProtocol(each.security_protocol)
        except ValueError:
            raise error_for(
                ErrorCode.INVALID_REQUEST, f"broker {broker.id} has unknown security protocol {each.security_protocol}"
            ) from None
        found.append(Endpoint(each.listener or protocol.name, each.host, each.port, protocol))
    return tuple(found)
