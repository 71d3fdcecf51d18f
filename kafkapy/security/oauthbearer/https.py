"""Requests to identity providers over https, bounded in size and time. All functions block.

Certificates are checked against the truststore of the ssl.* options, else against the system's. Redirects of GET
requests are followed, but never from https to another scheme; POST requests are never redirected, since they carry a
secret. Proxies come from the environment, as in urllib.
"""

from __future__ import annotations

import base64
import http.client
import os
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

__all__ = ["HttpsError", "Response", "Timeouts", "load_certificate", "request", "trust"]

CHUNK: Final = 65_536
DEFAULT_TIMEOUT_MS: Final = 10_000
REDIRECTS: Final = (301, 302, 303, 307, 308)
MOST_REDIRECTS: Final = 5
MOST_READS_OF_TIMEOUT: Final = 3
"""A response may take this many read timeouts in all, however slowly its bytes come."""


class HttpsError(Exception):
    """No response.

    The endpoint cannot be reached, or its response is too large or too slow.
    """


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Times in ms to connect, and to wait for bytes of a response.

    Immutable.
    """

    connect_ms: int = DEFAULT_TIMEOUT_MS
    read_ms: int = DEFAULT_TIMEOUT_MS

    @classmethod
    def of(cls, connect_ms: int | None, read_ms: int | None) -> Timeouts:
        """These times, or the defaults for None and 0."""
        return cls(connect_ms or DEFAULT_TIMEOUT_MS, read_ms or DEFAULT_TIMEOUT_MS)


@dataclass(frozen=True, slots=True)
class Response:
    """A complete response of any status. Immutable; `repr` hides its body."""

    status: int
    body: bytes = field(repr=False)


def request(
    url: str,
    *,
    most_bytes: int,
    timeouts: Timeouts,
    context: ssl.SSLContext | None = None,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """A GET request, or with `body` a POST request. HttpsError without a response."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        _Http(timeouts),
        _Https(timeouts, context or ssl.create_default_context()),
    ):
        opener.add_handler(handler)
    deadline = time.monotonic() + (timeouts.connect_ms + MOST_READS_OF_TIMEOUT * timeouts.read_ms) / 1000
    for _ in range(MOST_REDIRECTS + 1):
        if urlsplit(url).scheme not in ("http", "https"):
            raise HttpsError("the URL is neither http nor https")
        try:
            asked = urllib.request.Request(url, body, dict(headers or {}))
            with opener.open(asked, timeout=timeouts.connect_ms / 1000) as response:
                target = response.headers.get("Location") if response.status in REDIRECTS else None
                if target is None:
                    return Response(response.status, _read(response, most_bytes, deadline))
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            text = f"{type(reason).__name__}: {reason}" if isinstance(reason, Exception) else str(reason)
            raise HttpsError(text) from None
        if body is not None:
            raise HttpsError(f"the endpoint answered with a redirect ({response.status})")
        target = urljoin(url, target)
        if urlsplit(target).scheme != urlsplit(url).scheme:
            raise HttpsError("the endpoint redirects to another scheme")
        url = target
    raise HttpsError(f"the endpoint redirects more than {MOST_REDIRECTS} times")


def _read(response: http.client.HTTPResponse, most_bytes: int, deadline: float) -> bytes:
    announced = response.headers.get("Content-Length", "")
    if announced.isdecimal() and int(announced[:20]) > most_bytes:
        raise HttpsError(f"the response has more than {most_bytes} bytes")
    chunks: list[bytes] = []
    size = 0
    while chunk := response.read1(CHUNK):
        size += len(chunk)
        if size > most_bytes:
            raise HttpsError(f"the response has more than {most_bytes} bytes")
        if time.monotonic() > deadline:
            raise HttpsError("the response is too slow")
        chunks.append(chunk)
    return b"".join(chunks)


def _connection(kind: type[http.client.HTTPConnection], timeouts: Timeouts, **options: Any) -> Any:
    """A class of connections with a timeout for the connection and one for bytes."""

    class Connection(kind):  # type: ignore[valid-type, misc]
        def __init__(self, host: str, **arguments: Any) -> None:
            super().__init__(host, **{**options, **arguments})

        def connect(self) -> None:
            super().connect()
            self.sock.settimeout(timeouts.read_ms / 1000)

    return Connection


class _Http(urllib.request.HTTPHandler):
    def __init__(self, timeouts: Timeouts) -> None:
        super().__init__()
        self._class = _connection(http.client.HTTPConnection, timeouts)

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._class, req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, timeouts: Timeouts, context: ssl.SSLContext) -> None:
        super().__init__(context=context)
        self._class = _connection(http.client.HTTPSConnection, timeouts, context=context)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._class, req)


def trust(options: Mapping[str, str], key: str) -> ssl.SSLContext | None:
    """A context by the ssl.* options of a JAAS entry; None without such options.

    It blocks on the disk. ConfigError names `key`, the place of the options.
    """
    given = {name: value for name, value in options.items() if name.startswith("ssl.")}
    if not given:
        return None
    from kafkapy.config.broker import BROKER_CONFIG_DEF
    from kafkapy.security.ssl.settings import KeyOrigin, SslSettings
    from kafkapy.security.ssl.stores import load_keystore, load_truststore

    parsed = {name: BROKER_CONFIG_DEF[name].parse(value) for name, value in given.items() if name in BROKER_CONFIG_DEF}
    settings = SslSettings.from_config(parsed.get, {name: KeyOrigin(f"{name} of {key}") for name in parsed})
    trusted = load_truststore(settings)
    context = ssl.create_default_context(cadata=None if trusted is None else b"".join(trusted))
    context.check_hostname = settings.endpoint_identification_algorithm.lower() == "https"
    own = load_keystore(settings)
    if own is not None:
        load_certificate(context, own.private_key, own.chain)
    return context


def load_certificate(context: ssl.SSLContext, private_key: bytes, chain: Sequence[bytes]) -> None:
    """Use a certificate for clients.

    The ssl module reads only files, so they lie in memory.
    """
    pem = "".join(ssl.DER_cert_to_PEM_cert(certificate) for certificate in chain)
    key = base64.encodebytes(private_key).decode()
    pem += f"-----BEGIN PRIVATE KEY-----\n{key}-----END PRIVATE KEY-----\n"
    descriptor = os.memfd_create("kafkapy-certificate")
    with os.fdopen(descriptor, "wb") as file:
        file.write(pem.encode())
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
