"""Secured server.properties of Apache Kafka 3.9 work as they are, with stores of keytool."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from kafkapy.broker.server import KafkaServer
from kafkapy.clients.admin.kafka_admin_client import KafkaAdminClient
from kafkapy.config.broker import BrokerConfig
from kafkapy.errors import KafkaError
from kafkapy.security.ssl.context import ListenerTls
from kafkapy.security.ssl.settings import SslSettings

KRAFT = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:9094
listeners=SASL_SSL://127.0.0.1:9092,SSL://127.0.0.1:9093,CONTROLLER://127.0.0.1:9094
inter.broker.listener.name=SSL
advertised.listeners=SASL_SSL://127.0.0.1:9092,SSL://127.0.0.1:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
log.dirs=LOGS
num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1

ssl.keystore.location=STORES/kafka.server.keystore.jks
ssl.keystore.password=test1234
ssl.key.password=test5678
ssl.truststore.location=STORES/kafka.server.truststore.p12
ssl.truststore.password=test1234
ssl.truststore.type=PKCS12
ssl.client.auth=required
ssl.enabled.protocols=TLSv1.2,TLSv1.3
ssl.endpoint.identification.algorithm=
ssl.secure.random.implementation=SHA1PRNG
ssl.principal.mapping.rules=RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L,DEFAULT

sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256
sasl.mechanism.inter.broker.protocol=PLAIN
listener.name.sasl_ssl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\
    username="admin" \\
    password="admin-secret" \\
    user_admin="admin-secret" \\
    user_alice="alice-secret";
listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;

authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=false
super.users=User:admin;User:broker
delegation.token.secret.key=the secret of all brokers
password.encoder.secret=encoder-secret
"""
ZOOKEEPER = """\
broker.id=0
listeners=EXTERNAL://:9093,INTERNAL://:9094
advertised.listeners=EXTERNAL://kafka.example.com:9093,INTERNAL://10.0.0.1:9094
listener.security.protocol.map=EXTERNAL:SASL_SSL,INTERNAL:SSL
inter.broker.listener.name=INTERNAL
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
zookeeper.set.acl=true
listener.name.internal.ssl.keystore.location=STORES/kafka.server.keystore.jks
listener.name.internal.ssl.keystore.password=test1234
listener.name.internal.ssl.key.password=test5678
listener.name.internal.ssl.truststore.location=STORES/kafka.server.truststore.p12
listener.name.internal.ssl.truststore.password=test1234
listener.name.internal.ssl.client.auth=required
listener.name.external.ssl.keystore.type=PEM
listener.name.external.ssl.keystore.key=-----BEGIN ENCRYPTED PRIVATE KEY----- \\
KEY
-----END ENCRYPTED PRIVATE KEY-----
listener.name.external.ssl.keystore.certificate.chain=-----BEGIN CERTIFICATE----- \\
CHAIN
-----END CERTIFICATE-----
listener.name.external.ssl.key.password=test5678
listener.name.external.sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.external.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
authorizer.class.name=kafka.security.authorizer.AclAuthorizer
super.users=User:CN=broker,OU=ServiceUsers,O=Example
"""


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stores as Kafka's documentation makes them: a JKS keystore with another key password, a PKCS12 truststore."""
    if shutil.which("keytool") is None or shutil.which("openssl") is None:
        pytest.skip("keytool of Java, or the program openssl, is not installed")
    directory = tmp_path_factory.mktemp("stores")

    def run(command: str) -> None:
        done = subprocess.run(command, shell=True, cwd=directory, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"

    keystore = "-keystore kafka.server.keystore.jks -storetype JKS -storepass test1234"
    run("openssl req -new -x509 -newkey rsa:2048 -nodes -keyout ca-key -out ca-cert -days 365 -subj /CN=ca")
    run(f"keytool -genkeypair {keystore} -alias localhost -keyalg RSA -validity 365 -keypass test5678 "
        "-dname 'CN=Broker,OU=ServiceUsers,O=Example' -ext SAN=DNS:localhost,IP:127.0.0.1")  # fmt: skip
    run(f"keytool {keystore} -alias localhost -certreq -file request -keypass test5678")
    run("printf 'subjectAltName=DNS:localhost,IP:127.0.0.1' > names")
    run("openssl x509 -req -CA ca-cert -CAkey ca-key -in request -out signed -days 365 -CAcreateserial -extfile names")
    run(f"keytool {keystore} -alias CARoot -importcert -file ca-cert -noprompt")
    run(f"keytool {keystore} -alias localhost -importcert -file signed -noprompt -keypass test5678")
    run("keytool -keystore kafka.server.truststore.p12 -storetype PKCS12 -storepass test1234 -alias CARoot -importcert "
        "-file ca-cert -noprompt")  # fmt: skip
    run("openssl req -new -newkey rsa:2048 -nodes -keyout plain.pem -out request -subj /OU=ServiceUsers/CN=alice")
    run("openssl x509 -req -CA ca-cert -CAkey ca-key -in request -out alice.crt -days 365 -CAcreateserial")
    run("cat plain.pem alice.crt > alice.pem")
    run("openssl pkcs8 -topk8 -in plain.pem -v2 aes-256-cbc -passout pass:test5678 -out encrypted.pem")
    return directory


def joined(pem: Path) -> str:
    """The base64 of a PEM file as lines of a properties file that go on."""
    lines = [line for line in pem.read_text().splitlines() if line and not line.startswith("-----")]
    return "\n".join(f"{line} \\" for line in lines)


def test_file_of_a_kraft_broker_starts_a_secured_broker(stores: Path, tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text(KRAFT.replace("STORES", str(stores)).replace("LOGS", str(tmp_path / "logs")))
    free = ["listeners=SASL_SSL://127.0.0.1:0,SSL://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
            "advertised.listeners=SASL_SSL://127.0.0.1:0,SSL://127.0.0.1:0"]  # fmt: skip
    with KafkaServer(BrokerConfig.load(str(path), free)) as server:
        ports = {each.listener_name: each.port for each in server.endpoints}
        sasl = {
            "bootstrap_servers": f"127.0.0.1:{ports['SASL_SSL']}",
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "PLAIN",
            "ssl_cafile": str(stores / "ca-cert"),
        }
        admin = {"sasl_plain_username": "admin", "sasl_plain_password": "admin-secret"}
        with KafkaAdminClient(**sasl, **admin) as client:
            client.create_topics({"t": {}})
            assert "t" in client.list_topics()
        with KafkaAdminClient(**sasl, sasl_plain_username="alice", sasl_plain_password="alice-secret") as client:
            assert client.list_topics() == []
        ssl = {
            "bootstrap_servers": f"localhost:{ports['SSL']}",
            "security_protocol": "SSL",
            "ssl_truststore_location": str(stores / "kafka.server.truststore.p12"),
            "ssl_truststore_type": "PKCS12",
            "ssl_truststore_password": "test1234",
        }
        broker = {
            "ssl_keystore_location": str(stores / "kafka.server.keystore.jks"),
            "ssl_keystore_password": "test1234",
            "ssl_key_password": "test5678",
        }
        # The mapping rules make User:broker of the broker's own certificate, a super user.
        with KafkaAdminClient(**ssl, **broker) as client:
            assert "t" in client.list_topics()
        with KafkaAdminClient(**ssl, ssl_certfile=str(stores / "alice.pem")) as client:
            assert client.list_topics() == []
        with pytest.raises(KafkaError):
            KafkaAdminClient(**ssl, bootstrap_timeout_ms=3000)


def test_file_of_a_zookeeper_broker_loads_with_its_stores(stores: Path, tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    text = ZOOKEEPER.replace("STORES", str(stores))
    text = text.replace("KEY\n-----END", joined(stores / "encrypted.pem") + "\n-----END")
    path.write_text(text.replace("CHAIN\n-----END", joined(stores / "alice.crt") + "\n-----END"))
    config = BrokerConfig.load(str(path))
    assert config.unknown_keys == []
    for name, auth in (("INTERNAL", "required"), ("EXTERNAL", "none")):
        settings = SslSettings.for_listener(config, name)
        assert settings.client_auth == auth
        ListenerTls(settings, inter_broker=name == config.inter_broker_listener_name)
