"""The controller's channel to a broker in another process.

A request is sent again until the broker answers it, or until the broker's registration is gone and its queue closes
the channel. So each broker gets every request, in order. The brokers that get the same UpdateMetadata share its wire
form: only the broker epoch differs. Source: kafka.controller.RequestSendThread.
"""

from __future__ import annotations

import asyncio
import logging
from functools import cache
from typing import Any, Final

from kafkapy._speedups.protocol.encoder import encode_message
from kafkapy.clients.connections import EncodedRequest
from kafkapy.controller.broker_channel import BrokerChannel
from kafkapy.controller.control_requests import request_of, response_of, version_of
from kafkapy.errors import KafkaError
from kafkapy.metadata.broker_requests import BrokerRequest, BrokerResponse, MetadataPartitions, UpdateMetadata
from kafkapy.metadata.inter_broker_sender import InterBrokerSender
from kafkapy.metadata.metadata_version import MetadataVersion
from kafkapy.protocol.messages.update_metadata import UpdateMetadataRequest
from kafkapy.protocol.schema import Request
from kafkapy.slices import turn

__all__ = ["RemoteBrokerChannel"]

logger = logging.getLogger("kafka.controller.RequestSendThread")

RETRY_S: Final = 0.1
"""Pause in seconds before a request is sent again."""
FIRST_WITH_BROKER_EPOCH: Final = 5
EPOCH_SIZE: Final = 8


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
        await turn()  # a thousand brokers get theirs at the same time
        version = version_of(request, self._version)
        requests: list[Request | EncodedRequest]
        if isinstance(request, UpdateMetadata):
            body = await _shared_body(request, version, self._listener)
            requests = [EncodedRequest(UpdateMetadataRequest, _addressed(body, version, request.broker_epoch))]
        else:
            requests = [*await request_of(request, version, self._listener)]
        responses = [await self._answer(each, version) for each in requests]
        return response_of(request, version, responses)

    async def close(self) -> None:
        """Close the connection: the next one may lead to another process."""
        self._sender.disconnect(self._broker_id)

    async def _answer(self, request: Request | EncodedRequest, version: int) -> Any:
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
                        request.NAME,
                        self._broker_id,
                        error,
                    )
                await asyncio.sleep(RETRY_S)


async def _shared_body(request: UpdateMetadata, version: int, listener: str) -> bytes:
    """The encoded request, with the epoch of whichever broker came first."""
    partitions = request.partitions
    if not isinstance(partitions, MetadataPartitions):
        return await _body(request, version, listener)
    if partitions.encoded is None:
        # A task of its own: the broker that came first may go while it is made.
        partitions.encoded = asyncio.ensure_future(_body(request, version, listener))
    body: bytes = await asyncio.shield(partitions.encoded)
    await turn()  # all brokers have waited for it
    return body


async def _body(request: UpdateMetadata, version: int, listener: str) -> bytes:
    (made,) = await request_of(request, version, listener)
    return encode_message(made, version)


def _addressed(body: bytes, version: int, broker_epoch: int) -> bytes:
    """The body with the epoch of its broker."""
    if version < FIRST_WITH_BROKER_EPOCH:
        return body
    at = _place_of_epoch(version)
    return body[:at] + broker_epoch.to_bytes(EPOCH_SIZE, "big", signed=True) + body[at + EPOCH_SIZE :]


@cache
def _place_of_epoch(version: int) -> int:
    """Where the broker epoch stands, behind fields of fixed size."""
    one, other = (
        encode_message(
            UpdateMetadataRequest(controller_id=0, controller_epoch=0, broker_epoch=epoch, live_brokers=[]), version
        )
        for epoch in (0, -1)
    )
    return next(at for at, (mine, its) in enumerate(zip(one, other, strict=True)) if mine != its)
