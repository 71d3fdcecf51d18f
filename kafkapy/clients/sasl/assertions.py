"""Assertions, which the client signs to get a token (RFC 7523, KIP-1139).

A file has a ready assertion, or a private key signs one for each request, from the keys
sasl.oauthbearer.assertion.claim.* and perhaps a template. Source:
org.apache.kafka.common.security.oauthbearer.internals.secured.assertion.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from kafkapy.errors import ConfigError, SaslAuthenticationFailedError

__all__ = ["GRANT_TYPE", "assertion_source"]

GRANT_TYPE: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
MOST_FILE_BYTES: Final = 131_072
PREFIX: Final = "sasl.oauthbearer.assertion."
CLAIMS: Final = ("aud", "iss", "sub")


def assertion_source(config: Mapping[str, Any]) -> Callable[[], str]:
    """A function that gives a fresh assertion.

    It blocks. ConfigError for missing or wrong keys.
    """
    ready, key_file = config.get(f"{PREFIX}file"), config.get(f"{PREFIX}private.key.file")
    if ready:
        return lambda: _read(Path(ready)).decode("ascii", "replace").strip()
    if not key_file:
        raise ConfigError(f"{PREFIX}file", "", f"must be set for assertions, or {PREFIX}private.key.file")
    algorithm = (config.get(f"{PREFIX}algorithm") or "RS256").upper()
    template = _template(config.get(f"{PREFIX}template.file"))
    passphrase = config.get(f"{PREFIX}private.key.passphrase")
    claims = {name: config[f"{PREFIX}claim.{name}"] for name in CLAIMS if config.get(f"{PREFIX}claim.{name}")}
    lifetime_s, before_s = config.get(f"{PREFIX}claim.exp.seconds", 300), config.get(f"{PREFIX}claim.nbf.seconds", 60)
    with_id = bool(config.get(f"{PREFIX}claim.jti.include"))

    def signed() -> str:
        import jwt

        now = int(time.time())
        every = {"iat": now, "exp": now + lifetime_s, "nbf": now - before_s, **template.get("payload", {}), **claims}
        if with_id:
            every["jti"] = str(uuid.uuid4())
        key = _private_key(Path(key_file), None if passphrase is None else passphrase.value)
        try:
            return jwt.encode(every, key, algorithm, template.get("header"))
        except (jwt.PyJWTError, TypeError, ValueError) as error:
            raise SaslAuthenticationFailedError(f"OAUTHBEARER failed: no assertion by {algorithm}: {error}") from None

    return signed


def _template(path: str | None) -> Mapping[str, Any]:
    if not path:
        return {}
    name = f"{PREFIX}template.file"
    try:
        found = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise ConfigError(name, path, f"cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise ConfigError(name, path, "is no JSON") from None
    parts = ("header", "payload")
    if not isinstance(found, dict) or not all(isinstance(found.get(part, {}), dict) for part in parts):
        raise ConfigError(name, path, 'must be a JSON object with the objects "header" and "payload"')
    return found


def _private_key(path: Path, passphrase: str | None) -> Any:
    """The key, read for each assertion, so another program may replace it."""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    data = _read(path)
    try:
        return load_pem_private_key(data, None if passphrase is None else passphrase.encode())
    except (TypeError, ValueError):
        raise SaslAuthenticationFailedError(
            f"OAUTHBEARER failed: {path} has no private key in PEM, or its passphrase is wrong"
        ) from None


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MOST_FILE_BYTES)
    except OSError as error:
        raise SaslAuthenticationFailedError(f"OAUTHBEARER failed: {path} cannot be read: {error.strerror}") from None
