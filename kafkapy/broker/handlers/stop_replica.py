"""StopReplica, API key 5: versions 0 to 4.

The controller tells this broker to stop hosting partitions, and to delete the logs of some. A request for an earlier
registration of this broker, or from a controller that was replaced, is refused whole: STALE_BROKER_EPOCH,
STALE_CONTROLLER_EPOCH. The ReplicaManager decides about each partition.

Versions:
0: the API.
1: broker epoch (KIP-380), partitions grouped by topic.
2: flexible encoding with tagged fields (KIP-482).
3: leader epoch and deletion for each partition (KIP-570).
4: whether the controller is one of KRaft (KIP-866).

Known gaps: none.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from kafkapy.broker.context import RequestContext
from kafkapy.broker.controller_requests import refusal
from kafkapy.errors import ErrorCode, error_for
from kafkapy.metadata.broker_requests import StopReplica, StopReplicaPartition
from kafkapy.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from kafkapy.slices import emptied, in_slices
from kafkapy.types import TopicPartition

REQUEST = StopReplicaRequest
RESPONSE = StopReplicaResponse

NO_EPOCH = -1
"""The leader epoch of a request that has none: nothing is compared."""


async def handle(context: RequestContext, request: StopReplicaRequest) -> StopReplicaResponse:
    """The outcome for every partition.

    CLUSTER_AUTHORIZATION_FAILED, STALE_BROKER_EPOCH and STALE_CONTROLLER_EPOCH for the whole.
    """
    refused = refusal(context, request.broker_epoch)
    if refused is not ErrorCode.NONE:
        raise error_for(refused)  # the answer names all partitions: it is made on the other thread if they are many
    partitions = {partition: each async for partition, each in in_slices(_stopped(request))}
    response = await context.broker.replica_manager.stop_replicas(
        StopReplica(request.controller_id, request.controller_epoch, request.broker_epoch, partitions)
    )
    outcomes = [
        _error(partition, response.error or response.partition_errors.get(partition, ErrorCode.NONE))
        async for partition in in_slices(partitions)
    ]
    await emptied(partitions)
    return StopReplicaResponse(error_code=response.error, partition_errors=outcomes)


def error_response(request: StopReplicaRequest, error: ErrorCode, message: str) -> StopReplicaResponse:
    """The error for the whole and for every partition."""
    del message
    return StopReplicaResponse(
        error_code=error, partition_errors=[_error(partition, error) for partition, _ in _stopped(request)]
    )


def _stopped(request: StopReplicaRequest) -> Iterable[tuple[TopicPartition, StopReplicaPartition]]:
    plain = StopReplicaPartition(NO_EPOCH, request.delete_partitions)
    return chain(
        (
            (
                TopicPartition(topic.topic_name, each.partition_index),
                StopReplicaPartition(each.leader_epoch, each.delete_partition),
            )
            for topic in request.topic_states
            for each in topic.partition_states
        ),
        ((TopicPartition(topic.name, number), plain) for topic in request.topics for number in topic.partition_indexes),
        ((TopicPartition(each.topic_name, each.partition_index), plain) for each in request.ungrouped_partitions),
    )


def _error(partition: TopicPartition, error: ErrorCode) -> StopReplicaResponse.PartitionError:
    return StopReplicaResponse.PartitionError(
        topic_name=partition.topic, partition_index=partition.partition, error_code=error
    )
