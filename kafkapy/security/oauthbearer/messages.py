"""The messages of OAUTHBEARER (RFC 7628).

    client  n,[a=authzid],^Aauth=Bearer token^A(key=value^A)*^A
    broker  empty, or JSON {"status": ..., "scope": ..., "openid-configuration": ...}
    client  ^A, after that JSON

^A is the byte 1. Source: org.apache.kafka.common.security.oauthbearer.internals.OAuthBearerClientInitialResponse.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

__all__ = ["AFTER_ERROR", "ClientFirstMessage", "MessageError", "check_extensions", "error_json"]

AFTER_ERROR: Final = b"\x01"
"""The client's answer to the broker's error."""
MOST_EXTENSIONS: Final = 100

_SEPARATOR: Final = "\x01"
_AUTH: Final = "auth"
_NAME: Final = re.compile(r"[A-Za-z]+")
_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")
_AUTHORIZATION_ID: Final = re.compile(r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+")
_SCHEME: Final = re.compile(r"(\w+) +([-_~+/.A-Za-z0-9]+=*)", re.ASCII)


class MessageError(ValueError):
    """The bytes are no message of OAUTHBEARER.

    The text has no part of the token.
    """


@dataclass(frozen=True, slots=True)
class ClientFirstMessage:
    """The client's first message. Immutable; `repr` hides the token."""

    token: str = field(repr=False)
    authorization_id: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, data: bytes) -> ClientFirstMessage:
        """The message in these bytes. MessageError for any other bytes."""
        try:
            text = data.decode()
        except UnicodeDecodeError:
            raise MessageError("Invalid OAUTHBEARER client first message: no UTF-8") from None
        header, separator, rest = text.partition(_SEPARATOR)
        if not separator or not header.startswith("n,") or not header.endswith(",") or len(header) < len("n,,"):
            raise MessageError("Invalid OAUTHBEARER client first message")
        authorization_id = header[len("n,") : -1]
        if authorization_id:
            if not authorization_id.startswith("a=") or not _AUTHORIZATION_ID.fullmatch(authorization_id, len("a=")):
                raise MessageError("Invalid OAUTHBEARER client first message: invalid authorization id")
            authorization_id = authorization_id[len("a=") :].replace("=2C", ",").replace("=3D", "=")
        if rest.count(_SEPARATOR) > MOST_EXTENSIONS + 2:
            raise MessageError(f"Invalid OAUTHBEARER client first message: more than {MOST_EXTENSIONS} extensions")
        pairs = rest.split(_SEPARATOR)
        # Each pair ends with a separator, and so does the message.
        if pairs[-2:] != ["", ""]:
            raise MessageError("Invalid OAUTHBEARER client first message")
        properties: dict[str, str] = {}
        for pair in pairs[:-2]:
            key, equals, value = pair.partition("=")
            if not equals or not _NAME.fullmatch(key) or not _VALUE.fullmatch(value):
                raise MessageError("Invalid OAUTHBEARER client first message: an invalid pair of name and value")
            if key in properties:
                raise MessageError(f"Invalid OAUTHBEARER client first message: {key!r} appears twice")
            properties[key] = value
        auth = properties.pop(_AUTH, None)
        if auth is None:
            raise MessageError("Invalid OAUTHBEARER client first message: 'auth' not specified")
        match = _SCHEME.fullmatch(auth)
        if match is None:
            raise MessageError("Invalid OAUTHBEARER client first message: invalid 'auth' format")
        if match[1].lower() != "bearer":
            raise MessageError("Invalid scheme in OAUTHBEARER client first message")
        return cls(match[2], authorization_id, properties)

    def encode(self) -> bytes:
        """The bytes of the message."""
        authorization_id = ""
        if self.authorization_id:
            authorization_id = "a=" + self.authorization_id.replace("=", "=3D").replace(",", "=2C")
        pairs = {_AUTH: f"Bearer {self.token}", **self.extensions}
        fields = "".join(f"{name}={value}{_SEPARATOR}" for name, value in pairs.items())
        return f"n,{authorization_id},{_SEPARATOR}{fields}{_SEPARATOR}".encode()


def check_extensions(extensions: Mapping[str, str]) -> None:
    """MessageError for extensions that the protocol cannot carry.

    Letters name them; their value is ASCII text.
    """
    if len(extensions) > MOST_EXTENSIONS:
        raise MessageError(f"there are more than {MOST_EXTENSIONS} extensions")
    for name, value in extensions.items():
        if name == _AUTH or not _NAME.fullmatch(name):
            raise MessageError(f"Extension name {name} is invalid")
        if not _VALUE.fullmatch(value):
            raise MessageError(f"Extension value for extension {name} is invalid")


def error_json(status: str, scope: str | None = None, openid_configuration: str | None = None) -> str:
    """The broker's error, in Kafka's spelling."""
    text = f'{{"status":{json.dumps(status)}'
    if scope is not None:
        text += f', "scope":{json.dumps(scope)}'
    if openid_configuration is not None:
        text += f', "openid-configuration":{json.dumps(openid_configuration)}'
    return text + "}"
