"""SASL/SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802), also for delegation tokens.

    client first: n,[a=<authzid>],n=<user>,r=<nonce>[,tokenauth=true]
    server first: r=<nonce of both>,s=<salt>,i=<iterations>
    client final: c=<channel>,r=<nonce of both>,p=<proof>
    server final: v=<signature>

An unknown user gets a salt too, always the same one, and fails only with the proof, as a wrong password does. With
tokenauth the user is a token's id, and the principal is the token's owner. Sources:
org.apache.kafka.common.security.scram.internals.ScramSaslServer, ScramMessages and ScramFormatter.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from kafkapy.security.principal import USER_TYPE
from kafkapy.security.sasl.base import (
    MechanismSettings,
    SaslAuthenticationError,
    SaslError,
    SaslServices,
)
from kafkapy.security.scram import MIN_ITERATIONS, ScramCredential, ScramMechanism

TOKEN_EXTENSION: Final = "tokenauth"
NONCE_BYTES: Final = 18
MOST_MESSAGE_BYTES: Final = 16_384
"""The first message is kept until the login ends, so it must not be large."""

_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_VALUE = r"[\x01-\x2b\x2d-\x7f]+"
_PRINTABLE = r"[\x21-\x2b\x2d-\x7e]+"
_EXTENSIONS = rf"(?:,[A-Za-z]+={_VALUE})*"
_BASE64 = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
CLIENT_FIRST: Final = re.compile(
    rf"n,(?:a=(?P<authzid>{_NAME}))?,"
    rf"(?P<bare>(?:m={_VALUE},)?n=(?P<name>{_NAME}),r=(?P<nonce>{_PRINTABLE})(?P<extensions>{_EXTENSIONS}))"
)
CLIENT_FINAL: Final = re.compile(
    rf"(?P<without_proof>c={_BASE64},r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)


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
        self._hash = mechanism.hash_name
        self._services = services
        self._clock = clock
        self._credential: ScramCredential | None = None
        self._client_first = self._server_first = self._nonce = ""
        self._known = False

    async def evaluate(self, response: bytes) -> bytes:
        """Answer the client's first or final message."""
        if self.complete:
            raise SaslError("Unexpected challenge after the end of the exchange")
        if len(response) > MOST_MESSAGE_BYTES:
            raise SaslError(f"A SCRAM message of {len(response)} bytes")
        text = response.decode("utf-8", "replace")
        return self._first(text) if self._credential is None else self._final(text)

    def _first(self, text: str) -> bytes:
        message = CLIENT_FIRST.fullmatch(text)
        if message is None:
            raise SaslError("Invalid SCRAM client first message format")
        user = _unescaped(message["name"])
        if message["authzid"] and _unescaped(message["authzid"]) != user:
            # Before the user is looked up: the answer must not say whether the user exists.
            raise SaslAuthenticationError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        extensions = dict(each.split("=", 1) for each in message["extensions"].split(",")[1:])
        if extensions.get(TOKEN_EXTENSION, "").lower() == "true":
            found = self._by_token(user)
        else:
            found = self._services.credentials.credential(self.mechanism, user)
            self.authorization_id = user
        # Made in any case: an unknown user takes no longer than others.
        unknown = self._services.credentials.unknown(self.mechanism, user)
        self._known = found is not None and found.iterations >= MIN_ITERATIONS
        if found is None or not self._known:
            found = unknown
        self._credential = found
        self._nonce = message["nonce"] + secrets.token_urlsafe(NONCE_BYTES)
        self._client_first = message["bare"]
        salt = base64.b64encode(found.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={found.iterations}"
        return self._server_first.encode()

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

    def _final(self, text: str) -> bytes:
        credential = self._credential
        assert credential is not None
        message = CLIENT_FINAL.fullmatch(text)
        if message is None:
            raise SaslError("Invalid SCRAM client final message format")
        if message["nonce"] != self._nonce:
            raise SaslError("Invalid client nonce in the final client message.")
        auth_message = f"{self._client_first},{self._server_first},{message['without_proof']}".encode()
        signature = hmac.digest(credential.stored_key, auth_message, self._hash)
        proof = base64.b64decode(message["proof"])
        if len(proof) != len(signature):
            raise SaslError("Invalid client credentials")
        client_key = bytes(each ^ other for each, other in zip(signature, proof, strict=True))
        stored_key = hashlib.new(self._hash, client_key).digest()
        if not (hmac.compare_digest(stored_key, credential.stored_key) and self._known):
            raise SaslError("Invalid client credentials")
        self.complete = True
        self._credential = None
        return b"v=" + base64.b64encode(hmac.digest(credential.server_key, auth_message, self._hash))


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


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")
