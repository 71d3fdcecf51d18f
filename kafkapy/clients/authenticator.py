"""What a client does on a new connection before its first request: the place of SASL.

The bytes below (plaintext, TLS) are the TransportLayer's business (`_speedups/base/transport.pxd`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kafkapy.config.clients import ClientConfig

if TYPE_CHECKING:
    from kafkapy.clients.connection import NodeConnection

__all__ = ["Authenticator", "PlaintextAuthenticator", "authenticator_for"]


class Authenticator(Protocol):
    """Proves on a connection who the client is. One for a client; called for each of its connections, on the loop."""

    async def authenticate(self, connection: NodeConnection) -> None:
        """Returns when the broker is satisfied. AuthenticationError, which no retry will mend."""


class PlaintextAuthenticator:
    """PLAINTEXT: there is nothing to prove."""

    async def authenticate(self, connection: NodeConnection) -> None:
        """Returns at once."""


def authenticator_for(config: ClientConfig) -> Authenticator:
    """The authenticator of security.protocol; `ClientConfig` has refused those that are not there yet."""
    assert config["security.protocol"].upper() == "PLAINTEXT"
    return PlaintextAuthenticator()
