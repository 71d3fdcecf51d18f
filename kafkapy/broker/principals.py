"""The principals of connections: builders of the listeners, and their input.

Sources: org.apache.kafka.common.network.ChannelBuilders and
org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from kafkapy.config.broker import BrokerConfig
from kafkapy.errors import KafkaError, PluginError
from kafkapy.plugins import DEFAULT_PRINCIPAL_BUILDER, PluginManager
from kafkapy.security.principal import KafkaPrincipal
from kafkapy.security.principal_builder import (
    AuthenticationContext,
    BuilderSettings,
    PrincipalBuilder,
    build_principal,
)

if TYPE_CHECKING:
    from kafkapy._speedups.network.network_request import NetworkRequest
    from kafkapy.security.sasl.base import SaslServer

__all__ = ["BuildPrincipal", "PrincipalBuilders"]

BUILDER_KEY: Final = "principal.builder.class"

logger = logging.getLogger("org.apache.kafka.common.network.ChannelBuilders")

BuildPrincipal = Callable[[str, "SaslServer", KafkaPrincipal], KafkaPrincipal]
"""From a SASL mechanism, its server and the principal of the built-in rules to the principal."""


class PrincipalBuilders:
    """Owns the principal builders of the listeners.

    Made at the start; lives on the control loop.
    """

    def __init__(self, config: BrokerConfig, plugins: Callable[[], PluginManager]) -> None:
        """Make and configure the builders. ConfigError for a name that nobody registered.

        `plugins` is called only for a builder that is not built in.
        """
        self._builders: dict[str, PrincipalBuilder] = {}
        self._plugins = plugins
        for endpoint in config.listeners:
            self.add(config, endpoint.listener_name)

    def add(self, config: BrokerConfig, listener: str) -> None:
        """Make the builder of a listener, also again. ConfigError, PluginError."""
        builder = self._make(config, listener)
        earlier = self._builders.pop(listener, None)
        if builder is not None:
            self._builders[listener] = builder
        if earlier is not None:
            _close(earlier)

    def check(self, config: BrokerConfig, listener: str) -> None:
        """Make the builder of a listener, as a trial. ConfigError, PluginError."""
        builder = self._make(config, listener)
        if builder is not None:
            _close(builder)

    def check_name(self, config: BrokerConfig) -> None:
        """ConfigError when principal.builder.class, for listeners to come, names no builder."""
        name = config.get_str(BUILDER_KEY)
        if name != DEFAULT_PRINCIPAL_BUILDER and BUILDER_KEY in config.dynamic:
            _close(self._plugins().create_principal_builder(BUILDER_KEY, name))

    def _make(self, config: BrokerConfig, listener: str) -> PrincipalBuilder | None:
        name = config.for_listener(listener, BUILDER_KEY) or DEFAULT_PRINCIPAL_BUILDER
        if name == DEFAULT_PRINCIPAL_BUILDER:
            return None
        prefixed = f"listener.name.{listener.lower()}.{BUILDER_KEY}"
        builder = self._plugins().create_principal_builder(prefixed if prefixed in config else BUILDER_KEY, name)
        try:
            builder.configure(BuilderSettings(listener, config))
        except KafkaError:
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise PluginError(f"configure of the principal builder {name!r} failed: {reason}") from error
        return builder

    def __contains__(self, listener: str) -> bool:
        """Whether a builder makes the principals of this listener."""
        return listener in self._builders

    def without_sasl(self, request: NetworkRequest, default: Callable[[], KafkaPrincipal]) -> KafkaPrincipal:
        """The principal of a connection without SASL. Any exception refuses it."""
        builder = self._builders.get(request.listener_name)
        return default() if builder is None else build_principal(builder, _facts(request, default))

    def of_sasl(self, request: NetworkRequest) -> BuildPrincipal | None:
        """Builds the principals of a connection with SASL, also of later authentications.

        None: the built-in rules do.
        """
        builder = self._builders.get(request.listener_name)
        if builder is None:
            return None
        # The request is not kept: the connection may authenticate again long after it.
        facts = _facts(request, _no_default)
        return partial(_build_with_sasl, builder, facts)

    def close(self) -> None:
        """Close all builders."""
        builders, self._builders = self._builders, {}
        for builder in builders.values():
            _close(builder)


def _close(builder: PrincipalBuilder) -> None:
    try:
        builder.close()
    except Exception:  # a builder is a plugin's: the others are closed too
        logger.exception("The principal builder %s could not be closed", type(builder).__name__)


def _build_with_sasl(
    builder: PrincipalBuilder, facts: AuthenticationContext, mechanism: str, server: SaslServer, default: KafkaPrincipal
) -> KafkaPrincipal:
    return build_principal(
        builder,
        replace(
            facts,
            default=lambda: default,
            sasl_mechanism=mechanism,
            authorization_id=server.authorization_id,
            sasl_properties=server.properties,
        ),
    )


def _facts(request: NetworkRequest, default: Callable[[], KafkaPrincipal]) -> AuthenticationContext:
    return AuthenticationContext(
        listener_name=request.listener_name,
        security_protocol=request.security_protocol.name,
        client_address=request.peer_host,
        default=default,
        peer_certificate=request.peer_certificate,
        tls_protocol=request.tls_protocol,
        cipher_suite=request.cipher_suite,
    )


def _no_default() -> KafkaPrincipal:
    raise ValueError("the connection is not authenticated yet")
