"""TLS contexts from settings, and their reload while the broker runs.

Source: org.apache.kafka.common.security.ssl.SslFactory.
"""

from __future__ import annotations

from kafkapy._speedups.base.tls import TlsContext
from kafkapy.security.ssl.settings import SslSettings

__all__ = ["ListenerTls", "client_context", "server_context"]


def server_context(settings: SslSettings) -> TlsContext:
    """The context of a listener. Blocks on the disk. ConfigError with file and reason."""
    raise NotImplementedError


def client_context(settings: SslSettings) -> TlsContext:
    """The context of a client. Blocks on the disk. ConfigError with file and reason."""
    raise NotImplementedError


class ListenerTls:
    """The TLS context of one listener, which a dynamic change may replace.

    The broker makes one at the start for each SSL or SASL_SSL listener. `inter_broker`: brokers connect to this
    listener too, so its keystore must be valid for its truststore.
    """

    context: TlsContext
    settings: SslSettings

    def __init__(self, settings: SslSettings, *, inter_broker: bool = False) -> None:
        """Load the stores. ConfigError stops the start."""
        raise NotImplementedError

    def changed(self, settings: SslSettings) -> bool:
        """Whether these settings differ, or a store's file was written since the last load."""
        raise NotImplementedError

    def validate(self, settings: SslSettings) -> TlsContext:
        """The context of new settings, checked as Kafka does (same names, stores neither added nor removed).

        ConfigError when they are refused; the old context stays.
        """
        raise NotImplementedError

    def reload(self, settings: SslSettings) -> bool:
        """Take new settings for new connections. False when nothing changed. ConfigError keeps the old context."""
        raise NotImplementedError
