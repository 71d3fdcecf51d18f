"""Passwords of the login by users: hashed with scrypt, compared in constant time.

scrypt$<log2 of n>$<r>$<p>$<salt>$<hash>      salt and hash in base64
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os

__all__ = ["hashed", "matches"]

LOG_N, R, P = 15, 8, 1
SALT_BYTES, HASH_BYTES = 16, 32
MEMORY = 128 * R * (1 << LOG_N) * 2


def hashed(password: str, salt: bytes | None = None) -> str:
    """The text for a settings file."""
    salt = os.urandom(SALT_BYTES) if salt is None else salt
    return f"scrypt${LOG_N}${R}${P}${_text(salt)}${_text(_derive(password, salt, LOG_N, R, P))}"


def matches(password: str, stored: str) -> bool:
    """Whether a password is the one of a stored text. A text of another form matches nothing."""
    try:
        kind, log_n, r, p, salt, expected = stored.split("$")
        if kind != "scrypt":
            return False
        derived = _derive(password, base64.b64decode(salt), int(log_n), int(r), int(p))
        return hmac.compare_digest(derived, base64.b64decode(expected))
    except (ValueError, binascii.Error, OverflowError):
        return False


def _derive(password: str, salt: bytes, log_n: int, r: int, p: int) -> bytes:
    if not 10 <= log_n <= 20:
        raise ValueError("n is out of range")
    return hashlib.scrypt(
        password.encode(), salt=salt, n=1 << log_n, r=r, p=p, maxmem=128 * r * (1 << log_n) * 2, dklen=HASH_BYTES
    )


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


DECOY = hashed("a user that does not exist")
"""Compared for unknown names, so that they take as long as known ones."""
