"""The state machine: every order of requests, each refusal, sessions and re-authentication."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from kafkapy.errors import ErrorCode
from kafkapy.security.principal import KafkaPrincipal
from kafkapy.security.sasl.authenticator import Outcome, SaslAnswer, SaslServerAuthenticator
from kafkapy.security.sasl.base import SaslAuthenticationError, SaslError

SECOND_NS = 1_000_000_000
NOW_MS = 1_700_000_000_000


class Server:
    """Asks b"more" while the client says so; b"user:<name>" ends it."""

    def __init__(self, mechanism: str, expires_ms: int | None, properties: Mapping[str, Any]) -> None:
        self.mechanism = mechanism
        self.complete = False
        self.authorization_id = ""
        self.session_expires_ms = expires_ms
        self.properties = properties

    async def evaluate(self, response: bytes) -> bytes:
        if response == b"wait":
            await asyncio.sleep(0)
        if response == b"more":
            return b"next"
        if response == b"told":
            raise SaslAuthenticationError("this is told")
        if response == b"secret":
            raise SaslError("alice does not exist")
        if response == b"bug":
            raise KeyError("alice does not exist")
        self.authorization_id = response.decode().removeprefix("user:")
        self.complete = True
        return b"done"


class Mechanism:
    def __init__(self, name: str) -> None:
        self.name = name
        self.expires_ms: int | None = None
        self.properties: Mapping[str, Any] = {}

    async def configure(self, settings: Any, services: Any) -> None:
        raise NotImplementedError

    def server(self) -> Server:
        return Server(self.name, self.expires_ms, self.properties)

    async def close(self) -> None:
        raise NotImplementedError


class Connection:
    """An authenticator with clocks that the test moves."""

    def __init__(self, max_reauth_ms: int = 0, names: tuple[str, ...] = ("ONE", "TWO")) -> None:
        self.now_ms, self.now_ns = NOW_MS, 5 * SECOND_NS
        self.mechanisms = {name: Mechanism(name) for name in names}
        self.auth = SaslServerAuthenticator(
            self.mechanisms,
            dict.fromkeys(names, max_reauth_ms),
            clock_ms=lambda: self.now_ms,
            monotonic_ns=lambda: self.now_ns,
        )

    def token(self, data: bytes, version: int | None = 2) -> SaslAnswer:
        return asyncio.run(self.auth.token(data, version))

    def log_in(self, user: str = "alice", mechanism: str = "ONE") -> SaslAnswer:
        assert self.auth.handshake(mechanism, 1) == SaslAnswer(Outcome.CONTINUE)
        return self.token(f"user:{user}".encode())


def told(answer: SaslAnswer) -> tuple[Outcome, ErrorCode, str | None, bool]:
    return answer.outcome, answer.error, answer.message, answer.reply


def test_versions_handshake_tokens_done() -> None:
    connection = Connection()
    assert connection.auth.versions_asked(True) == SaslAnswer(Outcome.CONTINUE)
    assert connection.auth.handshake("ONE", 1) == SaslAnswer(Outcome.CONTINUE)
    assert not connection.auth.tokens_follow
    assert connection.token(b"more") == SaslAnswer(Outcome.CONTINUE, auth_bytes=b"next")
    assert connection.auth.principal is None
    answer = connection.token(b"user:alice")
    assert answer == SaslAnswer(
        Outcome.AUTHENTICATED, auth_bytes=b"done", principal=KafkaPrincipal("User", "alice")
    )
    assert (connection.auth.principal, connection.auth.mechanism) == (KafkaPrincipal("User", "alice"), "ONE")
    assert connection.auth.versions_asked(True).outcome is Outcome.CONTINUE


def test_tokens_without_header_follow_version_0() -> None:
    connection = Connection()
    connection.auth.handshake("TWO", 0)
    assert connection.auth.tokens_follow
    assert connection.token(b"more", None).auth_bytes == b"next"
    assert connection.auth.tokens_follow
    assert connection.token(b"user:bob", None).outcome is Outcome.AUTHENTICATED
    assert not connection.auth.tokens_follow


def test_versions_may_be_asked_again_only_after_a_refusal() -> None:
    connection = Connection()
    for _ in range(3):
        assert connection.auth.versions_asked(False).outcome is Outcome.CONTINUE
    assert connection.auth.versions_asked(True).outcome is Outcome.CONTINUE
    again = connection.auth.versions_asked(True)
    assert (again.outcome, again.reply) == (Outcome.FAILED, False)
    assert "one has come already" in (again.reason or "")


def test_a_mechanism_that_is_not_enabled_is_refused() -> None:
    connection = Connection()
    answer = connection.auth.handshake("THREE", 1)
    assert told(answer)[:2] == (Outcome.FAILED, ErrorCode.UNSUPPORTED_SASL_MECHANISM)
    assert answer.reply
    assert connection.auth.mechanism_names == ["ONE", "TWO"]
    assert connection.token(b"user:alice").outcome is Outcome.FAILED


def test_the_log_gets_no_control_characters_and_no_long_texts() -> None:
    reason = Connection().auth.handshake("A\r\nB\x1b[31m" + "x" * 30_000, 1).reason
    assert reason is not None
    assert reason.startswith(r"Unsupported SASL mechanism A\r\nB\x1b[31mxxx")
    assert reason.isprintable()
    assert len(reason) < 400


def test_a_token_before_the_handshake_closes_the_connection() -> None:
    for version in (0, 2, None):
        answer = Connection().token(b"user:alice", version)
        assert told(answer)[:2] == (Outcome.FAILED, ErrorCode.ILLEGAL_SASL_STATE)
        assert not answer.reply


def test_a_first_frame_without_header_is_a_token_of_gssapi_where_that_is_enabled() -> None:
    connection = Connection(names=("ONE", "GSSAPI"))
    assert connection.token(b"more", None).auth_bytes == b"next"
    assert connection.auth.tokens_follow
    assert connection.token(b"user:alice", None).outcome is Outcome.AUTHENTICATED
    assert connection.auth.mechanism == "GSSAPI"
    later = Connection(names=("ONE", "GSSAPI"))
    later.auth.versions_asked(True)
    assert later.token(b"more", None).outcome is Outcome.FAILED


def test_headers_must_be_as_the_handshake_said() -> None:
    for handshake, version in ((0, 0), (1, None)):
        connection = Connection()
        connection.auth.handshake("ONE", handshake)
        assert connection.token(b"user:alice", version).outcome is Outcome.FAILED
        assert connection.auth.principal is None


def test_other_requests_during_the_exchange_are_answered_with_illegal_sasl_state() -> None:
    for ask in (lambda auth: auth.handshake("ONE", 1), lambda auth: auth.versions_asked(True)):
        connection = Connection()
        connection.auth.handshake("ONE", 1)
        connection.token(b"more")
        answer = ask(connection.auth)
        assert told(answer)[:2] == (Outcome.FAILED, ErrorCode.ILLEGAL_SASL_STATE)
        assert answer.reply
        assert connection.token(b"user:alice").outcome is Outcome.FAILED


def test_the_text_of_an_authentication_error_is_told() -> None:
    connection = Connection()
    connection.auth.handshake("ONE", 1)
    answer = connection.token(b"told")
    assert told(answer) == (Outcome.FAILED, ErrorCode.SASL_AUTHENTICATION_FAILED, "this is told", True)


@pytest.mark.parametrize("token", [b"secret", b"bug", b"user:\xff"])
def test_the_text_of_any_other_error_is_not(token: bytes) -> None:
    connection = Connection()
    connection.auth.handshake("ONE", 1)
    text = "Authentication failed during authentication due to invalid credentials with SASL mechanism ONE"
    assert told(connection.token(token)) == (Outcome.FAILED, ErrorCode.SASL_AUTHENTICATION_FAILED, text, True)


def test_a_failure_after_version_0_closes_without_an_answer() -> None:
    for token in (b"told", b"secret"):
        connection = Connection()
        connection.auth.handshake("ONE", 0)
        answer = connection.token(token, None)
        assert (answer.outcome, answer.reply) == (Outcome.FAILED, False)
        assert answer.reason


def test_nothing_works_after_a_failure() -> None:
    connection = Connection()
    connection.auth.handshake("ONE", 1)
    connection.token(b"told")
    assert connection.token(b"user:alice").outcome is Outcome.FAILED
    assert connection.auth.handshake("ONE", 1).outcome is Outcome.FAILED
    assert connection.auth.versions_asked(True).outcome is Outcome.FAILED
    assert connection.auth.principal is None


def test_a_token_that_overtakes_another_fails_both() -> None:
    connection = Connection()
    connection.auth.handshake("ONE", 1)

    async def both() -> list[SaslAnswer]:
        first, second = (asyncio.ensure_future(connection.auth.token(each, 2)) for each in (b"wait", b"user:bob"))
        return [await first, await second]

    assert [answer.outcome for answer in asyncio.run(both())] == [Outcome.FAILED, Outcome.FAILED]
    assert connection.auth.principal is None


# --- sessions and re-authentication -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("max_reauth_ms", "expires_in_ms", "lifetime_ms"),
    [(0, None, 0), (3000, None, 3000), (0, 5000, 5000), (3000, 5000, 3000), (7000, 5000, 5000), (-1, None, 0)],
)
def test_the_session_ends_with_the_credential_or_the_limit(
    max_reauth_ms: int, expires_in_ms: int | None, lifetime_ms: int
) -> None:
    connection = Connection(max_reauth_ms)
    if expires_in_ms is not None:
        connection.mechanisms["ONE"].expires_ms = NOW_MS + expires_in_ms
    answer = connection.log_in()
    assert (answer.session_lifetime_ms, answer.session_end_ms) == (lifetime_ms, lifetime_ms and NOW_MS + lifetime_ms)


def test_a_credential_that_has_expired_gives_a_session_that_is_over() -> None:
    connection = Connection()
    connection.mechanisms["ONE"].expires_ms = NOW_MS - 1
    answer = connection.log_in()
    assert (answer.outcome, answer.session_lifetime_ms, answer.session_end_ms) == (Outcome.AUTHENTICATED, 0, NOW_MS)


def test_a_session_begins_again_with_the_same_mechanism_and_principal() -> None:
    connection = Connection(10_000)
    connection.log_in()
    for _ in range(3):
        connection.now_ms += 5000
        connection.now_ns += SECOND_NS
        answer = connection.log_in()
        assert answer.outcome is Outcome.AUTHENTICATED
        assert answer.session_end_ms == connection.now_ms + 10_000


def test_without_a_session_end_a_handshake_is_illegal_and_the_connection_goes_on() -> None:
    connection = Connection()
    connection.log_in()
    for _ in range(2):
        answer = connection.auth.handshake("ONE", 1)
        assert told(answer)[:2] == (Outcome.CONTINUE, ErrorCode.ILLEGAL_SASL_STATE)
        answer = connection.token(b"user:alice")
        assert told(answer) == (
            Outcome.CONTINUE,
            ErrorCode.ILLEGAL_SASL_STATE,
            "SaslAuthenticate request received after successful authentication",
            True,
        )


def test_attempts_less_than_a_second_apart_are_refused() -> None:
    connection = Connection(10_000)
    connection.log_in()
    connection.log_in()
    connection.now_ns += SECOND_NS - 1
    answer = connection.auth.handshake("ONE", 1)
    assert told(answer)[:2] == (Outcome.CONTINUE, ErrorCode.ILLEGAL_SASL_STATE)
    connection.now_ns += 1
    assert connection.log_in().outcome is Outcome.AUTHENTICATED


def test_reauthentication_needs_headers() -> None:
    connection = Connection(10_000)
    connection.log_in()
    assert told(connection.auth.handshake("ONE", 0))[:2] == (Outcome.CONTINUE, ErrorCode.ILLEGAL_SASL_STATE)
    assert not connection.auth.tokens_follow


def test_another_mechanism_fails_at_the_next_token() -> None:
    connection = Connection(10_000)
    connection.log_in()
    assert connection.auth.handshake("TWO", 1) == SaslAnswer(Outcome.CONTINUE)
    text = "SASL mechanism 'TWO' requested by client is not supported for re-authentication of mechanism 'ONE'"
    assert told(connection.token(b"user:alice")) == (
        Outcome.FAILED,
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        text,
        True,
    )


def test_another_principal_fails() -> None:
    connection = Connection(10_000)
    connection.log_in("alice")
    answer = connection.log_in("bob")
    text = "Cannot change principals during re-authentication from User.alice: User.bob"
    assert told(answer) == (Outcome.FAILED, ErrorCode.SASL_AUTHENTICATION_FAILED, text, True)
    assert connection.auth.principal == KafkaPrincipal("User", "alice")


def test_wrong_credentials_at_reauthentication_fail_with_that_word() -> None:
    connection = Connection(10_000)
    connection.log_in()
    connection.auth.handshake("ONE", 1)
    assert connection.token(b"secret").message == (
        "Authentication failed during re-authentication due to invalid credentials with SASL mechanism ONE"
    )


def test_a_principal_without_a_name_fails() -> None:
    # A callback handler or a mapping rule may give one. No ACL names it, and every request would fail by itself.
    connection = Connection()
    answer = connection.log_in("")
    assert (answer.outcome, answer.error) == (Outcome.FAILED, ErrorCode.SASL_AUTHENTICATION_FAILED)
    assert connection.auth.principal is None


def test_a_login_by_token_is_marked() -> None:
    connection = Connection()
    connection.mechanisms["ONE"].properties = {"token_authenticated": True}
    principal = connection.log_in().principal
    assert principal is not None
    assert principal.token_authenticated
