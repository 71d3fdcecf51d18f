"""The contracts of a SASL mechanism of the broker.

A `SaslMechanism` exists once for each listener that enables it. It makes a `SaslServer` for each authentication of a
connection. All of them run on the control loop: work that may block belongs on another thread.

Sources: javax.security.sasl.SaslServer, org.apache.kafka.common.security.auth.AuthenticateCallbackHandler.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig
    from kafkapy.security.delegation_tokens import TokenInformation
    from kafkapy.security.jaas import JaasEntry
    from kafkapy.security.scram import ScramCredential

__all__ = [
    "CallbackHandler",
    "CredentialSource",
    "MechanismSettings",
    "SaslAuthenticationError",
    "SaslError",
    "SaslMechanism",
    "SaslServer",
    "SaslServices",
    "TokenSource",
]


class SaslError(Exception):
    """The authentication fails.

    The text is for the log; the client gets a general one.
    """


class SaslAuthenticationError(SaslError):
    """The authentication fails, and its text goes to the client.

    The text must not reveal whether a user exists. `reason` is the text for the log; by default the same.
    """

    def __init__(self, text: str, reason: str | None = None) -> None:
        super().__init__(text)
        self.reason = text if reason is None else reason


class SaslServer(Protocol):
    """The broker's side of one authentication.

    Its authenticator calls `evaluate` once at a time.
    """

    @property
    def mechanism(self) -> str:
        """The mechanism's name, as the client asked for it."""

    @property
    def complete(self) -> bool:
        """Whether the client is authenticated. No token may follow."""

    @property
    def authorization_id(self) -> str:
        """The name of the principal, when complete.

        A Kerberos principal is mapped to its short name already.
        """

    @property
    def session_expires_ms(self) -> int | None:
        """The end of the credential in ms since 1970, when complete.

        None for a credential without end.
        """

    @property
    def properties(self) -> Mapping[str, Any]:
        """Further results, when complete.

        "token_authenticated": True after a login by delegation token; "extensions": SASL extensions of the client.
        """

    async def evaluate(self, response: bytes) -> bytes:
        """Answer a token of the client.

        SaslAuthenticationError: its text goes to the client. SaslError or any other exception: the client gets a
        general text. After an error nobody calls this server again.
        """


class CredentialSource(Protocol):
    """SCRAM credentials of users."""

    def credential(self, mechanism: str, user: str) -> ScramCredential | None:
        """The credential of a user, None when there is none."""

    def unknown(self, mechanism: str, user: str) -> ScramCredential:
        """A credential that no password fits.

        It has the salt that this unknown user always gets.
        """


class TokenSource(Protocol):
    """Delegation tokens, with the SCRAM credentials that log in by them."""

    def credential(self, mechanism: str, token_id: str) -> ScramCredential | None:
        """The credential of a token, None when there is none."""

    def token(self, token_id: str) -> TokenInformation | None:
        """The token, None when there is none."""


class CallbackHandler(Protocol):
    """Checks credentials for a mechanism, in place of its built-in check.

    sasl.server.callback.handler.class names it, and `register_sasl_callback_handlers` registers it. Its further
    methods depend on the mechanism: `authenticate(username, password) -> bool` for PLAIN.
    """

    def configure(self, settings: MechanismSettings) -> None:
        """Read the configuration; the broker calls it once, first.

        ConfigError stops the start.
        """

    def close(self) -> None:
        """Release resources; called once, at the listener's end."""


class SaslServices(Protocol):
    """The broker's parts that mechanisms may use."""

    @property
    def credentials(self) -> CredentialSource:
        """The SCRAM credentials."""

    @property
    def tokens(self) -> TokenSource:
        """The delegation tokens."""

    def callback_handler(self, name: str) -> CallbackHandler:
        """A new handler of that registered name, not configured.

        ConfigError for an unknown name.
        """


@dataclass(frozen=True, slots=True)
class MechanismSettings:
    """The configuration of one mechanism on one listener. Immutable."""

    mechanism: str
    listener_name: str
    config: BrokerConfig = field(repr=False)
    jaas: Sequence[JaasEntry] = ()
    """The entries of sasl.jaas.config; empty when it is not set."""

    def get(self, key: str) -> Any:
        """The value of a key of the broker.

        listener.name.<listener>.<mechanism>.<key> wins over listener.name.<listener>.<key>, and that over <key>.
        """
        return self.config.for_listener(self.listener_name, key, self.mechanism)

    def name_of(self, key: str) -> str:
        """The key with listener and mechanism, as errors name it."""
        return f"listener.name.{self.listener_name.lower()}.{self.mechanism.lower()}.{key}"

    def option(self, name: str, login_module: str | None = None) -> str | None:
        """An option of the JAAS entries, or of one login module's.

        None when it is not set.
        """
        for entry in self.jaas:
            if login_module is None or entry.login_module == login_module:
                value = entry.option(name)
                if value is not None:
                    return value
        return None


class SaslMechanism(Protocol):
    """A mechanism of one listener.

    `register_sasl_mechanisms` registers its factory.
    """

    @property
    def name(self) -> str:
        """The name that clients ask for, such as SCRAM-SHA-256."""

    async def configure(self, settings: MechanismSettings, services: SaslServices) -> None:
        """Read the configuration.

        The broker calls it before the listener accepts connections, and on a new object after each dynamic change of
        the listener's keys. ConfigError stops the start; later it keeps the object before in use.
        """

    def server(self) -> SaslServer:
        """A server for one authentication."""

    async def close(self) -> None:
        """Release resources. Authentications under way may still call their servers."""
