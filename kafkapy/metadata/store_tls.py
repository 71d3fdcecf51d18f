"""TLS from a broker to its metadata store.

The contexts are those of Python's ssl module, with the keys of Kafka's stores.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

from kafkapy.security.oauthbearer.https import load_certificate
from kafkapy.security.ssl.settings import KeyOrigin, SslSettings
from kafkapy.security.ssl.stores import load_keystore, load_truststore

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig

__all__ = ["client_ssl_context", "settings_of"]


def settings_of(config: BrokerConfig, prefix: str, **replaced: Any) -> SslSettings:
    """The settings of the keys <prefix>ssl.*."""
    names = [name for name in config.definition.names if name.startswith(f"{prefix}ssl.")]
    origins = {
        name.removeprefix(prefix): KeyOrigin(name, *config.place_of(name)) for name in names if config.is_set(name)
    }
    known = set(names)
    return SslSettings.from_config(
        lambda key: config[prefix + key] if prefix + key in known else None, origins, **replaced
    )


def client_ssl_context(settings: SslSettings) -> ssl.SSLContext:
    """The context of a client.

    It blocks on the disk. ConfigError with the key, the file and the reason.
    """
    trusted = load_truststore(settings)
    context = ssl.create_default_context(cadata=None if trusted is None else b"".join(trusted))
    context.check_hostname = settings.endpoint_identification_algorithm.lower() == "https"
    own = load_keystore(settings)
    if own is not None:
        load_certificate(context, own.private_key, own.chain)
    return context
