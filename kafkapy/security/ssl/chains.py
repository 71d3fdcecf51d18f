"""Checks of keys, certificates and their chains, by `cryptography`.

This module imports `cryptography`, so its users import it when they need it.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID

from kafkapy.security.ssl.distinguished_name import name_text

__all__ = [
    "alternative_names",
    "certificate",
    "chain_of",
    "fits",
    "key_der",
    "may_serve",
    "outside_validity",
    "subject",
    "verifies",
]


def certificate(der: bytes) -> x509.Certificate:
    """A certificate from DER. ValueError for other bytes."""
    return x509.load_der_x509_certificate(der)


def key_der(key: PrivateKeyTypes) -> bytes:
    """A private key as PKCS#8 in DER, without encryption."""
    return key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())


def subject(of: x509.Certificate) -> str:
    """The distinguished name of a certificate, as Java prints it."""
    return name_text(of.subject.public_bytes())


def fits(key: PrivateKeyTypes, of: x509.Certificate) -> bool:
    """Whether the certificate is for this key."""
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    try:
        return key.public_key().public_bytes(*form) == of.public_key().public_bytes(*form)
    except (ValueError, UnsupportedAlgorithm):
        return False


def chain_of(key: PrivateKeyTypes, certificates: Sequence[x509.Certificate]) -> list[x509.Certificate]:
    """The chain of a key, leaf first, from certificates in any order.

    Empty when none is for the key.
    """
    leaf = next((each for each in certificates if fits(key, each)), None)
    if leaf is None:
        return []
    chain = [leaf]
    rest = [each for each in certificates if each != leaf]
    while chain[-1].issuer != chain[-1].subject:
        issuer = next((each for each in rest if _signed(each, chain[-1])), None)
        if issuer is None:
            break
        rest.remove(issuer)
        chain.append(issuer)
    return chain


def outside_validity(of: x509.Certificate) -> str:
    """The reason why a certificate is not valid now; empty when it is."""
    now = datetime.datetime.now(datetime.UTC)
    if now < of.not_valid_before_utc:
        return f"the certificate of {subject(of)} is not valid before {_time(of.not_valid_before_utc)}"
    if now > of.not_valid_after_utc:
        return f"the certificate of {subject(of)} expired at {_time(of.not_valid_after_utc)}"
    return ""


def alternative_names(of: x509.Certificate) -> frozenset[x509.GeneralName]:
    """The subject alternative names of a certificate."""
    try:
        return frozenset(of.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        return frozenset()


def may_serve(of: x509.Certificate, *, client: bool) -> bool:
    """Whether the extended key usage allows a server, or a client."""
    try:
        usages = of.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return True
    wanted = ExtendedKeyUsageOID.CLIENT_AUTH if client else ExtendedKeyUsageOID.SERVER_AUTH
    return wanted in usages or ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE in usages


def verifies(chain: Sequence[x509.Certificate], trusted: Iterable[x509.Certificate]) -> bool:
    """Whether a chain leads to a trusted certificate.

    Every certificate up to it must be valid now.
    """
    anchors = list(trusted)
    for below, each in enumerate(chain):
        if outside_validity(each):
            return False
        if each in anchors or any(_issued(anchor, each) and not outside_validity(anchor) for anchor in anchors):
            return True
        if below + 1 == len(chain) or not _issued(chain[below + 1], each):
            return False
    return False


def _issued(issuer: x509.Certificate, of: x509.Certificate) -> bool:
    return _is_authority(issuer) and _signed(issuer, of)


def _signed(issuer: x509.Certificate, of: x509.Certificate) -> bool:
    if issuer.subject != of.issuer:
        return False
    try:
        of.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def _is_authority(of: x509.Certificate) -> bool:
    try:
        return of.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        # Certificates of version 1 have no extensions.
        return of.version is x509.Version.v1
    except ValueError:
        return False


def _time(moment: datetime.datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")
