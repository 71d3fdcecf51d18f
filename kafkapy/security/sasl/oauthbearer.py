"""SASL/OAUTHBEARER: a bearer token in the first message (RFC 7628, KIP-255, KIP-768).

sasl.oauthbearer.jwks.endpoint.url, or Kafka's OAuthBearerValidatorCallbackHandler, turns on the checks of signatures.
Without both the broker accepts unsigned tokens, as Kafka does, which is for development only. A callback handler of a
plugin may check tokens in another way. Source:
org.apache.kafka.common.security.oauthbearer.internals.OAuthBearerSaslServer.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from kafkapy.errors import ConfigError, PluginError
from kafkapy.security.jaas import OAUTHBEARER_MODULE
from kafkapy.security.oauthbearer.keys import MOST_DOCUMENT_BYTES, KeyCache, KeySetError
from kafkapy.security.oauthbearer.messages import ClientFirstMessage, MessageError, error_json
from kafkapy.security.oauthbearer.tokens import BearerToken, TokenError
from kafkapy.security.oauthbearer.validators import SecuredValidator, TokenValidator, UnsecuredValidator
from kafkapy.security.sasl.base import (
    CallbackHandler,
    MechanismSettings,
    SaslAuthenticationError,
    SaslError,
    SaslServices,
)

OAUTHBEARER: Final = "OAUTHBEARER"
HANDLER_KEY: Final = "sasl.server.callback.handler.class"
JWKS_KEY: Final = "sasl.oauthbearer.jwks.endpoint.url"
AUDIENCE_KEY: Final = "sasl.oauthbearer.expected.audience"
ISSUER_KEY: Final = "sasl.oauthbearer.expected.issuer"
UNSECURED_HANDLER: Final = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
)
SECURED_HANDLERS: Final = frozenset(
    (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
        "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
    )
)
OPTION_PREFIX: Final = "unsecuredValidator"
HTTP_OK: Final = 200

logger = logging.getLogger("org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler")


class OAuthBearerServer:
    """One login by bearer token."""

    mechanism = OAUTHBEARER

    def __init__(self, validator: TokenValidator) -> None:
        self._validator = validator
        self._error: TokenError | None = None
        """The error that the client knows and has to acknowledge."""
        self.complete = False
        self.authorization_id = ""
        self.session_expires_ms: int | None = None
        self.properties: Mapping[str, Any] = {}

    async def evaluate(self, response: bytes) -> bytes:
        """Check the token, or end the login after an error."""
        if self._error is not None:
            # The client may only acknowledge; another token needs another connection.
            error = self._error
            raise SaslAuthenticationError(error_json(error.status, error.scope), f"the token is refused: {error}")
        try:
            message = ClientFirstMessage.parse(response)
        except MessageError as error:
            raise SaslError(str(error)) from None
        try:
            token = await self._validator.validate(message.token)
        except TokenError as error:
            self._error = error
            return error_json(error.status, error.scope).encode()
        if message.authorization_id and message.authorization_id != token.principal_name:
            raise SaslAuthenticationError(
                f"Authentication failed: Client requested an authorization id ({message.authorization_id!r}) that "
                f"is different from the token's principal name ({token.principal_name!r})"
            )
        self.authorization_id = token.principal_name
        self.session_expires_ms = token.expires_ms
        self.properties = {"extensions": dict(message.extensions), "scope": token.scope}
        self.complete = True
        return b""


class OAuthBearerMechanism:
    """OAUTHBEARER on one listener."""

    name = OAUTHBEARER

    def __init__(self) -> None:
        self._validator: TokenValidator | None = None

    async def configure(self, settings: MechanismSettings, services: SaslServices) -> None:
        """Make the validator; for a secured one, read the key set."""
        modules = {entry.login_module for entry in settings.jaas}
        if modules - {OAUTHBEARER_MODULE}:
            raise ConfigError(
                settings.name_of("sasl.jaas.config"),
                None,
                f"must have an entry of {OAUTHBEARER_MODULE}, not of {', '.join(sorted(modules))}",
            )
        handler = settings.get(HANDLER_KEY)
        if handler in SECURED_HANDLERS or (not handler and settings.get(JWKS_KEY)):
            self._validator = await _secured(settings)
        elif not handler or handler == UNSECURED_HANDLER:
            self._validator = _unsecured(settings)
            logger.warning(
                "Listener %s accepts OAUTHBEARER tokens without a signature, so every client may take every name; "
                "set %s outside development",
                settings.listener_name,
                JWKS_KEY,
            )
        else:
            made = services.callback_handler(handler)
            self._validator = _PluginValidator(handler, made)
            made.configure(settings)

    def server(self) -> OAuthBearerServer:
        """A server for one login."""
        assert self._validator is not None
        return OAuthBearerServer(self._validator)

    async def close(self) -> None:
        """End the reads of the key set, or close the callback handler."""
        if self._validator is not None:
            await self._validator.close()


class _PluginValidator:
    """A callback handler with a method `validate(token)`.

    The method gives a BearerToken or raises TokenError. A coroutine function runs on the control loop, another function
    on a worker thread.
    """

    def __init__(self, name: str, handler: CallbackHandler) -> None:
        validate = getattr(handler, "validate", None)
        if not callable(validate):
            raise PluginError(
                f"the callback handler {name!r} cannot be used for {OAUTHBEARER}: it has no method validate"
            )
        self._name = name
        self._handler = handler
        self._validate = validate

    async def validate(self, token: str) -> BearerToken:
        if inspect.iscoroutinefunction(self._validate):
            found = await self._validate(token)
        else:
            found = await asyncio.to_thread(self._validate, token)
        if not isinstance(found, BearerToken) or not found.principal_name:
            raise SaslError(f"the callback handler {self._name!r} gives no BearerToken with a principal")
        return found

    async def close(self) -> None:
        self._handler.close()


def _unsecured(settings: MechanismSettings) -> UnsecuredValidator:
    def option(name: str) -> str:
        return (settings.option(OPTION_PREFIX + name) or "").strip()

    skew = option("AllowableClockSkewMs") or "0"
    if not re.fullmatch("[0-9]{1,10}", skew):
        raise ConfigError(
            settings.name_of("sasl.jaas.config"),
            None,
            f"the option {OPTION_PREFIX}AllowableClockSkewMs must be a number of ms, 0 or more",
        )
    return UnsecuredValidator(
        option("PrincipalClaimName") or "sub",
        option("ScopeClaimName") or "scope",
        option("RequiredScope").split(),
        int(skew),
    )


async def _secured(settings: MechanismSettings) -> SecuredValidator:
    url = (settings.get(JWKS_KEY) or "").strip()
    if not url:
        raise ConfigError(settings.name_of(JWKS_KEY), "", "must be set for the OAuthBearerValidatorCallbackHandler")
    audiences = _texts(settings.get(AUDIENCE_KEY))
    issuer = settings.get(ISSUER_KEY)
    any_audience = bool(settings.get("sasl.oauthbearer.allow.unverified.audience"))
    if not audiences and not any_audience:
        logger.warning("%s is not set: tokens that name an audience are refused", settings.name_of(AUDIENCE_KEY))
    if not issuer and not settings.get("sasl.oauthbearer.allow.unverified.issuer"):
        logger.warning("%s is not set: tokens of every issuer are accepted", settings.name_of(ISSUER_KEY))
    refresh_ms = settings.get("sasl.oauthbearer.jwks.endpoint.refresh.ms")
    if refresh_ms <= 0:
        raise ConfigError(
            settings.name_of("sasl.oauthbearer.jwks.endpoint.refresh.ms"), refresh_ms, "must be at least 1"
        )
    keys = KeyCache(
        url,
        _reader(settings, url),
        refresh_ms=refresh_ms,
        backoff_ms=settings.get("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"),
        backoff_max_ms=settings.get("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"),
    )
    try:
        await keys.start()
    except KeySetError as error:
        raise ConfigError(settings.name_of(JWKS_KEY), url, str(error)) from None
    return SecuredValidator(
        keys,
        audiences=audiences,
        any_audience=any_audience,
        issuer=issuer or None,
        clock_skew_ms=settings.get("sasl.oauthbearer.clock.skew.seconds") * 1000,
        scope_claim=settings.get("sasl.oauthbearer.scope.claim.name"),
        subject_claim=settings.get("sasl.oauthbearer.sub.claim.name"),
    )


def _texts(value: Sequence[str] | None) -> list[str]:
    return [item for item in value or () if item]


def _reader(settings: MechanismSettings, url: str) -> Any:
    """A function that reads the document. It blocks."""
    name = settings.name_of(JWKS_KEY)
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ConfigError(name, url, f"is no URL: {error}") from None
    if parts.scheme == "file":
        path = Path(unquote(parts.path))
        if parts.netloc not in ("", "localhost") or not path.is_absolute():
            raise ConfigError(name, url, "must name an absolute path of this machine")
        return lambda: _read_file(path)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(name, url, "must be a URL of https, http or file")
    from kafkapy.security.oauthbearer.https import HttpsError, Timeouts, request, trust

    if parts.scheme == "http":
        logger.warning("%s is no https URL: whoever changes the response may log in as everybody", name)
    timeouts = Timeouts.of(settings.get("sasl.login.connect.timeout.ms"), settings.get("sasl.login.read.timeout.ms"))
    context = trust(
        {option: value.value for entry in settings.jaas for option, value in entry.options.items()},
        settings.name_of("sasl.jaas.config"),
    )

    def fetch() -> bytes:
        try:
            response = request(
                url,
                most_bytes=MOST_DOCUMENT_BYTES,
                timeouts=timeouts,
                context=context,
                headers={"Accept": "application/json"},
            )
        except HttpsError as error:
            raise KeySetError(str(error)) from None
        if response.status != HTTP_OK:
            raise KeySetError(f"the endpoint answered with the status {response.status}")
        return response.body

    return fetch


def _read_file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MOST_DOCUMENT_BYTES + 1)
    except OSError as error:
        raise KeySetError(f"the file cannot be read: {error.strerror}") from None
