"""Tokens of OAUTHBEARER from the user's code.

    sasl_oauth_token_provider   an object with token(), and perhaps extensions(), as in kafka-python and aiokafka
    oauth_cb                    a function of the text sasl.oauthbearer.config, as in confluent-kafka

`token()` and functions may be coroutines. They give the token alone, or a tuple (token, end[, principal, extensions])
whose end is in seconds since 1970; a number too large for that is in ms.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final

from kafkapy.clients.sasl.refresh import ClientToken
from kafkapy.errors import ConfigError, KafkaConnectionError, KafkaError, SaslAuthenticationFailedError
from kafkapy.security.oauthbearer.messages import MessageError, check_extensions
from kafkapy.security.oauthbearer.tokens import TokenError, claims_of, milliseconds

__all__ = ["ProviderSource", "checked_token", "imported"]

CONFLUENTS_KEY: Final = "oauth.cb"
SECONDS_END: Final = 10**11
"""No time in seconds since 1970 is this late, and no time in ms this early."""
_TOKEN: Final = re.compile(r"[-_~+/.A-Za-z0-9]+=*")


def checked_token(
    value: object, expires_ms: int | None = None, extensions: Mapping[str, str] | None = None
) -> ClientToken:
    """A token whose end comes from its claims, unless it is given.

    SaslAuthenticationFailedError for a text that no message can carry.
    """
    if isinstance(value, bytes):
        value = value.decode("ascii", "replace")
    if not isinstance(value, str) or not _TOKEN.fullmatch(value.strip()):
        shown = type(value).__name__ if not isinstance(value, str) else "text" if value.strip() else "an empty text"
        raise SaslAuthenticationFailedError(f"OAUTHBEARER failed: the token provider gave {shown}, which is no token")
    value = value.strip()
    start_ms = None
    claims = claims_of(value)
    if claims is not None:
        try:
            start_ms = milliseconds(claims, "iat")
            expires_ms = milliseconds(claims, "exp") if expires_ms is None else expires_ms
        except TokenError as error:
            raise SaslAuthenticationFailedError(f"OAUTHBEARER failed: {error}") from None
    try:
        check_extensions(extensions or {})
    except MessageError as error:
        raise SaslAuthenticationFailedError(f"OAUTHBEARER failed: {error}") from None
    return ClientToken(value, expires_ms, start_ms, dict(extensions or {}))


def imported(key: str, text: str) -> Any:
    """The object at a path package.module:name; a class is instantiated. ConfigError for `key`."""
    module, colon, name = text.partition(":")
    if not colon:
        module, _, name = text.rpartition(".")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, ValueError, AttributeError) as error:
        raise ConfigError(key, text, f"must be a callable, or the path package.module:name of one ({error})") from None
    return found() if inspect.isclass(found) else found


class ProviderSource:
    """Tokens of an object with token(), or of a callable."""

    def __init__(self, key: str, provider: Any, extensions: Mapping[str, str], text: str = "") -> None:
        """`extensions` are those of the configuration, `text` is for a callable with one parameter."""
        if isinstance(provider, str):
            provider = imported(key, provider)
        token = getattr(provider, "token", None)
        self._extensions = dict(extensions)
        self._provided_extensions: Callable[[], Any] | None = None
        if callable(token):
            self._token: Callable[[], Any] = token
            given = getattr(provider, "extensions", None)
            self._provided_extensions = given if callable(given) else None
        elif callable(provider):
            self._token = (lambda: provider(text)) if _takes_text(provider, key == CONFLUENTS_KEY) else provider
        else:
            raise ConfigError(key, type(provider).__name__, "must be a callable, or an object with a method token()")
        self._asynchronous = inspect.iscoroutinefunction(token if callable(token) else provider)

    async def token(self, host: str) -> ClientToken:
        """A new token of the provider.

        A function that is no coroutine runs on another thread, because it may wait for a server.
        """
        try:
            found = await self._called(self._token, self._asynchronous)
            extensions = self._extensions
            if self._provided_extensions is not None:
                given = await self._called(
                    self._provided_extensions, inspect.iscoroutinefunction(self._provided_extensions)
                )
                extensions = {**extensions, **(given or {})}
        except KafkaError:
            raise
        except OSError as error:
            raise KafkaConnectionError(f"OAUTHBEARER: the token provider raised {_shown(error)}") from error
        except Exception as error:
            raise SaslAuthenticationFailedError(
                f"OAUTHBEARER failed: the token provider raised {_shown(error)}"
            ) from error
        return _from_answer(found, extensions)

    async def _called(self, function: Callable[[], Any], asynchronous: bool) -> Any:
        if asynchronous:
            return await function()
        found = await asyncio.to_thread(function)
        return await found if inspect.isawaitable(found) else found


def _from_answer(found: Any, extensions: Mapping[str, str]) -> ClientToken:
    if not isinstance(found, (tuple, list)):
        return checked_token(found, None, extensions)
    if not found:
        return checked_token(None)
    expires_ms = None
    if len(found) > 1 and found[1] is not None:
        if isinstance(found[1], bool) or not isinstance(found[1], (int, float)):
            raise SaslAuthenticationFailedError("OAUTHBEARER failed: the token provider gave an end that is no number")
        expires_ms = int(found[1] if found[1] >= SECONDS_END else found[1] * 1000)
    given = found[3] if len(found) > 3 else None
    return checked_token(found[0], expires_ms, {**extensions, **(given or {})})


def _takes_text(function: Callable[..., Any], optional: bool) -> bool:
    """Whether a function has a parameter for the text.

    `optional`: also one with a default.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    if not _binds(signature, ""):
        return False
    return optional or not _binds(signature)


def _binds(signature: inspect.Signature, *arguments: str) -> bool:
    try:
        signature.bind(*arguments)
    except TypeError:
        return False
    return True


def _shown(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
