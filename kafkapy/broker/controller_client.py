"""Requests of this broker to the controller of the cluster.

Source: kafka.server.NodeToControllerChannelManager.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkapy.errors import ErrorCode, error_for
from kafkapy.metadata.cache import NO_CONTROLLER, MetadataCache

if TYPE_CHECKING:
    from kafkapy.clients.network_client import RequestOf
    from kafkapy.metadata.inter_broker_sender import InterBrokerSender
    from kafkapy.protocol.schema import Request


class ControllerClient:
    """Finds the controller in the metadata cache, and sends it requests.

    Owned by KafkaServer; used on the control loop. `is_active` returns whether this broker is the controller. `connect`
    makes the client for the first request.
    """

    def __init__(
        self,
        broker_id: int,
        cache: MetadataCache,
        is_active: Callable[[], bool],
        connect: Callable[[], InterBrokerSender],
    ) -> None:
        self._broker_id = broker_id
        self._cache = cache
        self._is_active = is_active
        self._connect = connect
        self._sender: InterBrokerSender | None = None

    @property
    def is_here(self) -> bool:
        """Whether this broker is the controller."""
        return self._is_active()

    async def send(self, request: Request | RequestOf, *, timeout_ms: int | None = None) -> Any:
        """The controller's response; see InterBrokerClient.send.

        NOT_CONTROLLER while this broker knows no other controller.
        """
        controller = self._cache.controller_id
        if controller in (NO_CONTROLLER, self._broker_id):
            raise error_for(ErrorCode.NOT_CONTROLLER, "The broker does not know the controller of the cluster yet")
        if self._sender is None:
            self._sender = self._connect()
        return await self._sender.send(controller, request, timeout_ms=timeout_ms)

    async def close(self) -> None:
        """Close the connection."""
        if self._sender is not None:
            await self._sender.close()
