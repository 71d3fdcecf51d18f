"""ListPartitionReassignments, API key 46: version 0 (KIP-455).

No partition is ever being moved in a cluster of one broker, so the list is empty, whatever partitions are asked for.

Known gaps: none for a cluster of one broker.
"""

from __future__ import annotations

from kafkapy.broker.context import RequestContext
from kafkapy.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from kafkapy.types import AclOperation

REQUEST = ListPartitionReassignmentsRequest
RESPONSE = ListPartitionReassignmentsResponse


async def handle(
    context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """No moves. CLUSTER_AUTHORIZATION_FAILED without DESCRIBE on the cluster."""
    del request
    context.authorize_cluster(AclOperation.DESCRIBE)
    return ListPartitionReassignmentsResponse(topics=[])
