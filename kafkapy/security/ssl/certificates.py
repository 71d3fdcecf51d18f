"""Certificates for development and tests: an authority, and certificates that it issues.

    authority = create_authority("Example CA")
    broker = authority.issue("broker", hosts=["localhost", "127.0.0.1"])
    broker.chain_pem(), broker.key_pem(), broker.pkcs12("secret")

Keys are elliptic (P-256) unless asked otherwise: Java, OpenSSL and all client libraries know them. This module imports
`cryptography`, so its users import it when they need it.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["AUTHORITY_DAYS", "CERTIFICATE_DAYS", "Identity", "create_authority", "load_identity", "truststore"]

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

AUTHORITY_DAYS: Final = 3650
CERTIFICATE_DAYS: Final = 825
"""Apple's limit for certificates of servers, and the strictest in wide use."""
_ATTRIBUTES: Final = {
    "CN": NameOID.COMMON_NAME,
    "OU": NameOID.ORGANIZATIONAL_UNIT_NAME,
    "O": NameOID.ORGANIZATION_NAME,
    "L": NameOID.LOCALITY_NAME,
    "ST": NameOID.STATE_OR_PROVINCE_NAME,
    "C": NameOID.COUNTRY_NAME,
    "UID": NameOID.USER_ID,
    "DC": NameOID.DOMAIN_COMPONENT,
}
_CLOCKS_DIFFER: Final = datetime.timedelta(minutes=5)


@dataclass(frozen=True)
class Identity:
    """A private key with its certificate and the certificates above it.

    `repr` hides the key.
    """

    key: PrivateKey = field(repr=False)
    certificate: x509.Certificate
    issuers: tuple[x509.Certificate, ...] = ()
    """The issuer, its issuer, and so on; without the self-signed authority at the end."""

    def issue(
        self,
        name: str,
        *,
        hosts: Iterable[str] = (),
        days: float = CERTIFICATE_DAYS,
        starts_in_days: float = 0,
        server: bool = True,
        client: bool = True,
        authority: bool = False,
        key: PrivateKey | None = None,
    ) -> Identity:
        """A new identity that this authority signs.

        `name`: a common name, or a distinguished name such as ``CN=alice,OU=Sales``. `hosts`: host names and addresses
        of a server. ValueError for a name or a host that is not valid.
        """
        key = key or new_key()
        starts, ends = _validity(days, starts_in_days)
        own = x509.SubjectKeyIdentifier.from_public_key(self.key.public_key())
        builder = (
            x509.CertificateBuilder()
            .subject_name(_name(name))
            .issuer_name(self.certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(starts)
            .not_valid_after(min(ends, self.certificate.not_valid_after_utc))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own), critical=False)
            .add_extension(_key_usage(key, authority=authority), critical=True)
        )
        if not authority:
            usages = [ExtendedKeyUsageOID.SERVER_AUTH] if server else []
            usages += [ExtendedKeyUsageOID.CLIENT_AUTH] if client else []
            builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        names = [_alternative_name(host) for host in hosts]
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        above = () if self.certificate.issuer == self.certificate.subject else (self.certificate,)
        return Identity(key, builder.sign(self.key, hashes.SHA256()), (*above, *self.issuers))

    @property
    def chain(self) -> tuple[x509.Certificate, ...]:
        """The certificate and those above it."""
        return (self.certificate, *self.issuers)

    def chain_pem(self) -> str:
        """The chain, leaf first."""
        return "".join(each.public_bytes(Encoding.PEM).decode() for each in self.chain)

    def key_pem(self, password: str | None = None) -> str:
        """The private key as PKCS#8, encrypted when a password is given."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, _encryption(password)).decode()

    def pkcs12(self, password: str, alias: str = "kafka") -> bytes:
        """A PKCS12 key store for Java, with key and chain."""
        return pkcs12.serialize_key_and_certificates(
            alias.encode(), self.key, self.certificate, self.issuers, _encryption(password)
        )


def create_authority(
    name: str = "kafkapy development CA", *, days: float = AUTHORITY_DAYS, starts_in_days: float = 0
) -> Identity:
    """A new self-signed authority."""
    key = new_key()
    starts, ends = _validity(days, starts_in_days)
    subject = _name(name)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(starts)
        .not_valid_after(ends)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(_key_usage(key, authority=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Identity(key, certificate)


def load_identity(chain_pem: bytes, key_pem: bytes, password: str | None = None) -> Identity:
    """An identity from PEM.

    ValueError for other bytes, or a key that does not fit.
    """
    leaf, *issuers = x509.load_pem_x509_certificates(chain_pem)
    key = load_pem_private_key(key_pem, None if password is None else password.encode())
    if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise ValueError("the private key is neither an RSA nor an elliptic key")
    if key.public_key() != leaf.public_key():
        raise ValueError("the private key does not fit the certificate")
    return Identity(key, leaf, tuple(issuers))


def truststore(certificates: Sequence[x509.Certificate], password: str) -> bytes:
    """A PKCS12 trust store that Java reads."""
    entries = [pkcs12.PKCS12Certificate(each, f"ca{index}".encode()) for index, each in enumerate(certificates)]
    return pkcs12.serialize_java_truststore(entries, _encryption(password))


def new_key(*, rsa_bits: int | None = None) -> PrivateKey:
    """A new P-256 key, or an RSA key."""
    return ec.generate_private_key(ec.SECP256R1()) if rsa_bits is None else rsa.generate_private_key(65537, rsa_bits)


def _encryption(password: str | None) -> KeySerializationEncryption:
    return NoEncryption() if password is None else BestAvailableEncryption(password.encode())


def _validity(days: float, starts_in_days: float) -> tuple[datetime.datetime, datetime.datetime]:
    now = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    starts = now + datetime.timedelta(days=starts_in_days) - _CLOCKS_DIFFER
    return starts, starts + _CLOCKS_DIFFER + datetime.timedelta(days=days)


def _name(text: str) -> x509.Name:
    if "=" not in text:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
    try:
        return x509.Name.from_rfc4514_string(text, _ATTRIBUTES)
    except ValueError as error:
        raise ValueError(f"{text!r} is no distinguished name such as CN=alice,OU=Sales: {error}") from None


def _alternative_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        try:
            return x509.DNSName(host.encode("idna").decode() if not host.isascii() else host)
        except (ValueError, UnicodeError) as error:
            raise ValueError(f"{host!r} is neither a host name nor an address: {error}") from None


def _key_usage(key: PrivateKey, *, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=isinstance(key, rsa.RSAPrivateKey) and not authority,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )
