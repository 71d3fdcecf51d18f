"""SASL/PLAIN: user name and password in one message (RFC 4616).

    [authzid] NUL user NUL password

The passwords are the options user_<name> of the listener's JAAS entry, or a callback handler checks them. Sources:
org.apache.kafka.common.security.plain.internals.PlainSaslServer and PlainServerCallbackHandler.
"""

from __future__ import annotations

import asyncio
import hmac
import inspect
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from kafkapy.errors import ConfigError, PluginError
from kafkapy.security.jaas import PLAIN_MODULE
from kafkapy.security.sasl.base import (
    CallbackHandler,
    MechanismSettings,
    SaslAuthenticationError,
    SaslServices,
)

PLAIN: Final = "PLAIN"
KAFKAS_HANDLER: Final = "org.apache.kafka.common.security.plain.internals.PlainServerCallbackHandler"
HANDLER_KEY: Final = "sasl.server.callback.handler.class"
JAAS_KEY: Final = "sasl.jaas.config"
USER_PREFIX: Final = "user_"
TOKENS: Final = 3
HANDLER_THREADS: Final = 8
"""Most checks of a callback handler without `async` at the same time; further ones wait."""

logger = logging.getLogger("org.apache.kafka.common.security.plain.internals.PlainSaslServer")

PasswordCheck = Callable[[str, str], Awaitable[bool]]


class PasswordTable:
    """The users of a JAAS entry.

    A check takes the same time for an unknown user and for a wrong password of any length.
    """

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._key = os.urandom(32)
        self._digests = {user: self._digest(password) for user, password in passwords.items()}
        self._nobody = os.urandom(32)

    async def check(self, user: str, password: str) -> bool:
        """Whether the user exists and has that password."""
        expected = self._digests.get(user, self._nobody)
        return hmac.compare_digest(self._digest(password), expected)

    def _digest(self, password: str) -> bytes:
        return hmac.digest(self._key, password.encode(), "sha256")


class PlainServer:
    """One login by user name and password."""

    mechanism = PLAIN
    session_expires_ms: int | None = None
    properties: Mapping[str, Any] = {}

    def __init__(self, check: PasswordCheck) -> None:
        self._check = check
        self.complete = False
        self.authorization_id = ""

    async def evaluate(self, response: bytes) -> bytes:
        """Take the one message, and answer nothing."""
        # As in Kafka, where bytes that are no UTF-8 become replacement characters: no password has them.
        tokens = response.decode(errors="replace").split("\0", TOKENS)
        if len(tokens) != TOKENS:
            raise SaslAuthenticationError(f"Invalid SASL/PLAIN response: expected {TOKENS} tokens, got {len(tokens)}")
        authorization_id, user, password = tokens
        if not user:
            raise SaslAuthenticationError("Authentication failed: username not specified")
        if not password:
            raise SaslAuthenticationError("Authentication failed: password not specified")
        try:
            accepted = await self._check(user, password)
        except Exception as error:
            # Foreign code: its text may have the password.
            logger.warning("The password of %.100r could not be checked: %s", user, type(error).__name__)
            raise SaslAuthenticationError(
                "Authentication failed: credentials for user could not be verified"
            ) from error
        if accepted is not True:
            raise SaslAuthenticationError("Authentication failed: Invalid username or password")
        if authorization_id and authorization_id != user:
            raise SaslAuthenticationError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.authorization_id = user
        self.complete = True
        return b""


class PlainMechanism:
    """PLAIN on one listener."""

    name = PLAIN

    def __init__(self) -> None:
        self._check: PasswordCheck | None = None
        self._handler: CallbackHandler | None = None
        self._threads: ThreadPoolExecutor | None = None

    async def configure(self, settings: MechanismSettings, services: SaslServices) -> None:
        """Read the users of sasl.jaas.config, or make the callback handler."""
        handler = settings.get(HANDLER_KEY)
        if handler and handler != KAFKAS_HANDLER:
            self._use_handler(handler, settings, services)
            return
        modules = {entry.login_module for entry in settings.jaas}
        if PLAIN_MODULE not in modules:
            reason = f"must have an entry of {PLAIN_MODULE} with an option user_<name> for each user"
            if modules:
                reason += f", not of {', '.join(sorted(modules))}"
            raise ConfigError(settings.name_of(JAAS_KEY), None, reason)
        self._check = PasswordTable(
            {
                name.removeprefix(USER_PREFIX): value.value
                for entry in settings.jaas
                if entry.login_module == PLAIN_MODULE
                for name, value in entry.options.items()
                if name.startswith(USER_PREFIX)
            }
        ).check

    def server(self) -> PlainServer:
        """A server for one login."""
        assert self._check is not None
        return PlainServer(self._check)

    async def close(self) -> None:
        """Close the callback handler and end its threads."""
        handler, self._handler = self._handler, None
        if handler is not None:
            handler.close()
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False)

    def _use_handler(self, name: str, settings: MechanismSettings, services: SaslServices) -> None:
        handler = services.callback_handler(name)
        authenticate = getattr(handler, "authenticate", None)
        if not callable(authenticate):
            raise PluginError(f"the callback handler {name!r} cannot be used for PLAIN: it has no method authenticate")
        handler.configure(settings)
        self._handler = handler
        if inspect.iscoroutinefunction(authenticate):
            self._check = authenticate
            return
        threads = self._threads = ThreadPoolExecutor(HANDLER_THREADS, "sasl-plain")

        async def check(user: str, password: str) -> bool:
            return bool(await asyncio.get_running_loop().run_in_executor(threads, authenticate, user, password))

        self._check = check
