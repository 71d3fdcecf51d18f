"""The controller's channel to a broker in another process.

A request is sent again until the broker answers it, or until the broker's registration is gone and its queue closes
the channel. So each broker gets every request, in order. Source: kafka.controller.RequestSendThread.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from kafkapy.controller.broker_channel import BrokerChannel
from kafkapy.controller.control_requests import request_of, response_of, version_of
from kafkapy.errors import KafkaError
from kafkapy.metadata.broker_requests import BrokerRequest, BrokerResponse
from kafkapy.metadata.inter_broker_sender import InterBrokerSender
from kafkapy.metadata.metadata_version import MetadataVersion
from kafkapy.protocol.schema import Request

__all__ = ["RemoteBrokerChannel"]

logger = logging.getLogger("kafka.controller.RequestSendThread")

RETRY_S: Final = 0.1
"""Pause in seconds before a request is sent again."""


class RemoteBrokerChannel(BrokerChannel):
    """Carries the controller's requests to one broker over its inter-broker listener.

    Used by that broker's queue on the control loop. `listener` is the inter-broker listener, whose addresses of leaders
    stand in LeaderAndIsr.
    """

    def __init__(self, broker_id: int, sender: InterBrokerSender, version: MetadataVersion, listener: str) -> None:
        self._broker_id = broker_id
        self._sender = sender
        self._version = version
        self._listener = listener

    async def send(self, request: BrokerRequest) -> BrokerResponse:
        """Send the request until the broker answers it."""
        version = version_of(request, self._version)
        responses = [await self._answer(each, version) for each in request_of(request, version, self._listener)]
        return response_of(request, version, responses)

    async def close(self) -> None:
        """Close the connection: the next one may lead to another process."""
        self._sender.disconnect(self._broker_id)

    async def _answer(self, request: Request, version: int) -> Any:
        told = False
        while True:
            try:
                return await self._sender.send(self._broker_id, request, version=version)
            except KafkaError as error:
                if not told:
                    told = True
                    logger.warning(
                        "Controller request %s to broker %d failed (%s); the controller sends it again until the "
                        "broker answers or is gone",
                        type(request).__name__,
                        self._broker_id,
                        error,
                    )
                await asyncio.sleep(RETRY_S)
