"""TLS, SASL and re-authentication of the clients with brokers of Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import certificates
import pytest
from interop.conftest import JAVA, with_jars
from peers.apache_kafka import VERSIONS, ApacheKafka, free_port

from kafkapy import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafkapy.admin import ScramMechanism, UserScramCredentialUpsertion
from kafkapy.errors import SaslAuthenticationFailedError, SslAuthenticationError, UnsupportedSaslMechanismError
from kafkapy.security.jaas import PLAIN_MODULE, SCRAM_MODULE

pytestmark = JAVA

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PROTOCOLS = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
WAYS = [
    (protocol, mechanism)
    for protocol in PROTOCOLS
    for mechanism in (MECHANISMS if protocol.startswith("SASL") else (None,))
]
SESSION_MS = 2000
WAIT_S = 120


class SecuredKafka:
    """A broker with a listener of each protocol, its port by protocol, and the CA's file."""

    def __init__(self, version: str, directory: Path) -> None:
        self.broker = broker = ApacheKafka(version, directory / "data")
        self.ports = {protocol: free_port() for protocol in PROTOCOLS} | {"PLAINTEXT": broker.port}
        self.ca_file = directory / "ca.pem"
        self.ca_file.write_bytes(certificates.shared_ca().chain_pem)
        store = directory / "broker.pem"
        store.write_bytes(certificates.localhost().key_pem + certificates.localhost().chain_pem)
        listeners = ",".join(f"{protocol}://127.0.0.1:{port}" for protocol, port in self.ports.items())
        controller = f",CONTROLLER://127.0.0.1:{broker.controller_port}" if broker.with_quorum else ""
        protocols = ",".join(f"{protocol}:{protocol}" for protocol in self.ports)
        broker.overrides = {
            "listeners": listeners + controller,
            "advertised.listeners": listeners,
            "listener.security.protocol.map": f"{protocols},CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(store),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca_file),
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "connections.max.reauth.ms": str(SESSION_MS),
        }
        for protocol in ("sasl_plaintext", "sasl_ssl"):
            for mechanism in MECHANISMS:
                module = (
                    f'{PLAIN_MODULE} required user_ann="secret"' if mechanism == "PLAIN" else f"{SCRAM_MODULE} required"
                )
                key = f"listener.name.{protocol}.{mechanism.lower()}.sasl.jaas.config"
                broker.overrides[key] = f"{module};"

    def config(self, protocol: str, mechanism: str | None = None, **keys: Any) -> dict[str, Any]:
        found = {"bootstrap_servers": f"127.0.0.1:{self.ports[protocol]}", "security_protocol": protocol}
        if protocol.endswith("SSL"):
            found["ssl_cafile"] = str(self.ca_file)
        if mechanism is not None:
            found |= {"sasl_mechanism": mechanism, "sasl_plain_username": "ann", "sasl_plain_password": "secret"}
        return {**found, **keys}


@pytest.fixture(scope="module", params=sorted(VERSIONS))
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    made = SecuredKafka(with_jars(request.param), tmp_path_factory.mktemp("secured"))
    made.broker.start()
    try:
        with KafkaAdminClient(**made.config("PLAINTEXT")) as admin:
            upsertions = [
                UserScramCredentialUpsertion(user="ann", mechanism=mechanism, password="secret")
                for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
            ]
            for upsertion in upsertions:
                admin.alter_user_scram_credentials([upsertion])
        yield made
    finally:
        made.broker.kill()


@pytest.mark.parametrize(("protocol", "mechanism"), WAYS)
def test_records_groups_and_transactions(kafka: SecuredKafka, protocol: str, mechanism: str | None) -> None:
    topic = f"t-{protocol}-{mechanism}"
    config = kafka.config(protocol, mechanism)
    wanted = [b"%d" % number * 1000 for number in range(200)]
    with KafkaProducer(**config) as producer:
        for value in wanted[:100]:
            producer.send(topic, value)
    with KafkaProducer(**config, transactional_id=topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for value in wanted[100:]:
            producer.send(topic, value)
        producer.commit_transaction()
    reading = {"auto_offset_reset": "earliest", "isolation_level": "read_committed", "group_id": topic}
    with closing(KafkaConsumer(topic, **config, **reading, consumer_timeout_ms=WAIT_S * 1000)) as consumer:
        values = [next(consumer).value for _ in wanted]
        assert values == wanted
        consumer.commit()


@pytest.mark.parametrize(("protocol", "mechanism"), [way for way in WAYS if way[1] is not None])
def test_sessions_are_renewed_without_a_lost_request(kafka: SecuredKafka, protocol: str, mechanism: str) -> None:
    never_again = {"retries": 0, "enable_idempotence": False, "request_timeout_ms": WAIT_S * 1000}
    with KafkaProducer(**kafka.config(protocol, mechanism, **never_again), linger_ms=0) as producer:
        counts = producer.metrics()["producer-metrics"]
        while counts["successful-reauthentication-total"] < 2:
            producer.send("renewed", b"x").get(WAIT_S)
            counts = producer.metrics()["producer-metrics"]
        assert counts["connection-close-total"] == 0


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_raised_at_once(kafka: SecuredKafka, mechanism: str) -> None:
    with pytest.raises(SaslAuthenticationFailedError, match=mechanism):
        KafkaProducer(**kafka.config("SASL_SSL", mechanism) | {"sasl_plain_password": "wrong"})


def test_a_missing_mechanism_is_raised_with_the_others(kafka: SecuredKafka) -> None:
    config = kafka.config("SASL_SSL") | {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": lambda: "x.y.z"}
    with pytest.raises((UnsupportedSaslMechanismError, SaslAuthenticationFailedError)):
        KafkaProducer(**config)


def test_a_client_without_tls_is_told_so(kafka: SecuredKafka) -> None:
    with pytest.raises(SslAuthenticationError, match=r"set security\.protocol to SSL or SASL_SSL"):
        KafkaProducer(bootstrap_servers=f"127.0.0.1:{kafka.ports['SSL']}")


def test_an_untrusted_broker_is_refused(kafka: SecuredKafka, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    other.write_bytes(certificates.make_ca("Another").chain_pem)
    with pytest.raises(SslAuthenticationError, match="certificate"):
        KafkaProducer(**kafka.config("SSL") | {"ssl_cafile": str(other)})
