"""Java's key stores of type JKS. Source: sun.security.provider.JavaKeyStore and KeyProtector.

    store: uint32 0xFEEDFEED | uint32 version 1 or 2 | uint32 entries | entry * | SHA-1 (20 bytes)
    entry: uint32 1 | alias | int64 ms | bytes: protected key | uint32 certificates | certificate *
           uint32 2 | alias | int64 ms | certificate
    certificate: type (text, in version 2 only) | bytes: DER
    text: uint16 length | modified UTF-8         bytes: uint32 length | bytes

The SHA-1 covers the password in UTF-16BE, "Mighty Aphrodite", and all bytes before it. A protected key is a SEQUENCE
{AlgorithmIdentifier 1.3.6.1.4.1.42.2.17.1.1, OCTET STRING}: 20 bytes of salt, the PKCS#8 key XOR a chain of SHA-1 over
password and the hash before it (first: salt), and the SHA-1 of password and plain key.

There is no well-kept library for this format: pyjks had its last release in 2020 and needs four more packages.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import Final, NamedTuple

from kafkapy.security.ssl import der

__all__ = ["JksEntry", "JksError", "WrongPasswordError", "is_jks", "read_jks", "recover_key"]

MAGIC: Final = b"\xfe\xed\xfe\xed"
WHITENER: Final = b"Mighty Aphrodite"
KEY_PROTECTOR: Final = "1.3.6.1.4.1.42.2.17.1.1"
_KEY, _CERTIFICATE = 1, 2
_DIGEST: Final = 20
_VERSIONS: Final = (1, 2)


class JksError(ValueError):
    """The bytes are no JKS store."""


class WrongPasswordError(ValueError):
    """The password does not fit, or the bytes were changed."""


class JksEntry(NamedTuple):
    """A private key with its chain, or a trusted certificate."""

    alias: str
    protected_key: bytes | None
    """None for a trusted certificate."""
    chain: tuple[bytes, ...]
    """DER, leaf first."""


def is_jks(data: bytes) -> bool:
    """Whether the bytes begin as a JKS store."""
    return data.startswith(MAGIC)


def read_jks(data: bytes, password: str | None) -> list[JksEntry]:
    """The entries, in the order of the file.

    Without a password nothing proves that the file is unchanged.

    JksError for other bytes, WrongPasswordError when the password does not fit.
    """
    reader = _Reader(data)
    reader.take(len(MAGIC))
    version = reader.uint32()
    if version not in _VERSIONS:
        raise JksError(f"version {version} is not known")
    entries = []
    for _ in range(reader.uint32()):
        tag = reader.uint32()
        alias = reader.text()
        reader.take(8)
        if tag == _KEY:
            key = reader.blob()
            chain = tuple(reader.certificate(version) for _ in range(reader.uint32()))
            entries.append(JksEntry(alias, key, chain))
        elif tag == _CERTIFICATE:
            entries.append(JksEntry(alias, None, (reader.certificate(version),)))
        else:
            raise JksError(f"an entry has the unknown kind {tag}")
    body = data[: reader.at]
    digest = reader.take(_DIGEST)
    if reader.at != len(data):
        raise JksError(f"{len(data) - reader.at} bytes follow the store")
    if password is not None:
        # The format prescribes SHA-1.
        wanted = hashlib.sha1(_utf16(password) + WHITENER + body, usedforsecurity=False).digest()
        if not hmac.compare_digest(wanted, digest):
            raise WrongPasswordError("the password is wrong, or the file was changed")
    return entries


def recover_key(protected: bytes, password: str) -> bytes:
    """The PKCS#8 key in DER.

    JksError for other bytes, WrongPasswordError when the password does not fit.
    """
    try:
        algorithm, content = der.read_all(protected).expect(der.SEQUENCE)
        oid = next(iter(algorithm.expect(der.SEQUENCE))).oid
        blob = content.expect(der.OCTET_STRING).inner
    except (ValueError, StopIteration) as error:
        raise JksError(f"a key is damaged: {error}") from None
    if oid != KEY_PROTECTOR or len(blob) < 2 * _DIGEST:
        raise JksError("a key has an unknown protection")
    secret = _utf16(password)
    digest, encrypted, check = blob[:_DIGEST], blob[_DIGEST:-_DIGEST], blob[-_DIGEST:]
    stream = bytearray()
    while len(stream) < len(encrypted):
        digest = hashlib.sha1(secret + digest, usedforsecurity=False).digest()
        stream += digest
    plain = bytes(a ^ b for a, b in zip(encrypted, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + plain, usedforsecurity=False).digest(), check):
        raise WrongPasswordError("the password of the key is wrong")
    return plain


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be", "surrogatepass")


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        end = self.at + count
        if end > len(self._data):
            raise JksError(f"the file ends after {len(self._data)} bytes, inside an entry")
        taken, self.at = self._data[self.at : end], end
        return taken

    def uint32(self) -> int:
        return int(struct.unpack(">I", self.take(4))[0])

    def blob(self) -> bytes:
        return self.take(self.uint32())

    def text(self) -> str:
        length = struct.unpack(">H", self.take(2))[0]
        return self.take(length).decode("utf-8", "replace")

    def certificate(self, version: int) -> bytes:
        if version > 1:
            kind = self.text()
            if kind.upper() not in ("X.509", "X509"):
                raise JksError(f"a certificate has the unknown type {kind!r}")
        return self.blob()
