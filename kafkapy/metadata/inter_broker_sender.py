"""The contract of a client for requests to other brokers.

`kafkapy.broker.inter_broker.InterBrokerClient` implements it; the controller, the ISR manager and the coordinators,
which lie below the broker, use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from kafkapy.clients.connections import EncodedRequest
    from kafkapy.clients.network_client import RequestOf
    from kafkapy.protocol.schema import Request


class InterBrokerSender(Protocol):
    """Sends requests to other brokers as this broker. Used on the control loop."""

    async def send(
        self,
        broker_id: int,
        request: Request | RequestOf | EncodedRequest,
        *,
        timeout_ms: int | None = None,
        version: int | None = None,
    ) -> Any:
        """The decoded response; an encoded request needs its version. See InterBrokerClient.send for the errors."""

    def disconnect(self, broker_id: int) -> None:
        """Close the connection to a broker, which has gone or has started again."""

    async def close(self) -> None:
        """Close all connections. Requests in flight fail with KafkaConnectionError."""
