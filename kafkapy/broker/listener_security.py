"""Security of the listeners: TLS contexts, SASL limits, principals of certificates.

Sources: kafka.network.SocketServer, org.apache.kafka.common.network.ChannelBuilders and SslChannelBuilder,
kafka.server.DynamicListenerConfig.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from kafkapy.broker.principals import PrincipalBuilders
from kafkapy.config.broker import BrokerConfig
from kafkapy.errors import ConfigError
from kafkapy.network.socket_server import ListenerSecurity, SocketServer
from kafkapy.security.principal import ANONYMOUS, USER_TYPE, KafkaPrincipal

if TYPE_CHECKING:
    from kafkapy._speedups.network.network_request import NetworkRequest
    from kafkapy.security.ssl.context import ListenerTls
    from kafkapy.security.ssl.principal_mapper import SslPrincipalMapper
    from kafkapy.security.ssl.settings import SslSettings
    from kafkapy.types import Endpoint

__all__ = ["ListenerSecurities", "check_stores"]

logger = logging.getLogger("kafka.network.SocketServer")

LEAST_SETUP_MS: Final = 1000
"""Time in ms that a connection has for its handshake and authentication, however little is configured."""


class ListenerSecurities:
    """Owns the TLS contexts and principal mappers of the listeners.

    Made at the start; lives on the control loop. A broker without TLS and SASL imports nothing for it.
    """

    def __init__(self, config: BrokerConfig, builders: PrincipalBuilders) -> None:
        """Load the stores. ConfigError with the key, the file and the reason stops the start."""
        self._builders = builders
        self._tls: dict[str, ListenerTls] = {}
        self._mappers: dict[str, SslPrincipalMapper] = {}
        self._server: SocketServer | None = None
        self.listeners: dict[str, ListenerSecurity] = {}
        """By listener name, without those that ask for nothing."""
        self._names: set[str] = set()
        for endpoint in config.listeners:
            self._add(config, endpoint)

    def _add(self, config: BrokerConfig, endpoint: Endpoint) -> None:
        name, protocol = endpoint.listener_name, endpoint.security_protocol
        ask_principal = not protocol.sasl and name in self._builders
        if protocol.tls:
            self._tls[name], self._mappers[name] = _load(config, name)
        if protocol.tls or protocol.sasl or ask_principal:
            self.listeners[name] = ListenerSecurity(
                tls=self._tls[name].context if protocol.tls else None,
                sasl=protocol.sasl,
                raw_tokens=protocol.sasl and "GSSAPI" in (config.for_listener(name, "sasl.enabled.mechanisms") or ()),
                sasl_server_max_receive_size=int(config.for_listener(name, "sasl.server.max.receive.size")),
                connection_failed_authentication_delay_ms=config.get_int("connection.failed.authentication.delay.ms"),
                setup_timeout_ms=max(config.get_int("socket.connection.setup.timeout.max.ms"), LEAST_SETUP_MS),
                ask_principal=ask_principal,
            )
        self._names.add(name)

    # --- principals -------------------------------------------------------------------------------------------------

    def answer_principal(self, request: NetworkRequest) -> None:
        """Answer ASK_PRINCIPAL by the listener's builder, or by the certificate.

        Never raises.

        Source: DefaultKafkaPrincipalBuilder.
        """
        try:
            principal = str(self._builders.without_sasl(request, partial(self._default_principal, request)))
        except Exception as error:  # a client without a principal is not let in, whatever the reason
            source = "certificate" if request.peer_certificate else "connection"
            request.authentication_failed(reason=f"the {source} gives no principal: {error}")
            return
        request.authenticated(principal)

    def _default_principal(self, request: NetworkRequest) -> KafkaPrincipal:
        if not request.peer_certificate:
            return ANONYMOUS
        from kafkapy.security.ssl.distinguished_name import distinguished_name

        name = self._mappers[request.listener_name].name(distinguished_name(request.peer_certificate))
        if not name:
            raise ValueError("its name is empty")
        return KafkaPrincipal(USER_TYPE, name)

    # --- changes at run time ----------------------------------------------------------------------------------------

    def attach(self, server: SocketServer | None) -> None:
        """Give later contexts to this server.

        None at the stop: the descriptors of the server end with it.
        """
        self._server = server

    def check_listener(self, config: BrokerConfig, endpoint: Endpoint) -> None:
        """Set up a new listener, as a trial. Blocks on the disk.

        ConfigError when it could not run.
        """
        self._builders.check(config, endpoint.listener_name)
        if endpoint.security_protocol.tls:
            _load(config, endpoint.listener_name)

    def update_listeners(self, config: BrokerConfig) -> None:
        """Set up new listeners, and forget removed ones. Blocks on the disk. ConfigError."""
        wanted = {endpoint.listener_name: endpoint for endpoint in config.listeners}
        for name in self._names - wanted.keys():
            self._names.discard(name)
            self.listeners.pop(name, None)
            self._tls.pop(name, None)
            # Mapper and builder stay: connections of the removed listener may still ask for their principals.
        for name in wanted.keys() - self._names:
            self._builders.add(config, name)
            self._add(config, wanted[name])

    def check(self, config: BrokerConfig) -> None:
        """Load the stores of a configuration, as a trial. Blocks on the disk.

        ConfigError when a listener could not run with them.
        """
        for name in self._tls.keys() & {each.listener_name for each in config.listeners}:
            tls, settings = self._tls[name], self._settings(config, name)
            if tls.changed(settings):
                tls.validate(settings)

    def reconfigure(self, config: BrokerConfig) -> None:
        """Load the stores of this configuration for new connections.

        It may be the same configuration: a file may have changed. A listener keeps its stores when the new ones cannot
        be used; the log says why.
        """
        for name, tls in self._tls.items():
            try:
                if tls.reload(self._settings(config, name)) and self._server is not None:
                    self._server.replace_tls(name, tls.context)
                    logger.info("Listener %s takes new connections with the stores of its new configuration", name)
            except ConfigError as error:
                logger.error("Listener %s keeps its stores: %s", name, error)

    @staticmethod
    def _settings(config: BrokerConfig, name: str) -> SslSettings:
        from kafkapy.security.ssl.settings import SslSettings

        return SslSettings.for_listener(config, name)


def check_stores(config: BrokerConfig) -> None:
    """Load the stores of all TLS listeners, as a trial.

    Blocks on the disk. ConfigError.
    """
    for endpoint in config.listeners:
        if endpoint.security_protocol.tls:
            _load(config, endpoint.listener_name)


def _load(config: BrokerConfig, name: str) -> tuple[ListenerTls, SslPrincipalMapper]:
    from kafkapy.security.ssl.context import ListenerTls
    from kafkapy.security.ssl.principal_mapper import SslPrincipalMapper
    from kafkapy.security.ssl.settings import SslSettings

    settings = SslSettings.for_listener(config, name)
    tls = ListenerTls(settings, inter_broker=name == config.inter_broker_listener_name)
    try:
        return tls, SslPrincipalMapper(settings.principal_mapping_rules)
    except ValueError as error:
        raise settings.error("ssl.principal.mapping.rules", str(error), settings.principal_mapping_rules) from None
