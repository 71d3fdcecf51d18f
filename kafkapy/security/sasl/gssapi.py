"""SASL/GSSAPI: Kerberos (RFC 4752).

    client  tokens of GSSAPI, until both sides have a security context
    broker  wrapped: the layers it offers (1: authentication only), and three zeros
    client  wrapped: 1, three bytes of a size, and an authorization id

The principal is the authenticated one, mapped by sasl.kerberos.principal.to.local.rules. As in Kafka, the authorization
id of the client has no meaning: clients fill in different names. Sources: com.sun.security.sasl.gsskerb.GssKrb5Server,
org.apache.kafka.common.security.authenticator.SaslServerCallbackHandler.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

from kafkapy.errors import ConfigError
from kafkapy.security.jaas import KERBEROS_MODULE
from kafkapy.security.kerberos.jaas import KerberosOptions, kerberos_options
from kafkapy.security.kerberos.library import (
    default_realm,
    kerberos_only,
    load_gssapi,
    principal_name,
    reason,
    service_name,
)
from kafkapy.security.kerberos.short_namer import KerberosName, KerberosShortNamer
from kafkapy.security.sasl.base import MechanismSettings, SaslError, SaslServices

GSSAPI: Final = "GSSAPI"
JAAS_KEY: Final = "sasl.jaas.config"
RULES_KEY: Final = "sasl.kerberos.principal.to.local.rules"
AUTHENTICATION_ONLY: Final = 1
"""The security layer: none."""
OFFER: Final = bytes((AUTHENTICATION_ONLY, 0, 0, 0))
ANSWER_BYTES: Final = 4
"""The layer and the size in the client's last message."""
MOST_TOKEN_BYTES: Final = 131_072

logger = logging.getLogger("org.apache.kafka.common.security.authenticator.SaslServerCallbackHandler")


class _State(Enum):
    CONTEXT = "a token of GSSAPI"
    BEFORE_OFFER = "an empty message"
    OFFERED = "the client's layer"
    DONE = "nothing"


class GssapiServer:
    """One login by Kerberos."""

    mechanism = GSSAPI
    session_expires_ms: int | None = None
    properties: Mapping[str, Any] = {}

    def __init__(self, gssapi: Any, credentials: Any, short_namer: KerberosShortNamer) -> None:
        self._gssapi = gssapi
        self._short_namer = short_namer
        self._context = gssapi.SecurityContext(creds=credentials, usage="accept")
        self._state = _State.CONTEXT
        self.complete = False
        self.authorization_id = ""

    async def evaluate(self, response: bytes) -> bytes:
        """Take a token of GSSAPI, and then the client's choice of a layer."""
        if len(response) > MOST_TOKEN_BYTES:
            raise SaslError(f"a token of GSSAPI has {len(response)} bytes, more than {MOST_TOKEN_BYTES}")
        try:
            if self._state is _State.CONTEXT:
                # It reads the keytab.
                token = await asyncio.to_thread(self._context.step, response)
                return self._next(token)
            if self._state is _State.BEFORE_OFFER:
                if response:
                    raise SaslError("the client sent a token after the security context was complete")
                return self._offer()
            if self._state is _State.OFFERED:
                self._finish(self._context.unwrap(response).message)
                return b""
        except self._gssapi.exceptions.GSSError as error:
            raise SaslError(f"Kerberos refuses the client: {reason(error)}") from None
        raise SaslError("the login is complete already")

    def _next(self, token: bytes | None) -> bytes:
        if not self._context.complete:
            if not token:
                raise SaslError("the security context needs a further token of the client, but has none to send")
            return token
        if self._context.mech != self._gssapi.MechType.kerberos:
            raise SaslError("the security context is not one of Kerberos")
        if not token:
            return self._offer()
        self._state = _State.BEFORE_OFFER
        return token

    def _offer(self) -> bytes:
        self._state = _State.OFFERED
        message: bytes = self._context.wrap(OFFER, False).message
        return message

    def _finish(self, answer: bytes) -> None:
        if len(answer) < ANSWER_BYTES or answer[0] != AUTHENTICATION_ONLY:
            raise SaslError("the client asks for a security layer that was not offered")
        principal = str(self._context.initiator_name)
        try:
            name = self._short_namer.short_name(KerberosName.parse(principal))
        except ValueError as error:
            raise SaslError(
                f"Failed to set name for {principal!r} based on Kerberos authentication rules: {error}"
            ) from None
        if not name:
            raise SaslError(f"the Kerberos authentication rules give an empty name for {principal!r}")
        logger.debug("Client %s is authenticated; its authorization id is %r", principal, answer[4:260])
        self.authorization_id = name
        self._state = _State.DONE
        self.complete = True


class GssapiMechanism:
    """GSSAPI on one listener."""

    name = GSSAPI

    def __init__(self) -> None:
        self._gssapi: Any = None
        self._credentials: Any = None
        self._short_namer: KerberosShortNamer | None = None

    async def configure(self, settings: MechanismSettings, services: SaslServices) -> None:
        """Read the keytab's principal and the rules."""
        self._gssapi = load_gssapi(settings.name_of("sasl.enabled.mechanisms"))
        modules = {entry.login_module for entry in settings.jaas}
        if modules - {KERBEROS_MODULE}:
            raise ConfigError(
                settings.name_of(JAAS_KEY),
                None,
                f"must have an entry of {KERBEROS_MODULE}, not of {', '.join(sorted(modules))}",
            )
        try:
            options = kerberos_options(settings.option, settings.get("sasl.kerberos.service.name"))
        except ValueError as error:
            raise ConfigError(settings.name_of(JAAS_KEY), None, str(error)) from None
        rules = settings.get(RULES_KEY)
        realm = await asyncio.to_thread(default_realm, self._gssapi)
        try:
            self._short_namer = KerberosShortNamer(realm, rules)
        except ValueError as error:
            raise ConfigError(settings.name_of(RULES_KEY), ",".join(rules), str(error)) from None
        try:
            self._credentials = await asyncio.to_thread(self._acquire, options)
        except self._gssapi.exceptions.GSSError as error:
            where = options.keytab or "the default keytab"
            text = f"{where} cannot be used for {options.principal or options.service}: {reason(error)}"
            raise ConfigError(settings.name_of(JAAS_KEY), None, text) from None

    def server(self) -> GssapiServer:
        """A server for one login."""
        assert self._short_namer is not None
        return GssapiServer(self._gssapi, self._credentials, self._short_namer)

    async def close(self) -> None:
        """Release the credentials."""
        self._credentials = None

    def _acquire(self, options: KerberosOptions) -> Any:
        """The credentials of a principal, or of the service on every host.

        The library reads the keytab for each login.
        """
        gssapi = self._gssapi
        if options.principal is not None:
            name = principal_name(gssapi, options.principal)
        else:
            name = service_name(gssapi, options.service)
        store = None if options.keytab is None else {"keytab": options.keytab}
        return gssapi.Credentials(name=name, usage="accept", mechs=kerberos_only(gssapi), store=store)
