"""ListPartitionReassignments, API key 46: version 0.

No partition moves in a cluster of one broker, so the list is empty for any partitions.

Versions:
0: the API (KIP-455).

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
