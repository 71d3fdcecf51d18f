"""DelegationTokenManager: create, renew, expire and spread delegation tokens (KIP-48, KIP-373).

Any broker writes tokens; a notification makes all brokers read them. The controller removes expired ones. The secret of
a token is in no store: every broker derives it from delegation.token.secret.key, which must be the same everywhere.
Source: kafka.server.DelegationTokenManager and kafka.server.DelegationTokenManagerZk.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from kafkapy.errors import ErrorCode, error_for
from kafkapy.metadata.change_notifications import ChangeNotifications
from kafkapy.metadata.delegation_tokens import (
    TOKEN_CHANGE,
    TOKEN_CHANGES,
    TOKENS,
    decode_token,
    encode_token,
    token_path,
)
from kafkapy.metadata.store import Create, Delete, MetadataStore, NodeExistsError, NoNodeError, SetData
from kafkapy.security.delegation_tokens import DelegationTokenCache, TokenInformation
from kafkapy.types import random_uuid, uuid_to_string

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig
    from kafkapy.security.principal import KafkaPrincipal

__all__ = ["DelegationTokenManager"]

NO_TIME: Final = -1
"""The time in a response with an error."""

logger = logging.getLogger("kafka.server.DelegationTokenManagerZk")


class DelegationTokenManager:
    """The tokens of the cluster.

    Owned by the broker; used on the control loop. Without delegation.token.secret.key every request fails with
    DELEGATION_TOKEN_AUTH_DISABLED.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MetadataStore,
        *,
        clock_ms: Callable[[], int] = lambda: int(time.time() * 1000),
    ) -> None:
        secret = config.get_password("delegation.token.secret.key")
        secret = secret or config.get_password("delegation.token.master.key")
        self.enabled = bool(secret)
        self.cache = DelegationTokenCache(secret.value if secret else None)
        self._store = store
        self._clock_ms = clock_ms
        self._max_lifetime_ms = config.get_int("delegation.token.max.lifetime.ms")
        self._expiry_time_ms = config.get_int("delegation.token.expiry.time.ms")
        self._changes = ChangeNotifications(store, TOKEN_CHANGES, TOKEN_CHANGE, self._changed, logger=logger)
        self._order = asyncio.Lock()
        """Changes by this broker run one after the other."""

    async def start(self) -> None:
        """Read all tokens, and follow changes. Without a secret key, nothing."""
        if not self.enabled:
            return
        await self._store.ensure_path(TOKENS)
        await self._changes.start()
        await self._read(await self._store.children(TOKENS))

    async def stop(self) -> None:
        """Follow changes no more."""
        if self.enabled:
            await self._changes.stop()

    async def create(
        self, owner: KafkaPrincipal, requester: KafkaPrincipal, renewers: Sequence[KafkaPrincipal], max_lifetime_ms: int
    ) -> TokenInformation:
        """A new token. A lifetime of 0 ms or less means delegation.token.max.lifetime.ms."""
        self._check_enabled()
        now_ms = self._clock_ms()
        lifetime_ms = self._max_lifetime_ms
        if max_lifetime_ms > 0:
            lifetime_ms = min(max_lifetime_ms, lifetime_ms)
        max_timestamp = now_ms + lifetime_ms
        token = TokenInformation(
            token_id=uuid_to_string(random_uuid()),
            owner=owner,
            requester=requester,
            renewers=tuple(renewers),
            issue_timestamp=now_ms,
            max_timestamp=max_timestamp,
            expiry_timestamp=min(max_timestamp, now_ms + self._expiry_time_ms),
        )
        async with self._order:
            await self._write(token)
        logger.info("Delegation token %s of owner %s is created", token.token_id, owner)
        return token

    async def renew(self, principal: KafkaPrincipal, secret: bytes, period_ms: int) -> int:
        """Move a token's expiry to now + period; the new time in ms.

        A negative period means delegation.token.expiry.time.ms. Errors: DELEGATION_TOKEN_NOT_FOUND,
        DELEGATION_TOKEN_OWNER_MISMATCH, DELEGATION_TOKEN_EXPIRED.
        """
        self._check_enabled()
        async with self._order:
            token = self._alterable(principal, secret)
            now_ms = self._clock_ms()
            if token.expired(now_ms):
                raise error_for(ErrorCode.DELEGATION_TOKEN_EXPIRED)
            return await self._move_expiry(token, now_ms + (self._expiry_time_ms if period_ms < 0 else period_ms))

    async def expire(self, principal: KafkaPrincipal, secret: bytes, period_ms: int) -> int:
        """Move a token's expiry to now + period; the new time in ms.

        A negative period removes the token at once.
        The errors are those of `renew`.
        """
        self._check_enabled()
        async with self._order:
            token = self._alterable(principal, secret)
            now_ms = self._clock_ms()
            if period_ms < 0:
                await self._remove(token)
                return now_ms
            if token.expired(now_ms):
                raise error_for(ErrorCode.DELEGATION_TOKEN_EXPIRED)
            return await self._move_expiry(token, now_ms + period_ms)

    async def remove_expired(self) -> None:
        """Remove all tokens that have expired. The controller calls it from time to time."""
        if not self.enabled:
            return
        async with self._order:
            now_ms = self._clock_ms()
            for token in self.cache.tokens():
                if token.expired(now_ms):
                    await self._remove(token)

    def _check_enabled(self) -> None:
        if not self.enabled:
            raise error_for(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)

    def _alterable(self, principal: KafkaPrincipal, secret: bytes) -> TokenInformation:
        token = self.cache.token_of_hmac(secret)
        if token is None:
            raise error_for(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        if principal != token.owner and principal not in token.renewers:
            raise error_for(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
        return token

    async def _move_expiry(self, token: TokenInformation, time_ms: int) -> int:
        changed = token.expires_at(min(token.max_timestamp, time_ms))
        await self._write(changed)
        logger.info("Delegation token %s of owner %s has another expiry time", token.token_id, token.owner)
        return changed.expiry_timestamp

    async def _write(self, token: TokenInformation) -> None:
        path, value = token_path(token.token_id), encode_token(token)
        notification = self._changes.announcement(token.token_id.encode())
        try:
            await self._store.commit([SetData(path, value), notification])
        except NoNodeError:
            try:
                await self._store.commit([Create(path, value), notification])
            except NodeExistsError:
                await self._store.commit([SetData(path, value), notification])
        self.cache.update(token)

    async def _remove(self, token: TokenInformation) -> None:
        try:
            notification = self._changes.announcement(token.token_id.encode())
            await self._store.commit([Delete(token_path(token.token_id)), notification])
        except NoNodeError:
            pass  # another broker was faster
        self.cache.remove(token.token_id)
        logger.info("Delegation token expired: %s of owner %s", token.token_id, token.owner)

    async def _changed(self, values: list[bytes]) -> None:
        await self._read(list(dict.fromkeys(value.decode(errors="replace") for value in values)))

    async def _read(self, token_ids: Sequence[str]) -> None:
        found = await self._store.get_many([token_path(each) for each in token_ids])
        for token_id, each in zip(token_ids, found, strict=True):
            if each is None:
                self.cache.remove(token_id)
                continue
            try:
                self.cache.update(decode_token(each[0]))
            except ValueError as error:
                logger.error("Delegation token %s cannot be read: %s", token_id, error)
