"""JSON web tokens are read with bounds: sizes, depth, numbers, alphabets."""

from __future__ import annotations

import json
import tracemalloc
from base64 import b64encode, urlsafe_b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkapy.security.oauthbearer.tokens import (
    MOST_DEPTH,
    MOST_HEADER_BYTES,
    MOST_TOKEN_BYTES,
    BearerToken,
    CompactToken,
    TokenError,
    claims_of,
    milliseconds,
    text_claim,
    texts_claim,
)


def section(value: Any) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def token(header: Any, claims: Any, signature: bytes = b"") -> str:
    return f"{section(header)}.{section(claims)}.{section(signature)}"


def test_a_token_has_three_sections() -> None:
    text = token({"alg": "none"}, {"sub": "a"}, b"s")
    parsed = CompactToken.parse(text)
    assert parsed.header == {"alg": "none"}
    assert parsed.claims() == {"sub": "a"}
    assert parsed.signed == text.rpartition(".")[0].encode()
    assert parsed.signature == section(b"s")


def test_claims_and_tokens_are_hidden() -> None:
    assert "secret" not in repr(CompactToken.parse(token({}, {"sub": "secret"})))
    assert "secret" not in repr(BearerToken("secret", "a", 1))


@pytest.mark.parametrize(("text", "count"), [("", 1), ("a", 1), ("a.b", 2), ("a.b.c.d", 4), ("a.b.c.d.e", 5)])
def test_another_number_of_sections_is_refused(text: str, count: int) -> None:
    with pytest.raises(TokenError, match=f"but {count} sections provided"):
        CompactToken.parse(text)


@pytest.mark.parametrize("header", ["e30=", "e3+", "e3/", "a", "abcde", "é", "e30\n", " e30", "e3٣"])
def test_a_header_in_another_alphabet_is_refused(header: str) -> None:
    with pytest.raises(TokenError, match="not base64url"):
        CompactToken.parse(f"{header}.e30.")


def test_an_empty_section_is_refused() -> None:
    with pytest.raises(TokenError, match="header section is missing"):
        CompactToken.parse(".e30.")
    with pytest.raises(TokenError, match="payload section is missing"):
        CompactToken.parse("e30..").claims()


def test_the_basic_alphabet_is_for_unsecured_tokens() -> None:
    padded = b64encode(b'{"alg":"none","x":"??>>"}').decode()
    assert {"+", "/"} & set(padded)
    parsed = CompactToken.parse(f"{padded}.{b64encode(b'{}').decode()}.", basic_alphabet=True)
    assert parsed.header["x"] == "??>>"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"1",
        b"null",
        b'"x"',
        b"{",
        b'{"a":1,"a":2}',
        b'{"a":{"b":1,"b":1}}',
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b'{"a":-Infinity}',
        b'{"a":1e999}',
        b'{"a":' + b"1" * 31 + b"}",
        b'{"a":1.' + b"1" * 31 + b"}",
        b'{"a":"\xff"}',
        b"\xff\xfe{\0}\0",
        b'{"a":"\n"}',
        b"{} {}",
    ],
)
def test_claims_that_are_no_plain_json_object_are_refused(data: bytes) -> None:
    with pytest.raises(TokenError):
        CompactToken.parse(f"e30.{section(data) or 'IA'}.").claims()


@pytest.mark.parametrize("pair", ["[]", "{}"])
def test_deep_json_is_refused(pair: str) -> None:
    def nested(depth: int) -> bytes:
        opening = "[" if pair == "[]" else '{"a":'
        return f'{{"a":{opening * (depth - 1)}1{pair[1] * (depth - 1)}}}'.encode()

    assert CompactToken.parse(f"e30.{section(nested(MOST_DEPTH))}.").claims()
    for depth in (MOST_DEPTH + 1, 5_000):
        with pytest.raises(TokenError, match=f"nests more than {MOST_DEPTH}"):
            CompactToken.parse(f"e30.{section(nested(depth))}.").claims()


def test_brackets_in_strings_do_not_hide_the_depth() -> None:
    hidden = b'{"a":' + b'["]]]",' * (MOST_DEPTH + 1) + b"1" + b"]" * (MOST_DEPTH + 1) + b"}"
    with pytest.raises(TokenError, match="nests more than"):
        CompactToken.parse(f"e30.{section(hidden)}.").claims()
    brackets = section({"a": "[" * 100, "b": '{"' * 100})
    assert CompactToken.parse(f"e30.{brackets}.").claims()


def test_a_huge_token_is_refused_before_it_is_decoded() -> None:
    text = "e30." + "A" * (8 * MOST_TOKEN_BYTES) + "."
    tracemalloc.start()
    try:
        with pytest.raises(TokenError, match=f"more than {MOST_TOKEN_BYTES}"):
            CompactToken.parse(text)
        assert tracemalloc.get_traced_memory()[1] < MOST_TOKEN_BYTES
    finally:
        tracemalloc.stop()


def test_a_huge_header_is_refused() -> None:
    with pytest.raises(TokenError, match=f"more than {MOST_HEADER_BYTES}"):
        CompactToken.parse("A" * (MOST_HEADER_BYTES + 1) + ".e30.")


@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda data: f"{section(data)}.{section(data)}."))
def test_any_text_is_a_token_or_an_error(text: str) -> None:
    for basic in (False, True):
        try:
            claims = CompactToken.parse(text, basic_alphabet=basic).claims()
        except TokenError:
            continue
        assert isinstance(claims, dict)


def test_claims_of_a_token_without_checks() -> None:
    assert claims_of(token({"alg": "RS256"}, {"exp": 5}, b"x")) == {"exp": 5}
    assert claims_of("opaque") is None
    assert claims_of("a.b.c") is None


# --- claims -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "ms"), [(0, 0), (1.5, 1500), (1_700_000_000, 1_700_000_000_000), (0.0004, 0)])
def test_times_are_seconds(value: float, ms: int) -> None:
    assert milliseconds({"exp": value}, "exp") == ms


@pytest.mark.parametrize("value", ["5", True, [1], {}, -1, -0.5, 2**41, 10**29])
def test_other_times_are_refused(value: Any) -> None:
    with pytest.raises(TokenError, match="the exp claim is no"):
        milliseconds({"exp": value}, "exp")


def test_a_missing_time_is_refused_when_it_is_required() -> None:
    assert milliseconds({}, "exp") is None
    with pytest.raises(TokenError, match="exp value must be non-null"):
        milliseconds({"exp": None}, "exp", required=True)


def test_a_text_claim() -> None:
    assert text_claim({"sub": " a "}, "sub") == "a"
    for claims, reason in (({}, "non-null"), ({"sub": " "}, "whitespace"), ({"sub": 5}, "no string")):
        with pytest.raises(TokenError, match=reason):
            text_claim(claims, "sub")


def test_a_claim_with_texts() -> None:
    assert list(texts_claim({"aud": "a"}, "aud")) == ["a"]
    assert list(texts_claim({"aud": ["a", "b"]}, "aud")) == ["a", "b"]
    assert list(texts_claim({}, "aud")) == []
    for value in (5, {"a": 1}, ["a", 5]):
        with pytest.raises(TokenError, match="neither a string nor a list"):
            texts_claim({"aud": value}, "aud")
