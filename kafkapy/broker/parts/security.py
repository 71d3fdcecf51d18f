"""A broker's logins: SASL mechanisms, SCRAM credentials, delegation tokens."""

from __future__ import annotations

from kafkapy.broker.logins import Logins as BrokerLogins
from kafkapy.broker.parts.part import Broker, Part

__all__ = ["Logins"]


class Logins(Part):
    """Makes the SASL mechanisms, with the users and tokens that they check."""

    name = "logins"

    async def start(self, broker: Broker) -> None:
        """Read the tokens, and make the mechanisms. ConfigError."""
        logins = broker.logins = BrokerLogins(
            broker.config, broker.store, broker.repository, broker.plugins, broker.principals
        )
        await logins.start(broker.has_sasl, broker.added_users)
        if logins.has_tokens:
            period_ms = broker.config.get_int("delegation.token.expiry.check.interval.ms")

            async def expire() -> None:
                if hasattr(broker, "context") and broker.context.controller.is_active:
                    await logins.tokens.remove_expired()

            broker.scheduler.schedule("delete-expired-tokens", expire, period_ms, period_ms)

    async def stop(self, broker: Broker) -> None:
        """End authentications under way."""
        if hasattr(broker, "logins"):
            await broker.logins.stop()
