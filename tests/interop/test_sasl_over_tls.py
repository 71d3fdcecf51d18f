"""Foreign clients over SASL_SSL, and a broker whose listeners have mechanisms and users of their own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin
import pytest
from broker.sasl_broker import LISTENER, add_scram_user, handshake, log_in_plain, open_connection, sasl_config
from certificates import localhost, shared_ca
from identity_provider import IdentityProvider, identity_provider
from interop.login_driver import (
    RECORDS,
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
from kerberos_realm import REALM, Realm, kerberos_realm, needs_kerberos

from kafkapy.broker.server import KafkaServer
from kafkapy.errors import ErrorCode

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
ROUNDS = [aiokafka_round, kafka_python_round, kafkapy_aio_round, kafkapy_round]
LOGINS = [("PLAIN", "safe", "safe-secret"), ("SCRAM-SHA-512", "scram", "pencil")]
_names = itertools.count(1)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tls")
    (made / "trusted.pem").write_bytes(shared_ca().pem)
    (made / "broker.pem").write_bytes(localhost().key_pem + localhost().chain_pem)
    return made


def safe_keys(directory: Path) -> dict[str, str]:
    """The keys of a broker whose second listener is SASL_SSL."""
    return {
        "listeners": f"{LISTENER}://127.0.0.1:0,SAFE://localhost:0",
        "listener.security.protocol.map": f"{LISTENER}:SASL_PLAINTEXT,SAFE:SASL_SSL",
        "listener.name.safe.ssl.keystore.type": "PEM",
        "listener.name.safe.ssl.keystore.location": str(directory / "broker.pem"),
    }


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IdentityProvider]:
    with pytest.MonkeyPatch.context() as patch, identity_provider(tmp_path_factory.mktemp("idp")) as running:
        patch.setenv("NO_PROXY", "127.0.0.1,localhost")
        yield running


def signed(provider: IdentityProvider) -> str:
    return provider.keys[-1].sign({"aud": "kafka"})


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    with kerberos_realm(tmp_path_factory.mktemp("realm")) as running, pytest.MonkeyPatch.context() as patch:
        for name, value in running.environment.items():
            patch.setenv(name, value)
        for principal in ("kafka/localhost", "alice"):
            running.add(principal)
        yield running


@pytest.fixture(scope="module")
def server(directory: Path, provider: IdentityProvider) -> Iterator[KafkaServer]:
    keys = safe_keys(directory) | {
        "listener.name.safe.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.safe.plain.sasl.jaas.config": f'{MODULE} required user_safe="safe-secret";',
        "listener.name.safe.oauthbearer.sasl.jaas.config": (
            f'{OAUTH_MODULE} required ssl.truststore.type="PEM" ssl.truststore.location="{provider.ca_file}";'
        ),
        "sasl.oauthbearer.jwks.endpoint.url": provider.jwks_url,
        "sasl.oauthbearer.expected.audience": "kafka",
    }
    with KafkaServer(sasl_config(directory / "data", keys)) as started:
        add_scram_user(started, "scram", "pencil")
        yield started


@pytest.fixture
def bootstrap(server: KafkaServer) -> str:
    return f"localhost:{server.endpoints[1].port}"


@pytest.fixture
def topic() -> str:
    return f"safe-{next(_names)}"


Passwords = tuple[str, str, str]


@pytest.mark.parametrize("login", LOGINS, ids=lambda login: login[0])
def test_confluent_kafka(bootstrap: str, directory: Path, topic: str, login: Passwords) -> None:
    mechanism, user, password = login
    trusted = directory / "trusted.pem"
    settings = confluent_keys(bootstrap, mechanism, user=user, password=password, trusted=trusted)
    assert confluent_round(settings, topic, transactional=True) == RECORDS


@pytest.mark.parametrize("login", LOGINS, ids=lambda login: login[0])
@pytest.mark.parametrize("round_of", ROUNDS, ids=lambda each: each.__name__)
def test_python_clients(
    bootstrap: str, directory: Path, topic: str, round_of: Callable[..., list[bytes]], login: Passwords
) -> None:
    mechanism, user, password = login
    trusted = directory / "trusted.pem"
    settings = pythonic_keys(bootstrap, mechanism, user=user, password=password, trusted=trusted)
    assert round_of(settings, topic) == RECORDS


# --- OAUTHBEARER --------------------------------------------------------------------------------------------------


def test_confluent_kafka_with_a_token(bootstrap: str, directory: Path, topic: str, provider: IdentityProvider) -> None:
    settings = confluent_keys(bootstrap, "OAUTHBEARER", token=signed(provider), trusted=directory / "trusted.pem")
    assert confluent_round(settings, topic, transactional=True) == RECORDS


@pytest.mark.parametrize("round_of", ROUNDS, ids=lambda each: each.__name__)
def test_python_clients_with_a_token(
    bootstrap: str, directory: Path, topic: str, provider: IdentityProvider, round_of: Callable[..., list[bytes]]
) -> None:
    blocking = round_of in (kafka_python_round, kafkapy_round)
    tokens = Tokens(signed(provider)) if blocking else AsyncTokens(signed(provider))
    settings = pythonic_keys(
        bootstrap, "OAUTHBEARER", sasl_oauth_token_provider=tokens, trusted=directory / "trusted.pem"
    )
    assert round_of(settings, topic) == RECORDS


# --- GSSAPI -------------------------------------------------------------------------------------------------------


@needs_kerberos
@pytest.mark.parametrize("round_of", ROUNDS, ids=lambda each: each.__name__)
def test_python_clients_with_a_ticket(
    directory: Path,
    topic: str,
    realm: Realm,
    monkeypatch: pytest.MonkeyPatch,
    round_of: Callable[..., list[bytes]],
) -> None:
    """confluent-kafka's wheel has no Kerberos."""
    cache = realm.kinit(f"alice@{REALM}", realm.directory / "alice.keytab")
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{cache}")
    jaas = (
        f"com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
        f'keyTab="{realm.directory}/kafka_localhost.keytab" principal="kafka/localhost@{REALM}";'
    )
    keys = safe_keys(directory) | {
        "listener.name.safe.sasl.enabled.mechanisms": "GSSAPI",
        "listener.name.safe.gssapi.sasl.jaas.config": jaas,
        "sasl.kerberos.service.name": "kafka",
    }
    with KafkaServer(sasl_config(directory / f"kerberos-{topic}", keys)) as server:
        settings = pythonic_keys(
            f"localhost:{server.endpoints[1].port}",
            "GSSAPI",
            sasl_kerberos_service_name="kafka",
            sasl_kerberos_domain_name="localhost",
            trusted=directory / "trusted.pem",
        )
        assert round_of(settings, topic) == RECORDS


def test_users_and_mechanisms_belong_to_their_listener(server: KafkaServer, bootstrap: str, directory: Path) -> None:
    client = open_connection(server)
    assert log_in_plain(client, "safe", "safe-secret").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    client.close()
    client = open_connection(server)
    assert handshake(client, "SCRAM-SHA-256").mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
    client.close()
    for mechanism, user, password in (("PLAIN", "alice", "wonder"), ("SCRAM-SHA-256", "scram", "pencil")):
        keys = confluent_keys(bootstrap, mechanism, user=user, password=password, trusted=directory / "trusted.pem")
        admin = confluent_kafka.admin.AdminClient(keys | {"log_level": 0})
        with pytest.raises(confluent_kafka.KafkaException):
            admin.list_topics(timeout=2)
