"""The Kerberos tickets of a client, and their renewal.

The tickets come from a keytab, from a ticket cache, or from the library's defaults. A keytab gives new tickets at any
time; a ticket cache is renewed by kinit -R. Source: org.apache.kafka.common.security.kerberos.KerberosLogin.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import random
import subprocess
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from kafkapy.errors import KafkaConnectionError, KafkaError, SaslAuthenticationFailedError
from kafkapy.security.kerberos.jaas import KerberosOptions
from kafkapy.security.kerberos.library import kerberos_only, principal_name, reason, unreachable

__all__ = ["RenewalSettings", "Tickets", "kerberos_error", "pause_before_renewal"]

KINIT_TIMEOUT_S: Final = 60.0
MOST_ERROR_CHARACTERS: Final = 500
RETRY_S: Final = 10.0
"""Pause after a renewal that failed."""
LEAST_PAUSE_S: Final = 1.0
"""Pause before a renewal when tickets end at once."""

logger = logging.getLogger("org.apache.kafka.common.security.kerberos.KerberosLogin")
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class RenewalSettings:
    """The keys sasl.kerberos.* about renewals. Immutable."""

    kinit: str = "/usr/bin/kinit"
    window_factor: float = 0.8
    jitter: float = 0.05
    min_time_before_relogin_ms: int = 60_000


def pause_before_renewal(lifetime_s: float, settings: RenewalSettings, chance: float) -> float:
    """Seconds until the renewal of tickets with this life.

    A renewal is due after a share of the life, but not earlier than the least time between logins, unless the tickets
    end before. `chance` is a random number below 1.
    """
    least_s = settings.min_time_before_relogin_ms / 1000
    proposed = lifetime_s * min(1.0, settings.window_factor + settings.jitter * chance)
    return max(proposed if least_s > lifetime_s else max(proposed, least_s), LEAST_PAUSE_S)


def kerberos_error(error: Exception, doing: str) -> KafkaError:
    """A client's error for an error of the library.

    It is retriable when a retry may cure it.
    """
    text = f"GSSAPI failed {doing}: {reason(error)}"
    return KafkaConnectionError(text) if unreachable(error) else SaslAuthenticationFailedError(text)


class Tickets:
    """The credentials of one client, on the client's loop."""

    def __init__(
        self,
        gssapi: Any,
        options: KerberosOptions,
        settings: RenewalSettings,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._gssapi = gssapi
        self._options = options
        self._settings = settings
        self._sleep = sleep
        self._monotonic = monotonic
        self._memory = f"MEMORY:kafkapy-{os.getpid()}-{next(_numbers)}"
        """The ticket cache of a keytab's tickets, which belongs to these tickets alone."""
        self._credentials: Any = None
        self._lifetime_s = 0.0
        self._acquired_at = 0.0
        self._lock = asyncio.Lock()
        self._renewals: asyncio.Task[None] | None = None

    async def credentials(self) -> Any:
        """Credentials that are valid now.

        KafkaConnectionError when a retry may help; else AuthenticationError.
        """
        async with self._lock:
            left = self._lifetime_s - (self._monotonic() - self._acquired_at)
            # Others may change a ticket cache at any time; reading it is cheap.
            if self._credentials is None or left <= 0 or not self._of_keytab:
                await self._log_in()
            if self._renewals is None and (self._of_keytab or self._options.use_ticket_cache):
                self._renewals = asyncio.create_task(self._renew(), name="kafkapy-kerberos-renewal")
            return self._credentials

    async def close(self) -> None:
        """End the renewals."""
        renewals, self._renewals = self._renewals, None
        if renewals is not None:
            renewals.cancel()
            await asyncio.gather(renewals, return_exceptions=True)
        self._credentials = None

    @property
    def _of_keytab(self) -> bool:
        return self._options.keytab is not None and not self._options.use_ticket_cache

    async def _log_in(self) -> None:
        try:
            self._credentials, self._lifetime_s = await asyncio.to_thread(self._acquire)
        except self._gssapi.exceptions.GSSError as error:
            raise kerberos_error(error, f"to get a ticket from {self._source}") from None
        self._acquired_at = self._monotonic()

    def _acquire(self) -> tuple[Any, float]:
        """Credentials and their remaining life in s.

        It may wait for a key distribution centre.
        """
        options = self._options
        if options.use_ticket_cache and options.keytab is not None:
            # As in Java, the keytab is for an empty cache.
            try:
                return self._from(self._cache_store())
            except self._gssapi.exceptions.GSSError:
                return self._from({"client_keytab": options.keytab, "ccache": self._memory})
        if options.keytab is not None:
            return self._from({"client_keytab": options.keytab, "ccache": self._memory})
        return self._from(self._cache_store())

    def _cache_store(self) -> dict[str, str] | None:
        return None if self._options.ticket_cache is None else {"ccache": self._options.ticket_cache}

    def _from(self, store: dict[str, str] | None) -> tuple[Any, float]:
        gssapi, principal = self._gssapi, self._options.principal
        found = gssapi.Credentials(
            name=None if principal is None else principal_name(gssapi, principal),
            usage="initiate",
            mechs=kerberos_only(gssapi),
            store=store,
        )
        return found, float(found.lifetime or 0)

    async def _renew(self) -> None:
        """Renew the tickets before they end, as long as the client lives."""
        pause = pause_before_renewal(self._lifetime_s, self._settings, random.random())
        while True:
            await self._sleep(pause)
            try:
                if self._options.use_ticket_cache:
                    await asyncio.to_thread(self._run_kinit)
                async with self._lock:
                    await self._log_in()
                pause = pause_before_renewal(self._lifetime_s, self._settings, random.random())
            except (KafkaError, OSError, subprocess.SubprocessError) as error:
                logger.warning("The Kerberos tickets of %s could not be renewed: %s", self._shown, error)
                pause = RETRY_S

    @property
    def _source(self) -> str:
        """The place of the tickets, for errors."""
        options = self._options
        if options.keytab is not None:
            return f"the keytab {options.keytab}"
        if options.ticket_cache is not None:
            return f"the ticket cache {options.ticket_cache}"
        return "the default ticket cache (see klist and kinit)"

    @property
    def _shown(self) -> str:
        return self._options.principal or "the default principal"

    def _run_kinit(self) -> None:
        """kinit -R, which renews the ticket cache. It blocks. OSError or SubprocessError when it fails."""
        cache = self._options.ticket_cache
        command = [self._settings.kinit, "-R", *(() if cache is None else ("-c", cache))]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=KINIT_TIMEOUT_S, check=False
        )
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip()
            raise OSError(f"{' '.join(command)} failed: {said[:MOST_ERROR_CHARACTERS]}")
