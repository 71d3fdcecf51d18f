"""A client of SCRAM in a few lines, by RFC 5802, to prove the broker's side against."""

from __future__ import annotations

import base64
import hashlib
import hmac


class ScramClient:
    def __init__(
        self,
        mechanism: str,
        user: str,
        password: str,
        *,
        nonce: str = "abcdef",
        extensions: str = "",
        authzid: str = "",
    ) -> None:
        self._hash = mechanism.removeprefix("SCRAM-").replace("-", "").lower()
        self._password = password
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._gs2 = f"n,{f'a={authzid}' if authzid else ''},"
        self._bare = f"n={name},r={nonce}{extensions}"
        self._server_signature = b""
        self.nonce = nonce

    def first(self) -> bytes:
        return (self._gs2 + self._bare).encode()

    def final(self, challenge: bytes) -> bytes:
        fields = dict(item.split("=", 1) for item in challenge.decode().split(","))
        self.salt, self.iterations = base64.b64decode(fields["s"]), int(fields["i"])
        self.server_nonce = fields["r"]
        salted = hashlib.pbkdf2_hmac(self._hash, self._password.encode(), self.salt, self.iterations)
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        without = f"c={base64.b64encode(self._gs2.encode()).decode()},r={fields['r']}"
        message = f"{self._bare},{challenge.decode()},{without}".encode()
        signature = hmac.digest(hashlib.new(self._hash, client_key).digest(), message, self._hash)
        self._server_signature = hmac.digest(hmac.digest(salted, b"Server Key", self._hash), message, self._hash)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        return f"{without},p={base64.b64encode(proof).decode()}".encode()

    def check(self, answer: bytes) -> None:
        assert answer == b"v=" + base64.b64encode(self._server_signature)
