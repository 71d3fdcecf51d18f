"""Checks of bearer tokens: signatures, times, audience, issuer, scope, and hostile tokens."""

from __future__ import annotations

import asyncio
import json
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from hypothesis import given, settings
from hypothesis import strategies as st
from identity_provider import SigningKey, rsa_key

from kafkapy.security.oauthbearer.keys import ALGORITHMS, KeyCache, KeySetError
from kafkapy.security.oauthbearer.tokens import BearerToken, TokenError
from kafkapy.security.oauthbearer.validators import SecuredValidator, TokenValidator, UnsecuredValidator

NOW_S = 1_700_000_000
NOW_MS = NOW_S * 1000
FIRST, SECOND = SigningKey("first", private=rsa_key(0)), SigningKey("second", private=rsa_key(1))


def section(value: Any) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def unsigned(claims: Mapping[str, Any] | None = None, /, **header: Any) -> str:
    every = {"sub": "alice", "exp": NOW_S + 60, **(claims or {})}
    return f"{section({'alg': 'none', **header})}.{section(every)}."


async def check(validator: TokenValidator, token: str) -> BearerToken:
    try:
        return await validator.validate(token)
    finally:
        await validator.close()


# --- unsecured ----------------------------------------------------------------------------------------------------


def unsecured(token: str, **options: Any) -> BearerToken:
    return asyncio.run(check(UnsecuredValidator(**options, clock_ms=lambda: NOW_MS), token))


def test_an_unsecured_token_has_a_principal_and_an_end() -> None:
    text = unsigned({"iat": NOW_S - 1, "scope": [" a ", "b", ""], "exp": NOW_S + 1.5})
    assert unsecured(text) == BearerToken(text, "alice", NOW_MS + 1500, NOW_MS - 1000, frozenset("ab"))


def test_the_names_of_claims_are_options() -> None:
    text = unsigned({"sub": None, "who": "bob", "what": "x"})
    found = unsecured(text, principal_claim="who", scope_claim="what", required_scope=["x"])
    assert (found.principal_name, found.scope) == ("bob", {"x"})


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"sub": None}, "sub value must be non-null"),
        ({"sub": 5}, "sub claim is no string"),
        ({"sub": " "}, "whitespace"),
        ({"exp": None}, "exp value must be non-null"),
        ({"exp": "5"}, "exp claim is no number"),
        ({"exp": NOW_S}, "expired"),
        ({"exp": NOW_S - 1}, "expired"),
        ({"iat": NOW_S + 1, "exp": NOW_S + 5}, "Issued At value"),
        ({"iat": "x"}, "iat claim is no number"),
        ({"scope": 5}, "scope claim is neither"),
    ],
)
def test_wrong_claims_are_refused(claims: dict[str, Any], reason: str) -> None:
    with pytest.raises(TokenError, match=reason) as raised:
        unsecured(unsigned(claims))
    assert (raised.value.status, raised.value.scope) == ("invalid_token", None)


def test_the_clocks_may_differ_by_the_option() -> None:
    late, early = unsigned({"exp": NOW_S - 1}), unsigned({"iat": NOW_S + 1})
    for text in (late, early):
        assert unsecured(text, clock_skew_ms=1001)
        with pytest.raises(TokenError):
            unsecured(text, clock_skew_ms=999)


def test_the_end_lies_behind_the_issue() -> None:
    with pytest.raises(TokenError, match="not after the Issued At"):
        unsecured(unsigned({"iat": NOW_S - 5, "exp": NOW_S - 5}), clock_skew_ms=10_000)


def test_a_missing_scope_is_named_for_the_client() -> None:
    with pytest.raises(TokenError, match="misses b of") as raised:
        unsecured(unsigned({"scope": "a"}), required_scope=["a", "b"])
    assert (raised.value.status, raised.value.scope) == ("insufficient_scope", "[a, b]")


@pytest.mark.parametrize("algorithm", ["HS256", "RS256", "None", "NONE", "", None, 5, ["none"]])
def test_an_unsecured_token_has_no_other_algorithm(algorithm: Any) -> None:
    with pytest.raises(TokenError, match="must have 'none'"):
        unsecured(unsigned(alg=algorithm))


def test_an_unsecured_token_has_no_signature() -> None:
    with pytest.raises(TokenError, match="must not contain a digital signature"):
        unsecured(unsigned() + "eA")


# --- secured ------------------------------------------------------------------------------------------------------


def secured(token: str, *keys: SigningKey | dict[str, Any], **options: Any) -> BearerToken:
    listed = [key if isinstance(key, dict) else key.jwk() for key in keys or (FIRST, SECOND)]

    async def main() -> BearerToken:
        async def sleep(seconds: float) -> None:
            if seconds > 100:
                await asyncio.Event().wait()

        cache = KeyCache(
            "test:keys",
            lambda: json.dumps({"keys": listed}).encode(),
            refresh_ms=3_600_000,
            backoff_ms=100,
            backoff_max_ms=1000,
            sleep=sleep,
        )
        await cache.start()
        return await check(SecuredValidator(cache, **options, clock_ms=lambda: NOW_MS), token)

    return asyncio.run(main())


def signed(claims: Mapping[str, Any] | None = None, /, key: SigningKey = FIRST, **header: Any) -> str:
    return key.sign({"iat": NOW_S - 1, "exp": NOW_S + 60, **(claims or {})}, **header)


def test_a_signed_token_has_a_principal_and_an_end() -> None:
    text = signed({"scope": ["a", "b"]})
    assert secured(text) == BearerToken(text, "alice", NOW_MS + 60_000, NOW_MS - 1000, frozenset("ab"))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm(algorithm: str) -> None:
    key = SigningKey("key", algorithm)
    assert secured(signed(key=key), FIRST, key).principal_name == "alice"


def test_a_key_needs_no_id() -> None:
    nameless = SigningKey(None, private=rsa_key(1))
    assert secured(signed(key=nameless), FIRST, nameless).principal_name == "alice"


def test_the_names_of_claims_may_be_others() -> None:
    found = secured(signed({"sub": None, "who": "bob", "what": "x"}), subject_claim="who", scope_claim="what")
    assert (found.principal_name, found.scope) == ("bob", {"x"})


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"exp": None}, "exp value must be non-null"),
        ({"iat": None}, "iat value must be non-null"),
        ({"sub": None}, "sub value must be non-null"),
        ({"sub": ""}, "whitespace"),
        ({"exp": NOW_S - 30}, "expired"),
        ({"exp": NOW_S - 86400, "iat": NOW_S - 90000}, "expired"),
        ({"nbf": NOW_S + 31}, "not valid yet"),
        ({"iat": NOW_S + 61}, "before the Issued At"),
        ({"nbf": NOW_S + 25, "exp": NOW_S + 24}, "before the Issued At or the Not Before"),
        ({"scope": ""}, "scope value must not contain only whitespace"),
        ({"scope": ["a", "a"]}, "duplicates"),
        ({"scope": {"a": 1}}, "scope claim is neither"),
        ({"aud": "kafka"}, "expected.audience is not set"),
    ],
)
def test_a_signed_token_with_wrong_claims_is_refused(claims: dict[str, Any], reason: str) -> None:
    with pytest.raises(TokenError, match=reason):
        secured(signed(claims))


def test_the_clock_skew_covers_both_ends() -> None:
    assert secured(signed({"iat": NOW_S - 100, "exp": NOW_S - 29})).expires_ms == NOW_MS - 29_000
    assert secured(signed({"nbf": NOW_S + 30}))
    with pytest.raises(TokenError, match="expired"):
        secured(signed({"iat": NOW_S - 100, "exp": NOW_S - 29}), clock_skew_ms=29_000)


@pytest.mark.parametrize("audience", ["kafka", ["other", "kafka"], ["kafka2"]])
def test_a_token_names_one_of_the_audiences(audience: Any) -> None:
    assert secured(signed({"aud": audience}), audiences=["kafka", "kafka2"])


@pytest.mark.parametrize("audience", [None, "Kafka", "", [], ["other"]])
def test_a_token_for_another_audience_is_refused(audience: Any) -> None:
    with pytest.raises(TokenError, match="Audience"):
        secured(signed({"aud": audience}), audiences=["kafka"], any_audience=True)
    assert secured(signed({"aud": audience}), any_audience=True)


@pytest.mark.parametrize("issuer", [None, "https://evil", "https://idp/", ["https://idp"], 5])
def test_a_token_of_another_issuer_is_refused(issuer: Any) -> None:
    assert secured(signed({"iss": "https://idp"}), issuer="https://idp")
    with pytest.raises(TokenError, match=r"Issuer \(iss\)|Issuer .iss. must be"):
        secured(raw({"iss": issuer}), issuer="https://idp")


def raw(claims: Mapping[str, Any], **header: Any) -> str:
    """A signed token with claims or a header that PyJWT would not write."""
    every = {"sub": "alice", "iat": NOW_S - 1, "exp": NOW_S + 60, **claims}
    return resign({"alg": "RS256", "kid": "first", **header}, json.dumps(every).encode())


def resign(header: Mapping[str, Any], payload: bytes, key: SigningKey = FIRST) -> str:
    head = section(dict(header))
    covered = f"{head}.{section(payload)}".encode()
    signature = jwt.get_algorithm_by_name("RS256").sign(covered, key.private)
    return f"{covered.decode()}.{section(signature)}"


# --- hostile tokens -----------------------------------------------------------------------------------------------


def test_an_unsigned_token_is_refused() -> None:
    with pytest.raises(TokenError, match="algorithm 'none' is not one of"):
        secured(unsigned({"iat": NOW_S - 1}, kid="first"))
    with pytest.raises(TokenError, match="signature section is missing"):
        secured(signed().rpartition(".")[0] + ".")


@pytest.mark.parametrize("form", [serialization.PublicFormat.SubjectPublicKeyInfo, serialization.PublicFormat.PKCS1])
@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_a_public_key_is_no_shared_secret(algorithm: str, form: serialization.PublicFormat) -> None:
    """The confusion of algorithms: an HMAC whose secret is the public key, which everybody knows."""
    import hashlib
    import hmac

    public = FIRST.private.public_key()
    for encoding in (serialization.Encoding.PEM, serialization.Encoding.DER):
        covered = f"{section({'alg': algorithm, 'kid': 'first'})}.{section({'sub': 'root', 'iat': 1, 'exp': 2**33})}"
        digest = hmac.digest(public.public_bytes(encoding, form), covered.encode(), f"sha{algorithm[2:]}")
        assert hashlib.new(f"sha{algorithm[2:]}").digest_size == len(digest)
        with pytest.raises(TokenError, match=f"algorithm '{algorithm}' is not one of"):
            secured(f"{covered}.{section(digest)}")


@pytest.mark.parametrize("algorithm", ["RS384", "PS256", "ES256", "EdDSA", "rs256", "RS256 ", "", None, 5, ["RS256"]])
def test_another_algorithm_than_the_key_s_is_refused(algorithm: Any) -> None:
    with pytest.raises(TokenError, match=r"algorithm"):
        secured(resign({"alg": algorithm, "kid": "first"}, b"{}"))


def test_a_token_of_another_key_is_refused() -> None:
    with pytest.raises(TokenError, match="signature is wrong"):
        secured(signed(key=SECOND, kid="first"))
    with pytest.raises(TokenError, match="Unable to find a suitable verification key"):
        secured(signed(key=SigningKey("third", private=rsa_key(2))))


def test_a_changed_token_is_refused() -> None:
    header, _, signature = signed().split(".")
    forged = section({"sub": "root", "iat": NOW_S - 1, "exp": NOW_S + 60})
    with pytest.raises(TokenError, match="signature is wrong"):
        secured(f"{header}.{forged}.{signature}")


@pytest.mark.parametrize(
    "header",
    [{"crit": ["x"]}, {"crit": []}, {"b64": False}, {"kid": 5}, {"kid": ["first"]}, {"kid": {"a": 1}}],
)
def test_a_header_with_unknown_meaning_is_refused(header: dict[str, Any]) -> None:
    with pytest.raises(TokenError, match=r"critical extensions|key id is no string"):
        secured(raw({}, **header))


def test_a_key_within_the_token_is_not_used() -> None:
    evil = SigningKey("evil", private=rsa_key(2))
    for header in ({"jwk": evil.jwk()}, {"jku": "https://evil/jwks"}, {"x5u": "https://evil"}, {"kid": "../evil"}):
        with pytest.raises(TokenError, match="Unable to find a suitable verification key"):
            secured(resign({"alg": "RS256", "kid": "evil", **header}, b"{}", evil))


@pytest.mark.parametrize("payload", [b"{" * 1000, b"[]", b"{", b'{"a":1,"a":2}', b"\xff", b'{"exp":1e999}'])
def test_signed_claims_that_are_no_plain_json_are_refused(payload: bytes) -> None:
    with pytest.raises(TokenError, match="payload is no"):
        secured(resign({"alg": "RS256", "kid": "first"}, payload))


def test_claims_are_not_read_before_the_signature_is_right() -> None:
    deep = section(b"[" * 50_000)
    header, _, signature = signed().split(".")
    with pytest.raises(TokenError, match="signature is wrong"):
        secured(f"{header}.{deep}.{signature}")


def test_a_huge_signature_is_refused() -> None:
    header, payload, signature = signed().split(".")
    with pytest.raises(TokenError, match="the signature has"):
        secured(f"{header}.{payload}.{signature * 20}")


def test_bad_base64_is_refused() -> None:
    header, payload, signature = signed().split(".")
    for text in (f"{header}=.{payload}.{signature}", f"{header}.{payload}.{signature}+", f"{header}.{payload}.!!!"):
        with pytest.raises(TokenError, match="not base64url"):
            secured(text)


FLIPPED = signed()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, len(FLIPPED) - 1), st.sampled_from("A.-_z9+= "))
def test_no_changed_character_gives_a_principal(at: int, char: str) -> None:
    """The last character of the signature has bits without meaning, so it may change."""
    changed = FLIPPED[:at] + char + FLIPPED[at + 1 :]
    try:
        found = secured(changed, FIRST)
    except TokenError:
        return
    assert changed == FLIPPED or at == len(FLIPPED) - 1
    assert found.principal_name == "alice"


def test_a_key_set_that_cannot_be_read_again_refuses_unknown_keys() -> None:
    async def main() -> None:
        answers = [json.dumps({"keys": [FIRST.jwk()]}).encode()]

        def read() -> bytes:
            if answers:
                return answers.pop()
            raise KeySetError("gone")

        async def sleep(seconds: float) -> None:
            if seconds > 100:
                await asyncio.Event().wait()

        cache = KeyCache("x", read, refresh_ms=3_600_000, backoff_ms=0, backoff_max_ms=0, sleep=sleep)
        await cache.start()
        validator = SecuredValidator(cache, clock_ms=lambda: NOW_MS)
        assert (await validator.validate(signed())).principal_name == "alice"
        with pytest.raises(TokenError):
            await validator.validate(signed(key=SECOND))
        assert (await validator.validate(signed())).principal_name == "alice"
        await validator.close()

    asyncio.run(main())
