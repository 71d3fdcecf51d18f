"""ListPartitionReassignments, API key 46: version 0.

The response has the partitions that move to other replicas, among the partitions asked for or among all. Only the
controller serves it.

Versions:
0: the API (KIP-455).

Known gaps: none.
"""

from __future__ import annotations

from kafkapy.broker.context import RequestContext
from kafkapy.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from kafkapy.slices import in_slices
from kafkapy.types import AclOperation, TopicPartition

REQUEST = ListPartitionReassignmentsRequest
RESPONSE = ListPartitionReassignmentsResponse

Moved = ListPartitionReassignmentsResponse.Topic


async def handle(
    context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """The running moves.

    CLUSTER_AUTHORIZATION_FAILED without DESCRIBE on the cluster; NOT_CONTROLLER.
    """
    context.authorize_cluster(AclOperation.DESCRIBE)
    wanted = None
    if request.topics is not None:
        asked = (TopicPartition(topic.name, index) for topic in request.topics for index in topic.partition_indexes)
        wanted = {partition: None async for partition in in_slices(asked)}
        context.leave(wanted)
    moves = await context.broker.controller.list_reassignments(wanted)
    topics: dict[str, Moved] = {}
    async for (topic, index), assignment in in_slices(moves.items()):
        moved = topics.get(topic)
        if moved is None:
            moved = topics[topic] = Moved(name=topic, partitions=[])
        moved.partitions.append(
            Moved.Partition(
                partition_index=index,
                replicas=list(assignment.replicas),
                adding_replicas=list(assignment.adding),
                removing_replicas=list(assignment.removing),
            )
        )
    return ListPartitionReassignmentsResponse(topics=list(topics.values()))
