"""TopicDeletionStopReplicaResponseReceived: a broker has deleted replicas.

Source: processTopicDeletionStopReplicaResponseReceived.
"""

from __future__ import annotations

from typing import Final

from kafkapy.controller.context import Replica
from kafkapy.controller.controllership import Controllership
from kafkapy.errors import ErrorCode
from kafkapy.metadata.broker_requests import BrokerResponse, StopReplica

NAME: Final = "StopReplicaResponseReceived"


async def run(controllership: Controllership, broker_id: int, request: StopReplica, response: BrokerResponse) -> None:
    """Tell the deletion of topics which replicas were deleted and which failed."""
    asked = {p for p, each in request.partitions.items() if each.delete}
    failed = asked if response.error is not ErrorCode.NONE else asked & response.partition_errors.keys()
    if failed:
        await controllership.deletion.replicas_failed([Replica(partition, broker_id) for partition in failed])
    await controllership.deletion.replicas_deleted([Replica(partition, broker_id) for partition in asked - failed])
