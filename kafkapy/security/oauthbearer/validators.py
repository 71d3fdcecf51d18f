"""Checks of bearer tokens by the broker.

`UnsecuredValidator` accepts tokens without a signature: it is for development. `SecuredValidator` checks the signature
with the keys of an identity provider, and then the claims (KIP-768). Sources: org.apache.kafka.common.security.
oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler and internals.secured.
ValidatorAccessTokenValidator with org.jose4j.jwt.consumer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from kafkapy.security.oauthbearer.keys import ALGORITHMS, KeyCache
from kafkapy.security.oauthbearer.tokens import (
    BearerToken,
    CompactToken,
    TokenError,
    decode_section,
    milliseconds,
    text_claim,
    texts_claim,
)

__all__ = ["SecuredValidator", "TokenValidator", "UnsecuredValidator"]

Clock = Callable[[], int]
MOST_SIGNATURE_BYTES: Final = 4096


def _now_ms() -> int:
    return int(time.time() * 1000)


class TokenValidator(Protocol):
    """Checks tokens for a listener, on the control loop."""

    async def validate(self, token: str) -> BearerToken:
        """The token's principal and end. TokenError refuses the token."""

    async def close(self) -> None:
        """End all background work."""


class UnsecuredValidator:
    """Accepts tokens of the algorithm "none", by their claims alone."""

    def __init__(
        self,
        principal_claim: str = "sub",
        scope_claim: str = "scope",
        required_scope: Sequence[str] = (),
        clock_skew_ms: int = 0,
        *,
        clock_ms: Clock = _now_ms,
    ) -> None:
        self._principal_claim = principal_claim
        self._scope_claim = scope_claim
        self._required_scope = tuple(required_scope)
        self._skew_ms = clock_skew_ms
        self._clock_ms = clock_ms

    async def validate(self, token: str) -> BearerToken:
        """Check the times and the scope. TokenError for a token with a signature."""
        parsed = CompactToken.parse(token, basic_alphabet=True)
        if parsed.header.get("alg") != "none":
            raise TokenError("Unsecured JWS must have 'none' for an algorithm")
        if parsed.signature:
            raise TokenError("Unsecured JWS must not contain a digital signature")
        claims = parsed.claims()
        principal = text_claim(claims, self._principal_claim)
        issued_ms = milliseconds(claims, "iat")
        expires_ms = milliseconds(claims, "exp", required=True)
        assert expires_ms is not None
        now_ms = self._clock_ms()
        if issued_ms is not None and issued_ms > now_ms + self._skew_ms:
            raise TokenError(f"The Issued At value ({issued_ms} ms) is after the current time ({now_ms} ms)")
        _check_expiry(expires_ms, now_ms, self._skew_ms)
        if issued_ms is not None and expires_ms <= issued_ms:
            raise TokenError("The Expiration Time is not after the Issued At time")
        scope = frozenset(item.strip() for item in texts_claim(claims, self._scope_claim) if item.strip())
        missing = [item for item in self._required_scope if item not in scope]
        if missing:
            wanted = f"[{', '.join(self._required_scope)}]"
            raise TokenError(f"The provided scope misses {missing[0]} of {wanted}", "insufficient_scope", wanted)
        return BearerToken(token, principal, expires_ms, issued_ms, scope)

    async def close(self) -> None:
        """Does nothing."""


class SecuredValidator:
    """Checks signatures with an identity provider's keys, then the claims.

    It owns the key cache.
    """

    def __init__(
        self,
        keys: KeyCache,
        *,
        audiences: Sequence[str] = (),
        any_audience: bool = False,
        issuer: str | None = None,
        clock_skew_ms: int = 30_000,
        scope_claim: str = "scope",
        subject_claim: str = "sub",
        clock_ms: Clock = _now_ms,
    ) -> None:
        """Without `audiences`, a token that names one is refused, unless `any_audience` is set."""
        self._keys = keys
        self._audiences = frozenset(audiences)
        self._any_audience = any_audience
        self._issuer = issuer
        self._skew_ms = clock_skew_ms
        self._scope_claim = scope_claim
        self._subject_claim = subject_claim
        self._clock_ms = clock_ms

    async def validate(self, token: str) -> BearerToken:
        """Check the signature and the claims.

        The claims are not read before the signature is right.
        """
        parsed = CompactToken.parse(token.strip())
        await self._check_signature(parsed)
        claims = parsed.claims()
        now_ms = self._clock_ms()
        expires_ms = milliseconds(claims, "exp", required=True)
        issued_ms = milliseconds(claims, "iat", required=True)
        assert expires_ms is not None
        assert issued_ms is not None
        not_before_ms = milliseconds(claims, "nbf")
        _check_expiry(expires_ms, now_ms, self._skew_ms)
        if not_before_ms is not None and now_ms + self._skew_ms < not_before_ms:
            raise TokenError(f"The token is not valid yet: Not Before is {not_before_ms} ms, and it is {now_ms} ms")
        if expires_ms < issued_ms or (not_before_ms is not None and expires_ms < not_before_ms):
            raise TokenError("The Expiration Time is before the Issued At or the Not Before time")
        self._check_audience(claims)
        if self._issuer is not None and claims.get("iss") != self._issuer:
            raise TokenError(f"Issuer (iss) claim value does not match the expected value {self._issuer!r}")
        subject = text_claim(claims, self._subject_claim)
        return BearerToken(token, subject, expires_ms, issued_ms, self._scope(claims))

    async def close(self) -> None:
        """End the reads of the key set."""
        await self._keys.close()

    async def _check_signature(self, token: CompactToken) -> None:
        header = token.header
        algorithm = header.get("alg")
        if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
            shown = repr(algorithm[:20]) if isinstance(algorithm, str) else "none"
            raise TokenError(f"the signature algorithm {shown} is not one of {', '.join(ALGORITHMS)}")
        if "crit" in header or header.get("b64", True) is not True:
            raise TokenError("the token's header has critical extensions, which are not known")
        key_id = header.get("kid")
        if key_id is not None and not isinstance(key_id, str):
            raise TokenError("the key id is no string")
        if len(token.signature) > MOST_SIGNATURE_BYTES:
            raise TokenError(f"the signature has {len(token.signature)} bytes, more than {MOST_SIGNATURE_BYTES}")
        signature = decode_section(token.signature, "signature")
        if not token.payload:
            raise TokenError("Malformed JWT provided; the payload section is missing")
        keys, candidates = await self._keys.candidates(key_id, algorithm)
        if not any(keys.verify(at, algorithm, token.signed, signature) for at in candidates):
            raise TokenError("the token's signature is wrong")

    def _check_audience(self, claims: Mapping[str, Any]) -> None:
        found = texts_claim(claims, "aud")
        if self._audiences:
            if self._audiences.isdisjoint(found):
                raise TokenError(
                    f"Audience (aud) claim names none of the expected audiences ({', '.join(sorted(self._audiences))})"
                )
        elif found and not self._any_audience:
            raise TokenError(
                "Audience (aud) claim present in the JWT but sasl.oauthbearer.expected.audience is not set"
            )

    def _scope(self, claims: Mapping[str, Any]) -> frozenset[str]:
        found = [item.strip() for item in texts_claim(claims, self._scope_claim)]
        if "" in found:
            raise TokenError(f"{self._scope_claim} value must not contain only whitespace")
        if len(set(found)) != len(found):
            raise TokenError(f"{self._scope_claim} value must not contain duplicates")
        return frozenset(found)


def _check_expiry(expires_ms: int, now_ms: int, skew_ms: int) -> None:
    if now_ms - skew_ms >= expires_ms:
        raise TokenError(
            f"The token has expired: the time ({now_ms} ms) minus the allowed clock skew ({skew_ms} ms) is on or after "
            f"the Expiration Time ({expires_ms} ms)"
        )
