"""Delegation tokens (KIP-48, KIP-373), and the broker's memory of them.

A token has an id, and a secret: the HMAC-SHA-512 of the id under delegation.token.secret.key. A client logs in by SCRAM
with the id as user name, the secret in base64 as password, and the extension tokenauth=true. Sources:
org.apache.kafka.common.security.token.delegation.TokenInformation and
org.apache.kafka.common.security.token.delegation.internals.DelegationTokenCache.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from kafkapy.security.principal import KafkaPrincipal
from kafkapy.security.scram import (
    MIN_ITERATIONS,
    SCRAM_MECHANISMS,
    ScramCredential,
    ScramMechanism,
    credential_of_password,
)

__all__ = ["DelegationTokenCache", "TokenInformation", "token_hmac"]


@dataclass(frozen=True, slots=True)
class TokenInformation:
    """A token without its secret. Times in ms since 1970. Immutable."""

    token_id: str
    owner: KafkaPrincipal
    requester: KafkaPrincipal
    renewers: tuple[KafkaPrincipal, ...]
    issue_timestamp: int
    max_timestamp: int
    expiry_timestamp: int

    def owned_or_renewed_by(self, principal: KafkaPrincipal) -> bool:
        """Whether the principal is the token's owner, its requester, or a renewer."""
        return principal in (self.owner, self.requester) or principal in self.renewers

    def expires_at(self, time_ms: int) -> TokenInformation:
        """The same token with another time of expiry."""
        return replace(self, expiry_timestamp=time_ms)

    def expired(self, now_ms: int) -> bool:
        """Whether the token must not be used any more."""
        return self.expiry_timestamp < now_ms or self.max_timestamp < now_ms


def token_hmac(secret_key: str, token_id: str) -> bytes:
    """The secret of a token."""
    return hmac.digest(secret_key.encode(), token_id.encode(), "sha512")


@dataclass(slots=True)
class _Entry:
    token: TokenInformation
    hmac: bytes = field(repr=False)
    credentials: dict[str, ScramCredential] = field(default_factory=dict)


class DelegationTokenCache:
    """All tokens of the cluster, in memory.

    Owned by the broker and kept up to date from the metadata store; used on the control loop. A SCRAM credential of a
    token is made at its first use: that takes ms, once for each token and mechanism.
    """

    def __init__(self, secret_key: str | None) -> None:
        """`secret_key` is delegation.token.secret.key, None where there are no tokens."""
        self._secret_key = secret_key
        self._entries: dict[str, _Entry] = {}
        self._by_hmac: dict[bytes, str] = {}

    def update(self, token: TokenInformation) -> None:
        """Add a token, or replace it."""
        if self._secret_key is None:
            return
        known = self._entries.get(token.token_id)
        if known is not None:
            known.token = token
            return
        secret = token_hmac(self._secret_key, token.token_id)
        self._entries[token.token_id] = _Entry(token, secret)
        self._by_hmac[_key(secret)] = token.token_id

    def remove(self, token_id: str) -> None:
        """Forget a token."""
        entry = self._entries.pop(token_id, None)
        if entry is not None:
            self._by_hmac.pop(_key(entry.hmac), None)

    def tokens(self) -> Iterable[TokenInformation]:
        """All tokens."""
        return [entry.token for entry in self._entries.values()]

    def token(self, token_id: str) -> TokenInformation | None:
        """The token of that id, None when there is none."""
        entry = self._entries.get(token_id)
        return None if entry is None else entry.token

    def token_of_hmac(self, secret: bytes) -> TokenInformation | None:
        """The token with that secret, None when there is none."""
        token_id = self._by_hmac.get(_key(secret))
        return None if token_id is None else self._entries[token_id].token

    def hmac(self, token_id: str) -> bytes:
        """The secret of a token in the cache. KeyError."""
        return self._entries[token_id].hmac

    def credential(self, mechanism: str, token_id: str) -> ScramCredential | None:
        """The SCRAM credential of a token, or None."""
        entry = self._entries.get(token_id)
        if entry is None or mechanism not in SCRAM_MECHANISMS:
            return None
        made = entry.credentials.get(mechanism)
        if made is None:
            password = base64.b64encode(entry.hmac)
            made = credential_of_password(ScramMechanism.of_name(mechanism), password, MIN_ITERATIONS)
            entry.credentials[mechanism] = made
        return made


def _key(secret: bytes) -> bytes:
    """A digest of the secret, so that the time of a look-up says nothing about it."""
    return hashlib.sha256(secret).digest()
