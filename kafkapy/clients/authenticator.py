"""Authentication of a connection by SASL.

It runs before the first request, and again before the session ends. The exchange: ApiVersions 0, SaslHandshake with the
mechanism's name, and then SaslAuthenticate with one token each. A re-authentication on an open connection begins with
SaslHandshake (KIP-368). The bytes below (plaintext, TLS) belong to the TransportLayer. Source:
org.apache.kafka.common.security.authenticator.SaslClientAuthenticator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from kafkapy.clients.sasl.base import SaslLogin, SaslSettings
from kafkapy.clients.sasl.logins import create_login
from kafkapy.config.clients import ClientConfig
from kafkapy.errors import (
    AuthenticationError,
    ConfigError,
    ErrorCode,
    KafkaConnectionError,
    SaslAuthenticationFailedError,
    UnsupportedVersionError,
    error_for,
)
from kafkapy.protocol.messages.api_versions import ApiVersionsRequest
from kafkapy.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kafkapy.protocol.messages.sasl_handshake import SaslHandshakeRequest
from kafkapy.protocol.registry import ApiKeys
from kafkapy.protocol.schema import Request
from kafkapy.security.jaas import JaasError, mechanisms_of, parse_jaas

__all__ = ["RoundTrip", "SaslAuthenticator", "sasl_authenticator", "sasl_settings"]

HANDSHAKE_VERSION: Final = 1
"""Version 0 announces tokens without a header, for brokers before 1.0."""

RoundTrip = Callable[[Request, int], Awaitable[Any]]
"""Sends a request of a version on the connection to authenticate; gives the decoded response."""


class SaslAuthenticator:
    """Authenticates the connections of one client by its login.

    Only the client's loop uses it.
    """

    def __init__(self, login: SaslLogin, protocol: str, timeout_s: float) -> None:
        """`timeout_s`: until the login must have credentials."""
        self._login = login
        self._protocol = protocol
        self._timeout_s = timeout_s

    async def authenticate(
        self, peer: str, host: str, ask: RoundTrip, versions: Mapping[int, tuple[int, int]] | None = None
    ) -> int:
        """The session's lifetime in ms once the broker accepts the client; 0: no end.

        `peer` is the broker in errors, `host` its name in the configuration or in metadata. `versions` are the broker's
        API versions, for a re-authentication. AuthenticationError, which is not retriable; UnsupportedVersionError;
        KafkaConnectionError when the connection is lost.
        """
        try:
            if versions is None:
                versions = await self._versions(peer, ask)
            version = _newest(peer, versions, SaslAuthenticateRequest)
            _newest(peer, versions, SaslHandshakeRequest, HANDSHAKE_VERSION)
            await self._handshake(peer, ask)
            return await self._exchange(peer, host, ask, version)
        except KafkaConnectionError as error:
            raise KafkaConnectionError(f"{error} (during SASL authentication; see security.protocol)") from None

    async def close(self) -> None:
        """Ends the login's background work."""
        await self._login.close()

    async def _versions(self, peer: str, ask: RoundTrip) -> Mapping[int, tuple[int, int]]:
        # Version 0: a broker takes a request that it cannot parse for a token of GSSAPI.
        response = await ask(ApiVersionsRequest(), 0)
        if response.error_code:
            name = ErrorCode.of(response.error_code).name
            raise error_for(response.error_code, f"{peer} did not return its API versions: {name}")
        return {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}

    async def _handshake(self, peer: str, ask: RoundTrip) -> None:
        mechanism = self._login.mechanism
        response = await ask(SaslHandshakeRequest(mechanism=mechanism), HANDSHAKE_VERSION)
        if response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            enabled = ", ".join(response.mechanisms) or "none"
            reason = f"does not offer {mechanism}; its mechanisms are: {enabled}"
        elif response.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            reason = "does not expect SASL authentication on this listener; check security.protocol"
        elif response.error_code:
            reason = f"refused the SASL handshake: {ErrorCode.of(response.error_code).name}"
        else:
            return
        raise error_for(response.error_code, f"{peer} {reason} ({self._protocol})")

    async def _exchange(self, peer: str, host: str, ask: RoundTrip, version: int) -> int:
        """The tokens of both sides; returns the session's lifetime in ms."""
        try:
            async with asyncio.timeout(self._timeout_s):
                client = await self._login.exchange(host)
            token: bytes | None = client.initial()
        except TimeoutError:
            raise KafkaConnectionError(f"no credentials for {peer} within {self._timeout_s:g} s") from None
        except AuthenticationError as error:
            raise type(error)(f"{error} (towards {peer}, {self._protocol})") from error
        while True:
            last = client.complete
            response = await ask(SaslAuthenticateRequest(auth_bytes=token or b""), version)
            if response.error_code:
                why = response.error_message or ErrorCode.of(response.error_code).message
                raise error_for(
                    response.error_code,
                    f"{peer} refused authentication by {self._login.mechanism} ({self._protocol}): {why}",
                )
            if last:
                return int(response.session_lifetime_ms)
            try:
                token = client.evaluate(response.auth_bytes)
            except SaslAuthenticationFailedError as error:
                raise SaslAuthenticationFailedError(f"{error} (towards {peer}, {self._protocol})") from None
            if token is None:
                if client.complete:
                    return int(response.session_lifetime_ms)
                raise SaslAuthenticationFailedError(
                    f"{self._login.mechanism} failed: {peer} ended the exchange early ({self._protocol})"
                )


def _newest(
    peer: str, versions: Mapping[int, tuple[int, int]], request: type[Request], least: int | None = None
) -> int:
    """The newest version that both sides know. UnsupportedVersionError."""
    low, high = versions.get(request.API_KEY, (0, -1))
    version = min(high, request.VERSIONS.high)
    if version < max(low, request.VERSIONS.low if least is None else least):
        raise UnsupportedVersionError(
            f"{peer} serves no {ApiKeys(request.API_KEY).title} for SASL; Apache Kafka does since 1.0"
        )
    return version


def sasl_settings(config: ClientConfig) -> SaslSettings:
    """The login settings of a client. ConfigError for a wrong sasl.jaas.config.

    The options are those of sasl.jaas.config. sasl.plain.username and sasl.plain.password stand for `username` and
    `password`.
    """
    mechanism = config["sasl.mechanism"]
    options: dict[str, str] = {}
    if config["sasl.jaas.config"] is not None:
        options |= _jaas_options(mechanism, config["sasl.jaas.config"].value)
    if config["sasl.plain.username"] is not None:
        options["username"] = config["sasl.plain.username"]
    if config["sasl.plain.password"] is not None:
        options["password"] = config["sasl.plain.password"].value
    return SaslSettings(mechanism, options, config)


def _jaas_options(mechanism: str, text: str) -> dict[str, str]:
    try:
        entries = parse_jaas(text)
    except JaasError as error:
        raise ConfigError("sasl.jaas.config", None, str(error)) from None
    if len(entries) != 1:
        raise ConfigError("sasl.jaas.config", None, f"a client needs one login module, not {len(entries)}")
    fitting = mechanisms_of(entries[0])
    if fitting and mechanism not in fitting:
        raise ConfigError(
            "sasl.jaas.config", None, f"{entries[0].login_module} is for {', '.join(fitting)}, not for {mechanism}"
        )
    return {name: value.value for name, value in entries[0].options.items()}


def sasl_authenticator(config: ClientConfig) -> SaslAuthenticator:
    """The authenticator of a client whose security.protocol has SASL. ConfigError."""
    protocol: str = config["security.protocol"]
    timeout_s = config["request.timeout.ms"] / 1000
    return SaslAuthenticator(create_login(sasl_settings(config)), protocol, timeout_s)
