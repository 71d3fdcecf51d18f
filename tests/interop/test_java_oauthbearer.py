"""The Java clients of Apache Kafka over OAUTHBEARER and GSSAPI (make interop-java)."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker.sasl_broker import sasl_config
from identity_provider import IdentityProvider, identity_provider
from interop.conftest import JAVA
from interop.conftest import run_java as run
from kerberos_realm import REALM, Realm, kerberos_realm, needs_kerberos
from peers.apache_kafka import java

from kafkapy.broker.server import KafkaServer

pytestmark = JAVA

OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
KERBEROS_MODULE = "com.sun.security.auth.module.Krb5LoginModule"
OLD_HANDLER = "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler"
HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
LINES = [f"value {number}" for number in range(50)]
_names = itertools.count(1)


@pytest.fixture
def topic() -> str:
    return f"java-login-{next(_names)}"


def produce_and_consume(version: str, bootstrap: str, topic: str, config: Path, options: tuple[str, ...]) -> list[str]:
    """The lines that a consumer of a group reads after a producer wrote them."""
    producer = "kafka.tools.ConsoleProducer" if version.startswith("3") else "org.apache.kafka.tools.ConsoleProducer"
    run(
        version, producer, "--bootstrap-server", bootstrap, "--topic", topic, "--producer.config", str(config),
        data="\n".join(LINES) + "\n", options=options,
    )  # fmt: skip
    return run(
        version, "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", bootstrap, "--topic", topic,
        "--consumer.config", str(config), "--group", topic, "--from-beginning", "--max-messages", str(len(LINES)),
        "--timeout-ms", "120000", options=options,
    ).splitlines()  # fmt: skip


def refused(version: str, bootstrap: str, config: Path, options: tuple[str, ...]) -> str:
    """The output of a tool that is not let in."""
    command = java(
        version, "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", bootstrap, "--list",
        "--command-config", str(config), options=options,
    )  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert done.returncode != 0
    return done.stdout + done.stderr


# --- OAUTHBEARER --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IdentityProvider]:
    with identity_provider(tmp_path_factory.mktemp("idp")) as running:
        running.token_claims = {"aud": "kafka", "iss": "https://idp"}
        yield running


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory, provider: IdentityProvider) -> Iterator[str]:
    """The address of a broker that the provider's tokens open."""
    trusted = f'ssl.truststore.type="PEM" ssl.truststore.location="{provider.ca_file}"'
    keys = {
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": f"{OAUTH_MODULE} required {trusted};",
        "sasl.oauthbearer.jwks.endpoint.url": provider.jwks_url,
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.expected.issuer": "https://idp",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:admin;User:alice",
    }
    with KafkaServer(sasl_config(tmp_path_factory.mktemp("oauth"), keys)) as server:
        yield f"127.0.0.1:{server.endpoints[0].port}"


def by_credentials(directory: Path, version: str, provider: IdentityProvider) -> tuple[Path, tuple[str, ...]]:
    """The properties of a client that asks the token endpoint, and the options of its process."""
    trusted = f'ssl.truststore.type="PEM" ssl.truststore.location="{provider.ca_file}"'
    path = directory / "oauth.properties"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.login.callback.handler.class={OLD_HANDLER if version.startswith('3') else HANDLER}\n"
        f"sasl.oauthbearer.token.endpoint.url={provider.token_url}\n"
        f'sasl.jaas.config={OAUTH_MODULE} required clientId="me" clientSecret="secret" {trusted};\n'
    )
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={provider.token_url}"
    return path, ("-Xmx256m", allowed)


def test_tokens_of_the_endpoint_let_java_clients_in(
    version: str, tokens: str, topic: str, tmp_path: Path, provider: IdentityProvider
) -> None:
    config, options = by_credentials(tmp_path, version, provider)
    assert produce_and_consume(version, tokens, topic, config, options) == LINES


def test_a_java_client_authenticates_again_before_its_token_ends(
    version: str, tokens: str, topic: str, tmp_path: Path, provider: IdentityProvider
) -> None:
    config, options = by_credentials(tmp_path, version, provider)
    with config.open("a") as file:
        file.write("sasl.login.refresh.min.period.seconds=0\nsasl.login.refresh.buffer.seconds=0\n")
    before, provider.token_lifetime_s = provider.count("/token"), 8
    try:
        out = run(
            version, "org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--num-records", "2000",
            "--throughput", "100", "--record-size", "100", "--producer.config", str(config),
            "--producer-props", f"bootstrap.servers={tokens}", "acks=all", "retries=0", options=options,
        )  # fmt: skip
    finally:
        provider.token_lifetime_s = 3600
    assert "2000 records sent" in out
    assert "Exception" not in out
    assert provider.count("/token") > before + 1


def test_a_refused_token_is_told_to_java_clients(
    version: str, tokens: str, tmp_path: Path, provider: IdentityProvider
) -> None:
    config, options = by_credentials(tmp_path, version, provider)
    usual, provider.token_claims = provider.token_claims, {"aud": "elsewhere", "iss": "https://idp"}
    try:
        assert '{"status":"invalid_token"}' in refused(version, tokens, config, options)
    finally:
        provider.token_claims = usual


def test_an_unsecured_token_of_java_is_refused(version: str, tokens: str, tmp_path: Path) -> None:
    config = tmp_path / "unsecured.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f'sasl.jaas.config={OAUTH_MODULE} required unsecuredLoginStringClaim_sub="alice";\n'
    )
    assert '{"status":"invalid_token"}' in refused(version, tokens, config, ("-Xmx256m",))


def test_a_broker_for_development_takes_unsecured_tokens_of_java(version: str, topic: str, tmp_path: Path) -> None:
    keys = {
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": (
            f'{OAUTH_MODULE} required unsecuredValidatorRequiredScope="kafka";'
        ),
    }
    config = tmp_path / "unsecured.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f'sasl.jaas.config={OAUTH_MODULE} required unsecuredLoginStringClaim_sub="alice" '
        'unsecuredLoginListClaim_scope=",kafka,more" unsecuredLoginExtension_traceId="7";\n'
    )
    with KafkaServer(sasl_config(tmp_path / "data", keys)) as server:
        bootstrap = f"127.0.0.1:{server.endpoints[0].port}"
        assert produce_and_consume(version, bootstrap, topic, config, ("-Xmx256m",)) == LINES
        config.write_text(config.read_text().replace(",kafka,more", ",more"))
        assert "insufficient_scope" in refused(version, bootstrap, config, ("-Xmx256m",))


# --- GSSAPI -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    with kerberos_realm(tmp_path_factory.mktemp("realm")) as realm, pytest.MonkeyPatch.context() as patch:
        for name, value in realm.environment.items():
            patch.setenv(name, value)
        # Java asks for the name that the address has.
        for principal in ("kafka/localhost", "alice", "mallory"):
            realm.add(principal)
        yield realm


@pytest.fixture(scope="module")
def kerberized(tmp_path_factory: pytest.TempPathFactory, realm: Realm) -> Iterator[str]:
    """The address of a broker that tickets open."""
    keytab = realm.directory / "kafka_localhost.keytab"
    keys = {
        "sasl.enabled.mechanisms": "PLAIN,GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": (
            f'{KERBEROS_MODULE} required useKeyTab=true storeKey=true keyTab="{keytab}" '
            f'principal="kafka/localhost@{REALM}";'
        ),
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:admin;User:alice",
    }
    with KafkaServer(sasl_config(tmp_path_factory.mktemp("kerberos"), keys)) as server:
        yield f"localhost:{server.endpoints[0].port}"


def by_keytab(directory: Path, realm: Realm, principal: str) -> tuple[Path, tuple[str, ...]]:
    """The properties of a client with a keytab, and the options of its process."""
    keytab = realm.directory / f"{principal}.keytab"
    path = directory / f"{principal}.properties"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\nsasl.kerberos.service.name=kafka\n"
        f'sasl.jaas.config={KERBEROS_MODULE} required useKeyTab=true storeKey=true keyTab="{keytab}" '
        f'principal="{principal}@{REALM}";\n'
    )
    return path, ("-Xmx256m", f"-Djava.security.krb5.conf={realm.directory / 'krb5.conf'}")


@needs_kerberos
def test_tickets_let_java_clients_in(version: str, kerberized: str, topic: str, tmp_path: Path, realm: Realm) -> None:
    config, options = by_keytab(tmp_path, realm, "alice")
    assert produce_and_consume(version, kerberized, topic, config, options) == LINES


@needs_kerberos
def test_the_ticket_of_java_decides_the_principal(
    version: str, kerberized: str, topic: str, tmp_path: Path, realm: Realm
) -> None:
    """Only alice may create topics."""
    config, options = by_keytab(tmp_path, realm, "mallory")
    command = java(
        version, "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", kerberized, "--create", "--topic", topic,
        "--command-config", str(config), options=options,
    )  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert "Authorization failed" in done.stdout + done.stderr or "Not authorized" in done.stdout + done.stderr
