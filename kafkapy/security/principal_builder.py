"""The contract of a principal builder: from an authenticated connection to its principal.

`principal.builder.class` names a builder, for the broker or for one listener. Kafka's default name stands for the rules
that are built in: the mapped name of a certificate, the authorization id of SASL, else User:ANONYMOUS.
Sources: org.apache.kafka.common.security.auth.KafkaPrincipalBuilder and AuthenticationContext.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from kafkapy.security.principal import KafkaPrincipal

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig

__all__ = [
    "AuthenticationContext",
    "BuilderSettings",
    "PrincipalBuilder",
    "build_principal",
]


@dataclass(frozen=True, slots=True)
class AuthenticationContext:
    """The facts about one connection after its authentication. Immutable."""

    listener_name: str
    security_protocol: str
    """PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""
    client_address: str
    default: Callable[[], KafkaPrincipal] = field(repr=False)
    """Gives the principal of the built-in rules. ValueError when no rule fits a certificate's name."""
    peer_certificate: bytes | None = None
    """The client's certificate (DER), None without one."""
    tls_protocol: str = ""
    """"TLSv1.3"; empty without TLS."""
    cipher_suite: str = ""
    sasl_mechanism: str = ""
    authorization_id: str = ""
    """The name that the SASL mechanism gave; the short name for GSSAPI."""
    sasl_properties: Mapping[str, Any] = field(default_factory=dict)
    """Further results of the mechanism, as `SaslServer.properties`."""


@dataclass(frozen=True, slots=True)
class BuilderSettings:
    """The configuration of a builder on one listener. Immutable."""

    listener_name: str
    config: BrokerConfig = field(repr=False)

    def get(self, key: str) -> Any:
        """The value of a key of the broker.

        listener.name.<listener>.<key> wins over <key>.
        """
        return self.config.for_listener(self.listener_name, key)


class PrincipalBuilder(Protocol):
    """Makes the principals of one listener's connections.

    `register_principal_builders` registers its factory. The broker calls it on the control loop, once for each
    authentication.
    """

    def configure(self, settings: BuilderSettings) -> None:
        """Read the configuration; the broker calls it once, first.

        ConfigError stops the start.
        """

    def build(self, context: AuthenticationContext) -> KafkaPrincipal:
        """The principal of a connection.

        Any exception refuses the connection; the log has its text.
        """

    def close(self) -> None:
        """Release resources; called once, at the broker's stop."""


def build_principal(builder: PrincipalBuilder | None, context: AuthenticationContext) -> KafkaPrincipal:
    """The principal that a builder gives, or that of the built-in rules (None).

    ValueError when it is no principal with a name, besides the exceptions of builders.
    """
    if builder is None:
        return context.default()
    made = builder.build(context)
    if not isinstance(made, KafkaPrincipal):
        raise ValueError(f"the principal builder {type(builder).__name__} gave {made!r}, which is no KafkaPrincipal")
    # ":" ends the type in every text of a principal: another place for it would be another principal.
    if not made.type or not made.name or ":" in made.type:
        raise ValueError(f"the principal builder {type(builder).__name__} gave the principal {str(made)!r}")
    return made
