"""The principal: the identity of a connection.

Source: org.apache.kafka.common.security.auth.KafkaPrincipal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

USER_TYPE: Final = "User"


@dataclass(frozen=True, slots=True)
class KafkaPrincipal:
    """A principal type (nearly always ``User``) and a name. Immutable.

    The broker makes it when a connection has authenticated. `token_authenticated` says that a delegation token was
    used; it is no part of the identity.
    """

    type: str
    name: str
    token_authenticated: bool = False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KafkaPrincipal) and self.type == other.type and self.name == other.name

    def __hash__(self) -> int:
        return hash((self.type, self.name))

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> KafkaPrincipal:
        """The principal of ``Type:name``.

        ValueError when the colon is missing, or when either side of it is empty.
        """
        type_, colon, name = text.partition(":")
        if not colon or not type_ or not name:
            raise ValueError(f"{text!r} is not of the form Type:name")
        return cls(type_, name)


ANONYMOUS: Final = KafkaPrincipal(USER_TYPE, "ANONYMOUS")
"""The principal of all clients on a listener without authentication."""
