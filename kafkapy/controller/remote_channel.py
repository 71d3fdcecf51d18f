"""The controller's channel to a broker in another process.

A request is sent again until the broker answers it, or until the broker's registration is gone and its queue closes
the channel. So each broker gets every request, in order. Source: kafka.controller.RequestSendThread.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, Protocol

from kafkapy.controller.broker_channel import BrokerChannel
from kafkapy.controller.control_requests import ControlVersions, request_of, response_of
from kafkapy.errors import KafkaError
from kafkapy.metadata.broker_requests import BrokerRequest, BrokerResponse
from kafkapy.protocol.schema import Request, Response

__all__ = ["InterBroker", "RemoteBrokerChannel"]

logger = logging.getLogger("kafka.controller.RequestSendThread")

RETRY_S: Final = 0.1
"""Pause in seconds before a request is sent again."""


class InterBroker(Protocol):
    """The connections of this broker to others, as the controller uses them."""

    async def send(
        self, broker_id: int, request: Request, *, timeout_ms: int, version: int | None = None
    ) -> Response:
        """Send a request and return the response.

        KafkaError when the broker cannot be reached, or does not answer in time.
        """


class RemoteBrokerChannel(BrokerChannel):
    """Carries the controller's requests to one broker over its inter-broker listener.

    Used by that broker's queue on the control loop. `listener` is the inter-broker listener's name, `timeout_ms` the
    time for one answer (`controller.socket.timeout.ms`).
    """

    def __init__(
        self, broker_id: int, connections: InterBroker, versions: ControlVersions, listener: str, timeout_ms: int
    ) -> None:
        self._broker_id = broker_id
        self._connections = connections
        self._versions = versions
        self._listener = listener
        self._timeout_ms = timeout_ms

    async def send(self, request: BrokerRequest) -> BrokerResponse:
        """Send the request until the broker answers it."""
        version = self._versions.of(request)
        responses = [await self._answer(each, version) for each in request_of(request, version, self._listener)]
        return response_of(request, version, responses)

    async def _answer(self, request: Request, version: int) -> Response:
        told = False
        while True:
            try:
                return await self._connections.send(
                    self._broker_id, request, timeout_ms=self._timeout_ms, version=version
                )
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
