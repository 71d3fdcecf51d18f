"""Certificates for tests: a CA, and what it signs."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@dataclass(frozen=True)
class Certificate:
    """A certificate with its private key, and the certificates up to its root."""

    certificate: x509.Certificate
    key: Key
    issuers: tuple[x509.Certificate, ...] = ()

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.DER)

    @property
    def key_der(self) -> bytes:
        """PKCS#8."""
        return self.key.private_bytes(
            serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    @property
    def key_pem(self) -> bytes:
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    @property
    def chain(self) -> tuple[bytes, ...]:
        """DER, its own certificate first."""
        return (self.der, *(each.public_bytes(serialization.Encoding.DER) for each in self.issuers))

    @property
    def chain_pem(self) -> bytes:
        return b"".join(each.public_bytes(serialization.Encoding.PEM) for each in (self.certificate, *self.issuers))

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def write(self, directory: Path, name: str) -> tuple[str, str]:
        """The paths of its chain and of its key, as PEM."""
        chain, key = directory / f"{name}.crt", directory / f"{name}.key"
        chain.write_bytes(self.chain_pem)
        key.write_bytes(self.key_pem)
        return str(chain), str(key)

    def sign(
        self,
        common_name: str,
        hosts: Sequence[str] = (),
        *,
        subject: x509.Name | None = None,
        is_ca: bool = False,
        key: Key | None = None,
        days: int = 30,
        usage: Sequence[x509.ObjectIdentifier] = (),
    ) -> Certificate:
        """A certificate for a server (with `hosts`) or a client."""
        return _make(common_name, hosts, subject, is_ca, key, days, usage, self)


def make_ca(common_name: str = "Test CA") -> Certificate:
    return _make(common_name, (), None, True, None, 3650, (), None)


@cache
def shared_ca() -> Certificate:
    """The CA of tests that need no own one."""
    return make_ca()


@cache
def localhost() -> Certificate:
    """A server's certificate of `shared_ca`, for localhost and 127.0.0.1."""
    return shared_ca().sign("localhost", ["localhost", "127.0.0.1"])


def _make(
    common_name: str,
    hosts: Sequence[str],
    subject: x509.Name | None,
    is_ca: bool,
    key: Key | None,
    days: int,
    usage: Sequence[x509.ObjectIdentifier],
    issuer: Certificate | None,
) -> Certificate:
    key = key or ec.generate_private_key(ec.SECP256R1())
    subject = subject or x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=2 if days > 0 else 60))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(is_ca, None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    signer = issuer.key if issuer else key
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
    )
    if is_ca:
        builder = builder.add_extension(
            x509.KeyUsage(False, False, False, False, False, True, True, False, False), critical=True
        )
    else:
        wanted = usage or (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
        builder = builder.add_extension(x509.ExtendedKeyUsage(wanted), critical=False)
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName([_name(each) for each in hosts]), critical=False)
    certificate = builder.sign(signer, hashes.SHA256())
    issuers = (issuer.certificate, *issuer.issuers) if issuer and issuer.issuers else ()
    if issuer and not issuers and issuer.certificate.issuer != issuer.certificate.subject:
        issuers = (issuer.certificate,)
    return Certificate(certificate, key, issuers)


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
