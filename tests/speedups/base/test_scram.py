"""Messages of SCRAM: the kernel reads what RFC 5802's grammar, written as patterns, reads, and nothing else."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kafkapy._speedups.base.scram import MIN_ITERATIONS, ScramLogin, ScramTable

NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
VALUE = r"[\x01-\x2b\x2d-\x7f]+"
PRINTABLE = r"[\x21-\x2b\x2d-\x7e]+"
EXTENSIONS = rf"(?:,[A-Za-z]+={VALUE})*"
BASE64 = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
FIRST = re.compile(
    rf"n,(?:a=(?P<authzid>{NAME}))?,(?:m={VALUE},)?n=(?P<name>{NAME}),r={PRINTABLE}(?P<extensions>{EXTENSIONS})"
)
FINAL = re.compile(rf"c={BASE64},r=(?P<nonce>{PRINTABLE}){EXTENSIONS},p=(?P<proof>{BASE64})")
FORMAT = "Invalid SCRAM client final message format"

PIECES = [
    *("n,", "n,,", "n=", "a=", "m=", "r=", "c=", "p=", ",", "=", "=2C", "=3D", "=2c", "=3", "tokenauth=", "true"),
    *("TRUE", "alice", "9", "/+", "AAAA", "AA==", "AAA=", " ", "~", "\x00", "\x1f", "\x7f", "\x80", "\xff", "ab="),
]
messages = st.lists(st.sampled_from(PIECES) | st.text(st.characters(max_codepoint=255), max_size=3), max_size=14).map(
    lambda pieces: "".join(pieces)
)
firsts = st.tuples(messages, messages, messages).map(lambda each: f"n,{each[0]},n={each[1]},r={each[2]}")
finals = st.tuples(messages, messages).map(lambda each: f"c=biws,r={each[0]},p={each[1]}")


def unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


@settings(max_examples=600, deadline=None)
@given(messages | firsts)
@example("n,,n=a=2Cb=3Dc,r=x,tokenauth=false,tokenauth=TrUe")
@example("n,a=a,m=x,n=a,r=x,e==")
@example("n,,n=a,r=x,")
def test_a_first_message_is_read_by_the_grammar(text: str) -> None:
    message = FIRST.fullmatch(text)
    data = text.encode("latin-1")
    if message is None:
        with pytest.raises(ValueError, match="Invalid SCRAM client first message format"):
            ScramLogin("SCRAM-SHA-256", data)
        return
    login = ScramLogin("SCRAM-SHA-256", data)
    extensions = dict(each.split("=", 1) for each in message["extensions"].split(",")[1:])
    assert login.user == unescaped(message["name"])
    assert login.authzid == unescaped(message["authzid"] or "")
    assert login.by_token is (extensions.get("tokenauth", "").lower() == "true")


@settings(max_examples=600, deadline=None)
@given(messages | finals)
@example("c=,r=ab,p=")
@example("c=biws,r=ab,p=AAAA,p=AA==")
@example("c=biws,r=ab,e=x,p=AAAA")
@example("r=ab,p=AAAA")
def test_a_final_message_is_read_by_the_grammar(text: str) -> None:
    login = ScramLogin("SCRAM-SHA-256", b"n,,n=alice,r=a")
    login.begin((b"salt", b"k" * 32, b"k" * 32, 4096), True, b"b")
    message = FINAL.fullmatch(text)
    if message is None:
        expected = FORMAT
    elif message["nonce"] != "ab":
        expected = "Invalid client nonce in the final client message."
    else:
        expected = "Invalid client credentials"
    with pytest.raises(ValueError, match=re.escape(expected)):
        login.finish(text.encode("latin-1"))


@pytest.mark.parametrize("size", [0, 1, 16_385, 500_000])
def test_a_message_of_another_size_is_none(size: int) -> None:
    with pytest.raises(ValueError, match="first message format"):
        ScramLogin("SCRAM-SHA-512", b"n,,n=alice,r=".ljust(size, b"x")[:size])


def test_a_message_has_a_largest_size() -> None:
    assert ScramLogin("SCRAM-SHA-512", b"n,,n=alice,r=".ljust(16_384, b"x")).user == "alice"
    login = ScramLogin("SCRAM-SHA-512", b"n,,n=alice,r=a")
    login.begin((b"", b"", b"", 1), True, b"b")
    for proof, reason in ((16_368, "Invalid client credentials"), (16_372, FORMAT), (0, "Invalid client credentials")):
        with pytest.raises(ValueError, match=reason):
            login.finish(b"c=biws,r=ab,p=" + b"A" * proof)


def test_a_table_knows_its_users() -> None:
    table = ScramTable("SCRAM-SHA-512", b"secret")
    credential = (b"salt", b"stored", b"server", 8192)
    table.set_user("alice", credential, "User:alice", hash("User:alice"))
    table.set_user("\u00e4", credential, "User:\u00e4", -1)
    assert (table.mechanism, table.credential("alice"), table.credential("\u00e4")) == (
        "SCRAM-SHA-512",
        credential,
        credential,
    )
    table.remove_user("alice")
    table.remove_user("nobody")
    assert table.credential("alice") is None


def test_an_unknown_user_looks_as_the_table_says() -> None:
    table = ScramTable("SCRAM-SHA-256", b"secret")
    salt, stored_key, server_key, iterations = table.unknown("nobody")
    assert (salt, len(stored_key), server_key == stored_key, iterations) == (b"", 32, True, MIN_ITERATIONS)
    table.set_shape(33, True, 5000)
    salt, _, _, iterations = table.unknown("nobody")
    assert (len(salt), iterations) == (33, 5000)
    assert re.fullmatch(rb"[0-9a-z]+", salt)
    assert table.unknown("nobody")[0] == salt != table.unknown("somebody")[0]


def test_an_unknown_mechanism_is_refused() -> None:
    for make in (lambda: ScramTable("SCRAM-SHA-1", b""), lambda: ScramLogin("PLAIN", b"n,,n=a,r=b")):
        with pytest.raises(ValueError, match="is no SCRAM mechanism"):
            make()
