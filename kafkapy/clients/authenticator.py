"""Authentication of a new connection before its first request, for SASL.

The bytes below (plaintext, TLS) belong to the TransportLayer (`_speedups/base/transport.pxd`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kafkapy.config.clients import ClientConfig
from kafkapy.errors import ConfigError

if TYPE_CHECKING:
    from kafkapy.clients.connection import NodeConnection

__all__ = ["Authenticator", "PlaintextAuthenticator", "authenticator_for"]


class Authenticator(Protocol):
    """Authenticates a client to the broker of a connection.

    Each client has one; the loop calls it for each connection.
    """

    async def authenticate(self, connection: NodeConnection) -> None:
        """Returns when the broker accepts the client. AuthenticationError, which is not retriable."""


class PlaintextAuthenticator:
    """PLAINTEXT: no authentication."""

    async def authenticate(self, connection: NodeConnection) -> None:
        """Returns at once."""


def authenticator_for(config: ClientConfig) -> Authenticator:
    """The authenticator of security.protocol. ConfigError for an unsupported one."""
    protocol = config["security.protocol"]
    if protocol != "PLAINTEXT":
        raise ConfigError("security.protocol", protocol, "TLS and SASL are not supported yet")
    return PlaintextAuthenticator()
