"""Clients of four libraries over OAUTHBEARER, whose tokens the keys of a real https endpoint verify."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Iterator
from typing import Any

import aiokafka
import aiokafka.errors
import confluent_kafka
import confluent_kafka.admin
import kafka
import kafka.errors
import pytest
from broker.sasl_broker import sasl_config
from identity_provider import IdentityProvider, SigningKey, identity_provider, rsa_key
from interop.login_driver import (
    RECORDS,
    TIMEOUT_S,
    AsyncTokens,
    Tokens,
    aiokafka_round,
    confluent_keys,
    confluent_round,
    kafka_python_round,
    kafkapy_aio_round,
    kafkapy_round,
    pythonic_keys,
)
from waiting import wait_until

import kafkapy
from kafkapy.broker.server import KafkaServer
from kafkapy.errors import SaslAuthenticationFailedError, TopicAuthorizationFailedError

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_names = itertools.count(1)


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IdentityProvider]:
    with pytest.MonkeyPatch.context() as patch, identity_provider(tmp_path_factory.mktemp("idp")) as running:
        patch.setenv("NO_PROXY", "127.0.0.1,localhost")
        running.token_claims = {"aud": "kafka", "iss": "https://idp"}
        yield running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, provider: IdentityProvider) -> Iterator[KafkaServer]:
    trusted = f'ssl.truststore.type="PEM" ssl.truststore.location="{provider.ca_file}"'
    keys = {
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": f"{MODULE} required {trusted};",
        "listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
        ),
        "sasl.oauthbearer.jwks.endpoint.url": provider.jwks_url,
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.expected.issuer": "https://idp",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:admin;User:alice",
    }
    with KafkaServer(sasl_config(tmp_path_factory.mktemp("oauth"), keys)) as started:
        yield started


@pytest.fixture
def bootstrap(server: KafkaServer) -> str:
    return f"127.0.0.1:{server.endpoints[0].port}"


@pytest.fixture
def topic() -> str:
    return f"oauth-{next(_names)}"


def signed(provider: IdentityProvider, **claims: Any) -> str:
    return provider.keys[-1].sign({**provider.token_claims, **claims})


# --- foreign clients ----------------------------------------------------------------------------------------------


def confluent(bootstrap: str, token: str) -> dict[str, Any]:
    return confluent_keys(bootstrap, "OAUTHBEARER", token=token)


def pythonic(bootstrap: str, tokens: Any) -> dict[str, Any]:
    return pythonic_keys(bootstrap, "OAUTHBEARER", sasl_oauth_token_provider=tokens)


def test_confluent_kafka(bootstrap: str, topic: str, provider: IdentityProvider) -> None:
    assert confluent_round(confluent(bootstrap, signed(provider)), topic, transactional=True) == RECORDS


def test_kafka_python(bootstrap: str, topic: str, provider: IdentityProvider) -> None:
    assert kafka_python_round(pythonic(bootstrap, Tokens(signed(provider))), topic) == RECORDS


def test_aiokafka(bootstrap: str, topic: str, provider: IdentityProvider) -> None:
    assert aiokafka_round(pythonic(bootstrap, AsyncTokens(signed(provider))), topic) == RECORDS


# --- ours ---------------------------------------------------------------------------------------------------------


def by_endpoint(bootstrap: str, provider: IdentityProvider, **keys: Any) -> dict[str, Any]:
    """Client credentials, as a properties file of Java has them."""
    trusted = f'ssl.truststore.type="PEM" ssl.truststore.location="{provider.ca_file}"'
    return {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_jaas_config": f'{MODULE} required clientId="me" clientSecret="secret" {trusted};',
        "sasl_oauthbearer_token_endpoint_url": provider.token_url,
        **keys,
    }


def test_kafkapy(bootstrap: str, topic: str, provider: IdentityProvider) -> None:
    assert kafkapy_round(by_endpoint(bootstrap, provider), topic) == RECORDS
    assert kafkapy_round(pythonic(bootstrap, Tokens(signed(provider))), f"{topic}-given") == RECORDS


def test_kafkapy_aio(bootstrap: str, topic: str, provider: IdentityProvider) -> None:
    assert kafkapy_aio_round(pythonic(bootstrap, AsyncTokens(signed(provider))), topic) == RECORDS


def test_keys_rotate_and_sessions_end_without_a_failed_request(
    bootstrap: str, topic: str, provider: IdentityProvider
) -> None:
    """Tokens live for seconds: the client fetches new ones, of new keys, and authenticates its connections again."""
    before = provider.count("/token")
    provider.token_lifetime_s = 8
    settings = by_endpoint(
        bootstrap,
        provider,
        sasl_login_refresh_min_period_seconds=0,
        sasl_login_refresh_buffer_seconds=0,
        retries=0,
    )
    sent, rotated = 0, before
    try:
        with kafkapy.KafkaProducer(**settings) as producer:
            while provider.count("/token") < before + 3:
                producer.send(topic, b"%d" % sent).get(TIMEOUT_S)
                sent += 1
                if provider.count("/token") > rotated:
                    rotated = provider.count("/token")
                    provider.keys.append(SigningKey(f"rotated-{rotated}", private=rsa_key(rotated % 3)))
            for number in range(20):
                producer.send(topic, b"%d" % (sent + number)).get(TIMEOUT_S)
    finally:
        provider.token_lifetime_s = 3600
    assert rotated > before
    consumer = kafkapy.KafkaConsumer(
        topic,
        **by_endpoint(bootstrap, provider),
        auto_offset_reset="earliest",
        group_id=None,
        consumer_timeout_ms=TIMEOUT_S * 1000,
    )
    received = [int(record.value) for record in itertools.islice(consumer, sent + 20)]
    consumer.close()
    assert received == list(range(sent + 20))


# --- refusals -----------------------------------------------------------------------------------------------------


def forged(provider: IdentityProvider) -> dict[str, str]:
    evil = SigningKey("evil", private=rsa_key(2, 3072))
    header, payload, signature = signed(provider).split(".")
    return {
        "of an unknown key": evil.sign(provider.token_claims),
        "of another key under a known id": evil.sign(provider.token_claims, kid=provider.keys[-1].id),
        "for another audience": signed(provider, aud="elsewhere"),
        "of another issuer": signed(provider, iss="https://evil"),
        "expired": signed(provider, iat=1_000_000, exp=1_000_060),
        "without a signature": f"{header}.{payload}.",
        "changed": f"{header}.{payload[:-2]}AA.{signature}",
        "no JSON web token": "opaque",
    }


NAMES = (
    "of an unknown key",
    "of another key under a known id",
    "for another audience",
    "of another issuer",
    "expired",
    "without a signature",
    "changed",
    "no JSON web token",
)


@pytest.mark.parametrize("name", NAMES)
def test_a_refused_token_is_told_to_our_clients(bootstrap: str, provider: IdentityProvider, name: str) -> None:
    token = forged(provider)[name]
    with pytest.raises(SaslAuthenticationFailedError, match=r"refused authentication by OAUTHBEARER.*invalid_token"):
        # A provider that does not say when its token ends: the client cannot know that it has.
        kafkapy.KafkaConsumer(
            "t", **pythonic(bootstrap, lambda: (token, time.time() + 60)), api_version=None
        ).partitions_for_topic("t")


def test_a_refused_token_is_told_to_foreign_clients(bootstrap: str, provider: IdentityProvider) -> None:
    token = forged(provider)["of an unknown key"]
    told: list[Any] = []
    client = confluent_kafka.admin.AdminClient(
        confluent(bootstrap, token) | {"error_cb": lambda error: told.append(error.code()), "log_level": 0}
    )
    deadline = time.monotonic() + TIMEOUT_S
    while confluent_kafka.KafkaError._AUTHENTICATION not in told and time.monotonic() < deadline:
        client.poll(0.1)
    del client
    assert confluent_kafka.KafkaError._AUTHENTICATION in told
    with pytest.raises(kafka.errors.KafkaError):
        kafka.KafkaProducer(**pythonic(bootstrap, Tokens(token)), bootstrap_timeout_ms=2000)

    async def run() -> None:
        producer = aiokafka.AIOKafkaProducer(**pythonic(bootstrap, AsyncTokens(token)))
        try:
            with pytest.raises((aiokafka.errors.AuthenticationFailedError, aiokafka.errors.KafkaConnectionError)):
                await producer.start()
        finally:
            await producer.stop()

    asyncio.run(run())


def test_the_subject_is_the_principal(bootstrap: str, topic: str, provider: IdentityProvider) -> None:
    """Only alice may write."""
    settings = pythonic(bootstrap, Tokens(signed(provider, sub="mallory")))
    with kafkapy.KafkaProducer(**settings) as producer, pytest.raises(TopicAuthorizationFailedError):
        producer.send(topic, b"x").get(TIMEOUT_S)


def test_the_reason_is_in_the_brokers_log(
    bootstrap: str, provider: IdentityProvider, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kafka")
    with pytest.raises(SaslAuthenticationFailedError):
        kafkapy.KafkaProducer(**pythonic(bootstrap, Tokens(signed(provider, aud="elsewhere"))))
    reason = "Audience (aud) claim names none of the expected audiences"
    wait_until(lambda: reason in caplog.text, "the broker logs the reason")
    assert signed(provider)[:40] not in caplog.text
