"""AlterPartition, API key 56: versions 0 to 3.

The leader of partitions asks the controller for other in-sync replicas. Each partition has the state after the change,
or an error: FENCED_LEADER_EPOCH and INVALID_UPDATE_VERSION for a leader that knows too little, NOT_CONTROLLER for one
that knows more than this broker, INELIGIBLE_REPLICA for replicas that are not alive (OPERATION_NOT_ATTEMPTED in
version 1). Version 0 takes replicas that are not alive.

Versions:
0: the API, named AlterIsr (KIP-497).
1: leader recovery state (KIP-704).
2: topics by id, INELIGIBLE_REPLICA (KIP-841).
3: the broker epochs of the in-sync replicas (KIP-903).

Known gaps: the broker epochs of version 3 are not compared, as in Apache Kafka with ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from kafkapy.broker.context import RequestContext
from kafkapy.controller.events.alter_partition import IsrChange
from kafkapy.errors import ErrorCode
from kafkapy.metadata.znodes import PartitionState
from kafkapy.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from kafkapy.slices import in_slices
from kafkapy.types import AclOperation

REQUEST = AlterPartitionRequest
RESPONSE = AlterPartitionResponse

FIRST_BY_ID = 2
FIRST_WITH_EPOCHS = 3

Topic = AlterPartitionResponse.Topic


async def handle(context: RequestContext, request: AlterPartitionRequest) -> AlterPartitionResponse:
    """One result for each partition, in the order asked.

    CLUSTER_AUTHORIZATION_FAILED, STALE_BROKER_EPOCH and NOT_CONTROLLER for the whole.
    """
    context.authorize_cluster(AclOperation.CLUSTER_ACTION)
    version = context.api_version
    changes = [change async for change in in_slices(_changes(request, version))]
    altered = await context.broker.controller.alter_partitions(
        request.broker_id, request.broker_epoch, changes, version
    )
    return AlterPartitionResponse(
        topics=[
            Topic(
                topic_name=topic.topic_name,
                topic_id=topic.topic_id,
                partitions=[
                    _result(each.partition_index, altered[_name(topic, version), each.partition_index])
                    async for each in in_slices(topic.partitions)
                ],
            )
            async for topic in in_slices(request.topics)
        ]
    )


def _name(topic: AlterPartitionRequest.Topic, version: int) -> str | UUID:
    return topic.topic_id if version >= FIRST_BY_ID else topic.topic_name


def _changes(request: AlterPartitionRequest, version: int) -> Iterator[IsrChange]:
    for topic in request.topics:
        for each in topic.partitions:
            with_epochs = version >= FIRST_WITH_EPOCHS
            isr = [state.broker_id for state in each.new_isr_with_epochs] if with_epochs else each.new_isr
            yield IsrChange(
                _name(topic, version),
                each.partition_index,
                each.leader_epoch,
                tuple(isr),
                each.partition_epoch,
                each.leader_recovery_state == 1,
            )


def _result(index: int, outcome: PartitionState | ErrorCode) -> Topic.Partition:
    if isinstance(outcome, ErrorCode):
        return Topic.Partition(
            partition_index=index, error_code=outcome, leader_id=0, leader_epoch=0, isr=[], partition_epoch=0
        )
    return Topic.Partition(
        partition_index=index,
        leader_id=outcome.leader,
        leader_epoch=outcome.leader_epoch,
        isr=list(outcome.isr),
        leader_recovery_state=int(outcome.recovering),
        partition_epoch=outcome.version,
    )
