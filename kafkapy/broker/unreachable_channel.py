"""The way to a broker that this one cannot talk to."""

from __future__ import annotations

from kafkapy.controller.broker_channel import BrokerChannel
from kafkapy.errors import ErrorCode
from kafkapy.metadata.broker_requests import BrokerRequest, BrokerResponse


class UnreachableBrokerChannel(BrokerChannel):
    """Answers for a broker of the cluster that no request can be carried to.

    Used by the controller on the control loop.
    """

    async def send(self, request: BrokerRequest) -> BrokerResponse:
        """BROKER_NOT_AVAILABLE for the whole request."""
        return BrokerResponse(
            ErrorCode.BROKER_NOT_AVAILABLE, dict.fromkeys(request.partitions, ErrorCode.BROKER_NOT_AVAILABLE)
        )
