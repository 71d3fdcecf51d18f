"""The contract between a client's connections and its SASL mechanism.

A client has one `SaslLogin`, which owns its credentials (a password, a token, a Kerberos ticket) and keeps them fresh.
The login creates a `SaslClient` for each authentication of each connection. A mechanism is a module of this package
with a function `create_login(settings: SaslSettings) -> SaslLogin`; `logins.py` has their table. Sources:
org.apache.kafka.common.security.auth.Login, javax.security.sasl.SaslClient.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from kafkapy.errors import ConfigError

__all__ = ["SaslClient", "SaslLogin", "SaslSettings", "required"]


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """The configuration of one client's login. Immutable; its repr shows no secret."""

    mechanism: str
    """SASL's name of the mechanism, in upper case."""
    options: Mapping[str, str] = field(repr=False)
    """The options of sasl.jaas.config, or those that other keys stand for (`username`, `password`)."""
    config: Mapping[str, Any] = field(repr=False)
    """The client's values by Kafka's dotted keys (sasl.*, ssl.*)."""


class SaslClient(Protocol):
    """One exchange of tokens with one broker.

    Only the client's loop uses it; no method blocks. The connection sends `initial()`, and then the result of
    `evaluate` for each token of the broker until the exchange is complete. SaslAuthenticationFailedError for a token
    that fails a check of the client.
    """

    @property
    def mechanism(self) -> str:
        """The mechanism's name in SaslHandshake."""

    @property
    def complete(self) -> bool:
        """Whether the exchange is complete on the client's side.

        A mechanism whose client sends the last token is complete before the broker has accepted that token.
        """

    def initial(self) -> bytes:
        """The first token. Called once."""

    def evaluate(self, challenge: bytes) -> bytes | None:
        """The answer to a token of the broker. None: there is no answer."""


class SaslLogin(Protocol):
    """The credentials of one client. Only the client's loop uses it."""

    @property
    def mechanism(self) -> str:
        """The mechanism's name in SaslHandshake."""

    async def exchange(self, host: str) -> SaslClient:
        """A new exchange with the broker at this host name.

        It may wait for fresh credentials; blocking work runs on another thread. The caller limits the time. KafkaError:
        AuthenticationError when a retry is pointless.
        """

    async def close(self) -> None:
        """Ends all background work. A second call does nothing."""


def required(settings: SaslSettings, option: str) -> str:
    """The value of a login option. ConfigError when it is missing or empty."""
    value = settings.options.get(option)
    if not value:
        raise ConfigError(
            "sasl.jaas.config", None, f"{settings.mechanism} needs the option {option} (or sasl.plain.{option})"
        )
    return value
