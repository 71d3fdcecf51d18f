"""No secret of a broker process stands in anything that it writes, answers, or shows to other processes.

Each secret is a marker. The broker logs everything at TRACE; clients log in, fail to log in, change passwords, make
tokens and change store passwords at run time. Then every byte that broker and clients have written is searched.
"""

from __future__ import annotations

import base64
import itertools
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kafkapy.admin import KafkaAdminClient
from kafkapy.clients.admin.configs import ConfigResource
from kafkapy.clients.admin.users import UserScramCredentialUpsertion
from kafkapy.clients.producer.producer import KafkaProducer
from kafkapy.config.admin import ADMIN
from kafkapy.config.broker import BROKER_CONFIG_DEF, BrokerConfig
from kafkapy.config.clients import ClientConfig
from kafkapy.config.consumer import CONSUMER
from kafkapy.config.producer import PRODUCER
from kafkapy.config.properties import parse_properties
from kafkapy.errors import ConfigError, KafkaError
from kafkapy.security.jaas import parse_jaas
from kafkapy.security.ssl.certificates import create_authority, truststore
from kafkapy.testing.broker_process import BrokerFailedError, BrokerProcess

MARK = "kpmark"
NUMBERS = itertools.count(1)
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
PASSWORD_KEYS = [key.name for key in BROKER_CONFIG_DEF if key.sensitive]


def marker() -> str:
    return f"{MARK}{next(NUMBERS):04}x"


def forms(secret: str | bytes) -> list[bytes]:
    """A secret as it is, as base64 and hexadecimal text, and as Python writes bytes, also inside of JSON."""
    raw = secret.encode() if isinstance(secret, str) else secret
    shown = repr(raw)[2:-1]
    return [raw, base64.b64encode(raw), raw.hex().encode(), shown.encode(), shown.replace("\\", "\\\\").encode()]


def found_in(data: bytes, secrets: Mapping[str, str | bytes]) -> list[str]:
    return [name for name, secret in secrets.items() if any(form in data for form in forms(secret))]


# --- a process --------------------------------------------------------------------------------------------------------


class Cluster:
    """A broker process full of markers, and what it must not show."""

    def __init__(self, root: Path) -> None:
        names = ("keystore", "key", "truststore", "alice", "bob", "scram", "token", "encoder", "zookeeper", "changed",
                 "refused", "wrong", "misspelt", "old_token")  # fmt: skip
        self.secrets: dict[str, str | bytes] = {name: marker() for name in names}
        authority = create_authority()
        identity = authority.issue("broker", hosts=["127.0.0.1", "localhost"])
        self.root = root
        self.text = {name: str(value) for name, value in self.secrets.items()}
        (root / "keystore.p12").write_bytes(identity.pkcs12(self.text["keystore"]))
        (root / "changed.p12").write_bytes(identity.pkcs12(self.text["changed"]))
        (root / "truststore.p12").write_bytes(truststore([authority.certificate], self.text["truststore"]))
        self.ca = root / "ca.pem"
        self.ca.write_text(authority.chain_pem())
        private_key = identity.key_pem(self.text["key"])
        self.secrets["private key"] = "".join(private_key.splitlines()[1:3])
        one_line = private_key.replace("\n", "\\n")
        logging_file = root / "logging.properties"
        logging_file.write_text("root=TRACE\noutput=stderr\nformat=json\nrepeated=0\n")
        jaas = f'{PLAIN} user_alice="{self.text["alice"]}" user_bob="{self.text["bob"]}";'
        self.broker = BrokerProcess(
            root / "broker",
            {
                "listeners": "SASL_SSL://127.0.0.1:0,INLINE://127.0.0.1:0",
                "listener.security.protocol.map": "SASL_SSL:SASL_SSL,INLINE:SSL",
                "inter.broker.listener.name": "INLINE",
                "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
                "listener.name.sasl_ssl.plain.sasl.jaas.config": jaas,
                "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": f"{SCRAM};",
                "listener.name.sasl_ssl.ssl.keystore.location": str(root / "keystore.p12"),
                "listener.name.sasl_ssl.ssl.keystore.password": self.text["keystore"],
                "listener.name.sasl_ssl.ssl.truststore.location": str(root / "truststore.p12"),
                "listener.name.sasl_ssl.ssl.truststore.password": self.text["truststore"],
                "listener.name.inline.ssl.keystore.type": "PEM",
                "listener.name.inline.ssl.keystore.key": one_line,
                "listener.name.inline.ssl.keystore.certificate.chain": identity.chain_pem().replace("\n", "\\n"),
                "listener.name.inline.ssl.key.password": self.text["key"],
                "delegation.token.secret.key": self.text["token"],
                "password.encoder.secret": self.text["encoder"],
                "zookeeper.ssl.keystore.password": self.text["zookeeper"],
                "some.plugin.password": self.text["misspelt"],
            },
            environment={"KAFKAPY_LOGGING": str(logging_file)},
        ).start()
        ports = re.findall(rb"listening on SASL_SSL://[^:\s]+:(\d+)", self.broker.log_path.read_bytes())
        self.port = int(ports[0])

    def admin(self, user: str, password: str, mechanism: str = "PLAIN", **more: Any) -> KafkaAdminClient:
        return KafkaAdminClient(
            bootstrap_servers=f"127.0.0.1:{self.port}",
            security_protocol="SASL_SSL",
            sasl_mechanism=mechanism,
            sasl_plain_username=user,
            sasl_plain_password=password,
            ssl_cafile=str(self.ca),
            **more,
        )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("secrets"))
    yield made
    made.broker.kill()


def test_broker_writes_shows_and_answers_no_secret(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(1, "kafkapy")
    text, secrets = cluster.text, cluster.secrets
    answers: list[Any] = []
    with cluster.admin("alice", text["alice"]) as admin:
        answers.append(admin.describe_configs([ConfigResource("BROKER", "1")]))
        upsertion = UserScramCredentialUpsertion("carol", "SCRAM-SHA-256", text["scram"])
        secrets["salted password"] = upsertion.salted_password
        answers += [repr(upsertion), admin.alter_user_scram_credentials([upsertion])]
        token = admin.create_delegation_token()
        secrets["token hmac"] = token.hmac
        answers += [repr(token), str(token), admin.renew_delegation_token(token.hmac)]
        admin.describe_delegation_token()
        prefix = "listener.name.sasl_ssl.ssl.keystore."
        changes = {prefix + "location": str(cluster.root / "changed.p12"), prefix + "password": text["changed"]}
        answers.append(admin.alter_configs([ConfigResource("BROKER", "1", changes)]))
        refused = {prefix + "password": text["refused"]}
        answers.append(admin.alter_configs([ConfigResource("BROKER", "1", refused)]))
        answers.append(admin.alter_configs([ConfigResource("BROKER", "", refused)]))
        answers.append(admin.describe_configs([ConfigResource("BROKER", "1")]))
    assert str(answers).count("'OK'") == 1, answers
    with cluster.admin("carol", text["scram"], "SCRAM-SHA-256") as admin:
        admin.describe_cluster()
    for user, mechanism in (("alice", "PLAIN"), ("nobody", "SCRAM-SHA-256"), ("carol", "SCRAM-SHA-256")):
        with pytest.raises(KafkaError) as caught:
            cluster.admin(user, text["wrong"], mechanism, bootstrap_timeout_ms=5000)
        answers += [str(caught.value), repr(caught.value)]
    command_line = Path(f"/proc/{cluster.broker.pid}/cmdline").read_bytes()
    assert b"kafkapy" in command_line
    assert cluster.broker.stop() == 0

    log = cluster.broker.log_path.read_bytes()
    for expected in (b"SaslAuthenticate", b"AlterUserScramCredentials", b"CreateDelegationToken", b"DescribeConfigs",
                     b"IncrementalAlterConfigs"):  # fmt: skip
        assert b'"api": "' + expected in log or expected in log
    assert found_in(log, secrets) == []
    assert found_in(str(answers).encode(), secrets) == []
    assert found_in(command_line, secrets) == []
    assert found_in(caplog.text.encode(), secrets) == []
    files = [path for path in (cluster.root / "broker" / "logs").rglob("*") if path.is_file()]
    assert len(files) > 5
    assert {str(path): names for path in files if (names := found_in(path.read_bytes(), secrets))} == {}


def test_stored_password_is_used_after_a_restart(cluster: Cluster) -> None:
    """The changed store and its password, which the metadata store holds encrypted."""
    cluster.broker.start()
    ports = re.findall(rb"listening on SASL_SSL://[^:\s]+:(\d+)", cluster.broker.log_path.read_bytes())
    cluster.port = int(ports[-1])
    with cluster.admin("bob", cluster.text["bob"]) as admin:
        shown = admin.describe_configs([ConfigResource("BROKER", "1")])
    assert str(cluster.root / "changed.p12") in str(shown)
    assert cluster.broker.stop() == 0
    assert found_in(cluster.broker.log_path.read_bytes(), cluster.secrets) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"ssl.keystore.password": "WRONG"},
        {"ssl.keystore.pasword": "WRONG"},
        {"ssl.keystore.type": "PEM"},
        {"ssl.keystore.type": "PEM", "ssl.keystore.location": "", "ssl.keystore.key": "WRONG",
         "ssl.keystore.certificate.chain": "WRONG"},
        {"listener.name.ssl.sasl.jaas.config": "WRONG", "listeners": "SSL://127.0.0.1:0,SASL_SSL://127.0.0.1:0",
         "sasl.enabled.mechanisms": "PLAIN", "listener.name.sasl_ssl.plain.sasl.jaas.config": "WRONG"},
        {"ssl.truststore.password": "WRONG"},
        {"ssl.key.password": "${env:NO_SUCH_VARIABLE}WRONG", "config.providers": "env",
         "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider"},
    ],
)  # fmt: skip
def test_start_that_fails_shows_no_secret(tmp_path: Path, wrong: dict[str, str]) -> None:
    secrets: dict[str, str | bytes] = {"right": marker(), "wrong": marker()}
    identity = create_authority().issue("broker")
    (tmp_path / "keystore.p12").write_bytes(identity.pkcs12(str(secrets["right"])))
    keys = {
        "listeners": "SSL://127.0.0.1:0",
        "inter.broker.listener.name": "SSL",
        "ssl.keystore.location": str(tmp_path / "keystore.p12"),
        "ssl.keystore.password": str(secrets["right"]),
        **{key: value.replace("WRONG", str(secrets["wrong"])) for key, value in wrong.items()},
    }
    if not keys["ssl.keystore.location"]:
        del keys["ssl.keystore.location"], keys["ssl.keystore.password"]
    broker = BrokerProcess(tmp_path / "broker", keys)
    with pytest.raises(BrokerFailedError, match="exit code 1"):
        broker.start()
    log = broker.log_path.read_bytes()
    assert b"kafkapy-server: Invalid value" in log or b"kafkapy-server: " in log
    assert found_in(log, secrets) == []


# --- objects ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["", "listener.name.plaintext.", "listener.name.plaintext.plain."])
@pytest.mark.parametrize("name", PASSWORD_KEYS)
def test_broker_configuration_shows_no_secret(name: str, prefix: str) -> None:
    secret = marker()
    config = BrokerConfig(parse_properties(f"{prefix}{name}={secret}\n", "server.properties"))
    value = config[prefix + name]
    shown = [repr(config), str(config.plain()), str(config.describe()), repr(value), str(value), f"{value}",
             str([value]), str(config.synonyms(prefix + name))]  # fmt: skip
    assert value.value == secret
    assert secret not in "".join(shown)
    with pytest.raises(ConfigError) as caught:
        BrokerConfig(parse_properties(f"{prefix}{name}={secret}\nnum.io.threads=x\n"))
    assert secret not in str(caught.value)


@pytest.mark.parametrize("definition", [PRODUCER, CONSUMER, ADMIN])
def test_client_configuration_shows_no_secret(definition: Any) -> None:
    for key in [key for key in definition if key.sensitive]:
        secret = marker()
        config = ClientConfig(definition, {key.name: secret})
        shown = [repr(config), str(config), repr(dict(config)), repr(config[key.name]), str(list(config.values()))]
        assert secret not in "".join(shown), key.name
        for wrong in ({"acks": "x"}, {"request.timeout.ms": "x"}):
            with pytest.raises(ConfigError) as caught:
                ClientConfig(definition, {key.name: secret, **wrong})
            assert secret not in str(caught.value)
        with pytest.raises(ConfigError) as caught:
            ClientConfig(definition, {key.name: [secret]})
        assert secret not in str(caught.value), key.name
        misspelt = key.name[:-1]
        with pytest.raises(ConfigError) as caught:
            ClientConfig(definition, {misspelt: secret})
        assert secret not in str(caught.value), misspelt


def test_client_shows_no_secret() -> None:
    secret = marker()
    jaas = f'{PLAIN} username="u" password="{secret}";'
    assert secret not in repr(parse_jaas(jaas))
    with pytest.raises(KafkaError) as caught:
        KafkaProducer(
            bootstrap_servers="127.0.0.1:1",
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_jaas_config=jaas,
            bootstrap_timeout_ms=100,
        )
    assert secret not in str(caught.value)


def test_command_line_tools_get_secrets_from_files(tmp_path: Path) -> None:
    """A password in a file of --command-config is in no output of a command, also with --verbose."""
    secret = marker()
    (tmp_path / "secrets.properties").write_text(f"password={secret}\n")
    (tmp_path / "client.properties").write_text(
        "config.providers=file\n"
        "config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider\n"
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={PLAIN} username="u" password="${{file:{tmp_path}/secrets.properties:password}}";\n'
    )
    command = [sys.executable, "-m", "kafkapy.tools.cli", "topics", "list", "-b", "127.0.0.1:1", "--verbose",
               "--command-config", str(tmp_path / "client.properties"), "-X", "bootstrap.timeout.ms=200"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "127.0.0.1:1" in done.stderr
    assert secret not in done.stdout + done.stderr
