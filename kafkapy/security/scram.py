"""SCRAM credentials of users, and their text in the metadata store.

    salt=<base64>,stored_key=<base64>,server_key=<base64>,iterations=<number>

A credential lets the broker check a password, and not know it: the stored key is a hash of the client key, which only
the salted password gives. Sources: RFC 5802; org.apache.kafka.common.security.scram.internals.ScramCredentialUtils,
ScramMechanism and ScramFormatter.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
from collections import Counter
from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from kafkapy._speedups.base.scram import MIN_ITERATIONS, ScramTable
from kafkapy.security.principal import USER_TYPE, KafkaPrincipal

__all__ = [
    "DEFAULT_ITERATIONS",
    "MAX_ITERATIONS",
    "MIN_ITERATIONS",
    "SALT_BYTES",
    "SCRAM_MECHANISMS",
    "CredentialCache",
    "ScramCredential",
    "ScramMechanism",
    "credential_from_salted_password",
    "credential_of_password",
    "decode_credential",
    "encode_credential",
]

DEFAULT_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16384
SALT_BYTES: Final = 24
_MOST_DIGITS: Final = 9


class ScramMechanism(IntEnum):
    """The SCRAM mechanisms of Kafka, by their numbers in requests."""

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def hash_name(self) -> str:
        """The hash's name in hashlib. ValueError for UNKNOWN."""
        if self is ScramMechanism.UNKNOWN:
            raise ValueError("UNKNOWN is not a mechanism")
        return self.name.removeprefix("SCRAM_").replace("_", "").lower()

    @property
    def mechanism_name(self) -> str:
        """The SASL mechanism, such as SCRAM-SHA-256."""
        return self.name.replace("_", "-")

    @property
    def size(self) -> int:
        """The length of keys and salted passwords in bytes."""
        return hashlib.new(self.hash_name).digest_size

    @classmethod
    def of_name(cls, name: str) -> ScramMechanism:
        """The member of a SASL mechanism. UNKNOWN for any other name."""
        return _BY_NAME.get(name, cls.UNKNOWN)

    @classmethod
    def of_number(cls, number: int) -> ScramMechanism:
        """The member of a number in a request. UNKNOWN for any other number."""
        return cls(number) if number in cls._value2member_map_ else cls.UNKNOWN


_BY_NAME: Final = {each.mechanism_name: each for each in ScramMechanism if each}
SCRAM_MECHANISMS: Final = tuple(_BY_NAME)
"""The names of the SASL mechanisms."""


class ScramCredential(NamedTuple):
    """The broker's knowledge of a password. Immutable; `repr` hides the keys."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"


def credential_of_password(
    mechanism: ScramMechanism, password: str | bytes, iterations: int = DEFAULT_ITERATIONS, salt: bytes | None = None
) -> ScramCredential:
    """The credential of a password. The default salt is random. It takes ms."""
    secret = password.encode() if isinstance(password, str) else password
    salt = os.urandom(SALT_BYTES) if salt is None else salt
    salted = hashlib.pbkdf2_hmac(mechanism.hash_name, secret, salt, iterations)
    return credential_from_salted_password(mechanism, salted, salt, iterations)


def credential_from_salted_password(
    mechanism: ScramMechanism, salted_password: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """The credential of a password that a client has salted."""
    name = mechanism.hash_name
    client_key = hmac.digest(salted_password, b"Client Key", name)
    stored_key = hashlib.new(name, client_key).digest()
    return ScramCredential(salt, stored_key, hmac.digest(salted_password, b"Server Key", name), iterations)


def encode_credential(credential: ScramCredential) -> str:
    """The text of a credential in the metadata store."""
    salt, stored_key, server_key = (base64.b64encode(each).decode() for each in credential[:3])
    return f"salt={salt},stored_key={stored_key},server_key={server_key},iterations={credential.iterations}"


def decode_credential(text: str) -> ScramCredential:
    """The credential of a text. ValueError, which shows nothing of the text."""
    fields: dict[str, str] = {}
    for item in text.split(","):
        name, equals, value = item.partition("=")
        if not equals:
            raise ValueError("a SCRAM credential has a part without an equals sign")
        fields[name] = value
    if fields.keys() != {"salt", "stored_key", "server_key", "iterations"}:
        raise ValueError("a SCRAM credential must have salt, stored_key, server_key and iterations, and nothing else")
    iterations = fields["iterations"]
    if not (iterations.isascii() and iterations.isdigit() and len(iterations) <= _MOST_DIGITS):
        raise ValueError("the iterations of a SCRAM credential are no number")
    try:
        salt, stored_key, server_key = (
            base64.b64decode(fields[name], validate=True) for name in ("salt", "stored_key", "server_key")
        )
    except (binascii.Error, ValueError):
        raise ValueError("salt or keys of a SCRAM credential are no base64") from None
    return ScramCredential(salt, stored_key, server_key, int(iterations))


class _Shape(NamedTuple):
    """The parts of a credential that a client sees before it proves its password."""

    salt_bytes: int
    base36: bool
    """Kafka's own tools make salts of digits and small letters."""
    iterations: int


DEFAULT_SHAPE: Final = _Shape(SALT_BYTES, False, DEFAULT_ITERATIONS)
_BASE36: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"


class CredentialCache:
    """The SCRAM credentials of all users of the cluster, in memory.

    Owned by the broker and kept up to date from the metadata store; changed on the control loop. Network threads read
    its tables.
    """

    def __init__(self, secret: bytes) -> None:
        """`secret` makes the salts of unknown users; it stays the same for the life of the cluster."""
        self.tables = {name: ScramTable(name, secret) for name in SCRAM_MECHANISMS}
        """The table of each mechanism."""
        for table in self.tables.values():
            table.set_shape(*DEFAULT_SHAPE)
        self._shapes: dict[str, Counter[_Shape]] = {name: Counter() for name in SCRAM_MECHANISMS}

    def credential(self, mechanism: str, user: str) -> ScramCredential | None:
        """The credential of a user, None when there is none."""
        found = self.tables[mechanism].credential(user)
        return None if found is None else ScramCredential(*found)

    def unknown(self, mechanism: str, user: str) -> ScramCredential:
        """A credential that no password fits.

        It has the salt that this unknown user always gets, and looks like most credentials of the mechanism.
        """
        return ScramCredential(*self.tables[mechanism].unknown(user))

    def update(self, user: str, config: Mapping[str, str]) -> list[str]:
        """Take over a user's keys in the metadata store.

        Returns the mechanisms whose text is no credential; the user has none of them.
        """
        unreadable = []
        for mechanism, table in self.tables.items():
            shapes = self._shapes[mechanism]
            before, credential = self.credential(mechanism, user), None
            text = config.get(mechanism)
            if text is not None:
                try:
                    credential = decode_credential(text)
                except ValueError:
                    unreadable.append(mechanism)
            if credential == before:
                continue
            # In one step: network threads read the table meanwhile.
            if credential is None:
                table.remove_user(user)
            else:
                principal = str(KafkaPrincipal(USER_TYPE, user))
                table.set_user(user, credential, principal, hash(principal))
                shapes[_shape_of(credential)] += 1
            if before is not None:
                shapes[_shape_of(before)] -= 1
                if not shapes[_shape_of(before)]:
                    del shapes[_shape_of(before)]
            ((shape, _),) = shapes.most_common(1) or [(DEFAULT_SHAPE, 0)]
            table.set_shape(*shape)
        return unreadable


def _shape_of(credential: ScramCredential) -> _Shape:
    salt = credential.salt
    return _Shape(len(salt), bool(salt) and not salt.strip(_BASE36), max(credential.iterations, MIN_ITERATIONS))
