"""Distinguished names of certificates as text, as Java prints them.

Source: javax.security.auth.x500.X500Principal.getName (RFC 2253).
"""

from __future__ import annotations

__all__ = ["distinguished_name"]


def distinguished_name(certificate: bytes) -> str:
    """The subject of a certificate in DER, such as ``CN=alice,OU=Sales,O=Example,C=DE``.

    ValueError for bytes that are no certificate.
    """
    raise NotImplementedError
