"""Our clients log in to Apache Kafka by OAUTHBEARER and GSSAPI, with and without TLS (make interop-java)."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from certificates import localhost, shared_ca
from identity_provider import IdentityProvider, identity_provider
from interop.conftest import JAVA, with_jars
from interop.login_driver import (
    RECORDS,
    AsyncTokens,
    Tokens,
    kafkapy_aio_round,
    kafkapy_round,
    pythonic_keys,
)
from kerberos_realm import REALM, Realm, kerberos_realm, needs_kerberos
from peers.apache_kafka import VERSIONS, ApacheKafka, free_port

import kafkapy
from kafkapy.errors import SaslAuthenticationFailedError

pytestmark = [*JAVA, needs_kerberos]

OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
KERBEROS_MODULE = "com.sun.security.auth.module.Krb5LoginModule"
PACKAGE = "org.apache.kafka.common.security.oauthbearer"
CLAIMS = {"aud": "kafka", "iss": "https://idp"}
ROUNDS = [kafkapy_aio_round, kafkapy_round]
LISTENERS = ("OPEN", "SAFE")
_names = itertools.count(1)


class Peer(NamedTuple):
    """Apache Kafka with a listener of SASL_PLAINTEXT (OPEN) and one of SASL_SSL (SAFE)."""

    ports: dict[str, int]
    directory: Path

    def login(self, listener: str, mechanism: str, **keys: Any) -> dict[str, Any]:
        trusted = self.directory / "trusted.pem" if listener == "SAFE" else None
        return pythonic_keys(f"localhost:{self.ports[listener]}", mechanism, trusted=trusted, **keys)


@pytest.fixture
def topic() -> str:
    return f"ours-{next(_names)}"


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IdentityProvider]:
    with pytest.MonkeyPatch.context() as patch, identity_provider(tmp_path_factory.mktemp("idp")) as running:
        patch.setenv("NO_PROXY", "127.0.0.1,localhost")
        running.token_claims = dict(CLAIMS)
        yield running


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    with kerberos_realm(tmp_path_factory.mktemp("realm")) as running, pytest.MonkeyPatch.context() as patch:
        for name, value in running.environment.items():
            patch.setenv(name, value)
        for principal in ("kafka/localhost", "alice"):
            running.add(principal)
        yield running


@pytest.fixture(scope="module", params=sorted(VERSIONS))
def peer(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, provider: IdentityProvider, realm: Realm
) -> Iterator[Peer]:
    directory: Path = tmp_path_factory.mktemp("kafka")
    (directory / "trusted.pem").write_bytes(shared_ca().pem)
    (directory / "broker.pem").write_bytes(localhost().key_pem + localhost().chain_pem)
    (directory / "keys.json").write_text(json.dumps({"keys": [key.jwk() for key in provider.keys]}))
    release = with_jars(request.param)
    kafka = ApacheKafka(release, directory / "broker")
    ports = {listener: free_port() for listener in LISTENERS}
    sasl = "".join(f",{name}://localhost:{port}" for name, port in ports.items())
    handler = f"{PACKAGE}{'.secured' if release.startswith('3') else ''}.OAuthBearerValidatorCallbackHandler"
    kafka.overrides |= {
        "listeners": f"PLAINTEXT://127.0.0.1:{kafka.port},CONTROLLER://127.0.0.1:{kafka.controller_port}{sasl}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{kafka.port}{sasl}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,OPEN:SASL_PLAINTEXT,SAFE:SASL_SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER,GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{directory / 'keys.json'}",
        "sasl.oauthbearer.expected.audience": CLAIMS["aud"],
        "sasl.oauthbearer.expected.issuer": CLAIMS["iss"],
        "listener.name.safe.ssl.keystore.type": "PEM",
        "listener.name.safe.ssl.keystore.location": str(directory / "broker.pem"),
    }
    for listener in LISTENERS:
        prefix = f"listener.name.{listener.lower()}."
        kafka.overrides |= {
            f"{prefix}oauthbearer.sasl.jaas.config": f"{OAUTH_MODULE} required;",
            f"{prefix}oauthbearer.sasl.server.callback.handler.class": handler,
            f"{prefix}gssapi.sasl.jaas.config": (
                f"{KERBEROS_MODULE} required useKeyTab=true storeKey=true "
                f'keyTab="{realm.directory}/kafka_localhost.keytab" principal="kafka/localhost@{REALM}";'
            ),
        }
    kafka.options = [
        f"-Djava.security.krb5.conf={realm.directory / 'krb5.conf'}",
        f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=file://{directory / 'keys.json'}",
    ]
    try:
        kafka.start()
        yield Peer(ports, directory)
    finally:
        kafka.stop()


# --- OAUTHBEARER --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("listener", LISTENERS)
@pytest.mark.parametrize("round_of", ROUNDS, ids=lambda each: each.__name__)
def test_a_given_token(
    peer: Peer, provider: IdentityProvider, topic: str, listener: str, round_of: Callable[..., list[bytes]]
) -> None:
    signed = provider.keys[-1].sign(CLAIMS)
    tokens = Tokens(signed) if round_of is kafkapy_round else AsyncTokens(signed)
    settings = peer.login(listener, "OAUTHBEARER", sasl_oauth_token_provider=tokens)
    assert round_of(settings, topic, transactional=True) == RECORDS


@pytest.mark.parametrize("listener", LISTENERS)
def test_tokens_of_the_endpoint(peer: Peer, provider: IdentityProvider, topic: str, listener: str) -> None:
    trusted = f'ssl.truststore.type="PEM" ssl.truststore.location="{provider.ca_file}"'
    settings = peer.login(
        listener,
        "OAUTHBEARER",
        sasl_jaas_config=f'{OAUTH_MODULE} required clientId="me" clientSecret="secret" {trusted};',
        sasl_oauthbearer_token_endpoint_url=provider.token_url,
    )
    assert kafkapy_round(settings, topic) == RECORDS


def test_a_connection_authenticates_again_before_its_token_ends(
    peer: Peer, provider: IdentityProvider, topic: str
) -> None:
    trusted = f'ssl.truststore.type="PEM" ssl.truststore.location="{provider.ca_file}"'
    settings = peer.login(
        "OPEN",
        "OAUTHBEARER",
        sasl_jaas_config=f'{OAUTH_MODULE} required clientId="me" clientSecret="secret" {trusted};',
        sasl_oauthbearer_token_endpoint_url=provider.token_url,
        sasl_login_refresh_min_period_seconds=0,
        sasl_login_refresh_buffer_seconds=0,
    )
    with kafkapy.KafkaProducer(**settings) as producer:
        producer.send(topic, b"the topic is there").get(60)
    settings["retries"] = 0
    before, provider.token_lifetime_s = provider.count("/token"), 8
    sent = 0
    try:
        with kafkapy.KafkaProducer(**settings) as producer:
            while provider.count("/token") < before + 3:
                producer.send(topic, b"%d" % sent).get(30)
                sent += 1
                time.sleep(0.01)
    finally:
        provider.token_lifetime_s = 3600
    assert sent > 0


@pytest.mark.parametrize("listener", LISTENERS)
def test_a_refused_token_is_told(peer: Peer, provider: IdentityProvider, listener: str) -> None:
    token = provider.keys[-1].sign({**CLAIMS, "aud": "elsewhere"})
    settings = peer.login(listener, "OAUTHBEARER", sasl_oauth_token_provider=Tokens(token))
    with pytest.raises(SaslAuthenticationFailedError, match=r"refused authentication by OAUTHBEARER.*invalid_token"):
        kafkapy.KafkaProducer(**settings)


# --- GSSAPI -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("listener", LISTENERS)
@pytest.mark.parametrize("round_of", ROUNDS, ids=lambda each: each.__name__)
def test_a_keytab(peer: Peer, realm: Realm, topic: str, listener: str, round_of: Callable[..., list[bytes]]) -> None:
    keytab = realm.directory / "alice.keytab"
    jaas = f'{KERBEROS_MODULE} required useKeyTab=true keyTab="{keytab}" principal="alice@{REALM}";'
    settings = peer.login(listener, "GSSAPI", sasl_kerberos_service_name="kafka", sasl_jaas_config=jaas)
    assert round_of(settings, topic, transactional=True) == RECORDS


@pytest.mark.parametrize("listener", LISTENERS)
def test_a_ticket_cache(peer: Peer, realm: Realm, topic: str, listener: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = realm.kinit(f"alice@{REALM}", realm.directory / "alice.keytab")
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{cache}")
    settings = peer.login(listener, "GSSAPI", sasl_kerberos_service_name="kafka")
    assert kafkapy_round(settings, topic) == RECORDS
