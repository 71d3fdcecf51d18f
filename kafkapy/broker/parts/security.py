"""Security of a broker's listeners, and its logins: SASL mechanisms, SCRAM credentials, delegation tokens."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kafkapy.broker.listener_security import ListenerSecurities, check_stores
from kafkapy.broker.logins import Logins as BrokerLogins
from kafkapy.broker.parts.part import Broker, Part
from kafkapy.broker.principals import PrincipalBuilders

__all__ = ["FirstStart", "Listeners", "Logins"]


class FirstStart(Part):
    """Tries the listeners of the file before a new broker makes anything.

    There is no dynamic configuration yet, which could mend what is wrong with them.
    """

    name = "listeners of a new broker"

    async def start(self, broker: Broker) -> None:
        """ConfigError for a store that cannot be used."""
        config = broker.config
        if config.metadata_store != "embedded" or not any(each.security_protocol.tls for each in config.listeners):
            return
        from kafkapy.metadata.embedded import FILE_NAME

        if not (Path(config.metadata_log_dir) / FILE_NAME).exists():
            await asyncio.get_running_loop().run_in_executor(None, check_stores, config)


class Listeners(Part):
    """Makes principal builders, and loads the stores of TLS listeners.

    It follows the configuration's part: the dynamic configuration may have listeners and the passwords of stores.
    """

    name = "listener security"

    async def start(self, broker: Broker) -> None:
        """Load them. ConfigError for a store that cannot be used."""
        broker.principals = PrincipalBuilders(broker.config, lambda: broker.plugins)
        broker.listener_security = await asyncio.get_running_loop().run_in_executor(
            None, ListenerSecurities, broker.config, broker.principals
        )

    async def stop(self, broker: Broker) -> None:
        """End the builders."""
        if hasattr(broker, "principals"):
            broker.principals.close()


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
