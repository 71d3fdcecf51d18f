"""The state machine of authentication by SASL on a connection of the broker.

    ApiVersions (at most once) -> SaslHandshake -> tokens until the mechanism is complete -> authenticated

After SaslHandshake version 0 the tokens are frames without a header, after version 1 they come in SaslAuthenticate
requests. A session with an end begins again with a SaslHandshake on the open connection (KIP-368): mechanism and
principal stay the same. Source: org.apache.kafka.common.security.authenticator.SaslServerAuthenticator.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from kafkapy.errors import ErrorCode
from kafkapy.security.principal import USER_TYPE, KafkaPrincipal
from kafkapy.security.sasl.base import SaslAuthenticationError, SaslError, SaslMechanism, SaslServer

__all__ = ["Outcome", "SaslAnswer", "SaslServerAuthenticator"]

GSSAPI: Final = "GSSAPI"
REAUTHENTICATION_PAUSE_NS: Final = 1_000_000_000
"""Least time between the beginnings of two re-authentications."""
MOST_REASON: Final = 300
"""Most characters of a reason in the log."""
FIRST_WITH_HEADERS: Final = 1
"""The first version of SaslHandshake whose tokens come in SaslAuthenticate requests."""

logger = logging.getLogger("org.apache.kafka.common.security.authenticator.SaslServerAuthenticator")


class _State(Enum):
    HANDSHAKE_OR_VERSIONS = "waits for ApiVersions or SaslHandshake"
    HANDSHAKE = "waits for SaslHandshake"
    AUTHENTICATE = "waits for a token"
    WRONG_MECHANISM = "refuses the next token, because the mechanism has changed"
    COMPLETE = "authenticated"
    FAILED = "failed"


class Outcome(Enum):
    """The meaning of an answer for the connection."""

    CONTINUE = "continue"
    AUTHENTICATED = "authenticated"
    """The connection has a principal, and serves every request."""
    FAILED = "failed"
    """The connection closes after the answer, and reads no more."""


@dataclass(frozen=True, slots=True)
class SaslAnswer:
    """The answer to one request or token."""

    outcome: Outcome
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    """The error's text for the client."""
    auth_bytes: bytes = b""
    reply: bool = True
    """False: the connection closes without an answer."""
    reason: str | None = None
    """The reason of a failure, for the log."""
    principal: KafkaPrincipal | None = None
    session_lifetime_ms: int = 0
    """The lifetime of the session for the client; 0: it has no end."""
    session_end_ms: int = 0
    """The end of the session in ms since 1970; 0: it has no end."""


class SaslServerAuthenticator:
    """Authenticates one connection, and later authenticates it again.

    Owned by the connection; the control loop calls one method at a time. It knows neither sockets nor encodings.
    """

    def __init__(
        self,
        mechanisms: Mapping[str, SaslMechanism],
        max_reauth_ms: Mapping[str, int],
        build_principal: Callable[[str, SaslServer, KafkaPrincipal], KafkaPrincipal] | None = None,
        *,
        clock_ms: Callable[[], int] = lambda: int(time.time() * 1000),
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """`mechanisms` are those that the listener enables; `max_reauth_ms` has connections.max.reauth.ms of each.

        `build_principal` makes the principal from mechanism, server and built-in principal; None: the built-in one.
        """
        self._mechanisms = mechanisms
        self._max_reauth_ms = max_reauth_ms
        self._build_principal = build_principal
        self._clock_ms = clock_ms
        self._monotonic_ns = monotonic_ns
        self._state = _State.HANDSHAKE_OR_VERSIONS
        self._server: SaslServer | None = None
        self._mechanism: str | None = None
        """The mechanism of the last successful authentication."""
        self._asked_mechanism = ""
        self._principal: KafkaPrincipal | None = None
        self._session_end_ms = 0
        self._headers = False
        """Whether tokens come in SaslAuthenticate requests."""
        self._last_reauthentication_ns: int | None = None

    @property
    def tokens_follow(self) -> bool:
        """Whether the next frames are tokens without a header."""
        return self._state is _State.AUTHENTICATE and not self._headers

    @property
    def principal(self) -> KafkaPrincipal | None:
        """The principal, None before the first authentication has finished."""
        return self._principal

    @property
    def mechanism(self) -> str | None:
        """The mechanism of the principal's authentication."""
        return self._mechanism

    @property
    def mechanism_names(self) -> list[str]:
        """The mechanisms that the listener enables."""
        return list(self._mechanisms)

    def adopt(self, principal: KafkaPrincipal) -> None:
        """Take over a connection that a network thread has logged in, without an end."""
        self._state, self._principal = _State.COMPLETE, principal

    def versions_asked(self, served: bool) -> SaslAnswer:
        """An ApiVersions request has come.

        `served` is False when its version is unknown or its content not valid; it then may come again.
        """
        if self._state in (_State.COMPLETE, _State.HANDSHAKE_OR_VERSIONS):
            if served and self._state is _State.HANDSHAKE_OR_VERSIONS:
                self._state = _State.HANDSHAKE
            return SaslAnswer(Outcome.CONTINUE)
        if self._state is _State.AUTHENTICATE:
            return self._illegal("Unexpected Kafka request of type API_VERSIONS during SASL authentication.")
        return self._illegal("Unexpected ApiVersions request: one has come already.", reply=False)

    def handshake(self, mechanism: str, version: int) -> SaslAnswer:
        """A SaslHandshake request has come."""
        if self._state is _State.COMPLETE:
            refusal = self._begin_reauthentication(version)
            if refusal is not None:
                return refusal
        elif self._state not in (_State.HANDSHAKE_OR_VERSIONS, _State.HANDSHAKE):
            return self._illegal("Unexpected Kafka request of type SASL_HANDSHAKE during SASL authentication.")
        self._headers = version >= FIRST_WITH_HEADERS
        self._asked_mechanism = mechanism
        found = self._mechanisms.get(mechanism)
        if found is None:
            text = f"Unsupported SASL mechanism {mechanism}"
            return self._failed(ErrorCode.UNSUPPORTED_SASL_MECHANISM, text, text)
        if self._mechanism is not None and mechanism != self._mechanism:
            self._state = _State.WRONG_MECHANISM
            return SaslAnswer(Outcome.CONTINUE)
        self._server = found.server()
        self._state = _State.AUTHENTICATE
        return SaslAnswer(Outcome.CONTINUE)

    async def token(self, data: bytes, version: int | None) -> SaslAnswer:
        """A token has come.

        `version` is that of its SaslAuthenticate request, None for a frame without header.
        """
        if self._state is _State.COMPLETE:
            if version is None:
                return self._illegal("A token without header came after the authentication.", reply=False)
            text = "SaslAuthenticate request received after successful authentication"
            return SaslAnswer(Outcome.CONTINUE, ErrorCode.ILLEGAL_SASL_STATE, text)
        if self._state is _State.WRONG_MECHANISM:
            text = (
                f"SASL mechanism '{self._asked_mechanism}' requested by client is not supported for re-authentication "
                f"of mechanism '{self._mechanism}'"
            )
            return self._failed(ErrorCode.SASL_AUTHENTICATION_FAILED, text, text)
        if version is None and self._state is _State.HANDSHAKE_OR_VERSIONS:
            # A client of Kafka 0.9: its first frame is a token of GSSAPI.
            found = self._mechanisms.get(GSSAPI)
            if found is None:
                return self._illegal("The first frame is no request, and GSSAPI is not enabled.", reply=False)
            self._asked_mechanism, self._server, self._state = GSSAPI, found.server(), _State.AUTHENTICATE
        if self._state is not _State.AUTHENTICATE or (version is not None) != self._headers:
            return self._illegal("Unexpected Kafka request of type SASL_AUTHENTICATE during SASL handshake.", False)
        return await self._evaluate(data, version)

    async def _evaluate(self, data: bytes, version: int | None) -> SaslAnswer:
        server = self._server
        assert server is not None
        # While the mechanism works, no other token may come.
        self._state = _State.FAILED
        try:
            challenge = await server.evaluate(data)
            if self._server is not server:
                raise SaslError("another request came before the answer to a token")
            if not server.complete:
                self._state = _State.AUTHENTICATE
                return SaslAnswer(Outcome.CONTINUE, auth_bytes=challenge)
            principal = self._checked_principal(server)
        except SaslAuthenticationError as error:
            return self._failed(ErrorCode.SASL_AUTHENTICATION_FAILED, str(error), error.reason, version is not None)
        except Exception as error:
            # The text may tell about users: it is for the log only.
            step = "authentication" if self._mechanism is None else "re-authentication"
            text = (
                f"Authentication failed during {step} due to invalid credentials with SASL mechanism "
                f"{self._asked_mechanism}"
            )
            if not isinstance(error, SaslError):
                logger.exception("The SASL mechanism %s failed", self._asked_mechanism)
            reason = f"{text} ({error})" if isinstance(error, SaslError) else text
            return self._failed(ErrorCode.SASL_AUTHENTICATION_FAILED, text, reason, version is not None)
        lifetime_ms = self._begin_session(server)
        self._principal, self._mechanism = principal, self._asked_mechanism
        self._server, self._state = None, _State.COMPLETE
        return SaslAnswer(
            Outcome.AUTHENTICATED,
            auth_bytes=challenge,
            principal=principal,
            session_lifetime_ms=lifetime_ms,
            session_end_ms=self._session_end_ms,
        )

    def _begin_reauthentication(self, version: int) -> SaslAnswer | None:
        """None, or the refusal, after which the connection goes on as before."""
        now_ns = self._monotonic_ns()
        if not self._session_end_ms:
            text = "SaslHandshake request received after successful authentication"
        elif version < FIRST_WITH_HEADERS:
            text = "Re-authentication needs SaslHandshake version 1"
        elif (
            self._last_reauthentication_ns is not None
            and now_ns - self._last_reauthentication_ns < REAUTHENTICATION_PAUSE_NS
        ):
            text = "The last re-authentication began less than 1 s ago"
        else:
            self._last_reauthentication_ns = now_ns
            return None
        return SaslAnswer(Outcome.CONTINUE, ErrorCode.ILLEGAL_SASL_STATE, text)

    def _checked_principal(self, server: SaslServer) -> KafkaPrincipal:
        if not server.authorization_id:
            raise SaslError("the principal's name is empty")
        by_token = bool(server.properties.get("token_authenticated"))
        principal = KafkaPrincipal(USER_TYPE, server.authorization_id, by_token)
        if self._build_principal is not None:
            try:
                built = self._build_principal(self._asked_mechanism, server, principal)
            except Exception as error:
                raise SaslError(f"the connection gives no principal: {error}") from error
            principal = KafkaPrincipal(built.type, built.name, by_token)
        before = self._principal
        if before is not None and principal != before:
            raise SaslAuthenticationError(
                "Cannot change principals during re-authentication from "
                f"{before.type}.{before.name}: {principal.type}.{principal.name}"
            )
        return principal

    def _begin_session(self, server: SaslServer) -> int:
        """The lifetime of the session in ms, 0 for no end."""
        now_ms = self._clock_ms()
        most_ms = self._max_reauth_ms.get(self._asked_mechanism, 0)
        expires_ms = server.session_expires_ms
        limits = [most_ms] if most_ms > 0 else []
        if expires_ms is not None:
            limits.append(expires_ms - now_ms)
        if not limits:
            self._session_end_ms = 0
            return 0
        lifetime_ms = max(0, min(limits))
        self._session_end_ms = now_ms + lifetime_ms
        return lifetime_ms

    def _illegal(self, text: str, reply: bool = True) -> SaslAnswer:
        return self._failed(ErrorCode.ILLEGAL_SASL_STATE, text, text, reply)

    def _failed(self, error: ErrorCode, message: str, reason: str, reply: bool = True) -> SaslAnswer:
        self._state, self._server = _State.FAILED, None
        return SaslAnswer(Outcome.FAILED, error, message, reply=reply, reason=_one_line(reason))


def _one_line(text: str) -> str:
    """A text for the log that may have words of the client: short, and without control characters."""
    shown = text if len(text) <= MOST_REASON else text[:MOST_REASON] + "..."
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in shown)
