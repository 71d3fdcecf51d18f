"""GSSAPI: Kerberos, by the package gssapi (RFC 4752).

The tickets come from a keytab or from a ticket cache (`kafkapy/security/kerberos/tickets.py`). The broker's name is
<service>@<host>; without security layer only the authentication is Kerberos, so use it over TLS.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from kafkapy.clients.sasl.base import SaslSettings
from kafkapy.errors import ConfigError, KafkaError, SaslAuthenticationFailedError
from kafkapy.security.kerberos.jaas import kerberos_options
from kafkapy.security.kerberos.library import (
    kerberos_only,
    load_gssapi,
    principal_name,
    reason,
    service_name,
)
from kafkapy.security.kerberos.tickets import RenewalSettings, Tickets, kerberos_error

__all__ = ["GssapiClient", "GssapiLogin", "create_login"]

MECHANISM: Final = "GSSAPI"
AUTHENTICATION_ONLY: Final = 1
OFFER_BYTES: Final = 4
CHOICE: Final = bytes((AUTHENTICATION_ONLY, 0, 0, 0))
"""No security layer, and no authorization id: the broker takes the ticket's principal."""


class GssapiClient:
    """One exchange. The login has made the first token already, because that may block."""

    mechanism = MECHANISM

    def __init__(self, gssapi: Any, context: Any, first: bytes) -> None:
        self._gssapi = gssapi
        self._context = context
        self._first = first
        self.complete = False

    def initial(self) -> bytes:
        return self._first

    def evaluate(self, challenge: bytes) -> bytes | None:
        try:
            if not self._context.complete:
                token: bytes | None = self._context.step(challenge)
                return token or b""
            if self.complete:
                raise self._failed("the exchange is complete")
            offer = self._context.unwrap(challenge).message
            if len(offer) != OFFER_BYTES or not offer[0] & AUTHENTICATION_ONLY:
                raise self._failed("the broker wants a security layer, which Kafka does not have")
            answer: bytes = self._context.wrap(CHOICE, False).message
        except self._gssapi.exceptions.GSSError as error:
            raise self._failed(reason(error)) from None
        self.complete = True
        return answer

    def _failed(self, why: str) -> KafkaError:
        return SaslAuthenticationFailedError(f"{MECHANISM} failed: {why}")


class GssapiLogin:
    """The tickets of one client, and the name of its brokers' service."""

    mechanism = MECHANISM

    def __init__(self, gssapi: Any, tickets: Tickets, service: str, domain: str | None, target: Any) -> None:
        """`domain` stands for the host of every broker, `target` for the whole name."""
        self._gssapi = gssapi
        self._tickets = tickets
        self._service = service
        self._domain = domain
        self._target = target

    async def exchange(self, host: str) -> GssapiClient:
        credentials = await self._tickets.credentials()
        target = self._target
        if target is None:
            target = service_name(self._gssapi, self._service, self._domain or host)
        try:
            return await asyncio.to_thread(self._begin, credentials, target)
        except self._gssapi.exceptions.GSSError as error:
            raise kerberos_error(error, f"to get a ticket for {target}") from None

    async def close(self) -> None:
        """Ends the renewals."""
        await self._tickets.close()

    def _begin(self, credentials: Any, target: Any) -> GssapiClient:
        """The exchange with its first token. It may wait for a key distribution centre."""
        gssapi = self._gssapi
        context = gssapi.SecurityContext(
            name=target,
            creds=credentials,
            usage="initiate",
            mech=kerberos_only(gssapi)[0],
            flags=[gssapi.RequirementFlag.mutual_authentication, gssapi.RequirementFlag.integrity],
        )
        return GssapiClient(gssapi, context, context.step())


def create_login(settings: SaslSettings) -> GssapiLogin:
    """The login by sasl.jaas.config, or by librdkafka's and kafka-python's keys.

    ConfigError without the package gssapi, or for contradictions.
    """
    gssapi = load_gssapi("sasl.mechanism")
    config = settings.config
    given = dict(settings.options)
    for option, key in (("keyTab", "sasl.kerberos.keytab"), ("principal", "sasl.kerberos.principal")):
        value = config.get(key)
        if value and given.setdefault(option, value) != value:
            raise ConfigError(key, value, f"sasl.jaas.config has another {option}")
    try:
        options = kerberos_options(given.get, config.get("sasl.kerberos.service.name"))
    except ValueError as error:
        raise ConfigError("sasl.jaas.config", None, str(error)) from None
    defaults = RenewalSettings()
    renewals = RenewalSettings(
        config.get("sasl.kerberos.kinit.cmd", defaults.kinit),
        config.get("sasl.kerberos.ticket.renew.window.factor", defaults.window_factor),
        config.get("sasl.kerberos.ticket.renew.jitter", defaults.jitter),
        config.get("sasl.kerberos.min.time.before.relogin", defaults.min_time_before_relogin_ms),
    )
    target = config.get("sasl.kerberos.name")
    if isinstance(target, str):
        target = (
            principal_name(gssapi, target) if "/" in target else gssapi.Name(target, gssapi.NameType.hostbased_service)
        )
    tickets = Tickets(gssapi, options, renewals)
    return GssapiLogin(gssapi, tickets, options.service, config.get("sasl.kerberos.domain.name"), target)
