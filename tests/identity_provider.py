"""An identity provider of OAuth on this machine: a key set and a token endpoint over https, with keys that rotate."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import get_default_algorithms

Answer = tuple[int, Mapping[str, str], bytes]
"""Status, headers and body of a response."""


@cache
def rsa_key(number: int, bits: int = 2048) -> rsa.RSAPrivateKey:
    """One of the RSA keys of all tests: making one takes long."""
    return rsa.generate_private_key(65537, bits)


def private_key(algorithm: str, number: int = 0) -> Any:
    """A key for a signature algorithm; another one for another number with RSA."""
    curves = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1(), "ES256K": ec.SECP256K1()}
    if algorithm in curves:
        return ec.generate_private_key(curves[algorithm])
    return ed25519.Ed25519PrivateKey.generate() if algorithm == "EdDSA" else rsa_key(number)


@dataclass
class SigningKey:
    """A private key with the id and the algorithm of its tokens."""

    id: str | None
    algorithm: str = "RS256"
    private: Any = None

    def __post_init__(self) -> None:
        if self.private is None:
            self.private = private_key(self.algorithm)

    def jwk(self, **members: Any) -> dict[str, Any]:
        """The public part, as a key set has it."""
        method = get_default_algorithms()[self.algorithm]
        public = json.loads(method.to_jwk(self.private.public_key()))
        public.pop("key_ops", None)
        named = {} if self.id is None else {"kid": self.id}
        return {**public, **named, "use": "sig", "alg": self.algorithm, **members}

    def sign(self, claims: Mapping[str, Any] | None = None, /, **header: Any) -> str:
        """A token with these claims; None leaves a claim of the default ones out."""
        now = int(time.time())
        every = {"sub": "alice", "iat": now, "exp": now + 3600, **(claims or {})}
        named = {} if self.id is None else {"kid": self.id}
        return jwt.encode(
            {name: value for name, value in every.items() if value is not None},
            self.private,
            self.algorithm,
            {**named, **header},
        )


def certificate_authority() -> tuple[Any, x509.Certificate]:
    """A private key and its own certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "identity provider of tests")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=2))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1")), x509.DNSName("localhost")]), False
        )
        .sign(key, hashes.SHA256())
    )
    return key, certificate


@dataclass
class IdentityProvider:
    """The state of the provider; the server's threads read it."""

    port: int
    ca_file: Path
    keys: list[SigningKey] = field(default_factory=lambda: [SigningKey("first")])
    requests: list[tuple[str, str, Mapping[str, str], bytes]] = field(default_factory=list)
    """Method, path, headers and body of each request."""
    answers: list[Answer] = field(default_factory=list)
    """Answers in place of the usual ones, the next first."""
    answered: Callable[[str], None] | None = None
    """Called with the path before each answer."""
    token_claims: dict[str, Any] = field(default_factory=dict)
    token_lifetime_s: float = 3600.0
    key_set: bytes | None = None
    """The key set's text in place of that of the keys."""

    @property
    def jwks_url(self) -> str:
        return f"https://127.0.0.1:{self.port}/jwks"

    @property
    def token_url(self) -> str:
        return f"https://127.0.0.1:{self.port}/token"

    def count(self, path: str) -> int:
        """The requests for a path so far."""
        return sum(1 for _, asked, _, _ in self.requests if asked == path)

    def answer(self, path: str, body: bytes) -> Answer:
        if self.answers:
            return self.answers.pop(0)
        if path == "/jwks":
            return 200, {}, self.key_set or json.dumps({"keys": [key.jwk() for key in self.keys]}).encode()
        if path == "/token":
            scope = parse_qs(body.decode()).get("scope", [None])[0]
            now = time.time()
            times = {"iat": now, "exp": now + self.token_lifetime_s}
            token = self.keys[-1].sign({"scope": scope, **times, **self.token_claims})
            return 200, {}, json.dumps({"access_token": token, "token_type": "Bearer", "expires_in": 3600}).encode()
        return 404, {}, b"{}"


@contextmanager
def identity_provider(directory: Path) -> Iterator[IdentityProvider]:
    """A provider that runs; `ca_file` has the certificate to trust."""
    key, certificate = certificate_authority()
    ca_file, key_file = directory / "idp-ca.pem", directory / "idp-key.pem"
    ca_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *arguments: object) -> None:
            """Says nothing."""

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            provider.requests.append((self.command, self.path, dict(self.headers.items()), body))
            if provider.answered is not None:
                provider.answered(self.path)
            status, headers, answer = provider.answer(self.path, body)
            self.send_response(status)
            for name, value in {"Content-Length": str(len(answer)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer)

        do_POST = do_GET

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *arguments: object) -> None:
            """A client that goes away is no error."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(ca_file, key_file)
    server = Server(("127.0.0.1", 0), Handler)
    # The handshake runs on the request's thread.
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    provider = IdentityProvider(server.server_address[1], ca_file)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
