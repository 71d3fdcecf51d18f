"""SASL/SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802), also for delegation tokens.

Messages, proofs and salts of unknown users are the kernel's (`_speedups/base/scram`). With tokenauth the user is a
token's id, and the principal is the token's owner. Network threads serve the usual login by themselves
(`_speedups/network/channel_login`): here come those by token, with an authorization id, or of sessions with an end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from kafkapy._speedups.base.scram import ScramLogin
from kafkapy.security.principal import USER_TYPE
from kafkapy.security.sasl.base import (
    MechanismSettings,
    SaslAuthenticationError,
    SaslError,
    SaslServices,
)
from kafkapy.security.scram import MIN_ITERATIONS, ScramCredential, ScramMechanism


class ScramServer:
    """One login by SCRAM."""

    def __init__(
        self, mechanism: ScramMechanism, services: SaslServices, clock: Callable[[], float] = time.time
    ) -> None:
        self.mechanism = mechanism.mechanism_name
        self.complete = False
        self.authorization_id = ""
        self.session_expires_ms: int | None = None
        self.properties: Mapping[str, Any] = {}
        self._services = services
        self._clock = clock
        self._login: ScramLogin | None = None

    async def evaluate(self, response: bytes) -> bytes:
        """Answer the client's first or final message."""
        if self.complete:
            raise SaslError("Unexpected challenge after the end of the exchange")
        if self._login is None:
            return self._first(response)
        try:
            answer = self._login.finish(response)
        except ValueError as error:
            raise SaslError(str(error)) from None
        self.complete = True
        return answer

    def _first(self, message: bytes) -> bytes:
        try:
            login = ScramLogin(self.mechanism, message)
        except ValueError as error:
            raise SaslError(str(error)) from None
        if login.authzid and login.authzid != login.user:
            # Before the user is looked up: the answer must not say whether the user exists.
            raise SaslAuthenticationError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        if login.by_token:
            found = self._by_token(login.user)
        else:
            found = self._services.credentials.credential(self.mechanism, login.user)
            self.authorization_id = login.user
        # Made in any case: an unknown user takes no longer than others.
        unknown = self._services.credentials.unknown(self.mechanism, login.user)
        known = found is not None and found.iterations >= MIN_ITERATIONS
        self._login = login
        return login.begin(found if found is not None and known else unknown, known)

    def _by_token(self, token_id: str) -> ScramCredential | None:
        """The credential of a token that is still valid, and what the login by it gives."""
        tokens = self._services.tokens
        token = tokens.token(token_id)
        if token is None or token.expired(int(self._clock() * 1000)):
            return None
        if token.owner.type != USER_TYPE:
            # The principal would be a user of that name.
            return None
        self.authorization_id = token.owner.name
        self.session_expires_ms = token.expiry_timestamp
        self.properties = {"token_authenticated": True}
        return tokens.credential(self.mechanism, token_id)


class Scram:
    """A SCRAM mechanism on one listener."""

    def __init__(self, mechanism: ScramMechanism) -> None:
        self.name = mechanism.mechanism_name
        self._mechanism = mechanism
        self._services: SaslServices | None = None

    async def configure(self, settings: MechanismSettings, services: SaslServices) -> None:
        """Take the credentials of the cluster: no key of the listener counts."""
        del settings
        self._services = services

    def server(self) -> ScramServer:
        """A server for one login."""
        assert self._services is not None
        return ScramServer(self._mechanism, self._services)

    async def close(self) -> None:
        """Releases nothing."""
