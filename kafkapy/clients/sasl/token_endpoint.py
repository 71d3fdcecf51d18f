"""Tokens of OAUTHBEARER from a token endpoint or a file, or without signature.

A token endpoint gives a token for a client id and a secret (client credentials, RFC 6749), or for an assertion that a
private key signs (RFC 7523). Sources: org.apache.kafka.common.security.oauthbearer.ClientCredentialsJwtRetriever,
JwtBearerJwtRetriever, FileJwtRetriever and internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import time
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote_plus, urlsplit

from kafkapy.clients.sasl.refresh import ClientToken
from kafkapy.clients.sasl.token_providers import checked_token
from kafkapy.errors import KafkaConnectionError, SaslAuthenticationFailedError
from kafkapy.security.oauthbearer.https import HttpsError, Timeouts, request
from kafkapy.security.oauthbearer.tokens import MOST_TOKEN_BYTES

__all__ = ["EndpointSettings", "EndpointSource", "FileSource", "UnsecuredSource"]

MOST_RESPONSE_BYTES: Final = 1_048_576
MOST_SHOWN: Final = 500
SUCCESS: Final = (200, 201)
FINAL_STATUSES: Final = frozenset((400, 401, 402, 403, 404, 405, 406, 407, 409, 410, 411, 412, 413, 414, 415, 501, 505))
"""Statuses after which a retry is pointless."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EndpointSettings:
    """A token endpoint, and how to ask it. Immutable; its repr shows no secret."""

    url: str = field(repr=False)
    """It may have a secret in its query."""
    authorization: str | None = field(default=None, repr=False)
    """The header Authorization."""
    timeouts: Timeouts = field(default_factory=Timeouts)
    backoff_ms: int = 100
    backoff_max_ms: int = 10_000
    """Attempts are repeated until this time has passed."""
    context: ssl.SSLContext | None = field(default=None, repr=False)
    extensions: Mapping[str, str] = field(default_factory=dict)

    @property
    def shown(self) -> str:
        """The URL for errors."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"


def basic_authorization(client_id: str, secret: str, urlencode: bool) -> str:
    """The header of client id and secret (RFC 7617).

    RFC 6749 wants both URL-encoded, which some endpoints refuse.
    """
    if urlencode:
        client_id, secret = quote_plus(client_id), quote_plus(secret)
    return f"Basic {b64encode(f'{client_id}:{secret}'.encode()).decode()}"


class EndpointSource:
    """Tokens of a token endpoint."""

    def __init__(
        self,
        settings: EndpointSettings,
        body: Callable[[], Mapping[str, str]],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`body` gives the fields of each request's form; it may block."""
        self._settings = settings
        self._body = body
        self._clock = clock
        self._sleep = sleep

    async def token(self, host: str) -> ClientToken:
        """A new token.

        A failed attempt is repeated with growing pauses, unless the endpoint's answer is final.
        """
        settings = self._settings
        end = self._clock() + settings.backoff_max_ms / 1000
        pause = settings.backoff_ms / 1000
        while True:
            try:
                return await asyncio.to_thread(self._fetch)
            except KafkaConnectionError as error:
                left = end - self._clock()
                if left <= 0 or pause <= 0:
                    raise
                log.info("The token endpoint is asked again: %s", error)
            await self._sleep(min(pause, left))
            pause *= 2

    def _fetch(self) -> ClientToken:
        settings = self._settings
        headers = {
            "Accept": "application/json",
            "Cache-Control": "no-cache",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        if settings.authorization is not None:
            headers["Authorization"] = settings.authorization
        form = "&".join(f"{name}={quote_plus(value)}" for name, value in self._body().items())
        began_ms = int(time.time() * 1000)
        try:
            response = request(
                settings.url,
                most_bytes=MOST_RESPONSE_BYTES,
                timeouts=settings.timeouts,
                context=settings.context,
                body=form.encode(),
                headers=headers,
            )
        except HttpsError as error:
            raise KafkaConnectionError(f"OAUTHBEARER: no token from {settings.shown}: {error}") from None
        if response.status not in SUCCESS:
            text = f"{settings.shown} gave no token: status {response.status}{_error_text(response.body)}"
            if response.status in FINAL_STATUSES:
                raise SaslAuthenticationFailedError(f"OAUTHBEARER failed: {text}")
            raise KafkaConnectionError(f"OAUTHBEARER: {text}")
        return self._parsed(response.body, began_ms)

    def _parsed(self, body: bytes, began_ms: int) -> ClientToken:
        """The token of a response. Its text stays out of errors."""
        shown = self._settings.shown
        answer = _json_object(body)
        if answer is None:
            raise KafkaConnectionError(f"OAUTHBEARER: the answer of {shown} is no JSON object")
        if not isinstance(answer.get("access_token"), str):
            raise SaslAuthenticationFailedError(f"OAUTHBEARER failed: the answer of {shown} has no access_token")
        token = checked_token(answer["access_token"], None, self._settings.extensions)
        expires_in = answer.get("expires_in")
        if token.expires_ms is None and isinstance(expires_in, (int, float)) and 0 < expires_in < 2**40:
            # A token that is no JSON web token.
            return ClientToken(token.value, began_ms + int(expires_in * 1000), began_ms, token.extensions)
        return token


def _json_object(body: bytes) -> dict[str, Any] | None:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None


def _error_text(body: bytes) -> str:
    """The endpoint's error (RFC 6749, section 5.2), which has no secret."""
    answer = _json_object(body)
    if answer is None:
        return ""
    for name, description in (("error", "error_description"), ("errorCode", "errorSummary")):
        if name in answer:
            text = f" ({answer[name]}: {answer[description]})" if description in answer else f" ({answer[name]})"
            return text[:MOST_SHOWN]
    return ""


class FileSource:
    """The token in a file, which another program keeps fresh."""

    def __init__(self, path: Path, extensions: Mapping[str, str]) -> None:
        self._path = path
        self._extensions = extensions

    async def token(self, host: str) -> ClientToken:
        """The token that the file has now."""
        return await asyncio.to_thread(self._read)

    def _read(self) -> ClientToken:
        try:
            with self._path.open("rb") as file:
                data = file.read(MOST_TOKEN_BYTES + 1)
        except OSError as error:
            raise SaslAuthenticationFailedError(
                f"OAUTHBEARER failed: the file {self._path} cannot be read: {error.strerror}"
            ) from None
        if len(data) > MOST_TOKEN_BYTES:
            raise SaslAuthenticationFailedError(
                f"OAUTHBEARER failed: the file {self._path} has more than {MOST_TOKEN_BYTES} bytes"
            )
        return checked_token(data, None, self._extensions)


class UnsecuredSource:
    """Tokens without a signature, for development."""

    def __init__(
        self,
        claims: Mapping[str, Any],
        lifetime_s: int,
        extensions: Mapping[str, str],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`claims` without iat and exp, which each token gets."""
        self._claims = dict(claims)
        self._lifetime_s = lifetime_s
        self._extensions = extensions
        self._clock = clock

    async def token(self, host: str) -> ClientToken:
        """A new token."""
        now = self._clock()
        claims = {**self._claims, "iat": now, "exp": now + self._lifetime_s}
        sections = (_section({"alg": "none"}), _section(claims), "")
        return checked_token(".".join(sections), None, self._extensions)


def _section(value: Mapping[str, Any]) -> str:
    return urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()
