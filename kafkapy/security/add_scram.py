"""The text of --add-scram: a SCRAM user before the first login.

    SCRAM-SHA-256=[name=admin,password=secret]
    SCRAM-SHA-512=[name="admin",iterations=8192,password-file=/run/secrets/admin]
    SCRAM-SHA-512=[name=admin,salt="<base64>",saltedpassword="<base64>",iterations=8192]

The keys are those of `kafka-storage.sh format`, and password-file (its first line) and password-env, because the
command line of a process is no place for a secret. Source: org.apache.kafka.metadata.storage.ScramParser.
"""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path
from typing import Final, NamedTuple

from kafkapy.errors import ConfigError
from kafkapy.security.scram import (
    DEFAULT_ITERATIONS,
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    SCRAM_MECHANISMS,
    ScramCredential,
    ScramMechanism,
    credential_from_salted_password,
    credential_of_password,
)

__all__ = ["AddedUser", "parse_add_scram", "shows_password"]

OPTION: Final = "--add-scram"
PASSWORDS: Final = ("password", "password-file", "password-env", "saltedpassword")
KEYS: Final = ("name", "iterations", "salt", *PASSWORDS)


class AddedUser(NamedTuple):
    """A user's credential for one mechanism."""

    user: str
    mechanism: ScramMechanism
    credential: ScramCredential


def parse_add_scram(text: str) -> AddedUser:
    """The user of an --add-scram. ConfigError, which shows no password."""
    name, equals, rest = text.strip().partition("=")
    mechanism = ScramMechanism.of_name(name)
    if not equals or not mechanism:
        raise _error(f"must begin with one of {', '.join(f'{each}=' for each in SCRAM_MECHANISMS)}")
    if not (rest.startswith("[") and rest.endswith("]")):
        raise _error(f"must have square brackets around the keys of {name}")
    values = _values(rest[1:-1])
    user = values.get("name")
    if not user:
        raise _error("must have a name")
    given = [key for key in PASSWORDS if key in values]
    if len(given) != 1:
        raise _error(f"must have one of {', '.join(PASSWORDS)}")
    iterations, salt = _iterations(values.get("iterations")), _bytes("salt", values.get("salt"))
    if given == ["saltedpassword"]:
        if salt is None:
            raise _error("must have a salt with saltedpassword")
        salted = _bytes("saltedpassword", values["saltedpassword"])
        if salted is None or len(salted) != mechanism.size:
            raise _error(f"must have a saltedpassword of {mechanism.size} bytes for {name}")
        return AddedUser(user, mechanism, credential_from_salted_password(mechanism, salted, salt, iterations))
    password = _password(given[0], values[given[0]])
    return AddedUser(user, mechanism, credential_of_password(mechanism, password, iterations, salt))


def shows_password(text: str) -> bool:
    """Whether the text of an --add-scram has a password in it.

    A salted password works like one. ConfigError.
    """
    _, _, rest = text.strip().partition("=")
    return not {"password", "saltedpassword"}.isdisjoint(_values(rest[1:-1]))


def _error(reason: str) -> ConfigError:
    return ConfigError(OPTION, None, reason)


def _values(text: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for item in text.split(","):
        key, equals, value = item.strip().partition("=")
        if not equals or key not in KEYS:
            # It may be the rest of a password with a comma, so it is not shown.
            raise _error(f"may only have the keys {', '.join(KEYS)}, each with a value without commas")
        if len(value) >= 2 and value.startswith('"') and value.endswith('"'):
            value = value[1:-1]
        values[key] = value
    return values


def _iterations(text: str | None) -> int:
    if text is None:
        return DEFAULT_ITERATIONS
    if not text.isascii() or not text.isdigit() or not MIN_ITERATIONS <= int(text) <= MAX_ITERATIONS:
        raise _error(f"must have iterations between {MIN_ITERATIONS} and {MAX_ITERATIONS}")
    return int(text)


def _bytes(key: str, text: str | None) -> bytes | None:
    try:
        return None if text is None else base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _error(f"must have a {key} in base64") from None


def _password(key: str, value: str) -> str:
    if key == "password-env":
        password, place = os.environ.get(value, ""), f"the variable {value}"
    elif key == "password-file":
        place = f"the file {value}"
        try:
            with Path(value).open(encoding="utf-8") as stream:
                password = stream.readline().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
            raise _error(f"names the file {value}, which cannot be read: {reason}") from None
    else:
        password, place = value, "password"
    if not password:
        raise _error(f"must have a password in {place}" if place != "password" else "must have a password")
    return password
