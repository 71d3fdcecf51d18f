"""OAUTHBEARER of clients: providers, a token endpoint over https, files, assertions, unsecured tokens, MSK."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from base64 import b64decode, urlsafe_b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from identity_provider import IdentityProvider, SigningKey, identity_provider, rsa_key

from kafkapy.clients.sasl.base import SaslSettings
from kafkapy.clients.sasl.logins import create_login
from kafkapy.clients.sasl.msk import MskTokenProvider
from kafkapy.clients.sasl.oauthbearer import OAuthBearerClient, OAuthBearerLogin
from kafkapy.clients.sasl.refresh import ClientToken
from kafkapy.config.config_def import Password
from kafkapy.errors import ConfigError, KafkaConnectionError, SaslAuthenticationFailedError
from kafkapy.security.oauthbearer.messages import AFTER_ERROR, ClientFirstMessage
from kafkapy.security.oauthbearer.tokens import MOST_TOKEN_BYTES
from kafkapy.security.oauthbearer.validators import UnsecuredValidator

PACKAGE = "org.apache.kafka.common.security.oauthbearer."
URL = "sasl.oauthbearer.token.endpoint.url"


def settings(options: dict[str, str] | None = None, /, **config: Any) -> SaslSettings:
    return SaslSettings("OAUTHBEARER", options or {}, {name.replace("_", "."): value for name, value in config.items()})


def first_message(given: SaslSettings, host: str = "broker") -> ClientFirstMessage:
    """What a client of these settings says first."""

    async def main() -> ClientFirstMessage:
        login = create_login(given)
        assert login.mechanism == "OAUTHBEARER"
        try:
            return ClientFirstMessage.parse((await login.exchange(host)).initial())
        finally:
            await login.close()

    return asyncio.run(main())


# --- the exchange -------------------------------------------------------------------------------------------------


def test_an_empty_answer_completes_the_exchange() -> None:
    client = OAuthBearerClient(ClientToken("a.b.c", extensions={"traceId": "7"}))
    assert client.initial() == b"n,,\x01auth=Bearer a.b.c\x01traceId=7\x01\x01"
    assert not client.complete
    assert client.evaluate(b"") is None
    assert client.complete
    with pytest.raises(SaslAuthenticationFailedError, match="after the end"):
        client.evaluate(b"")


def test_a_refusal_is_acknowledged() -> None:
    client = OAuthBearerClient(ClientToken("a.b.c"))
    client.initial()
    assert client.evaluate(b'{"status":"invalid_token"}') == AFTER_ERROR
    assert not client.complete
    for answer in (b"", b"{}"):
        with pytest.raises(SaslAuthenticationFailedError, match="after the end"):
            client.evaluate(answer)
    assert not client.complete


# --- the user's code ----------------------------------------------------------------------------------------------

TOKEN = SigningKey("first", private=rsa_key(0)).sign(
    {"sub": "ann", "iat": 1_700_000_000, "exp": 4_000_000_000}
)


class Provider:
    """As in kafka-python."""

    def token(self) -> str:
        assert threading.current_thread() is not threading.main_thread(), "it may block"
        return TOKEN

    def extensions(self) -> dict[str, str]:
        return {"traceId": "7"}


class AsyncProvider:
    """As in aiokafka."""

    async def token(self) -> str:
        asyncio.get_running_loop()
        return TOKEN

    def extensions(self) -> None:
        return None


class ConfluentCallback:
    """As in confluent-kafka."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __call__(self, config: str) -> tuple[str, float, str, dict[str, str]]:
        self.seen.append(config)
        return TOKEN, time.time() + 60, "ann", {"pool": "x"}


async def coroutine() -> str:
    return TOKEN


def with_default(region: str = "eu") -> str:
    return TOKEN if region == "eu" else ""


@pytest.mark.parametrize(
    ("provider", "extensions"),
    [
        (Provider(), {"traceId": "7"}),
        (AsyncProvider(), {}),
        (lambda: TOKEN, {}),
        (lambda: TOKEN.encode(), {}),
        (lambda: (TOKEN, time.time() + 60), {}),
        (lambda: [f" {TOKEN}\n", None], {}),
        (coroutine, {}),
        (with_default, {}),
        ("clients.sasl.test_oauthbearer:Provider", {"traceId": "7"}),
        ("clients.sasl.test_oauthbearer.with_default", {}),
    ],
)
@pytest.mark.parametrize("key", ["sasl.oauth.token.provider", "sasl.login.callback.handler.class"])
def test_a_provider_gives_the_token(key: str, provider: Any, extensions: dict[str, str]) -> None:
    message = first_message(SaslSettings("OAUTHBEARER", {}, {key: provider}))
    assert (message.token, message.extensions) == (TOKEN, extensions)


def test_confluents_callback_gets_the_configured_text() -> None:
    callback = ConfluentCallback()
    message = first_message(settings(oauth_cb=callback, sasl_oauthbearer_config="a=b"))
    assert (message.token, message.extensions, callback.seen) == (TOKEN, {"pool": "x"}, ["a=b"])
    optional: list[str] = []
    given = settings(oauth_cb=lambda text="none": (optional.append(text), TOKEN)[1])
    assert first_message(given).token == TOKEN
    assert optional == [""]


def test_extensions_of_the_configuration_join_the_providers() -> None:
    given = settings(
        {"extension_pool": "x"}, sasl_oauth_token_provider=Provider(), sasl_oauthbearer_extensions="a=1, b=2=3,"
    )
    assert first_message(given).extensions == {"pool": "x", "a": "1", "b": "2=3", "traceId": "7"}


async def token_of(given: SaslSettings) -> ClientToken:
    login = create_login(given)
    assert isinstance(login, OAuthBearerLogin)
    try:
        return await login._token.get("broker")
    finally:
        await login.close()


@pytest.mark.parametrize("end", [4_000_000_000, 4_000_000_000.0, 4_000_000_000_000])
def test_an_end_is_in_seconds_or_milliseconds(end: float) -> None:
    token = asyncio.run(token_of(settings(sasl_oauth_token_provider=lambda: ("opaque", end))))
    assert (token.expires_ms, token.start_ms) == (4_000_000_000_000, None)


def test_the_end_of_a_json_web_token_is_a_claim() -> None:
    made = SigningKey("first", private=rsa_key(0)).sign({"exp": 4_000_000_000, "iat": 1_000})
    token = asyncio.run(token_of(settings(sasl_oauth_token_provider=lambda: made)))
    assert (token.expires_ms, token.start_ms) == (4_000_000_000_000, 1_000_000)
    assert asyncio.run(token_of(settings(sasl_oauth_token_provider=lambda: "opaque"))).expires_ms is None


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (None, "NoneType, which is no token"),
        (5, "int, which is no token"),
        ("", "an empty text"),
        ("a b", "text, which is no token"),
        ("a\x01auth=Bearer b", "text, which is no token"),
        ("é", "text, which is no token"),
        ((), "NoneType, which is no token"),
        (("t", "soon"), "an end that is no number"),
        (("t", True), "an end that is no number"),
        (("t", 1), "gave an expired token"),
        (("t", None, "p", {"auth": "x"}), "Extension name auth"),
        (("t", None, "p", {"a": "\x01"}), "Extension value"),
    ],
)
def test_an_answer_that_is_no_token_is_an_error(answer: Any, reason: str) -> None:
    with pytest.raises(SaslAuthenticationFailedError, match=reason):
        first_message(settings(sasl_oauth_token_provider=lambda: answer))


def test_errors_of_a_provider_are_named() -> None:
    def fail(error: Exception) -> Any:
        raise error

    with pytest.raises(SaslAuthenticationFailedError, match="the token provider raised KeyError: 'x'"):
        first_message(settings(sasl_oauth_token_provider=lambda: fail(KeyError("x"))))
    with pytest.raises(KafkaConnectionError, match="the token provider raised ConnectionResetError"):
        first_message(settings(sasl_oauth_token_provider=lambda: fail(ConnectionResetError("x"))))
    with pytest.raises(KafkaConnectionError, match="mine"):
        first_message(settings(sasl_oauth_token_provider=lambda: fail(KafkaConnectionError("mine"))))


@pytest.mark.parametrize("provider", [5, "none.such:x", "nodots", "json:nothing", f"{PACKAGE}Other"])
def test_what_is_no_provider_is_refused(provider: Any) -> None:
    with pytest.raises(ConfigError, match="callable"):
        create_login(settings(sasl_oauth_token_provider=provider))


def test_only_one_provider_may_be_set() -> None:
    with pytest.raises(ConfigError, match=r"only one of sasl\.oauth\.token\.provider and oauth\.cb"):
        create_login(settings(sasl_oauth_token_provider=Provider(), oauth_cb=Provider()))


def test_settings_without_a_source_are_refused() -> None:
    with pytest.raises(ConfigError, match="OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url"):
        create_login(settings())


# --- a token endpoint ---------------------------------------------------------------------------------------------


@pytest.fixture
def provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[IdentityProvider]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    with identity_provider(tmp_path) as running:
        running.keys = [SigningKey("key", private=rsa_key(0))]
        yield running


def endpoint(provider: IdentityProvider, options: dict[str, str] | None = None, /, **config: Any) -> SaslSettings:
    trusted = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(provider.ca_file)}
    quick = {"sasl.login.retry.backoff.ms": 1, "sasl.login.retry.backoff.max.ms": 0}
    given = {name.replace("_", "."): value for name, value in config.items()}
    return SaslSettings("OAUTHBEARER", {**trusted, **(options or {})}, {URL: provider.token_url, **quick, **given})


CLIENT = {"clientId": "us er", "clientSecret": "s&=:é"}


def test_a_client_id_and_a_secret_give_a_token(provider: IdentityProvider) -> None:
    message = first_message(endpoint(provider, {**CLIENT, "scope": "a b", "extension_pool": "x"}))
    claims = jwt.decode(message.token, options={"verify_signature": False})
    assert (claims["sub"], claims["scope"], message.extensions) == ("alice", "a b", {"pool": "x"})
    method, path, headers, body = provider.requests[0]
    assert (method, path) == ("POST", "/token")
    assert parse_qs(body.decode(), strict_parsing=True) == {"grant_type": ["client_credentials"], "scope": ["a b"]}
    assert headers["Content-Type"] == "application/x-www-form-urlencoded"
    assert headers["Accept"] == "application/json"
    assert b64decode(headers["Authorization"].removeprefix("Basic ")).decode() == "us er:s&=:é"


def test_keys_name_client_and_secret_too(provider: IdentityProvider) -> None:
    given = endpoint(
        provider,
        sasl_oauthbearer_client_credentials_client_id="us er",
        sasl_oauthbearer_client_credentials_client_secret=Password("s&="),
        sasl_oauthbearer_scope="all",
        sasl_oauthbearer_header_urlencode=True,
        sasl_oauthbearer_method="OIDC",
    )
    first_message(given)
    _, _, headers, body = provider.requests[0]
    assert b64decode(headers["Authorization"].removeprefix("Basic ")).decode() == "us+er:s%26%3D"
    assert parse_qs(body.decode())["scope"] == ["all"]


@pytest.mark.parametrize("name", ["OAuthBearerLoginCallbackHandler", "secured.OAuthBearerLoginCallbackHandler"])
def test_kafkas_handlers_stand_for_the_endpoint(provider: IdentityProvider, name: str) -> None:
    first_message(endpoint(provider, CLIENT, sasl_login_callback_handler_class=PACKAGE + name))
    retriever = endpoint(provider, CLIENT, sasl_oauthbearer_jwt_retriever_class=f"{PACKAGE}DefaultJwtRetriever")
    first_message(retriever)
    assert provider.count("/token") == 2


def test_a_token_of_another_form_ends_as_the_answer_says(provider: IdentityProvider) -> None:
    provider.answers = [
        (200, {}, b'{"access_token":"opaque","expires_in":60}'),
        (201, {}, b'{"access_token":"opaque"}'),
    ]
    before = int(time.time() * 1000)
    token = asyncio.run(token_of(endpoint(provider, CLIENT)))
    assert token.expires_ms is not None
    assert before <= token.expires_ms - 60_000 <= int(time.time() * 1000)
    assert asyncio.run(token_of(endpoint(provider, CLIENT))).expires_ms is None


def test_a_failure_for_a_moment_is_repeated(provider: IdentityProvider) -> None:
    provider.answers = [(503, {}, b""), (500, {}, b"{}"), (200, {}, b"<html>")]
    first_message(endpoint(provider, CLIENT, sasl_login_retry_backoff_max_ms=60_000))
    assert provider.count("/token") == 4


def test_a_failure_that_lasts_is_a_reason_to_retry_later(provider: IdentityProvider) -> None:
    provider.answers = [(503, {}, b'{"error":"busy"}')]
    with pytest.raises(KafkaConnectionError, match=r"/token gave no token: status 503 \(busy\)"):
        first_message(endpoint(provider, CLIENT))
    assert provider.count("/token") == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 501])
def test_a_refusal_is_final(provider: IdentityProvider, status: int) -> None:
    body = b'{"error":"invalid_client","error_description":"who is that"}'
    provider.answers = [(status, {}, body), (200, {}, b"")]
    with pytest.raises(SaslAuthenticationFailedError, match=rf"status {status} \(invalid_client: who is that\)"):
        first_message(endpoint(provider, CLIENT, sasl_login_retry_backoff_max_ms=60_000))
    assert provider.count("/token") == 1


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((200, {}, b""), "is no JSON object"),
        ((200, {}, b"[" * 100_000), "is no JSON object"),
        ((200, {}, b"{}"), "has no access_token"),
        ((200, {}, b'{"access_token":5}'), "has no access_token"),
        ((200, {}, b'{"access_token":"a b"}'), "which is no token"),
        ((200, {}, b'{"access_token":"' + b"a" * 2_000_000 + b'"}'), "more than 1048576 bytes"),
        ((400, {}, b'{"errorCode":"E1","errorSummary":"' + b"x" * 100_000 + b'"}'), r"status 400 \(E1: x{1,500}$"),
        ((400, {}, b"<html>"), "status 400$"),
        ((307, {"Location": "https://127.0.0.1:1/"}, b""), "answered with a redirect"),
    ],
)
def test_hostile_answers_are_errors(provider: IdentityProvider, answer: Any, reason: str) -> None:
    provider.answers = [answer]
    with pytest.raises((SaslAuthenticationFailedError, KafkaConnectionError), match=reason) as raised:
        first_message(endpoint(provider, CLIENT))
    assert len(str(raised.value)) < 1000


def test_an_endpoint_with_another_certificate_gets_no_secret(provider: IdentityProvider) -> None:
    given = SaslSettings(
        "OAUTHBEARER", CLIENT, {URL: f"{provider.token_url}?key=hidden", "sasl.login.retry.backoff.max.ms": 0}
    )
    with pytest.raises(KafkaConnectionError, match="CERTIFICATE_VERIFY_FAILED") as raised:
        first_message(given)
    assert "hidden" not in str(raised.value)
    assert provider.requests == []


def test_an_endpoint_that_is_gone_is_a_reason_to_retry(tmp_path: Path, provider: IdentityProvider) -> None:
    given = endpoint(provider, CLIENT, sasl_oauthbearer_token_endpoint_url="https://127.0.0.1:1/token")
    with pytest.raises(KafkaConnectionError, match="Connection refused"):
        first_message(given)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("idp/token", "must be a URL"),
        ("ftp://idp", "must be a URL"),
        ("https://", "must be a URL"),
        ("https://idp:x/", "is no URL"),
        ("https://[idp/", "is no URL"),
        ("file:token", "absolute path"),
        ("file://host/token", "absolute path"),
    ],
)
def test_wrong_urls_are_refused(url: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        create_login(SaslSettings("OAUTHBEARER", CLIENT, {URL: url}))


@pytest.mark.parametrize("missing", ["clientId", "clientSecret"])
def test_missing_credentials_are_named(missing: str) -> None:
    options = {**CLIENT, missing: " "}
    with pytest.raises(ConfigError, match=f"or {missing} in sasl.jaas.config") as raised:
        create_login(SaslSettings("OAUTHBEARER", options, {URL: "https://idp/token"}))
    assert "s&=" not in str(raised.value)


def test_wrong_extensions_are_refused() -> None:
    for options, key in (({"extension_auth": "x"}, ""), ({"extension_a1": "x"}, ""), ({}, "x")):
        with pytest.raises(ConfigError):
            create_login(SaslSettings("OAUTHBEARER", {**CLIENT, **options}, {
                URL: "https://idp/token", "sasl.oauthbearer.extensions": key}))  # fmt: skip


# --- files --------------------------------------------------------------------------------------------------------


def test_a_file_has_the_token(tmp_path: Path) -> None:
    file = tmp_path / "to ken"
    given = SaslSettings("OAUTHBEARER", {"extension_a": "1"}, {URL: file.as_uri()})
    file.write_text(f"{TOKEN}\n")
    message = first_message(given)
    assert (message.token, message.extensions) == (TOKEN, {"a": "1"})
    for content, reason in ((b"", "an empty text"), (b"a" * (MOST_TOKEN_BYTES + 1), "more than")):
        file.write_bytes(content)
        with pytest.raises(SaslAuthenticationFailedError, match=reason):
            first_message(given)
    file.unlink()
    with pytest.raises(SaslAuthenticationFailedError, match="cannot be read: No such file"):
        first_message(given)


# --- assertions ---------------------------------------------------------------------------------------------------

ASSERTIONS = {
    "sasl_oauthbearer_jwt_retriever_class": f"{PACKAGE}JwtBearerJwtRetriever",
    "sasl_oauthbearer_assertion_claim_aud": "https://idp",
    "sasl_oauthbearer_assertion_claim_iss": "me",
    "sasl_oauthbearer_assertion_claim_sub": "client",
}


def private_key_file(directory: Path, key: SigningKey, password: bytes | None = None) -> Path:
    file = directory / "private.pem"
    encryption = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    file.write_bytes(
        key.private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    )
    return file


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_a_private_key_signs_assertions(provider: IdentityProvider, tmp_path: Path, algorithm: str) -> None:
    key = SigningKey("me", algorithm)
    template = tmp_path / "template.json"
    template.write_text(json.dumps({"header": {"kid": "k1"}, "payload": {"role": "x", "sub": "other"}}))
    given = endpoint(
        provider,
        **ASSERTIONS,
        sasl_oauthbearer_assertion_algorithm=algorithm,
        sasl_oauthbearer_assertion_private_key_file=str(private_key_file(tmp_path, key, b"pass")),
        sasl_oauthbearer_assertion_private_key_passphrase=Password("pass"),
        sasl_oauthbearer_assertion_template_file=str(template),
        sasl_oauthbearer_assertion_claim_jti_include=True,
        sasl_oauthbearer_scope="all",
    )
    first_message(given)
    _, _, headers, body = provider.requests[0]
    form = parse_qs(body.decode())
    assert "Authorization" not in headers
    assert form["grant_type"] == ["urn:ietf:params:oauth:grant-type:jwt-bearer"]
    assert form["scope"] == ["all"]
    assertion = form["assertion"][0]
    assert jwt.get_unverified_header(assertion)["kid"] == "k1"
    claims = jwt.decode(assertion, key.private.public_key(), [algorithm], audience="https://idp", issuer="me")
    assert (claims["sub"], claims["role"], claims["exp"] - claims["iat"]) == ("client", "x", 300)
    assert claims["iat"] - claims["nbf"] == 60
    assert len(claims["jti"]) == 36


def test_a_file_may_have_the_assertion(provider: IdentityProvider, tmp_path: Path) -> None:
    (tmp_path / "assertion").write_text(TOKEN)
    given = {**ASSERTIONS, "sasl_oauthbearer_assertion_file": str(tmp_path / "assertion")}
    first_message(endpoint(provider, **given))
    assert parse_qs(provider.requests[0][3].decode())["assertion"] == [TOKEN]


def test_wrong_assertions_are_errors(provider: IdentityProvider, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"assertion\.file"):
        create_login(endpoint(provider, **ASSERTIONS))
    file = "sasl_oauthbearer_assertion_private_key_file"
    encrypted = private_key_file(tmp_path, SigningKey("me", private=rsa_key(0)), b"pass")
    with pytest.raises(SaslAuthenticationFailedError, match="its passphrase is wrong"):
        first_message(endpoint(provider, **ASSERTIONS, **{file: str(encrypted)}))
    curve = private_key_file(tmp_path, SigningKey("me", "ES256"))
    with pytest.raises(SaslAuthenticationFailedError, match="no assertion by RS256"):
        first_message(endpoint(provider, **ASSERTIONS, **{file: str(curve)}))
    with pytest.raises(SaslAuthenticationFailedError, match="cannot be read: No such file"):
        first_message(endpoint(provider, **ASSERTIONS, **{file: "/none/key.pem"}))
    template = tmp_path / "template.json"
    for content, reason in ((b"{", "is no JSON"), (b"[]", "must be a JSON object"), (b'{"header":5}', "must be a")):
        template.write_bytes(content)
        with pytest.raises(ConfigError, match=reason):
            create_login(endpoint(
                provider, **ASSERTIONS, **{file: str(curve)}, sasl_oauthbearer_assertion_template_file=str(template)
            ))  # fmt: skip
    assert provider.requests == []


# --- unsecured tokens ---------------------------------------------------------------------------------------------


def claims_of(token: str) -> dict[str, Any]:
    header, payload, signature = token.split(".")
    assert json.loads(urlsafe_b64decode(header + "==")) == {"alg": "none"}
    assert signature == ""
    found: dict[str, Any] = json.loads(urlsafe_b64decode(payload + "=="))
    return found


def test_kafkas_options_make_an_unsecured_token() -> None:
    options = {
        "unsecuredLoginStringClaim_sub": "ann",
        "unsecuredLoginNumberClaim_level": "2.5",
        "unsecuredLoginListClaim_scope": "|a|b",
        "unsecuredLoginListClaim_none": "",
        "unsecuredLoginLifetimeSeconds": "60",
        "unsecuredLoginExtension_traceId": "7",
    }
    message = first_message(settings(options))
    claims = claims_of(message.token)
    assert claims["exp"] - claims["iat"] == pytest.approx(60)
    assert {name: claims[name] for name in ("sub", "level", "scope", "none")} == {
        "sub": "ann", "level": 2.5, "scope": ["a", "b"], "none": [],
    }  # fmt: skip
    assert message.extensions == {"traceId": "7"}
    assert asyncio.run(UnsecuredValidator().validate(message.token)).principal_name == "ann"


def test_librdkafkas_text_makes_an_unsecured_token() -> None:
    text = "principalClaimName=who principal=ann scopeClaimName=what scope=a,b lifeSeconds=30 extension_pool=x"
    given = settings(enable_sasl_oauthbearer_unsecure_jwt=True, sasl_oauthbearer_config=text)
    message = first_message(given)
    claims = claims_of(message.token)
    assert (claims["who"], claims["what"], message.extensions) == ("ann", ["a", "b"], {"pool": "x"})
    assert claims["exp"] - claims["iat"] == pytest.approx(30)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"unsecuredLoginStringClaim_other": "x"}, "unsecuredLoginStringClaim_sub is missing"),
        ({"unsecuredLoginStringClaim_sub": " "}, "unsecuredLoginStringClaim_sub is missing"),
        ({"unsecuredLoginNumberClaim_sub": "5"}, "unsecuredLoginStringClaim_sub is missing"),
        ({"unsecuredLoginStringClaim_sub": "a", "unsecuredLoginNumberClaim_exp": "5"}, "the claim exp is computed"),
        ({"unsecuredLoginStringClaim_sub": "a", "unsecuredLoginNumberClaim_x": "y"}, "must be a number"),
        ({"unsecuredLoginStringClaim_sub": "a", "unsecuredLoginLifetimeSeconds": "0"}, "must be a number of seconds"),
        ({"unsecuredLoginStringClaim_sub": "a", "unsecuredLoginLifetimeSeconds": "-1"}, "must be a number of seconds"),
        ({"unsecuredLoginStringClaim_sub": "a", "unsecuredLoginExtension_auth": "x"}, "Extension name auth"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        create_login(settings(options))


def test_an_unknown_word_of_librdkafkas_text_is_refused() -> None:
    with pytest.raises(ConfigError, match="principal="):
        create_login(settings(enable_sasl_oauthbearer_unsecure_jwt=True, sasl_oauthbearer_config="user=ann"))


def test_kafkas_handler_stands_for_unsecured_tokens() -> None:
    handler = f"{PACKAGE}internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler"
    options = {"unsecuredLoginStringClaim_sub": "ann"}
    given = settings(options, sasl_login_callback_handler_class=handler, sasl_oauthbearer_token_endpoint_url="x")
    assert claims_of(first_message(given).token)["sub"] == "ann"


# --- MSK ----------------------------------------------------------------------------------------------------------

MSK_HOST = "b-1.demo.abc123.c2.kafka.eu-west-1.amazonaws.com"


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("aws_msk_iam_sasl_signer")
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def signed_url(token: str) -> str:
    return urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()


def msk(**options: str) -> SaslSettings:
    return SaslSettings("AWS_MSK_IAM", options, {})


@pytest.mark.usefixtures("aws")
@pytest.mark.parametrize(
    ("host", "options", "region"),
    [
        (MSK_HOST, {}, "eu-west-1"),
        ("boot-abc.c1.kafka-serverless.us-east-2.amazonaws.com", {}, "us-east-2"),
        (MSK_HOST, {"awsRegion": "us-west-2"}, "us-west-2"),
    ],
)
def test_the_brokers_name_has_the_region(host: str, options: dict[str, str], region: str) -> None:
    url = signed_url(first_message(msk(**options), host).token)
    assert url.startswith(f"https://kafka.{region}.amazonaws.com/?Action=kafka-cluster%3AConnect")
    assert "AKIDEXAMPLE" in url
    assert "wJalrXUtnFEMI" not in url


@pytest.mark.usefixtures("aws")
def test_the_region_may_be_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="the region of localhost is unknown"):
        first_message(msk(), "localhost")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-north-1")
    assert "kafka.eu-north-1." in signed_url(first_message(msk(), "localhost").token)


@pytest.mark.usefixtures("aws")
def test_a_token_of_msk_has_an_end() -> None:
    async def main() -> ClientToken:
        login = create_login(msk())
        assert isinstance(login, OAuthBearerLogin)
        try:
            return await login._token.get(MSK_HOST)
        finally:
            await login.close()

    token = asyncio.run(main())
    assert token.expires_ms is not None
    assert 0 < token.expires_ms - time.time() * 1000 <= 900_000


@pytest.mark.usefixtures("aws")
def test_a_provider_signs_for_oauthbearer() -> None:
    token = first_message(settings(sasl_oauth_token_provider=MskTokenProvider("eu-west-1"))).token
    assert "kafka.eu-west-1." in signed_url(token)


@pytest.mark.usefixtures("aws")
def test_an_unknown_profile_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    with pytest.raises(SaslAuthenticationFailedError, match="AWS_MSK_IAM failed: ProfileNotFound"):
        first_message(msk(awsProfileName="nobody"), MSK_HOST)


def test_a_missing_signer_is_one_clear_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    with pytest.raises(ConfigError, match=r"pip install 'kafkapy\[msk\]'"):
        create_login(msk())
