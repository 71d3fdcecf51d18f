"""TLS contexts from settings, and their reload while the broker runs.

Source: org.apache.kafka.common.security.ssl.SslFactory.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafkapy._speedups.base.tls import TlsContext
from kafkapy.errors import ConfigError
from kafkapy.security.ssl.settings import SslSettings
from kafkapy.security.ssl.stores import KeyMaterial, load_keystore, load_revoked, load_truststore

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

__all__ = ["ListenerTls", "client_context", "server_context"]

logger = logging.getLogger("org.apache.kafka.common.security.ssl.SslFactory")

VERSIONS: Final = ("TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3")
NEWEST: Final = {"TLS": "TLSv1.3", **{version: version for version in VERSIONS}}
"""The newest version of each ssl.protocol."""
NO_HOST_CHECK: Final = ("", "none")
FIXED: Final = ("client_auth", "protocol", "enabled_protocols", "cipher_suites", "endpoint_identification_algorithm")
"""Settings that the listener has until its end (SslConfigs.NON_RECONFIGURABLE_CONFIGS)."""


def server_context(settings: SslSettings) -> TlsContext:
    """The context of a listener.

    Blocks on the disk. ConfigError with file and reason.
    """
    return _server(settings, load_keystore(settings), load_truststore(settings))


def client_context(settings: SslSettings) -> TlsContext:
    """The context of a client.

    Blocks on the disk. ConfigError with file and reason.
    """
    keys = load_keystore(settings)
    trusted = load_truststore(settings) if settings.verify_certificate else ()
    algorithm = settings.endpoint_identification_algorithm.lower()
    check_hostname = settings.check_hostname and algorithm not in NO_HOST_CHECK and settings.verify_certificate
    if algorithm not in (*NO_HOST_CHECK, "https"):
        key = "ssl.endpoint.identification.algorithm"
        raise settings.error(key, "must be https or empty", settings.endpoint_identification_algorithm)
    return _context(settings, keys, trusted, server=False, check_hostname=check_hostname)


def _server(settings: SslSettings, keys: KeyMaterial | None, trusted: Sequence[bytes] | None) -> TlsContext:
    if keys is None:
        raise settings.error("ssl.keystore.location", "a TLS listener needs a keystore")
    if settings.client_auth == "none":
        trusted = ()
    elif trusted is None:
        logger.warning("Without a truststore every client with a certificate of the system's authorities is accepted")
    return _context(settings, keys, trusted, server=True, check_hostname=False)


def _context(
    settings: SslSettings, keys: KeyMaterial | None, trusted: Sequence[bytes] | None, *, server: bool,
    check_hostname: bool,
) -> TlsContext:  # fmt: skip
    try:
        return TlsContext(
            server,
            keys.private_key if keys else None,
            keys.chain if keys else (),
            trusted,
            settings.client_auth,
            _versions(settings),
            settings.cipher_suites,
            check_hostname,
            settings.verify_certificate,
            load_revoked(settings),
        )
    except ValueError as error:
        if isinstance(error, ConfigError):
            raise
        reason = str(error)
        if "cipher" in reason:
            raise settings.error("ssl.cipher.suites", reason, ",".join(settings.cipher_suites)) from None
        if "revocation" in reason:
            raise settings.error("ssl.crl.location", reason, settings.crl_location) from None
        location = settings.keystore_location if keys else settings.truststore_location
        raise settings.error("ssl.keystore.location" if keys else "ssl.truststore.location", reason, location) from None


def _versions(settings: SslSettings) -> list[str]:
    newest = NEWEST.get(settings.protocol)
    if newest is None:
        raise settings.error("ssl.protocol", f"must be one of {', '.join(NEWEST)}", settings.protocol)
    for version in settings.enabled_protocols:
        if version not in VERSIONS:
            raise settings.error("ssl.enabled.protocols", f"must be of {', '.join(VERSIONS)}", version)
    allowed: list[str] = [
        version
        for version in VERSIONS
        if version in (settings.enabled_protocols or VERSIONS[2:]) and VERSIONS.index(version) <= VERSIONS.index(newest)
    ]
    if not allowed:
        reason = f"none of them is allowed by ssl.protocol={settings.protocol}"
        raise settings.error("ssl.enabled.protocols", reason, ",".join(settings.enabled_protocols))
    return allowed


class ListenerTls:
    """The TLS context of one listener, which a dynamic change may replace.

    The broker makes one at the start for each SSL or SASL_SSL listener, and calls it from one thread at a time.
    `inter_broker`: brokers connect to this listener too, so its keystore must be valid for its truststore.
    """

    context: TlsContext
    settings: SslSettings

    def __init__(self, settings: SslSettings, *, inter_broker: bool = False) -> None:
        """Load the stores. ConfigError stops the start."""
        self._inter_broker = inter_broker
        self._loaded = loaded = _Loaded(settings)
        if inter_broker:
            loaded.check_against(loaded)
        self._given = self.settings = settings
        self.context = loaded.context

    def changed(self, settings: SslSettings) -> bool:
        """Whether these settings differ, or a store's file was written since the last load."""
        return settings != self._given or _stamps(settings) != self._loaded.stamps

    def validate(self, settings: SslSettings) -> TlsContext:
        """The context of new settings, checked as Kafka does.

        A keystore keeps its names, and stores are neither added nor removed. ConfigError when they are refused.
        """
        return self._checked(settings).context

    def reload(self, settings: SslSettings) -> bool:
        """Take new settings for new connections.

        False when nothing changed. ConfigError keeps the old context.
        """
        if not self.changed(settings):
            return False
        self._loaded = self._checked(settings)
        self._given = settings
        self.settings = self._loaded.settings
        self.context = self._loaded.context
        return True

    def _checked(self, settings: SslSettings) -> _Loaded:
        if not self.changed(settings):
            return self._loaded
        old, new = self._loaded, _Loaded(settings)
        fixed = replace(settings, **{name: getattr(self.settings, name) for name in FIXED})
        if fixed != settings:
            # The new values are right, and for the listener's next start.
            new = _Loaded(fixed)
        if (old.trusted is None) != (new.trusted is None):
            change = "added to" if old.trusted is None else "removed from"
            key = "ssl.truststore.location"
            raise settings.error(key, f"a truststore cannot be {change} a listener", settings.truststore_location)
        new.check_names(old)
        if self._inter_broker:
            new.check_against(old)
            old.check_against(new)
        return new


class _Loaded:
    """Stores, and the context made of them."""

    def __init__(self, settings: SslSettings) -> None:
        self.settings = settings
        # Before the stores, so that a file written meanwhile counts as changed.
        self.stamps = _stamps(settings)
        keys = load_keystore(settings)
        self.trusted = load_truststore(settings)
        self.context = _server(settings, keys, self.trusted)
        self.chain = keys.chain if keys is not None else ()

    def certificates(self) -> list[Certificate]:
        from kafkapy.security.ssl import chains

        return [chains.certificate(each) for each in self.chain]

    def check_names(self, old: _Loaded) -> None:
        """Refuse another distinguished name, or missing alternative names."""
        from kafkapy.security.ssl import chains

        mine, before = self.certificates()[0], old.certificates()[0]
        location = self.settings.keystore_location
        if not self.settings.allow_dn_changes and mine.subject != before.subject:
            name, earlier = chains.subject(mine), chains.subject(before)
            if _canonical(name) != _canonical(earlier):
                reason = (
                    f"the new certificate is of {name}, the old one of {earlier}; ssl.allow.dn.changes=true allows this"
                )
                raise self.settings.error("ssl.keystore.location", reason, location)
        missing = chains.alternative_names(before) - chains.alternative_names(mine)
        if missing and not self.settings.allow_san_changes:
            names = ", ".join(sorted(str(each.value) for each in missing))
            reason = (
                f"the new certificate lacks alternative names of the old one ({names}); ssl.allow.san.changes=true "
                "allows this"
            )
            raise self.settings.error("ssl.keystore.location", reason, location)

    def check_against(self, other: _Loaded) -> None:
        """Refuse a keystore that the other's truststore does not accept.

        Without a truststore nothing is checked.
        """
        from kafkapy.security.ssl import chains

        if other.trusted is None:
            return
        chain = self.certificates()
        reason = ""
        if not chains.verifies(chain, [chains.certificate(each) for each in other.trusted]):
            truststore = other.settings.truststore_location or "in the configuration"
            reason = f"the truststore ({truststore}) does not accept the certificate of {chains.subject(chain[0])}"
        elif not chains.may_serve(chain[0], client=False):
            reason = "the certificate's extended key usage does not allow a TLS server"
        elif other.settings.client_auth != "none" and not chains.may_serve(chain[0], client=True):
            reason = "the certificate's extended key usage does not allow a TLS client, and brokers connect as clients"
        if reason:
            reason += "; brokers could not connect to each other"
            raise self.settings.error("ssl.keystore.location", reason, self.settings.keystore_location)


def _canonical(name: str) -> str:
    return " ".join(name.lower().split())


def _stamps(settings: SslSettings) -> list[tuple[str, int, int, int] | None]:
    """Modification time, size and inode of each file; None for a missing one."""
    stamps: list[tuple[str, int, int, int] | None] = []
    for path in settings.files():
        try:
            status = Path(path).stat()
        except OSError:
            stamps.append(None)
        else:
            stamps.append((path, status.st_mtime_ns, status.st_size, status.st_ino))
    return stamps
