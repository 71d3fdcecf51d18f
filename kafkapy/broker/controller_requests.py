"""The checks that LeaderAndIsr, UpdateMetadata and StopReplica have in common.

Source: kafka.server.KafkaApis.isBrokerEpochStale (KIP-380).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkapy.errors import ErrorCode, error_for

if TYPE_CHECKING:
    from kafkapy.broker.context import RequestContext

NO_EPOCH: Final = -1
"""The broker epoch of a request version without one."""


def refuse_former_registration(context: RequestContext, broker_epoch: int) -> None:
    """STALE_BROKER_EPOCH for a request to an earlier registration of this broker.

    A larger epoch passes: the controller may see a new registration before this broker has its answer.
    """
    current = context.broker.controller.broker_epoch
    if broker_epoch != NO_EPOCH and broker_epoch < current:
        raise error_for(
            ErrorCode.STALE_BROKER_EPOCH, f"the request is for broker epoch {broker_epoch}, this is epoch {current}"
        )
