"""Key stores and trust stores: PEM, PKCS12 and JKS.

They are files, or stand in the configuration itself.

    ssl.keystore.type=PEM, with ssl.keystore.key and ssl.keystore.certificate.chain, or ssl.keystore.location
    ssl.keystore.type=PKCS12 or JKS, with ssl.keystore.location and ssl.keystore.password

As in Java, the types PKCS12 and JKS stand for each other: the content of the file decides. Source:
org.apache.kafka.common.security.ssl.DefaultSslEngineFactory (KIP-651).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kafkapy.config.config_def import Password
from kafkapy.errors import ConfigError
from kafkapy.security.ssl import jks, pem
from kafkapy.security.ssl.settings import SslSettings

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
    from cryptography.x509 import Certificate

__all__ = ["KeyMaterial", "load_keystore", "load_revoked", "load_truststore"]

logger = logging.getLogger("org.apache.kafka.common.security.ssl")

PEM: Final = "PEM"
TYPES: Final = ("PEM", "PKCS12", "JKS")
LARGEST_FILE: Final = 64 * 1024 * 1024
"""Bytes of a store, at most."""
JCEKS_MAGIC: Final = b"\xce\xce\xce\xce"
DER_SEQUENCE: Final = 0x30
SYSTEM: Final = "probe"
"""librdkafka's ssl.ca.location for the system's authorities."""


@dataclass(frozen=True, slots=True)
class KeyMaterial:
    """A private key and its certificate chain. Immutable; `repr` hides the key."""

    private_key: bytes = field(repr=False)
    """PKCS#8, DER, without encryption."""
    chain: tuple[bytes, ...] = field(repr=False)
    """DER, leaf first."""


def load_keystore(settings: SslSettings) -> KeyMaterial | None:
    """The private key and chain, None when no keystore is configured.

    May block on the disk.

    ConfigError with the key, the file and the reason: the file is missing or no store, a wrong password, an expired
    certificate, a key that does not fit its certificate, an empty chain.
    """
    _check_keystore_keys(settings)
    if settings.keystore_key is not None:
        place = _Place(settings, "ssl.keystore.key", None)
        chain = _Place(settings, "ssl.keystore.certificate.chain", None)
        key = _pem_key(place, _text(settings.keystore_key), settings)
        return _material(chain, key, _pem_certificates(chain, _text(settings.keystore_certificate_chain)))
    if settings.certificate_location or settings.key_location:
        return _librdkafka_keystore(settings)
    if not settings.keystore_location:
        return None
    place = _Place(settings, "ssl.keystore.location", settings.keystore_location)
    data = place.read()
    if settings.keystore_type.upper() == PEM:
        text = place.decode(data)
        return _material(place, _pem_key(place, text, settings), _pem_certificates(place, text))
    if jks.is_jks(data):
        return _jks_keystore(place, data, settings)
    private_key, certificates, _names = _pkcs12(place, data, settings.keystore_password, "ssl.keystore.password")
    if private_key is None:
        raise place.error("the store has no private key")
    return _material(place, private_key, certificates)


def load_truststore(settings: SslSettings) -> tuple[bytes, ...] | None:
    """The trusted certificates in DER, None when no truststore is configured.

    May block on the disk.

    ConfigError with the key, the file and the reason.
    """
    _check_truststore_keys(settings)
    if settings.truststore_certificates is not None:
        place = _Place(settings, "ssl.truststore.certificates", None)
        return _trusted(place, _pem_certificates(place, _text(settings.truststore_certificates)))
    if settings.ca_location:
        return None if settings.ca_location == SYSTEM else _librdkafka_truststore(settings)
    if not settings.truststore_location:
        return None
    place = _Place(settings, "ssl.truststore.location", settings.truststore_location)
    data = place.read()
    if settings.truststore_type.upper() == PEM:
        return _trusted(place, _pem_certificates(place, place.decode(data)))
    if jks.is_jks(data):
        entries = _jks_entries(place, data, settings.truststore_password, "ssl.truststore.password")
        # Java trusts the leaf of a key's chain, and not its issuers.
        return _trusted(place, [_certificate(place, entry.chain[0]) for entry in entries if entry.chain])
    return _trusted(place, _pkcs12_trusted(place, data, settings))


def load_revoked(settings: SslSettings) -> tuple[bytes, ...]:
    """The revocation lists of ssl.crl.location in DER; empty without the key.

    May block on the disk. ConfigError with the key, the file and the reason.
    """
    if not settings.crl_location:
        return ()
    place = _Place(settings, "ssl.crl.location", settings.crl_location)
    found = [block.der for block in _pem_blocks(place, place.decode(place.read())) if block.label == "X509 CRL"]
    if not found:
        raise place.error("there is no revocation list in it (-----BEGIN X509 CRL-----)")
    return tuple(found)


class _Place:
    """A store: the settings, the key that names it, and its file, for errors."""

    def __init__(self, settings: SslSettings, key: str, path: str | None) -> None:
        self._settings = settings
        self._key = key
        self.path = path

    def error(self, reason: str, key: str | None = None) -> ConfigError:
        return self._settings.error(key or self._key, reason, self.path)

    def name_of(self, key: str) -> str:
        origin = self._settings.origins.get(key)
        return origin.name if origin else key

    def read(self) -> bytes:
        path = Path(self.path or "")
        if path.is_dir():
            raise self.error("this is a directory, not a file")
        if path.exists() and not path.is_file():
            raise self.error("this is not a regular file")
        try:
            with path.open("rb") as file:
                data = file.read(LARGEST_FILE + 1)
        except FileNotFoundError:
            raise self.error("the file does not exist") from None
        except (OSError, ValueError) as error:
            raise self.error(f"the file cannot be read: {getattr(error, 'strerror', None) or error}") from None
        if len(data) > LARGEST_FILE:
            raise self.error(f"the file has more than {LARGEST_FILE} bytes, which no store needs")
        if not data:
            raise self.error("the file is empty")
        return data

    def decode(self, data: bytes) -> str:
        # Only the blocks count, and they are ASCII.
        text = data.decode("latin-1")
        if "-----BEGIN" not in text:
            raise self.error("the file has no PEM block (-----BEGIN ...)" + _kind_hint(data))
        return text


def _kind_hint(data: bytes) -> str:
    if jks.is_jks(data):
        return "; it is a JKS store"
    return "; it may be a PKCS12 store" if data[:1] == bytes([DER_SEQUENCE]) else ""


# --- contradictions between keys --------------------------------------------------------------------------------------


def _check_keystore_keys(settings: SslSettings) -> None:
    kind = settings.keystore_type.upper()
    if kind not in TYPES:
        raise settings.error("ssl.keystore.type", f"must be one of {', '.join(TYPES)}", settings.keystore_type)
    if settings.keystore_key is not None:
        if kind != PEM:
            reason = "needs ssl.keystore.type=PEM"
            raise settings.error("ssl.keystore.key", reason)
        if settings.keystore_certificate_chain is None:
            raise settings.error("ssl.keystore.key", "needs ssl.keystore.certificate.chain as well")
        if settings.keystore_location:
            raise settings.error("ssl.keystore.key", "contradicts ssl.keystore.location; set only one of them")
    elif settings.keystore_certificate_chain is not None and not settings.key_location:
        raise settings.error("ssl.keystore.certificate.chain", "needs ssl.keystore.key as well")
    password, location = settings.keystore_password is not None, bool(settings.keystore_location)
    if kind == PEM and password:
        reason = "a PEM store has no password; ssl.key.password is the one of its private key"
        raise settings.error("ssl.keystore.password", reason)
    if password and not location:
        raise settings.error("ssl.keystore.password", "needs ssl.keystore.location as well")
    if location and kind != PEM and not password:
        reason = f"a store of type {kind} needs ssl.keystore.password as well"
        raise settings.error("ssl.keystore.location", reason, settings.keystore_location)


def _check_truststore_keys(settings: SslSettings) -> None:
    kind = settings.truststore_type.upper()
    if kind not in TYPES:
        raise settings.error("ssl.truststore.type", f"must be one of {', '.join(TYPES)}", settings.truststore_type)
    if settings.truststore_certificates is not None:
        if kind != PEM:
            raise settings.error("ssl.truststore.certificates", "needs ssl.truststore.type=PEM")
        if settings.truststore_location:
            reason = "contradicts ssl.truststore.location; set only one of them"
            raise settings.error("ssl.truststore.certificates", reason)
    if settings.truststore_password is not None:
        if kind == PEM:
            raise settings.error("ssl.truststore.password", "a PEM store has no password")
        if not settings.truststore_location:
            raise settings.error("ssl.truststore.password", "needs ssl.truststore.location as well")


# --- PEM --------------------------------------------------------------------------------------------------------------


def _pem_blocks(place: _Place, text: str) -> list[pem.PemBlock]:
    try:
        return list(pem.blocks(text))
    except ValueError as error:
        raise place.error(str(error)) from None


def _pem_certificates(place: _Place, text: str) -> list[Certificate]:
    found = [block.der for block in _pem_blocks(place, text) if block.label.endswith("CERTIFICATE")]
    if not found:
        raise place.error("there is no certificate in it (-----BEGIN CERTIFICATE-----)")
    return [_certificate(place, each) for each in found]


def _pem_key(place: _Place, text: str, settings: SslSettings) -> PrivateKeyTypes:
    keys = [block for block in _pem_blocks(place, text) if block.private_key]
    if not keys:
        raise place.error("there is no private key in it (-----BEGIN PRIVATE KEY-----)")
    if len(keys) > 1:
        raise place.error(f"there are {len(keys)} private keys in it; a store has one")
    from cryptography.hazmat.primitives.serialization import load_der_private_key, load_pem_private_key

    (block,) = keys
    password = None
    if block.cipher or block.label.startswith("ENCRYPTED"):
        if settings.key_password is None:
            raise place.error(f"the private key is encrypted; set {place.name_of('ssl.key.password')}")
        password = _text(settings.key_password).encode()
        if not password:
            raise place.error(_wrong(place, "ssl.key.password"))
    load: Callable[[bytes, bytes | None], PrivateKeyTypes] = (
        load_pem_private_key if block.cipher else (load_der_private_key)
    )
    return _loaded_key(place, load, block.pem if block.cipher else block.der, password, "ssl.key.password")


def _loaded_key(
    place: _Place, load: Callable[[bytes, bytes | None], PrivateKeyTypes], data: bytes, password: bytes | None, key: str
) -> PrivateKeyTypes:
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        return load(data, password)
    except (UnsupportedAlgorithm, TypeError) as error:
        raise place.error(f"the private key is of a kind that is not supported: {error}") from None
    except ValueError:
        reason = _wrong(place, key) if password is not None else "the private key is damaged, or of an unknown kind"
        raise place.error(reason) from None


def _wrong(place: _Place, key: str) -> str:
    return f"the password in {place.name_of(key)} is wrong, or the private key is damaged"


# --- JKS --------------------------------------------------------------------------------------------------------------


def _jks_entries(place: _Place, data: bytes, password: Password | None, key: str) -> Sequence[jks.JksEntry]:
    try:
        return jks.read_jks(data, None if password is None else _text(password))
    except jks.WrongPasswordError:
        raise place.error(f"the password in {place.name_of(key)} is wrong, or the file was changed") from None
    except jks.JksError as error:
        raise place.error(f"the JKS store is damaged: {error}") from None


def _jks_keystore(place: _Place, data: bytes, settings: SslSettings) -> KeyMaterial:
    entries = _jks_entries(place, data, settings.keystore_password, "ssl.keystore.password")
    keys = [entry for entry in entries if entry.protected_key is not None]
    if not keys:
        raise place.error("the store has no private key")
    entry = keys[0]
    if len(keys) > 1:
        logger.warning("%s has %d private keys; the key of %r is used", place.path, len(keys), entry.alias)
    own = settings.key_password is not None
    password = settings.key_password if own else settings.keystore_password
    from cryptography.hazmat.primitives.serialization import load_der_private_key

    try:
        plain = jks.recover_key(entry.protected_key or b"", _text(password))
    except jks.WrongPasswordError:
        key = place.name_of("ssl.key.password")
        reason = f"the password in {key} is wrong" if own else f"the private key has a password of its own; set {key}"
        raise place.error(reason) from None
    except jks.JksError as error:
        raise place.error(f"the JKS store is damaged: {error}") from None
    private_key = _loaded_key(place, load_der_private_key, plain, None, "ssl.key.password")
    if not entry.chain:
        raise place.error(f"the certificate chain of {entry.alias!r} is empty")
    return _material(place, private_key, [_certificate(place, each) for each in entry.chain])


# --- PKCS12 -----------------------------------------------------------------------------------------------------------


def _pkcs12(
    place: _Place, data: bytes, password: Password | None, key: str
) -> tuple[PrivateKeyTypes | None, list[Certificate], dict[bytes, bytes | None]]:
    """The private key, all certificates, and the names of those that are not the key's own."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import Encoding, pkcs12

    _check_pkcs12(place, data)
    text = None if password is None else _text(password).encode()
    try:
        store = pkcs12.load_pkcs12(data, text)
    except (UnsupportedAlgorithm, TypeError) as error:
        raise place.error(f"the PKCS12 store is of a kind that is not supported: {error}") from None
    except ValueError:
        set_it = f"set {place.name_of(key)}: the PKCS12 store has a password, or it is damaged"
        wrong = f"the password in {place.name_of(key)} is wrong, or the PKCS12 store is damaged"
        raise place.error(set_it if password is None else wrong) from None
    own = [store.cert.certificate] if store.cert is not None else []
    others = [each.certificate for each in store.additional_certs]
    names = {each.certificate.public_bytes(Encoding.DER): each.friendly_name for each in store.additional_certs}
    return store.key, [*own, *others], names


def _check_pkcs12(place: _Place, data: bytes) -> None:
    if data.startswith(JCEKS_MAGIC):
        raise place.error("stores of type JCEKS are not supported; convert it by keytool -importkeystore to PKCS12")
    if data.lstrip()[:10] == b"-----BEGIN":
        raise place.error("the file is PEM; set the type to PEM")
    if data[0] != DER_SEQUENCE:
        raise place.error("the file is neither a PKCS12 nor a JKS store")
    first = data[1:2]
    length = first[0] if first else 0
    if length & 0x80 and length != 0x80:
        count = length & 0x7F
        size = 2 + count + int.from_bytes(data[2 : 2 + count], "big")
        if size > len(data):
            raise place.error(f"the PKCS12 store is damaged: it has {len(data)} bytes of {size}")


def _pkcs12_trusted(place: _Place, data: bytes, settings: SslSettings) -> list[Certificate]:
    from cryptography.hazmat.primitives.serialization import Encoding

    from kafkapy.security.ssl.chains import chain_of, subject

    key, certificates, names = _pkcs12(place, data, settings.truststore_password, "ssl.truststore.password")
    if key is None:
        return certificates
    # Java trusts the leaf of a key's chain, and its issuers only as entries of their own. Java's stores name an issuer
    # of a chain by its distinguished name, and an entry of its own by its alias.
    chain = chain_of(key, certificates)

    def named(each: Certificate) -> bool:
        name = names.get(each.public_bytes(Encoding.DER))
        return name is not None and name.decode("utf-8", "replace") != subject(each)

    return [each for each in certificates if each not in chain[1:] or named(each)]


# --- librdkafka's keys ------------------------------------------------------------------------------------------------


def _librdkafka_keystore(settings: SslSettings) -> KeyMaterial:
    """The key and chain in PEM files (ssl.certificate.location, ssl.key.location)."""
    if settings.keystore_certificate_chain is not None:
        chain = _Place(settings, "ssl.keystore.certificate.chain", None)
        text = _text(settings.keystore_certificate_chain)
    elif settings.certificate_location:
        chain = _Place(settings, "ssl.certificate.location", settings.certificate_location)
        text = chain.decode(chain.read())
    else:
        raise settings.error("ssl.key.location", "needs ssl.certificate.location as well", settings.key_location)
    if settings.key_location:
        place = _Place(settings, "ssl.key.location", settings.key_location)
        key = _pem_key(place, place.decode(place.read()), settings)
    else:
        key = _pem_key(chain, text, settings)
    return _material(chain, key, _pem_certificates(chain, text))


def _librdkafka_truststore(settings: SslSettings) -> tuple[bytes, ...]:
    place = _Place(settings, "ssl.ca.location", settings.ca_location)
    path = Path(settings.ca_location or "")
    if not path.is_dir():
        return _trusted(place, _pem_certificates(place, place.decode(place.read())))
    certificates: list[Certificate] = []
    try:
        files = sorted(each for each in path.iterdir() if each.is_file())
    except OSError as error:
        raise place.error(f"the directory cannot be read: {error.strerror or error}") from None
    for file in files:
        one = _Place(settings, "ssl.ca.location", str(file))
        data = one.read()
        if b"-----BEGIN" in data and b"CERTIFICATE" in data:
            certificates.extend(each for each in _pem_certificates(one, one.decode(data)) if each not in certificates)
    if not certificates:
        raise place.error("no file of the directory has a certificate in PEM")
    return _trusted(place, certificates)


# --- checks -----------------------------------------------------------------------------------------------------------


def _certificate(place: _Place, data: bytes) -> Certificate:
    from kafkapy.security.ssl import chains

    try:
        return chains.certificate(data)
    except ValueError as error:
        raise place.error(f"a certificate is damaged: {error}") from None


def _material(place: _Place, key: PrivateKeyTypes, certificates: Sequence[Certificate]) -> KeyMaterial:
    from cryptography.hazmat.primitives.serialization import Encoding

    from kafkapy.security.ssl import chains

    if not certificates:
        raise place.error("the certificate chain is empty")
    chain = chains.chain_of(key, certificates)
    if not chain:
        raise place.error(f"the private key does not fit the certificate of {chains.subject(certificates[0])}")
    for each in chain:
        reason = chains.outside_validity(each)
        if reason:
            raise place.error(reason)
    return KeyMaterial(chains.key_der(key), tuple(each.public_bytes(Encoding.DER) for each in chain))


def _trusted(place: _Place, certificates: Iterable[Certificate]) -> tuple[bytes, ...]:
    from cryptography.hazmat.primitives.serialization import Encoding

    from kafkapy.security.ssl import chains

    found = list(certificates)
    if not found:
        raise place.error("the store has no trusted certificate")
    reasons = [reason for each in found if (reason := chains.outside_validity(each))]
    if len(reasons) == len(found):
        raise place.error(reasons[0])
    for reason in reasons:
        logger.warning("Truststore %s: %s", place.path or "in the configuration", reason)
    return tuple(each.public_bytes(Encoding.DER) for each in found)


def _text(password: Any) -> str:
    """The text of a secret; empty for None."""
    if password is None:
        return ""
    return password.value if isinstance(password, Password) else str(password)
