"""A token of OAUTHBEARER, fetched at first use and refreshed before it ends.

Source: org.apache.kafka.common.security.oauthbearer.internals.expiring.ExpiringCredentialRefreshingLogin.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from kafkapy.errors import KafkaError, SaslAuthenticationFailedError

__all__ = ["ClientToken", "FreshToken", "RefreshSettings", "TokenSource", "refresh_time_ms"]

RETRY_MS: Final = 10_000
"""Pause after a refresh that failed."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ClientToken:
    """A token with what the client knows about it.

    Immutable; its repr hides the token.
    """

    value: str = field(repr=False)
    expires_ms: int | None = None
    """Its end in ms since 1970.

    None when unknown, so each authentication asks for a new token.
    """
    start_ms: int | None = None
    """Its issue in ms since 1970."""
    extensions: Mapping[str, str] = field(default_factory=dict)


class TokenSource(Protocol):
    """Gives tokens. Only the client's loop uses it."""

    async def token(self, host: str) -> ClientToken:
        """A new token for the broker at this host.

        Blocking work runs on another thread. KafkaConnectionError when a retry may help; else AuthenticationError.
        """


@dataclass(frozen=True, slots=True)
class RefreshSettings:
    """The keys sasl.login.refresh.*. Immutable."""

    window_factor: float = 0.8
    window_jitter: float = 0.05
    min_period_seconds: int = 60
    buffer_seconds: int = 300

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> RefreshSettings:
        """The settings of a client."""
        prefix, defaults = "sasl.login.refresh.", cls()
        return cls(
            config.get(f"{prefix}window.factor", defaults.window_factor),
            config.get(f"{prefix}window.jitter", defaults.window_jitter),
            config.get(f"{prefix}min.period.seconds", defaults.min_period_seconds),
            config.get(f"{prefix}buffer.seconds", defaults.buffer_seconds),
        )


def refresh_time_ms(token: ClientToken, now_ms: int, settings: RefreshSettings, chance: float) -> int:
    """The time of the next refresh in ms since 1970.

    It is a share of the token's life, but not within the buffer before its end, nor sooner than the least period. For a
    token that lives too short for both, it is that share of the time that is left. `chance` is a random number below 1.
    """
    expires_ms = token.expires_ms
    assert expires_ms is not None
    if now_ms > expires_ms:
        return now_ms + RETRY_MS
    share = settings.window_factor + settings.window_jitter * chance
    least_ms, buffer_ms = settings.min_period_seconds * 1000, settings.buffer_seconds * 1000
    if now_ms + least_ms + buffer_ms > expires_ms:
        return now_ms + int((expires_ms - now_ms) * share)
    start_ms = now_ms if token.start_ms is None else token.start_ms
    proposed_ms = start_ms + int((expires_ms - start_ms) * share)
    return max(min(proposed_ms, expires_ms - buffer_ms), now_ms + least_ms)


class FreshToken:
    """The token of one client, on the client's loop."""

    def __init__(
        self,
        source: TokenSource,
        settings: RefreshSettings,
        *,
        clock_ms: Callable[[], int] = lambda: int(time.time() * 1000),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._source = source
        self._settings = settings
        self._clock_ms = clock_ms
        self._sleep = sleep
        self._token: ClientToken | None = None
        self._lock = asyncio.Lock()
        self._refreshes: asyncio.Task[None] | None = None

    async def get(self, host: str) -> ClientToken:
        """A token that has not ended. The errors of the source."""
        async with self._lock:
            token = self._token
            if token is None or token.expires_ms is None or token.expires_ms <= self._clock_ms():
                token = self._token = await self._source.token(host)
                if token.expires_ms is not None and token.expires_ms <= self._clock_ms():
                    self._token = None
                    raise SaslAuthenticationFailedError("OAUTHBEARER failed: the token provider gave an expired token")
            if token.expires_ms is not None and self._refreshes is None:
                self._refreshes = asyncio.create_task(self._refresh(host), name="kafkapy-token-refresh")
            return token

    async def close(self) -> None:
        """Ends the refreshes."""
        refreshes, self._refreshes = self._refreshes, None
        if refreshes is not None:
            refreshes.cancel()
            await asyncio.gather(refreshes, return_exceptions=True)
        self._token = None

    async def _refresh(self, host: str) -> None:
        """Fetches a new token before the current one ends."""
        while True:
            token, now_ms = self._token, self._clock_ms()
            if token is None or token.expires_ms is None:
                # The next authentication asks for a token, and begins the refreshes again.
                self._refreshes = None
                return
            due_ms = refresh_time_ms(token, now_ms, self._settings, random.random())
            await self._sleep((due_ms - now_ms) / 1000)
            while True:
                try:
                    fresh = await self._source.token(host)
                    break
                except KafkaError as error:
                    log.warning("The token of OAUTHBEARER could not be refreshed; the next attempt follows: %s", error)
                await self._sleep(RETRY_MS / 1000)
            async with self._lock:
                self._token = fresh
