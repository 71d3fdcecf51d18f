"""The users, tokens and SASL mechanisms of a broker, imported when needed.

A broker without SASL and tokens imports none of it at its start.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from kafkapy.metadata.znodes import CONFIG_USERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkapy.broker.authentication import Authentication
    from kafkapy.broker.delegation_tokens import DelegationTokenManager
    from kafkapy.broker.principals import PrincipalBuilders
    from kafkapy.broker.scram_credentials import ScramCredentials
    from kafkapy.config.broker import BrokerConfig
    from kafkapy.metadata.config_repository import ConfigRepository
    from kafkapy.metadata.store import MetadataStore
    from kafkapy.network.socket_server import SocketServer
    from kafkapy.plugins import PluginManager
    from kafkapy.security.add_scram import AddedUser

__all__ = ["Logins"]


class Logins:
    """Owns a broker's authentication, SCRAM credentials and delegation tokens.

    Used on the control loop.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MetadataStore,
        repository: ConfigRepository,
        plugins: PluginManager,
        principals: PrincipalBuilders,
    ) -> None:
        self._config = config
        self._store = store
        self._repository = repository
        self._plugins = plugins
        self._principals = principals
        self.authentication: Authentication | None = None
        """None where no listener has SASL."""
        self.has_tokens = any(config.get_password(f"delegation.token.{key}.key") for key in ("secret", "master"))

    @cached_property
    def tokens(self) -> DelegationTokenManager:
        """The delegation tokens."""
        from kafkapy.broker.delegation_tokens import DelegationTokenManager

        return DelegationTokenManager(self._config, self._store)

    @cached_property
    def scram_credentials(self) -> ScramCredentials:
        """The SCRAM credentials in the store."""
        from kafkapy.broker.scram_credentials import ScramCredentials

        return ScramCredentials(self._store, self._repository)

    async def start(self, has_sasl: bool, added_users: Sequence[AddedUser]) -> None:
        """Read the tokens, add missing users, and make the mechanisms. ConfigError."""
        if self.has_tokens:
            await self.tokens.start()
        if added_users:
            from kafkapy.broker.scram_credentials import add_missing

            await add_missing(self._store, self._repository, added_users)
        if has_sasl:
            await self._start_authentication()

    async def _start_authentication(self) -> None:
        from kafkapy.broker.authentication import Authentication, Services
        from kafkapy.broker.scram_credentials import follow, unknown_users_secret
        from kafkapy.security.scram import CredentialCache

        cache = CredentialCache(await unknown_users_secret(self._store))
        follow(self._repository, cache)
        services = Services(self._plugins, cache, self.tokens.cache)
        self.authentication = Authentication(self._plugins, services, self._principals)
        await self.authentication.start(self._config)

    def config_changed(self, config: BrokerConfig) -> None:
        """Follow a change of the broker's dynamic configuration, soon."""
        if self.authentication is not None:
            self.authentication.config_changed(config)

    def check(self, config: BrokerConfig) -> None:
        """ConfigError when a listener has wrong SASL keys, also a new one."""
        if any(endpoint.security_protocol.sasl for endpoint in config.listeners):
            from kafkapy.broker.authentication import Authentication, Services
            from kafkapy.security.scram import CredentialCache

            # A check asks no service: before the first SASL listener it has empty ones.
            services = Services(self._plugins, CredentialCache(b""), self.tokens.cache)
            checked = self.authentication or Authentication(self._plugins, services, self._principals)
            checked.check(config)

    async def update_listeners(self, config: BrokerConfig) -> None:
        """Make the mechanisms of new SASL listeners, and forget those of removed ones. ConfigError."""
        self._config = config
        if self.authentication is not None:
            await self.authentication.update_listeners(config)
        elif any(endpoint.security_protocol.sasl for endpoint in config.listeners):
            await self._repository.load_all(CONFIG_USERS)
            await self._start_authentication()

    def serve_scram(self, server: SocketServer) -> None:
        """Let the network threads serve logins by SCRAM, where they can."""
        if self.authentication is not None:
            self.authentication.serve_scram(server)

    async def stop(self) -> None:
        """End authentications under way, and follow tokens no more."""
        if self.authentication is not None:
            await self.authentication.stop()
        if self.has_tokens:
            await self.tokens.stop()
