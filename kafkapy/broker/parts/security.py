"""A broker's authentication: SASL mechanisms, SCRAM credentials, delegation tokens."""

from __future__ import annotations

from kafkapy.broker.authentication import Authentication, Services
from kafkapy.broker.delegation_tokens import DelegationTokenManager
from kafkapy.broker.parts.part import Broker, Part
from kafkapy.broker.scram_credentials import ScramCredentials, add_missing, follow, unknown_users_secret
from kafkapy.security.scram import CredentialCache

__all__ = ["Logins", "Tokens"]


class Tokens(Part):
    """Reads the delegation tokens, and follows their changes."""

    name = "delegation tokens"

    async def start(self, broker: Broker) -> None:
        """Read them; without delegation.token.secret.key there are none."""
        broker.tokens = DelegationTokenManager(broker.config, broker.store)
        await broker.tokens.start()
        if broker.tokens.enabled:
            period_ms = broker.config.get_int("delegation.token.expiry.check.interval.ms")

            async def expire() -> None:
                if hasattr(broker, "context") and broker.context.controller.is_active:
                    await broker.tokens.remove_expired()

            broker.scheduler.schedule("delete-expired-tokens", expire, period_ms, period_ms)

    async def stop(self, broker: Broker) -> None:
        """Follow them no more."""
        if hasattr(broker, "tokens"):
            await broker.tokens.stop()


class Logins(Part):
    """Makes the SASL mechanisms of the listeners."""

    name = "SASL"

    async def start(self, broker: Broker) -> None:
        """Make them, with the credentials that they check. ConfigError."""
        broker.scram_credentials = ScramCredentials(broker.store, broker.repository)
        await add_missing(broker.store, broker.repository, broker.added_users)
        services = None
        if broker.has_sasl:
            cache = CredentialCache(await unknown_users_secret(broker.store))
            follow(broker.repository, cache)
            services = Services(broker.plugins, cache, broker.tokens.cache)
        broker.authentication = Authentication(broker.plugins, services)
        await broker.authentication.start(broker.config)

    async def stop(self, broker: Broker) -> None:
        """End authentications under way."""
        if hasattr(broker, "authentication"):
            await broker.authentication.stop()
