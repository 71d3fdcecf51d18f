"""The client's side of SCRAM, beside the examples of RFC 5802 and RFC 7677."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode

import pytest

from kafkapy.clients.sasl.scram import ScramClient
from kafkapy.errors import SaslAuthenticationFailedError

NONCE = "rOprNGfwEbeRWgbNEkqO"
FIRST = rf"r={NONCE}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
LAST = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def client(mechanism: str = "SCRAM-SHA-256", name: str = "user", password: str = "pencil") -> ScramClient:
    return ScramClient(mechanism, name, password, nonce=NONCE)


def refusal(subject: ScramClient, message: bytes) -> str:
    with pytest.raises(SaslAuthenticationFailedError) as raised:
        subject.evaluate(message)
    assert not raised.value.retriable
    assert "pencil" not in str(raised.value)
    assert not subject.complete
    return str(raised.value)


def test_the_exchange_of_rfc_7677() -> None:
    subject = client()
    assert subject.initial() == f"n,,n=user,r={NONCE}".encode()
    assert subject.evaluate(FIRST) == (
        rf"c=biws,r={NONCE}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    )
    assert not subject.complete
    assert subject.evaluate(LAST) is None
    assert subject.complete


def test_the_name_is_escaped() -> None:
    assert client(name="a=b,c").initial() == f"n,,n=a=3Db=2Cc,r={NONCE}".encode()


def test_extensions_of_the_broker_are_ignored() -> None:
    subject = client()
    subject.initial()
    assert subject.evaluate(FIRST + b",x=more") is not None


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (FIRST.replace(b"r=r", b"r=x"), "does not extend"),
        (FIRST.replace(b"%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", b""), "does not extend"),
        (FIRST.replace(b"4096", b"4095"), "asks for 4095 iterations"),
        (FIRST.replace(b"4096", b"999999999"), "asks for 999999999 iterations"),
        (FIRST.replace(b"4096", b"0x1000"), "malformed"),
        (FIRST.replace(b"==", b""), "base64"),
        (b"m=must," + FIRST, "malformed"),
        (FIRST.replace(b",s=", b",x=1,s="), "malformed"),
        (b"e=unknown-user", "the broker answered: unknown-user"),
        (LAST, "malformed"),
        (b"", "malformed"),
        (b"\xff", "not UTF-8"),
    ],
)
def test_a_wrong_first_message_is_refused(message: bytes, reason: str) -> None:
    subject = client()
    subject.initial()
    assert reason in refusal(subject, message)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"v=" + b64encode(bytes(32)), "the broker's signature is wrong"),
        (LAST[:-5] + b"=", "base64|signature"),
        (b"e=other-error", "the broker answered: other-error"),
        (b"ok", "malformed"),
        (FIRST, "malformed"),
    ],
)
def test_a_wrong_last_message_is_refused(message: bytes, reason: str) -> None:
    subject = client()
    subject.initial()
    subject.evaluate(FIRST)
    assert re.search(reason, refusal(subject, message))


def test_every_truncated_or_changed_message_is_refused() -> None:
    for size in range(len(LAST)):
        subject = client()
        subject.initial()
        subject.evaluate(FIRST)
        refusal(subject, LAST[:size])
    signature = bytearray(b64decode(LAST[2:]))
    for bit in range(len(signature) * 8):
        subject = client()
        subject.initial()
        subject.evaluate(FIRST)
        signature[bit // 8] ^= 1 << bit % 8
        refusal(subject, b"v=" + b64encode(signature))
        signature[bit // 8] ^= 1 << bit % 8


def test_nothing_follows_a_complete_exchange() -> None:
    subject = client()
    subject.initial()
    subject.evaluate(FIRST)
    subject.evaluate(LAST)
    with pytest.raises(SaslAuthenticationFailedError, match="complete"):
        subject.evaluate(LAST)


def test_sha_512_uses_longer_keys() -> None:
    subject = client("SCRAM-SHA-512")
    subject.initial()
    answer = subject.evaluate(FIRST)
    assert answer is not None
    assert len(b64decode(answer.rpartition(b"p=")[2])) == 64
