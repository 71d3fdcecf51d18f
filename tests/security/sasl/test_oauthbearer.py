"""OAUTHBEARER of a listener: its settings, its exchange, and a real key set over https whose keys rotate."""

from __future__ import annotations

import asyncio
import json
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from identity_provider import IdentityProvider, SigningKey, identity_provider, rsa_key
from security.sasl.services import Services, settings

from kafkapy.errors import ConfigError, PluginError
from kafkapy.plugins import PluginManager, hookimpl
from kafkapy.security.oauthbearer.keys import MOST_DOCUMENT_BYTES
from kafkapy.security.oauthbearer.messages import AFTER_ERROR, ClientFirstMessage
from kafkapy.security.oauthbearer.tokens import BearerToken, TokenError
from kafkapy.security.sasl.authenticator import Outcome, SaslServerAuthenticator
from kafkapy.security.sasl.base import MechanismSettings, SaslAuthenticationError, SaslError, SaslMechanism
from kafkapy.security.sasl.oauthbearer import (
    SECURED_HANDLERS,
    UNSECURED_HANDLER,
    OAuthBearerMechanism,
    OAuthBearerServer,
)

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
HANDLER = "sasl.server.callback.handler.class"
JWKS = "sasl.oauthbearer.jwks.endpoint.url"


def unsigned(claims: Mapping[str, Any] | None = None) -> str:
    def section(value: Any) -> str:
        return urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    return f"{section({'alg': 'none'})}.{section({'sub': 'alice', 'exp': time.time() + 60, **(claims or {})})}."


async def configured(
    jaas: str = f"{MODULE} required;", keys: Mapping[str, str] | None = None, plugins: PluginManager | None = None
) -> OAuthBearerMechanism:
    mechanism = OAuthBearerMechanism()
    await mechanism.configure(settings("OAUTHBEARER", jaas, keys), Services(plugins))
    return mechanism


async def login(mechanism: OAuthBearerMechanism, token: str, **message: Any) -> OAuthBearerServer:
    server = mechanism.server()
    assert await server.evaluate(ClientFirstMessage(token, **message).encode()) == b""
    return server


async def refusal(mechanism: OAuthBearerMechanism, token: str) -> tuple[str, str]:
    """The JSON that a refused client gets, and the reason for the log."""
    server = mechanism.server()
    answer = await server.evaluate(ClientFirstMessage(token).encode())
    assert not server.complete
    with pytest.raises(SaslAuthenticationError) as raised:
        await server.evaluate(AFTER_ERROR)
    assert str(raised.value).encode() == answer
    assert not server.complete
    return answer.decode(), raised.value.reason


# --- the exchange -------------------------------------------------------------------------------------------------


def test_a_token_gives_principal_session_and_extensions() -> None:
    async def main() -> None:
        mechanism = await configured()
        server = await login(
            mechanism, unsigned({"exp": 4_000_000_000}), authorization_id="alice", extensions={"traceId": "7"}
        )
        assert (server.complete, server.authorization_id) == (True, "alice")
        assert server.session_expires_ms == 4_000_000_000_000
        assert server.properties["extensions"] == {"traceId": "7"}
        await mechanism.close()

    asyncio.run(main())


def test_a_refused_client_gets_json_and_then_an_error() -> None:
    async def main() -> None:
        answer, reason = await refusal(await configured(), unsigned({"exp": 5}))
        assert answer == '{"status":"invalid_token"}'
        assert "expired" in reason

    asyncio.run(main())


def test_a_missing_scope_is_named() -> None:
    async def main() -> None:
        mechanism = await configured(f'{MODULE} required unsecuredValidatorRequiredScope="read write";')
        answer, _ = await refusal(mechanism, unsigned({"scope": ["read"]}))
        assert json.loads(answer) == {"status": "insufficient_scope", "scope": "[read, write]"}
        assert (await login(mechanism, unsigned({"scope": ["write", "read"]}))).complete

    asyncio.run(main())


def test_another_token_after_a_refusal_is_refused() -> None:
    async def main() -> None:
        server = (await configured()).server()
        await server.evaluate(ClientFirstMessage(unsigned({"exp": 5})).encode())
        with pytest.raises(SaslAuthenticationError, match="invalid_token"):
            await server.evaluate(ClientFirstMessage(unsigned()).encode())
        assert not server.complete

    asyncio.run(main())


@pytest.mark.parametrize("message", [b"", AFTER_ERROR, b"n,,\x01auth=Basic x\x01\x01", b"\xff" * 1000])
def test_bytes_that_are_no_message_are_refused(message: bytes) -> None:
    async def main() -> None:
        server = (await configured()).server()
        with pytest.raises(SaslError, match="OAUTHBEARER client first message") as raised:
            await server.evaluate(message)
        assert not isinstance(raised.value, SaslAuthenticationError)

    asyncio.run(main())


def test_another_authorization_id_is_refused() -> None:
    async def main() -> None:
        server = (await configured()).server()
        with pytest.raises(SaslAuthenticationError, match="different from the token's principal name"):
            await server.evaluate(ClientFirstMessage(unsigned(), "root").encode())
        assert not server.complete

    asyncio.run(main())


def test_the_reason_of_a_refusal_is_for_the_log_only() -> None:
    async def main() -> None:
        mechanism: SaslMechanism = await configured()
        subject = SaslServerAuthenticator({"OAUTHBEARER": mechanism}, {})
        subject.handshake("OAUTHBEARER", 1)
        answer = await subject.token(ClientFirstMessage(unsigned({"exp": 5})).encode(), 2)
        assert (answer.outcome, answer.auth_bytes) == (Outcome.CONTINUE, b'{"status":"invalid_token"}')
        answer = await subject.token(AFTER_ERROR, 2)
        assert (answer.outcome, answer.message) == (Outcome.FAILED, '{"status":"invalid_token"}')
        assert answer.reason is not None
        assert "The token has expired" in answer.reason

    asyncio.run(main())


# --- unsecured tokens ---------------------------------------------------------------------------------------------


def test_unsecured_tokens_are_the_default_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        for keys in ({}, {HANDLER: UNSECURED_HANDLER, JWKS: "https://idp/keys"}):
            assert (await login(await configured(keys=keys), unsigned())).complete

    asyncio.run(main())
    assert caplog.text.count("accepts OAUTHBEARER tokens without a signature") == 2


def test_options_name_the_claims() -> None:
    jaas = (
        f'{MODULE} required unsecuredValidatorPrincipalClaimName="who" unsecuredValidatorScopeClaimName="what" '
        'unsecuredValidatorAllowableClockSkewMs="60000";'
    )

    async def main() -> None:
        mechanism = await configured(jaas)
        server = await login(mechanism, unsigned({"who": "bob", "what": "x", "exp": time.time() - 30}))
        assert (server.authorization_id, server.properties["scope"]) == ("bob", {"x"})
        await refusal(mechanism, unsigned({"who": "bob", "exp": time.time() - 90}))

    asyncio.run(main())


@pytest.mark.parametrize("skew", ["-1", "x", "1.5", "99999999999", "٣"])
def test_a_wrong_clock_skew_is_refused(skew: str) -> None:
    with pytest.raises(ConfigError, match="AllowableClockSkewMs must be a number of ms"):
        asyncio.run(configured(f'{MODULE} required unsecuredValidatorAllowableClockSkewMs="{skew}";'))


def test_another_login_module_is_refused() -> None:
    with pytest.raises(ConfigError, match="must have an entry of .*OAuthBearerLoginModule, not of x.Module"):
        asyncio.run(configured("x.Module required;"))


# --- a key set in a file ------------------------------------------------------------------------------------------

KEY = SigningKey("first", private=rsa_key(0))


def key_file(directory: Path, *keys: SigningKey) -> Path:
    file = directory / "keys with blank.json"
    file.write_text(json.dumps({"keys": [key.jwk() for key in keys]}))
    return file


@pytest.mark.parametrize("handler", [None, *sorted(SECURED_HANDLERS)])
def test_a_file_has_the_keys(tmp_path: Path, handler: str | None) -> None:
    keys = {JWKS: key_file(tmp_path, KEY).as_uri(), **({} if handler is None else {HANDLER: handler})}

    async def main() -> None:
        mechanism = await configured(keys=keys)
        assert (await login(mechanism, KEY.sign())).authorization_id == "alice"
        assert "none" in (await refusal(mechanism, unsigned()))[1]
        await mechanism.close()

    asyncio.run(main())


def test_a_new_key_in_the_file_is_found(tmp_path: Path) -> None:
    second = SigningKey("second", private=rsa_key(1))

    async def main() -> None:
        mechanism = await configured(keys={JWKS: key_file(tmp_path, KEY).as_uri()})
        key_file(tmp_path, second)
        assert (await login(mechanism, second.sign())).complete
        assert "Unable to find" in (await refusal(mechanism, KEY.sign()))[1]
        await mechanism.close()

    asyncio.run(main())


def test_the_keys_of_the_configuration_reach_the_validator(tmp_path: Path) -> None:
    keys = {
        JWKS: key_file(tmp_path, KEY).as_uri(),
        "sasl.oauthbearer.expected.audience": "kafka,other",
        "sasl.oauthbearer.expected.issuer": "https://idp",
        "sasl.oauthbearer.clock.skew.seconds": "5",
        "sasl.oauthbearer.sub.claim.name": "who",
        "sasl.oauthbearer.scope.claim.name": "what",
    }
    now = int(time.time())
    good = {"aud": "kafka", "iss": "https://idp", "who": "bob", "what": ["a"]}

    async def main() -> None:
        mechanism = await configured(keys=keys)
        server = await login(mechanism, KEY.sign(good))
        assert (server.authorization_id, server.properties["scope"]) == ("bob", {"a"})
        for wrong, reason in (
            ({"aud": "elsewhere"}, "Audience"),
            ({"iss": "https://evil"}, "Issuer"),
            ({"who": None}, "who value"),
            ({"what": ["a", "a"]}, "duplicates"),
            ({"iat": now - 60, "exp": now - 10}, "expired"),
        ):
            answer, why = await refusal(mechanism, KEY.sign({**good, **wrong}))
            assert answer == '{"status":"invalid_token"}'
            assert reason in why
        await mechanism.close()

    asyncio.run(main())


def test_a_listener_without_audience_and_issuer_warns(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    url = key_file(tmp_path, KEY).as_uri()

    async def main() -> None:
        mechanism = await configured(keys={JWKS: url})
        await refusal(mechanism, KEY.sign({"aud": "kafka"}))
        await mechanism.close()
        assert "tokens that name an audience are refused" in caplog.text
        assert "tokens of every issuer are accepted" in caplog.text
        caplog.clear()
        allowed = {f"sasl.oauthbearer.allow.unverified.{name}": "true" for name in ("audience", "issuer")}
        mechanism = await configured(keys={JWKS: url, **allowed})
        assert (await login(mechanism, KEY.sign({"aud": "kafka"}))).complete
        await mechanism.close()
        assert caplog.text == ""

    asyncio.run(main())


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({HANDLER: next(iter(SECURED_HANDLERS))}, "must be set for the OAuthBearerValidatorCallbackHandler"),
        ({JWKS: "ftp://idp/keys"}, "must be a URL of https, http or file"),
        ({JWKS: "idp/keys"}, "must be a URL of https, http or file"),
        ({JWKS: "https://"}, "must be a URL of https, http or file"),
        ({JWKS: "https://[idp/keys"}, "is no URL"),
        ({JWKS: "file://host/keys"}, "must name an absolute path of this machine"),
        ({JWKS: "file:keys"}, "must name an absolute path of this machine"),
        ({JWKS: "file:///none/keys.json"}, "the file cannot be read: No such file"),
        ({JWKS: "file:///"}, "the file cannot be read: Is a directory"),
    ],
)
def test_wrong_key_sets_are_refused(keys: dict[str, str], reason: str) -> None:
    quick = {"sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "0", **keys}
    with pytest.raises(ConfigError, match=reason) as raised:
        asyncio.run(configured(keys=quick))
    assert "listener.name.sasl_plaintext.oauthbearer.sasl.oauthbearer.jwks.endpoint.url" in str(raised.value)


def test_a_file_that_is_no_key_set_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    for content, reason in ((b"{", "no valid JSON"), (b" " * (MOST_DOCUMENT_BYTES + 1), "more than")):
        file.write_bytes(content)
        keys = {JWKS: file.as_uri(), "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "0"}
        with pytest.raises(ConfigError, match=reason):
            asyncio.run(configured(keys=keys))


# --- a real endpoint over https -----------------------------------------------------------------------------------


@pytest.fixture
def provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[IdentityProvider]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    with identity_provider(tmp_path) as running:
        running.keys = [SigningKey("key-0", private=rsa_key(0))]
        yield running


def trusting(provider: IdentityProvider, more: str = "") -> str:
    return (
        f'{MODULE} required ssl.truststore.type="PEM" ssl.truststore.location="{provider.ca_file}" {more};'
    )


def endpoint(provider: IdentityProvider, **more: str) -> dict[str, str]:
    quick = {"sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "0"}
    return {JWKS: provider.jwks_url, **quick, **{name.replace("_", "."): value for name, value in more.items()}}


def test_keys_rotate_without_a_refused_token(provider: IdentityProvider) -> None:
    """The provider publishes a key before it signs with it; tokens of old keys stay good while they are published."""

    async def main() -> None:
        mechanism = await configured(trusting(provider), endpoint(provider))
        signed = 0
        for number in range(1, 4):
            provider.keys.append(SigningKey(f"key-{number}", private=rsa_key(number % 3)))
            del provider.keys[:-2]
            tokens = [key.sign({"sub": f"user{number}"}) for key in provider.keys for _ in range(10)]
            servers = await asyncio.gather(*(login(mechanism, token) for token in tokens))
            assert {server.authorization_id for server in servers} == {f"user{number}"}
            signed += len(tokens)
        assert signed == 60
        assert provider.count("/jwks") == 4
        await mechanism.close()

    asyncio.run(main())


def test_unknown_keys_cause_few_reads(provider: IdentityProvider) -> None:
    evil = SigningKey("evil", private=rsa_key(2))

    async def main() -> None:
        mechanism = await configured(trusting(provider), endpoint(provider))
        tokens = [evil.sign(kid=f"evil-{number % 10}") for number in range(200)]
        refused = await asyncio.gather(*(refusal(mechanism, token) for token in tokens))
        assert all("Unable to find" in reason for _, reason in refused)
        assert provider.count("/jwks") == 2
        for token in tokens:
            await refusal(mechanism, token)
        assert provider.count("/jwks") == 2
        await mechanism.close()

    asyncio.run(main())


def test_a_broken_endpoint_keeps_the_keys(provider: IdentityProvider, caplog: pytest.LogCaptureFixture) -> None:
    good, new = provider.keys[0], SigningKey("new", private=rsa_key(1))

    async def main() -> None:
        mechanism = await configured(trusting(provider), endpoint(provider))
        provider.answers = [(500, {}, b"out of order")]
        await refusal(mechanism, new.sign())
        assert (await login(mechanism, good.sign())).complete
        await mechanism.close()

    asyncio.run(main())
    assert "the endpoint answered with the status 500" in caplog.text


def test_an_endpoint_that_fails_for_a_moment_is_asked_again(provider: IdentityProvider) -> None:
    provider.answers = [(503, {}, b""), (200, {}, b"<html>")]
    keys = {
        JWKS: provider.jwks_url,
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "1",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "60000",
    }

    async def main() -> None:
        mechanism = await configured(trusting(provider), keys)
        assert (await login(mechanism, provider.keys[0].sign())).complete
        assert provider.count("/jwks") == 3
        await mechanism.close()

    asyncio.run(main())


def test_an_endpoint_with_another_certificate_is_refused(provider: IdentityProvider) -> None:
    for jaas in (f"{MODULE} required;", f'{MODULE} required ssl.keystore.type="PEM";'):
        with pytest.raises(ConfigError, match="CERTIFICATE_VERIFY_FAILED"):
            asyncio.run(configured(jaas, endpoint(provider)))
    assert provider.count("/jwks") == 0


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((200, {}, b'{"keys":[' + b",".join([b"{}"] * 1_000_000) + b"]}"), "more than 1048576 bytes"),
        ((200, {}, b'{"keys":[' + b",".join([b"{}"] * 2000) + b"]}"), "has 2000 keys, more than 1000"),
        ((200, {}, b"[" * 100_000), "no valid JSON"),
        ((404, {}, b""), "status 404"),
        ((302, {"Location": "http://127.0.0.1:1/jwks"}, b""), "redirects to another scheme"),
        ((302, {"Location": "file:///etc/passwd"}, b""), "redirects to another scheme"),
        ((302, {"Location": "https://127.0.0.1:1/jwks"}, b""), "Connection refused"),
    ],
)
def test_hostile_answers_are_refused(provider: IdentityProvider, answer: Any, reason: str) -> None:
    provider.answers = [answer]
    with pytest.raises(ConfigError, match=reason):
        asyncio.run(configured(trusting(provider), endpoint(provider)))


def test_redirects_are_followed_a_few_times(provider: IdentityProvider) -> None:
    provider.answers = [(302, {"Location": "/other"}, b""), (307, {"Location": provider.jwks_url}, b"")]

    async def main() -> None:
        mechanism = await configured(trusting(provider), endpoint(provider))
        assert [path for _, path, _, _ in provider.requests] == ["/jwks", "/other", "/jwks"]
        await mechanism.close()
        provider.answers = [(302, {"Location": "/jwks"}, b"")] * 10
        with pytest.raises(ConfigError, match="redirects more than 5 times"):
            await configured(trusting(provider), endpoint(provider))

    asyncio.run(main())


def test_a_slow_endpoint_ends_with_its_timeout(provider: IdentityProvider) -> None:
    import threading

    hold = threading.Event()
    provider.answered = lambda path: hold.wait() and None
    try:
        with pytest.raises(ConfigError, match="timed out"):
            asyncio.run(configured(trusting(provider), endpoint(provider, sasl_login_read_timeout_ms="50")))
    finally:
        hold.set()


# --- plugins ------------------------------------------------------------------------------------------------------


class Handler:
    closed = False

    def configure(self, given: MechanismSettings) -> None:
        self.listener = given.listener_name

    def validate(self, token: str) -> Any:
        if token == "wrong":
            return "alice"
        if token != "opaque":
            raise TokenError("not opaque", "insufficient_scope", "all")
        return BearerToken(token, f"user of {self.listener}", None)

    def close(self) -> None:
        Handler.closed = True


class AsyncHandler(Handler):
    async def validate(self, token: str) -> Any:
        return super().validate(token)


class Plugin:
    @hookimpl
    def register_sasl_callback_handlers(self) -> Mapping[str, Any]:
        class Without:
            def configure(self, given: MechanismSettings) -> None: ...

            def close(self) -> None: ...

        return {"opaque": Handler, "async": AsyncHandler, "without": Without}


def plugins() -> PluginManager:
    manager = PluginManager.load()
    manager.register(Plugin(), "test")
    return manager


@pytest.mark.parametrize("name", ["opaque", "async"])
def test_a_plugin_checks_tokens(name: str) -> None:
    async def main() -> None:
        Handler.closed = False
        mechanism = await configured(keys={HANDLER: name}, plugins=plugins())
        server = await login(mechanism, "opaque")
        assert (server.authorization_id, server.session_expires_ms) == ("user of SASL_PLAINTEXT", None)
        answer, reason = await refusal(mechanism, "other")
        assert (json.loads(answer)["scope"], reason) == ("all", "the token is refused: not opaque")
        with pytest.raises(SaslError, match="gives no BearerToken"):
            await login(mechanism, "wrong")
        await mechanism.close()
        assert Handler.closed

    asyncio.run(main())


def test_a_plugin_without_the_method_is_refused() -> None:
    with pytest.raises(PluginError, match="has no method validate"):
        asyncio.run(configured(keys={HANDLER: "without"}, plugins=plugins()))
    with pytest.raises(ConfigError, match=r"callback\.handler\.class"):
        asyncio.run(configured(keys={HANDLER: "unknown"}, plugins=plugins()))
