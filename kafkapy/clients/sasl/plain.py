"""PLAIN: user name and password in one token (RFC 4616).

Use it over TLS only.
"""

from __future__ import annotations

from typing import Final

from kafkapy.clients.sasl.base import SaslSettings, required
from kafkapy.errors import ConfigError

__all__ = ["PlainClient", "PlainLogin", "create_login"]

MECHANISM: Final = "PLAIN"


class PlainClient:
    """One exchange: the client sends its only token first."""

    mechanism = MECHANISM

    def __init__(self, username: str, password: str) -> None:
        self._token = f"\0{username}\0{password}".encode()
        self.complete = False

    def initial(self) -> bytes:
        self.complete = True
        return self._token

    def evaluate(self, challenge: bytes) -> bytes | None:
        return None


class PlainLogin:
    """A user name and a password."""

    mechanism = MECHANISM

    def __init__(self, username: str, password: str) -> None:
        self._username = username
        self._password = password

    async def exchange(self, host: str) -> PlainClient:
        return PlainClient(self._username, self._password)

    async def close(self) -> None:
        """Does nothing."""


def create_login(settings: SaslSettings) -> PlainLogin:
    """The login of a user.

    ConfigError without a user name and a password, or with a NUL character in one of them.
    """
    username, password = required(settings, "username"), required(settings, "password")
    for option, value in (("username", username), ("password", password)):
        if "\0" in value:
            raise ConfigError("sasl.jaas.config", None, f"the {option} has a NUL character, which PLAIN cannot send")
    return PlainLogin(username, password)
