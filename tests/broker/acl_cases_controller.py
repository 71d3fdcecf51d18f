"""The ACL matrix: requests of brokers to the controller (see acl_matrix.py)."""

from __future__ import annotations

from typing import Any

from broker.acl_case import CLUSTER_ACTION, CLUSTER_DENIED, World, case, on_cluster
from broker.acting import ActingClient

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from kafkapy.protocol.messages.alter_partition import AlterPartitionRequest
from kafkapy.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from kafkapy.protocol.registry import ApiKeys

NOBODY = 99
"""No broker has that id, so the requests change nothing."""


@case(
    ApiKeys.ALTER_PARTITION,
    "of an unknown broker",
    on_cluster(CLUSTER_ACTION),
    denied=[CLUSTER_DENIED],
    allowed=ErrorCode.STALE_BROKER_EPOCH,
)
def alter_partition(client: ActingClient, world: World, version: int) -> Any:
    return client(AlterPartitionRequest(broker_id=NOBODY, topics=[]), version).error_code


@case(
    ApiKeys.ALLOCATE_PRODUCER_IDS,
    "of an unknown broker",
    on_cluster(CLUSTER_ACTION),
    denied=[CLUSTER_DENIED],
    allowed=ErrorCode.BROKER_ID_NOT_REGISTERED,
)
def allocate_producer_ids(client: ActingClient, world: World, version: int) -> Any:
    return client(AllocateProducerIdsRequest(broker_id=NOBODY), version).error_code


@case(
    ApiKeys.CONTROLLED_SHUTDOWN,
    "of an unknown broker",
    on_cluster(CLUSTER_ACTION),
    denied=[CLUSTER_DENIED],
    allowed=ErrorCode.BROKER_NOT_AVAILABLE,
)
def controlled_shutdown(client: ActingClient, world: World, version: int) -> Any:
    return client(ControlledShutdownRequest(broker_id=NOBODY), version).error_code
