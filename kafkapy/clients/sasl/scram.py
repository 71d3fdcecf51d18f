"""SCRAM-SHA-256 and SCRAM-SHA-512.

The password never leaves the client, and both sides prove that they know it.

Messages (RFC 5802), without channel binding:

    client  n,,n=user,r=nonce[,tokenauth=true]
    broker  r=nonce+more,s=salt,i=iterations
    client  c=biws,r=nonce+more,p=proof
    broker  v=signature, or e=error

The user name and the password go as UTF-8 without SASLprep, as in Kafka. With `tokenauth=true` the user name is the id
of a delegation token, and the password its HMAC in base64 (KIP-48). Sources:
org.apache.kafka.common.security.scram.internals.ScramSaslClient, ScramMessages.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import re
import secrets
from base64 import b64decode, b64encode
from typing import Final

from kafkapy.clients.sasl.base import SaslSettings, required
from kafkapy.errors import KafkaError, SaslAuthenticationFailedError

__all__ = ["ScramClient", "ScramLogin", "create_login"]

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
LEAST_ITERATIONS: Final = 4096
MOST_ITERATIONS: Final = 1_000_000
"""A broker that asks for more would keep the client's loop busy for long."""
NONCE_BYTES: Final = 24
GS2_HEADER: Final = "n,,"

_VALUE = r"[A-Za-z0-9+/]+={0,2}"
_EXTENSIONS = r"(?:,[A-Za-z]=[^,\0]*)*"
_FIRST = re.compile(rf"r=([!-+\--~]+),s=({_VALUE}),i=([0-9]{{1,9}}){_EXTENSIONS}")
_LAST = re.compile(rf"(?:e=([^,\0]+)|v=({_VALUE})){_EXTENSIONS}")


class ScramClient:
    """One exchange of one user."""

    def __init__(
        self, mechanism: str, username: str, password: str, *, token: bool = False, nonce: str | None = None
    ) -> None:
        """`token`.

        The user name is the id of a delegation token. `nonce` is for tests; by default it is random.
        """
        self.mechanism = mechanism
        self.complete = False
        self._hash = HASHES[mechanism]
        self._password = password.encode()
        self._nonce = secrets.token_urlsafe(NONCE_BYTES) if nonce is None else nonce
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._first = f"n={name},r={self._nonce}{',tokenauth=true' if token else ''}"
        self._signature: bytes | None = None
        """The signature that proves the broker; None before the broker's first message."""

    def initial(self) -> bytes:
        return f"{GS2_HEADER}{self._first}".encode()

    def evaluate(self, challenge: bytes) -> bytes | None:
        try:
            text = challenge.decode()
        except UnicodeDecodeError:
            raise self._failed("the message is not UTF-8") from None
        if self.complete:
            raise self._failed("the exchange is complete")
        if self._signature is None:
            return self._prove(text)
        self._check(text)
        return None

    def _prove(self, message: str) -> bytes:
        """The client's last message for the broker's first."""
        error = _LAST.fullmatch(message)
        if error is not None and error[1]:
            raise self._failed(f"the broker answered: {error[1]}")
        matched = _FIRST.fullmatch(message)
        if matched is None:
            raise self._failed("the broker's first message is malformed")
        nonce, iterations = matched[1], int(matched[3])
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise self._failed("the broker's nonce does not extend the client's nonce")
        if not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS:
            raise self._failed(
                f"the broker asks for {iterations} iterations, not {LEAST_ITERATIONS} to {MOST_ITERATIONS}"
            )
        salt = self._bytes(matched[2])
        without_proof = f"c={b64encode(GS2_HEADER.encode()).decode()},r={nonce}"
        signed = f"{self._first},{message},{without_proof}".encode()
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, iterations)
        client_key = self._hmac(salted, b"Client Key")
        stored_key = hashlib.new(self._hash, client_key).digest()
        proof = bytes(a ^ b for a, b in zip(client_key, self._hmac(stored_key, signed), strict=True))
        self._signature = self._hmac(self._hmac(salted, b"Server Key"), signed)
        return f"{without_proof},p={b64encode(proof).decode()}".encode()

    def _check(self, message: str) -> None:
        """Checks the broker's last message."""
        matched = _LAST.fullmatch(message)
        if matched is None:
            raise self._failed("the broker's last message is malformed")
        if matched[1]:
            raise self._failed(f"the broker answered: {matched[1]}")
        assert self._signature is not None
        if not hmac.compare_digest(self._bytes(matched[2]), self._signature):
            raise self._failed("the broker's signature is wrong, so it does not know this user's password")
        self.complete = True

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash)

    def _bytes(self, text: str) -> bytes:
        try:
            return b64decode(text, validate=True)
        except binascii.Error:
            raise self._failed("the broker's message is malformed: invalid base64") from None

    def _failed(self, reason: str) -> KafkaError:
        return SaslAuthenticationFailedError(f"{self.mechanism} failed: {reason}")


class ScramLogin:
    """A user name and a password, or a delegation token."""

    def __init__(self, mechanism: str, username: str, password: str, *, token: bool = False) -> None:
        self.mechanism = mechanism
        self._username = username
        self._password = password
        self._token = token

    async def exchange(self, host: str) -> ScramClient:
        return ScramClient(self.mechanism, self._username, self._password, token=self._token)

    async def close(self) -> None:
        """Does nothing."""


def create_login(settings: SaslSettings) -> ScramLogin:
    """ConfigError without a user name and a password."""
    username, password = required(settings, "username"), required(settings, "password")
    token = settings.options.get("tokenauth", "").lower() == "true"
    return ScramLogin(settings.mechanism, username, password, token=token)
