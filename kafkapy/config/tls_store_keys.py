"""The keys of TLS stores, which clients and brokers have alike.

Source: org.apache.kafka.common.config.SslConfigs.
"""

from __future__ import annotations

from kafkapy.config.config_def import ConfigKey, Importance, UpdateMode
from kafkapy.types import ConfigType

__all__ = ["store_keys"]


def store_keys(
    owner: str, importance: Importance, update_mode: UpdateMode = UpdateMode.READ_ONLY, trusted: str = ""
) -> tuple[ConfigKey, ...]:
    """The keys of a keystore and of a truststore.

    `owner` has the certificate: "client" or "broker". `trusted` is a further sentence about the truststore.
    """

    def text(name: str, doc: str, default: str | None = None) -> ConfigKey:
        level = importance if default is None else Importance.MEDIUM
        return ConfigKey(name, ConfigType.STRING, default, None, level, doc, update_mode)

    def secret(name: str, doc: str) -> ConfigKey:
        return ConfigKey(name, ConfigType.PASSWORD, None, None, importance, doc, update_mode)

    trust = "File with the trusted certificates."
    return (
        text("ssl.keystore.type", "Format of the keystore: PEM, PKCS12 or JKS.", "JKS"),
        text("ssl.keystore.location", f"File with the {owner}'s certificate chain and key."),
        secret("ssl.keystore.password", "Password of the keystore file."),
        secret("ssl.key.password", "Password of the private key."),
        secret("ssl.keystore.key", "The private key itself, in PEM."),
        secret("ssl.keystore.certificate.chain", "The certificate chain itself, in PEM."),
        text("ssl.truststore.type", "Format of the truststore: PEM, PKCS12 or JKS.", "JKS"),
        text("ssl.truststore.location", f"{trust} {trusted}" if trusted else trust),
        secret("ssl.truststore.password", "Password of the truststore file."),
        secret("ssl.truststore.certificates", "The trusted certificates themselves, in PEM."),
    )
