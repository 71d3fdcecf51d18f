"""The checks that LeaderAndIsr, UpdateMetadata and StopReplica have in common.

Source: kafka.server.KafkaApis.isBrokerEpochStale (KIP-380).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kafkapy.broker.controller_order import NO_EPOCH
from kafkapy.errors import ErrorCode
from kafkapy.types import AclOperation, ResourceType

if TYPE_CHECKING:
    from kafkapy.broker.context import RequestContext
    from kafkapy.protocol.messages.leader_and_isr import LeaderAndIsrRequest
    from kafkapy.protocol.messages.stop_replica import StopReplicaRequest
    from kafkapy.protocol.messages.update_metadata import UpdateMetadataRequest

    ControllerRequest = LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest

logger = logging.getLogger("state.change.logger")


class BrokerTuples:
    """Lists of brokers as tuples; equal ones are one object.

    Partitions of a cluster have few different ones.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], tuple[int, ...]] = {}

    def __call__(self, brokers: Iterable[int]) -> tuple[int, ...]:
        """The tuple of these brokers."""
        made = tuple(brokers)
        return self._known.setdefault(made, made)


def refusal(context: RequestContext, broker_epoch: int) -> ErrorCode:
    """The error of a whole request of a controller, NONE to serve it.

    CLUSTER_AUTHORIZATION_FAILED; STALE_BROKER_EPOCH for a request to an earlier registration of this broker. A larger
    epoch passes: the controller may see a new registration before this broker has its answer.
    """
    if not context.authorize(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    current = context.broker.controller.broker_epoch
    if broker_epoch != NO_EPOCH and broker_epoch < current:
        logger.warning(
            "The broker refused request %d of a controller for broker epoch %d: its epoch is %d",
            context.api_key,
            broker_epoch,
            current,
        )
        return ErrorCode.STALE_BROKER_EPOCH
    return ErrorCode.NONE


def late(context: RequestContext, request: ControllerRequest) -> ErrorCode:
    """STALE_CONTROLLER_EPOCH for a request that comes after a later one, else NONE.

    The caller serves the request at once: with a slice of other work between, a later request could overtake it here.
    """
    sender = (request.controller_id, request.controller_epoch, request.broker_epoch)
    if context.broker.controller_order.is_late(*sender, context.correlation_id):
        logger.info(
            "The broker ignores request %d of controller %d: a later one was served before",
            context.api_key,
            request.controller_id,
        )
        return ErrorCode.STALE_CONTROLLER_EPOCH
    return ErrorCode.NONE
