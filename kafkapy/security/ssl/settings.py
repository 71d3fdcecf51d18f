"""The ssl.* keys of one listener or one client, resolved.

Source: org.apache.kafka.common.config.SslConfigs and ChannelBuilders.channelBuilderConfigs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkapy.config.config_def import Password
from kafkapy.errors import ConfigError

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig

__all__ = ["KeyOrigin", "SslSettings"]


class KeyOrigin(NamedTuple):
    """The name of a key as the user wrote it, its line and file."""

    name: str
    line: int | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class SslSettings:
    """All ssl.* keys of a listener or a client.

    Immutable; `repr` hides the secrets.

    Two settings are equal when their values are; the places of the keys do not count.
    """

    keystore_type: str = "JKS"
    keystore_location: str | None = None
    keystore_password: Password | None = None
    key_password: Password | None = None
    keystore_key: Password | None = None
    """The private key in PEM."""
    keystore_certificate_chain: Password | None = None
    """The chain in PEM, leaf first."""
    truststore_type: str = "JKS"
    truststore_location: str | None = None
    truststore_password: Password | None = None
    truststore_certificates: Password | None = None
    """The trusted certificates in PEM."""
    client_auth: str = "none"
    """"none", "requested" or "required"; for a server."""
    protocol: str = "TLSv1.3"
    enabled_protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    cipher_suites: tuple[str, ...] = ()
    endpoint_identification_algorithm: str = "https"
    principal_mapping_rules: str = "DEFAULT"
    allow_dn_changes: bool = False
    allow_san_changes: bool = False
    # librdkafka's and kafka-python's keys of clients.
    ca_location: str | None = None
    certificate_location: str | None = None
    key_location: str | None = None
    crl_location: str | None = None
    check_hostname: bool = True
    verify_certificate: bool = True
    origins: Mapping[str, KeyOrigin] = field(default_factory=dict, repr=False, compare=False)
    """The place of each set key, by its name without prefix."""

    @classmethod
    def from_config(
        cls, get: Callable[[str], Any], origins: Mapping[str, KeyOrigin] | None = None, **replaced: Any
    ) -> SslSettings:
        """Read the keys by `get`.

        It gives the parsed value of a key, or None for an unknown key.
        """
        values: dict[str, Any] = {}
        for name, key in _KEYS.items():
            value = get(key)
            if value is not None:
                values[name] = tuple(value) if isinstance(value, list) else value
        return cls(**{**values, **replaced}, origins=dict(origins or {}))

    @classmethod
    def for_listener(cls, config: BrokerConfig, listener_name: str) -> SslSettings:
        """The keys of a broker's listener.

        A SASL_SSL listener takes client authentication only from its own listener.name.<listener>.ssl.client.auth.
        """
        prefix = f"listener.name.{listener_name.lower()}."
        origins = {key: _origin(config, prefix, key) for key in _KEYS.values() if _is_set(config, prefix, key)}
        replaced: dict[str, Any] = {}
        protocol = config.security_protocols[listener_name.upper()]
        own_client_auth = prefix + "ssl.client.auth" in config
        if protocol.sasl and not own_client_auth:
            replaced["client_auth"] = "none"
        return cls.from_config(
            lambda key: config.for_listener(listener_name, key) if key in config else None, origins, **replaced
        )

    def error(self, key: str, reason: str, value: object = None) -> ConfigError:
        """A ConfigError for one of the keys, with its full name and line.

        `value` must not be a secret.
        """
        origin = self.origins.get(key) or KeyOrigin(key)
        return ConfigError(origin.name, value, reason, origin.line, origin.source)

    def files(self) -> Iterable[str]:
        """The files that the settings name."""
        for path in (
            self.keystore_location, self.truststore_location, self.ca_location, self.certificate_location,
            self.key_location, self.crl_location,
        ):  # fmt: skip
            if path:
                yield path


_KEYS = {
    "keystore_type": "ssl.keystore.type",
    "keystore_location": "ssl.keystore.location",
    "keystore_password": "ssl.keystore.password",
    "key_password": "ssl.key.password",
    "keystore_key": "ssl.keystore.key",
    "keystore_certificate_chain": "ssl.keystore.certificate.chain",
    "truststore_type": "ssl.truststore.type",
    "truststore_location": "ssl.truststore.location",
    "truststore_password": "ssl.truststore.password",
    "truststore_certificates": "ssl.truststore.certificates",
    "client_auth": "ssl.client.auth",
    "protocol": "ssl.protocol",
    "enabled_protocols": "ssl.enabled.protocols",
    "cipher_suites": "ssl.cipher.suites",
    "endpoint_identification_algorithm": "ssl.endpoint.identification.algorithm",
    "principal_mapping_rules": "ssl.principal.mapping.rules",
    "allow_dn_changes": "ssl.allow.dn.changes",
    "allow_san_changes": "ssl.allow.san.changes",
    "ca_location": "ssl.ca.location",
    "certificate_location": "ssl.certificate.location",
    "key_location": "ssl.key.location",
    "crl_location": "ssl.crl.location",
    "check_hostname": "ssl.check.hostname",
    "verify_certificate": "enable.ssl.certificate.verification",
}


def _is_set(config: BrokerConfig, prefix: str, key: str) -> bool:
    return config.is_set(prefix + key) or config.is_set(key)


def _origin(config: BrokerConfig, prefix: str, key: str) -> KeyOrigin:
    name = prefix + key if config.is_set(prefix + key) else key
    return KeyOrigin(name, *config.place_of(name))
