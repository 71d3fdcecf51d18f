"""Key stores and trust stores: PEM, PKCS12 and JKS, from files or from the configuration itself.

Source: org.apache.kafka.common.security.ssl.DefaultSslEngineFactory (KIP-651).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kafkapy.security.ssl.settings import SslSettings

__all__ = ["KeyMaterial", "load_keystore", "load_truststore"]


@dataclass(frozen=True, slots=True)
class KeyMaterial:
    """A private key and its certificate chain. Immutable; `repr` hides the key."""

    private_key: bytes = field(repr=False)
    """PKCS#8, DER, without encryption."""
    chain: tuple[bytes, ...]
    """DER, leaf first."""


def load_keystore(settings: SslSettings) -> KeyMaterial | None:
    """The private key and chain, None when no keystore is configured. May block on the disk.

    ConfigError with the key, the file and the reason: the file is missing or no store, a wrong password, an expired
    certificate, a key that does not fit its certificate, an empty chain.
    """
    raise NotImplementedError


def load_truststore(settings: SslSettings) -> tuple[bytes, ...] | None:
    """The trusted certificates in DER, None when no truststore is configured. May block on the disk.

    ConfigError with the key, the file and the reason.
    """
    raise NotImplementedError
