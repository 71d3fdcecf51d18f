"""The broker's side of SASL for FakeBroker: SaslHandshake and SaslAuthenticate with PLAIN or SCRAM.

The SCRAM here is written apart from the product's, from RFC 5802.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from base64 import b64decode, b64encode

from clients.fake_broker import FakeBroker

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kafkapy.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kafkapy.protocol.registry import ApiKeys

REFUSED = "Authentication failed during authentication due to invalid credentials"
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS = 4096


class SaslSide:
    """Answers for one FakeBroker. Connections take turns: one exchange at a time."""

    def __init__(self, broker: FakeBroker, users: dict[str, str], *, lifetime_ms: int = 0) -> None:
        self.users = users
        self.lifetime_ms = lifetime_ms
        self.mechanisms = ["PLAIN", *HASHES]
        self.gate = asyncio.Event()
        """SaslAuthenticate is answered while it is set."""
        self.gate.set()
        self.lies = False
        """Whether SCRAM's last message has a wrong signature."""
        self.pause_s = 0.0
        """Handshakes of one connection that come sooner are refused, as Kafka does within a second."""
        self._last_s = float("-inf")
        self.authenticated = 0
        self._mechanism = ""
        self._messages: list[str] = []
        broker.versions |= {ApiKeys.SASL_HANDSHAKE: (0, 1), ApiKeys.SASL_AUTHENTICATE: (0, 2)}
        broker.on[ApiKeys.SASL_HANDSHAKE] = self._handshake
        broker.on[ApiKeys.SASL_AUTHENTICATE] = self._authenticate

    def _handshake(self, version: int, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
        assert version == 1
        self._mechanism, self._messages = request.mechanism, []
        since_s, self._last_s = time.monotonic() - self._last_s, time.monotonic()
        if self.authenticated and since_s < self.pause_s:
            return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
        code = 0 if request.mechanism in self.mechanisms else ErrorCode.UNSUPPORTED_SASL_MECHANISM
        return SaslHandshakeResponse(error_code=code, mechanisms=self.mechanisms)

    async def _authenticate(self, version: int, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
        await self.gate.wait()
        token = self._plain(request.auth_bytes) if self._mechanism == "PLAIN" else self._scram(request.auth_bytes)
        if token is None:
            return SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=REFUSED, auth_bytes=b""
            )
        complete = self._mechanism == "PLAIN" or len(self._messages) > 2
        self.authenticated += complete
        return SaslAuthenticateResponse(auth_bytes=token, session_lifetime_ms=self.lifetime_ms if complete else 0)

    def _plain(self, token: bytes) -> bytes | None:
        _, name, password = token.decode().split("\0")
        return b"" if self.users.get(name) == password else None

    def _scram(self, token: bytes) -> bytes | None:
        text = token.decode()
        if not self._messages:
            bare = text.removeprefix("n,,")
            nonce = bare.split(",")[1].removeprefix("r=")
            first = f"r={nonce}more,s={b64encode(b'salt').decode()},i={ITERATIONS}"
            self._messages = [bare, first]
            return first.encode()
        bare, first = self._messages
        without_proof, _, proof = text.rpartition(",p=")
        name = bare.split(",")[0].removeprefix("n=").replace("=2C", ",").replace("=3D", "=")
        digest = HASHES[self._mechanism]
        salted = hashlib.pbkdf2_hmac(digest, self.users.get(name, "").encode(), b"salt", ITERATIONS)
        client_key = hmac.digest(salted, b"Client Key", digest)
        message = f"{bare},{first},{without_proof}".encode()
        stored = hashlib.new(digest, client_key).digest()
        signature = hmac.digest(stored, message, digest)
        if bytes(a ^ b for a, b in zip(b64decode(proof), signature, strict=True)) != client_key:
            return None
        self._messages.append(text)
        server = hmac.digest(hmac.digest(salted, b"Server Key", digest), message, digest)
        return b"v=" + b64encode(server[::-1] if self.lies else server)
