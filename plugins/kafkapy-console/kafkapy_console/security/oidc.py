"""Login by OpenID Connect: the authorization code flow with PKCE, a state and a nonce.

Source: RFC 6749, RFC 7636, OpenID Connect Core 1.0. The provider's addresses and keys come from its discovery document.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import httpx
import jwt

from kafkapy_console.errors import ForbiddenError, RemoteServiceError
from kafkapy_console.settings import OidcSettings

__all__ = ["Oidc", "OidcUser"]

ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
PENDING_S = 600
MOST_PENDING = 10_000
LEEWAY_S = 60
KEYS_EVERY_S = 10
"""The keys are read again for an unknown key id, but not more often."""


@dataclass(frozen=True)
class OidcUser:
    """A person as the provider names them."""

    name: str
    groups: tuple[str, ...]


@dataclass(frozen=True)
class _Pending:
    """A login that has begun."""

    verifier: str
    nonce: str
    browser: str
    began: float


class Oidc:
    """The client of one provider."""

    def __init__(self, settings: OidcSettings, http: httpx.AsyncClient) -> None:
        self._settings = settings
        self._http = http
        self._document: dict[str, Any] | None = None
        self._keys: dict[str, Any] = {}
        self._keys_read = 0.0
        self._pending: dict[str, _Pending] = {}
        self._lock = asyncio.Lock()

    async def begin(self, redirect_uri: str, browser: str) -> str:
        """The provider's address for a login. `browser` is the id of the session that begins it."""
        document = await self._discovered()
        now = time.monotonic()
        self._pending = {state: each for state, each in self._pending.items() if now - each.began < PENDING_S}
        while len(self._pending) >= MOST_PENDING:
            self._pending.pop(next(iter(self._pending)))
        state, verifier, nonce = (secrets.token_urlsafe(32) for _ in range(3))
        self._pending[state] = _Pending(verifier, nonce, browser, now)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        query = urlencode(
            {
                "response_type": "code",
                "client_id": self._settings.client_id,
                "redirect_uri": redirect_uri,
                "scope": " ".join(self._settings.scopes),
                "state": state,
                "nonce": nonce,
                "code_challenge": challenge,
                "code_challenge_method": "S256",
            }
        )
        endpoint = document["authorization_endpoint"]
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{query}"

    async def finish(self, query: Mapping[str, str], redirect_uri: str, browser: str) -> OidcUser:
        """The user of a login that comes back. ForbiddenError for one that did not begin in this browser."""
        pending = self._pending.pop(query.get("state", ""), None)
        if pending is None or pending.browser != browser or time.monotonic() - pending.began > PENDING_S:
            raise ForbiddenError("This login did not begin in this browser, or it began too long ago.")
        if "error" in query:
            told = query.get("error_description") or query["error"]
            raise ForbiddenError(f"The identity provider refused the login: {told[:200]}")
        document = await self._discovered()
        tokens = await self._json(
            "POST",
            document["token_endpoint"],
            data={
                "grant_type": "authorization_code",
                "code": query.get("code", ""),
                "redirect_uri": redirect_uri,
                "code_verifier": pending.verifier,
                "client_id": self._settings.client_id,
                "client_secret": self._settings.client_secret,
            },
        )
        claims = await self._claims(str(tokens.get("id_token", "")), pending.nonce)
        claim = self._settings.user_claim
        name = claims.get(claim)
        if not isinstance(name, str) or not name:
            # Another claim might be one that users choose for themselves.
            raise ForbiddenError(f"The token of the identity provider has no {claim}, which names the user.")
        if claim == "email" and claims.get("email_verified") is not True:
            raise ForbiddenError("The identity provider has not verified the email address of the user.")
        groups = claims.get(self._settings.groups_claim) or ()
        return OidcUser(name, (groups,) if isinstance(groups, str) else tuple(map(str, groups)))

    async def _claims(self, token: str, nonce: str) -> dict[str, Any]:
        try:
            header = jwt.get_unverified_header(token)
            key = await self._key(str(header.get("kid", "")))
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=ALGORITHMS,
                audience=self._settings.client_id,
                issuer=(await self._discovered())["issuer"],
                leeway=LEEWAY_S,
                options={"require": ["exp", "iat", "sub", "aud", "iss"]},
            )
        except jwt.PyJWTError as error:
            raise ForbiddenError(f"The token of the identity provider is not valid: {error}") from None
        if not secrets.compare_digest(str(claims.get("nonce", "")), nonce):
            raise ForbiddenError("The token of the identity provider belongs to another login.")
        return claims

    async def _key(self, key_id: str) -> Any:
        if key_id not in self._keys and time.monotonic() - self._keys_read > KEYS_EVERY_S:
            document = await self._discovered()
            found = await self._json("GET", document["jwks_uri"])
            self._keys_read = time.monotonic()
            keys = jwt.PyJWKSet.from_dict(found).keys
            self._keys = {str(each.key_id or ""): each.key for each in keys}
        if key_id in self._keys:
            return self._keys[key_id]
        if not key_id and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        raise ForbiddenError("The token of the identity provider has an unknown key.")

    async def _discovered(self) -> dict[str, Any]:
        async with self._lock:
            if self._document is None:
                document = await self._json("GET", f"{self._settings.issuer}/.well-known/openid-configuration")
                if str(document.get("issuer", "")).rstrip("/") != self._settings.issuer:
                    raise RemoteServiceError("The identity provider names another issuer than the settings.")
                for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
                    if not isinstance(document.get(name), str):
                        raise RemoteServiceError(f"The identity provider's discovery document has no {name}.")
                self._document = document
        return self._document

    async def _json(self, method: str, url: str, **arguments: Any) -> dict[str, Any]:
        try:
            response = await self._http.request(method, url, **arguments)
            found = response.json()
        except (httpx.HTTPError, ValueError) as error:
            raise RemoteServiceError(f"The identity provider gives no answer: {type(error).__name__}") from None
        if response.status_code != 200 or not isinstance(found, dict):
            told = found.get("error_description") or found.get("error") if isinstance(found, dict) else None
            raise RemoteServiceError(
                f"The identity provider answered {response.status_code}: {told or 'no reason given'}",
                response.status_code,
            )
        return found
