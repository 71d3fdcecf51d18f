"""Sessions: who is logged in, kept in the console's memory; the browser has a random id in a cookie.

A token of a form is an HMAC of the session's id: another site can make a browser send the cookie, but does not know the
token. Sessions end after a time without use, at logout, and with the console.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kafkapy_console.security.roles import Access

__all__ = ["Session", "Sessions", "cookie_name"]

MOST = 10_000
"""The largest number of sessions; the oldest ones end first."""
LONGEST = 4
"""A session ends after so many times its lifetime without use, however it is used: roles may have changed."""


def cookie_name(port: int | None) -> str:
    """The name of the cookie. Browsers give cookies of one host to all its ports: each console has its own."""
    return f"kafkapy_console_{port}" if port else "kafkapy_console"


@dataclass
class Session:
    """A person at a browser."""

    id: str
    user: str
    access: Access
    logged_in: bool
    by_cluster: Mapping[str, Access] = field(default_factory=dict)
    """The rights in each of several clusters. `access` has those of roles that are not bound to clusters."""
    used: float = 0.0
    begun: float = field(default_factory=time.monotonic)
    flashes: list[tuple[str, str, str]] = field(default_factory=list)
    """(kind, sentence, cluster) of sentences that the next page shows."""

    def access_in(self, cluster: str) -> Access:
        """The rights in a cluster."""
        return self.by_cluster.get(cluster, self.access)


class Sessions:
    """All sessions of a console. Used on its loop only."""

    def __init__(self, secret: bytes, lifetime_s: float, ended: Callable[[Session], None] | None = None) -> None:
        self._secret = secret
        self._lifetime_s = lifetime_s
        self._people: dict[str, Session] = {}
        self._visitors: dict[str, Session] = {}
        """Sessions before a login: any number of requests without a cookie ends no session of a person."""
        self._ended = ended

    def find(self, session_id: str | None) -> Session | None:
        """The session of a cookie, None for an unknown or an expired one."""
        session = self._people.get(session_id or "") or self._visitors.get(session_id or "")
        if session is None:
            return None
        if self._is_over(session):
            self.end(session)
            return None
        session.used = time.monotonic()
        kept = self._of(session)
        kept.pop(session.id)
        kept[session.id] = session
        return session

    def has(self, session: Session) -> bool:
        """Whether a session has not ended: a look from its running stream is no use of it."""
        return self._of(session).get(session.id) is session and not self._is_over(session)

    def _is_over(self, session: Session) -> bool:
        now = time.monotonic()
        return now - session.used > self._lifetime_s or now - session.begun > LONGEST * self._lifetime_s

    def begin(
        self, user: str, access: Access, *, logged_in: bool, by_cluster: Mapping[str, Access] | None = None
    ) -> Session:
        """A new session, with a new id."""
        session = Session(secrets.token_urlsafe(32), user, access, logged_in, by_cluster or {}, time.monotonic())
        kept = self._of(session)
        kept[session.id] = session
        while len(kept) > MOST:
            self.end(next(iter(kept.values())))
        return session

    def end(self, session: Session) -> None:
        """Forget a session."""
        if self._of(session).pop(session.id, None) is not None and self._ended is not None:
            self._ended(session)

    def _of(self, session: Session) -> dict[str, Session]:
        return self._people if session.logged_in else self._visitors

    def token(self, session: Session) -> str:
        """A token for a form of the session. Each page has another one, so that compressed pages do not tell it."""
        nonce = secrets.token_urlsafe(12)
        return f"{nonce}.{self._mac(session, nonce)}"

    def _mac(self, session: Session, nonce: str) -> str:
        return hmac.new(self._secret, f"form:{nonce}:{session.id}".encode(), hashlib.sha256).hexdigest()

    def is_token(self, session: Session, token: str) -> bool:
        """Whether a form's token is the session's."""
        nonce, _, mac = token.partition(".")
        return hmac.compare_digest(self._mac(session, nonce).encode(), mac.encode())
