"""Every key that Kafka changes at run time has its effect on a running broker.

tests/reference/kafka_4_4/dynamic.txt names the keys that Apache Kafka 4.4 describes as not read-only. Each key is in
EFFECTS (its function sets it and looks at the broker), in the tables of topic defaults, listeners and the cleaner
below, or kafkapy.config.effects says that it has no effect.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from broker.conftest import Client, config
from broker.dynamic_changes import alter, change, changed
from broker.sasl_broker import log_in_plain
from certificates import localhost, shared_ca
from waiting import PAUSE_S, WAIT_S

from kafkapy.broker.server import KafkaServer
from kafkapy.config.broker import BROKER_CONFIG_DEF
from kafkapy.config.config_def import UpdateMode
from kafkapy.config.effects import WITHOUT_EFFECT
from kafkapy.config.topic import BROKER_SYNONYMS, TOPIC_CONFIG_DEF
from kafkapy.errors import ErrorCode
from kafkapy.metadata.store import StoreUnavailableError
from kafkapy.protocol.messages.metadata import MetadataRequest
from kafkapy.security.ssl.certificates import create_authority, truststore
from kafkapy.types import TopicPartition

KAFKAS = frozenset((Path(__file__).parents[1] / "reference" / "kafka_4_4" / "dynamic.txt").read_text().split())
OURS = frozenset(key.name for key in BROKER_CONFIG_DEF if key.update_mode is not UpdateMode.READ_ONLY)
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
BUILDER = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"


def wait_for(condition: Callable[[], Any], what: str) -> None:
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end, f"not within {WAIT_S:.0f} s: {what}"
        time.sleep(PAUSE_S)


# --- defaults of topics -------------------------------------------------------------------------------------------

OTHER_VALUES = {
    "log.segment.bytes": ("2097152", 2097152),
    "log.roll.ms": ("123456", 123456),
    "log.roll.jitter.ms": ("77", 77),
    "log.index.size.max.bytes": ("8192", 8192),
    "log.flush.interval.messages": ("1234", 1234),
    "log.flush.interval.ms": ("4321", 4321),
    "log.retention.bytes": ("999999", 999999),
    "log.retention.ms": ("54321", 54321),
    "message.max.bytes": ("2000", 2000),
    "log.index.interval.bytes": ("100", 100),
    "log.cleaner.delete.retention.ms": ("11", 11),
    "log.cleaner.min.compaction.lag.ms": ("12", 12),
    "log.cleaner.max.compaction.lag.ms": ("13000", 13000),
    "log.segment.delete.delay.ms": ("14", 14),
    "log.cleaner.min.cleanable.ratio": ("0.25", 0.25),
    "log.cleanup.policy": ("compact,delete", ("compact", "delete")),
    "unclean.leader.election.enable": ("true", True),
    "min.insync.replicas": ("2", 2),
    "compression.type": ("lz4", "lz4"),
    "compression.gzip.level": ("5", 5),
    "compression.lz4.level": ("7", 7),
    "compression.zstd.level": ("9", 9),
    "log.message.timestamp.type": ("LogAppendTime", "LogAppendTime"),
    "log.message.timestamp.difference.max.ms": ("15000", 15000),
    "log.message.timestamp.before.max.ms": ("16000", 16000),
    "log.message.timestamp.after.max.ms": ("17000", 17000),
    "log.message.downconversion.enable": ("false", False),
    "kafkapy.validate.compressed": ("header", "header"),
}
"""A value as text, and as the settings of a log have it."""
TOPIC_KEYS = {
    key: topic_key for topic_key, chain in BROKER_SYNONYMS.items() for key, _ in chain[:1] if key in OTHER_VALUES
}


@pytest.mark.parametrize("key", sorted(OTHER_VALUES))
@pytest.mark.parametrize("name", ["1", ""])
def test_a_default_of_topics_reaches_open_logs(
    client: Client, broker: KafkaServer, topic_name: str, key: str, name: str
) -> None:
    client.create_topic(topic_name)
    log = broker.context.log_manager.get(TopicPartition(topic_name, 0))
    assert log is not None
    field = TOPIC_KEYS[key].replace(".", "_")
    text, value = OTHER_VALUES[key]
    before = getattr(log.config, field)
    with changed(client, {key: text}, name):
        assert getattr(log.config, field) == value
    assert getattr(log.config, field) == before != value


def test_a_topic_keeps_what_it_sets_itself(client: Client, broker: KafkaServer, topic_name: str) -> None:
    client.create_topic(topic_name, retention_ms="5000")
    log = broker.context.log_manager.get(TopicPartition(topic_name, 0))
    with changed(client, {"log.retention.ms": "6000"}):
        assert log is not None
        assert log.config.retention_ms == 5000


def test_one_brokers_value_is_stronger_than_the_clusters(client: Client, broker: KafkaServer) -> None:
    with changed(client, {"num.io.threads": "9"}, ""):
        assert broker.config.get_int("num.io.threads") == 9
        with changed(client, {"num.io.threads": "10"}):
            assert broker.config.get_int("num.io.threads") == 10
        assert broker.config.get_int("num.io.threads") == 9
    assert broker.config.get_int("num.io.threads") == 8


# --- threads --------------------------------------------------------------------------------------------------------


def network_threads(server: KafkaServer) -> int:
    return len(server.socket_server.counters()["processors"])


def named(prefix: str) -> int:
    return sum(thread.name.startswith(prefix) for thread in threading.enumerate())


def network(client: Client, server: KafkaServer) -> None:
    before = network_threads(server)
    connections = [Client("127.0.0.1", server.endpoints[0].port) for _ in range(8)]
    with changed(client, {"num.network.threads": str(2 * before)}):
        assert network_threads(server) == 2 * before
        more = [Client("127.0.0.1", server.endpoints[0].port) for _ in range(8)]
        for each in (*connections, *more):
            each(MetadataRequest(topics=[]), 12)
        carried = [each["connections"] for each in server.socket_server.counters()["processors"]]
        assert all(carried), "the new threads have connections"
        for each in (*connections, *more):
            each.close()
        client.socket.close()
        client.socket = Client("127.0.0.1", server.endpoints[0].port).socket
        change(client, {"num.network.threads": str(before)})
        assert network_threads(server) == before
        # The connection may have been one of a thread that ends.
        client.socket.close()
        client.socket = Client("127.0.0.1", server.endpoints[0].port).socket
    wait_for(lambda: named("kafka-network-thread") == before, "the other threads end")


def io_threads(client: Client, server: KafkaServer) -> None:
    asks = server._broker.asks
    with changed(client, {"num.io.threads": "4"}):
        assert asks.threads == 4
        assert server.socket_server.counters()["workers"]["threads"] == min(4, server.socket_server.workers.size)
    assert asks.threads == 8


def background(client: Client, server: KafkaServer) -> None:
    before = server.context.scheduler.threads
    with changed(client, {"background.threads": str(before // 2)}):
        assert server.context.scheduler.threads == before // 2
        barrier = threading.Barrier(before // 2 + 1)
        for number in range(before // 2):
            server.context.scheduler.schedule(f"meet-{number}", lambda: barrier.wait(WAIT_S) and None)
        barrier.wait(WAIT_S)
    assert server.context.scheduler.threads == before


def recovery(client: Client, server: KafkaServer) -> None:
    with changed(client, {"num.recovery.threads.per.data.dir": "4"}):
        assert server.context.log_manager.config.get_int("num.recovery.threads.per.data.dir") == 4


def replica_fetchers(client: Client, server: KafkaServer) -> None:
    with changed(client, {"num.replica.fetchers": "2"}):
        assert server.context.replica_manager.config.get_int("num.replica.fetchers") == 2


def cleaner(key: str, value: str, seen: Callable[[Any], object]) -> Callable[[Client, KafkaServer], None]:
    def effect(client: Client, server: KafkaServer) -> None:
        settings = server.context.log_manager.cleaner
        before = seen(settings)
        with changed(client, {key: value}):
            assert seen(settings) != before
        assert seen(settings) == before

    return effect


# --- connections ----------------------------------------------------------------------------------------------------


def refused(server: KafkaServer) -> bool:
    try:
        other = Client("127.0.0.1", server.endpoints[0].port)
    except ConnectionError:
        return True
    other.socket.settimeout(WAIT_S)
    try:
        other(MetadataRequest(topics=[]), 12)
    except ConnectionError:
        return True
    finally:
        other.close()
    return False


def per_ip(client: Client, server: KafkaServer) -> None:
    assert not refused(server)
    with changed(client, {"max.connections.per.ip": "1"}):
        wait_for(lambda: server.socket_server.quotas.count == 1, "other connections are closed")
        assert refused(server)
    assert not refused(server)


def per_ip_overrides(client: Client, server: KafkaServer) -> None:
    with changed(client, {"max.connections.per.ip.overrides": "127.0.0.1:1"}):
        wait_for(lambda: server.socket_server.quotas.count == 1, "other connections are closed")
        assert refused(server)
    assert not refused(server)


def waits(server: KafkaServer, client: Client, keys: dict[str, str]) -> None:
    """A connection beyond the limit waits in the backlog until the limit is gone."""
    wait_for(lambda: server.socket_server.quotas.count == 1, "other connections are closed")
    with changed(client, keys):
        other = Client("127.0.0.1", server.endpoints[0].port)
        other.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            other(MetadataRequest(topics=[]), 12)
    other.socket.settimeout(WAIT_S)
    assert other.receive_frame()
    other.close()


def most(client: Client, server: KafkaServer) -> None:
    waits(server, client, {"max.connections": "1"})


def most_of_a_listener(client: Client, server: KafkaServer) -> None:
    waits(server, client, {"listener.name.plaintext.max.connections": "1"})


def creation_rate(client: Client, server: KafkaServer) -> None:
    with changed(client, {"max.connection.creation.rate": "1"}):
        Client("127.0.0.1", server.endpoints[0].port).close()
        other = Client("127.0.0.1", server.endpoints[0].port)
        assert other(MetadataRequest(topics=[]), 12).brokers, "it comes in its turn"
        other.close()


def own_threads(client: Client, server: KafkaServer) -> None:
    before = network_threads(server)
    with changed(client, {"listener.name.plaintext.num.network.threads": str(2 * before)}):
        assert network_threads(server) == 3 * before, "those of the listener, and those of all"
        other = Client("127.0.0.1", server.endpoints[0].port)
        assert other(MetadataRequest(topics=[]), 12).brokers
        other.close()
        client.socket.close()
        client.socket = Client("127.0.0.1", server.endpoints[0].port).socket
        change(client, {"listener.name.plaintext.num.network.threads": None})
        client.socket.close()
        client.socket = Client("127.0.0.1", server.endpoints[0].port).socket
    assert network_threads(server) == before


# --- others ---------------------------------------------------------------------------------------------------------


def transactions(client: Client, server: KafkaServer) -> None:
    with changed(client, {"transaction.partition.verification.enable": "false"}):
        assert not server._broker.plane.verify_transactions
    assert server._broker.plane.verify_transactions


def two_phases(client: Client, server: KafkaServer) -> None:
    """With a transaction: clients/producer/test_two_phase_commit.py."""
    coordinator = server.context.coordinators.transaction
    with changed(client, {"kafkapy.transaction.two.phase.commit.max.ms": "777"}, ""):
        assert coordinator.two_phase_max_ms() == 777
    assert coordinator.two_phase_max_ms() == -1


def producer_ids(client: Client, server: KafkaServer) -> None:
    client.create_topic("producer-ids")
    log = server.context.log_manager.get(TopicPartition("producer-ids", 0))
    assert log is not None
    with changed(client, {"producer.id.expiration.ms": "4242"}):
        assert log.producer_id_expiration_ms == 4242
    assert log.producer_id_expiration_ms == 86_400_000


def consumer_assignments(client: Client, server: KafkaServer) -> None:
    """With members: coordinator/group/test_consumer_group_heartbeat.py."""
    overrides = server.context.coordinators.group.overrides
    with changed(client, {"group.consumer.assignment.interval.ms": "777"}, ""):
        assert overrides.assignment_interval_ms("any") == 777
    assert overrides.assignment_interval_ms("any") is None


def share_assignments(client: Client, server: KafkaServer) -> None:
    """With members: coordinator/group/test_share_group_heartbeat.py."""
    overrides = server.context.coordinators.group.overrides
    with changed(client, {"group.share.assignment.interval.ms": "777"}, ""):
        assert overrides.share_assignment_interval_ms("any") == 777
    assert overrides.share_assignment_interval_ms("any") == 1_000


def throttle(key: str) -> Callable[[Client, KafkaServer], None]:
    def effect(client: Client, server: KafkaServer) -> None:
        with changed(client, {key: "12345"}, ""):
            assert server.context.replica_manager.config.get_int(key) == 12345
            if key.startswith("leader"):
                assert server.context.replica_manager.replication.leader_rate == 12345

    return effect


def providers(client: Client, server: KafkaServer) -> None:
    keys = {
        "config.providers": "env",
        "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
        "log.retention.ms": "${env:KAFKAPY_TEST_RETENTION}",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KAFKAPY_TEST_RETENTION", "98765")
        with changed(client, keys):
            assert server.config.get_int("log.retention.ms") == 98765


def reporters(client: Client, server: KafkaServer) -> None:
    """With a real reporter: test_metrics_reporters.py."""
    refused = alter(client, {"metric.reporters": "no.such.Reporter"})
    assert refused.error_code == ErrorCode.INVALID_REQUEST


EFFECTS: dict[str, Callable[[Client, KafkaServer], None]] = {
    "num.network.threads": network,
    "num.io.threads": io_threads,
    "background.threads": background,
    "num.recovery.threads.per.data.dir": recovery,
    "num.replica.fetchers": replica_fetchers,
    "log.cleaner.threads": cleaner("log.cleaner.threads", "2", lambda each: each._settings.threads),
    "log.cleaner.dedupe.buffer.size": cleaner(
        "log.cleaner.dedupe.buffer.size", "4194304", lambda each: each._settings.memory
    ),
    "log.cleaner.io.buffer.load.factor": cleaner(
        "log.cleaner.io.buffer.load.factor", "0.5", lambda each: each._settings.load_factor
    ),
    "log.cleaner.io.max.bytes.per.second": cleaner(
        "log.cleaner.io.max.bytes.per.second", "1000.5", lambda each: each._settings.bytes_per_second
    ),
    "log.cleaner.backoff.ms": cleaner(
        "log.cleaner.backoff.ms", "77", lambda each: each._config().get_int("log.cleaner.backoff.ms")
    ),
    "max.connections.per.ip": per_ip,
    "max.connections.per.ip.overrides": per_ip_overrides,
    "max.connections": most,
    "listener.name.plaintext.max.connections": most_of_a_listener,
    "listener.name.plaintext.num.network.threads": own_threads,
    "max.connection.creation.rate": creation_rate,
    "transaction.partition.verification.enable": transactions,
    "producer.id.expiration.ms": producer_ids,
    "kafkapy.transaction.two.phase.commit.max.ms": two_phases,
    "group.consumer.assignment.interval.ms": consumer_assignments,
    "group.share.assignment.interval.ms": share_assignments,
    "leader.replication.throttled.rate": throttle("leader.replication.throttled.rate"),
    "follower.replication.throttled.rate": throttle("follower.replication.throttled.rate"),
    "replica.alter.log.dirs.io.max.bytes.per.second": throttle("replica.alter.log.dirs.io.max.bytes.per.second"),
    "config.providers": providers,
    "metric.reporters": reporters,
}


@pytest.mark.parametrize("key", sorted(EFFECTS))
def test_a_key_has_its_effect_at_once(client: Client, broker: KafkaServer, key: str) -> None:
    EFFECTS[key](client, broker)


# --- listeners ------------------------------------------------------------------------------------------------------

OF_LISTENERS = {
    "test_a_listener_is_added_and_removed": ("listeners", "advertised.listeners", "listener.security.protocol.map"),
    "test_a_new_tls_listener_has_its_own_settings": (
        "ssl.keystore.type", "ssl.keystore.location", "ssl.keystore.password", "ssl.key.password",
        "ssl.truststore.type", "ssl.truststore.location", "ssl.truststore.password", "ssl.client.auth",
        "ssl.enabled.protocols", "ssl.cipher.suites", "ssl.protocol",
    ),
    "test_a_new_tls_listener_takes_pem_texts": (
        "ssl.keystore.key", "ssl.keystore.certificate.chain", "ssl.truststore.certificates",
    ),
    "test_a_new_sasl_listener_logs_in": (
        "sasl.enabled.mechanisms", "sasl.jaas.config", "principal.builder.class",
    ),
}  # fmt: skip
"""Keys with an effect on listeners, by the test that sees it."""
ELSEWHERE = {
    "cordoned.log.dirs": "system/test_cordoned_log_dirs.py",
    "errors.deadletterqueue.auto.create.topics.enable": "broker/test_share_partitions.py",
    "errors.deadletterqueue.topic.name.prefix": "broker/test_share_partitions.py",
    "sasl.kerberos.service.name": "interop/test_kerberos_clients.py",
    "sasl.kerberos.principal.to.local.rules": "security",
    "sasl.mechanism.inter.broker.protocol": "broker/test_inter_broker.py",
    "ssl.endpoint.identification.algorithm": "broker/test_inter_broker.py",
}
"""Keys of several log directories, and those that only connections between brokers, or listeners with Kerberos, use.
Each new connection, or listener, reads them from the current configuration; these tests see their effect."""


def ports(server: KafkaServer) -> dict[str, int]:
    return {each.listener_name: each.port for each in server.endpoints}


@pytest.fixture
def own(tmp_path: Path) -> Any:
    with KafkaServer(config(tmp_path, advertised_listeners="PLAINTEXT://127.0.0.1:0")) as server:
        yield server


@pytest.fixture
def admin(own: KafkaServer) -> Any:
    connection = Client("127.0.0.1", own.endpoints[0].port)
    yield connection
    connection.close()


def listeners(server: KafkaServer, *more: str) -> dict[str, str]:
    """The keys that add these listeners (NAME:PROTOCOL)."""
    free = [f"{each.partition(':')[0]}://127.0.0.1:0" for each in more]
    present = "PLAINTEXT://127.0.0.1:0"
    return {
        "listeners": ",".join([present, *free]),
        "advertised.listeners": ",".join([present, *free]),
        "listener.security.protocol.map": ",".join(["PLAINTEXT:PLAINTEXT", *more]),
    }


def shows(client: Client, port: int) -> bool:
    """Whether the listener's clients are told that port."""
    brokers = client(MetadataRequest(topics=[]), 12).brokers
    return [each.port for each in brokers] == [port]


def test_a_listener_is_added_and_removed(own: KafkaServer, admin: Client) -> None:
    before = ports(own)
    for _ in range(3):
        change(admin, listeners(own, "EXTRA:PLAINTEXT", "SECOND:PLAINTEXT"))
        assert set(ports(own)) == {"PLAINTEXT", "EXTRA", "SECOND"}
        assert ports(own)["PLAINTEXT"] == before["PLAINTEXT"]
        extra = Client("127.0.0.1", ports(own)["EXTRA"])
        port = ports(own)["EXTRA"]
        wait_for(partial(shows, extra, port), "clients of the listener see its address")
        change(admin, listeners(own, "SECOND:PLAINTEXT"))
        assert extra.is_closed()
        with pytest.raises(ConnectionError):
            Client("127.0.0.1", port)
        change(admin, dict.fromkeys(listeners(own)))
        assert ports(own) == before


def test_a_request_on_a_removed_listener_is_answered(own: KafkaServer, admin: Client) -> None:
    change(admin, listeners(own, "EXTRA:PLAINTEXT"))
    extra = Client("127.0.0.1", ports(own)["EXTRA"])
    change(extra, dict.fromkeys(listeners(own)))
    assert extra.is_closed()


def test_addresses_that_the_store_refused_are_registered_again(
    own: KafkaServer, admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = own.context.controller
    update, refused = controller.store.update_broker, []

    async def refuses_once(registration: Any) -> None:
        if not refused:
            refused.append(registration)
            raise StoreUnavailableError("/brokers/ids/1", "no answer")
        await update(registration)

    monkeypatch.setattr(controller.store, "update_broker", refuses_once)
    change(admin, {"advertised.listeners": "PLAINTEXT://elsewhere.example:1234"})

    def registered() -> bool:
        registration = controller.registration
        return registration is not None and registration.endpoints[0].host == "elsewhere.example"

    wait_for(registered, "the addresses are registered")
    assert refused


def test_advertised_addresses_change_alone(own: KafkaServer, admin: Client) -> None:
    change(admin, {"advertised.listeners": "PLAINTEXT://elsewhere.example:1234"})
    registration = own.context.controller.registration
    assert registration is not None
    assert [(each.host, each.port) for each in registration.endpoints] == [("elsewhere.example", 1234)]

    def shown() -> bool:
        (broker,) = admin(MetadataRequest(topics=[]), 12).brokers
        return (broker.host, broker.port) == ("elsewhere.example", 1234)

    wait_for(shown, "clients see the new address")
    change(admin, {"advertised.listeners": None})


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        (
            {"listeners": "PLAINTEXT://127.0.0.1:1"},
            "Configs cannot be updated dynamically for existing listener PLAINTEXT",
        ),
        ({"listeners": "OTHER://127.0.0.1:0"}, "OTHER"),
        (
            {"listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT"},
            "",
        ),
        ({"advertised.listeners": "NOBODY://here:1"}, "NOBODY"),
        (
            {
                "listeners": "PLAINTEXT://127.0.0.1:0,TLS://127.0.0.1:0",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,TLS:SSL",
            },
            "ssl.keystore.location",
        ),
    ],
)
def test_listeners_that_cannot_be_are_refused_whole(
    own: KafkaServer, admin: Client, keys: dict[str, str], text: str
) -> None:
    before = ports(own)
    for validate_only in (True, False):
        result = alter(admin, {**keys, "num.io.threads": "9"}, validate_only=validate_only)
        assert result.error_code == ErrorCode.INVALID_REQUEST
        assert text in result.error_message, result.error_message
    assert ports(own) == before
    assert own.config.get_int("num.io.threads") == 8


def test_a_port_that_another_process_has_is_refused(own: KafkaServer, admin: Client) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        keys = listeners(own, "EXTRA:PLAINTEXT")
        keys["listeners"] = f"PLAINTEXT://127.0.0.1:0,EXTRA://127.0.0.1:{port}"
        for validate_only in (True, False):
            result = alter(admin, keys, validate_only=validate_only)
            assert result.error_code == ErrorCode.INVALID_REQUEST
            assert result.error_message.startswith(f"Socket server failed to bind to 127.0.0.1:{port}: ")


def handshake(port: int, trusted: str, certificate: Path | None = None) -> tuple[str | None, str]:
    """TLS version and cipher suite of a connection whose request was answered."""
    context = ssl.create_default_context(cadata=trusted)
    if certificate is not None:
        context.load_cert_chain(certificate)
    with (
        socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secured,
    ):
        client = Client.__new__(Client)
        client.socket = secured
        client._correlation = iter(range(1, 9))  # type: ignore[assignment]
        assert client(MetadataRequest(topics=[]), 12).brokers
        cipher = secured.cipher()
        assert cipher is not None
        return secured.version(), cipher[0]


def test_a_new_tls_listener_has_its_own_settings(own: KafkaServer, admin: Client, tmp_path: Path) -> None:
    prefix = "listener.name.tls.ssl."
    authority = create_authority()
    (tmp_path / "key.p12").write_bytes(authority.issue("broker", hosts=["localhost"]).pkcs12("opens"))
    (tmp_path / "trust.p12").write_bytes(truststore([authority.certificate], "trusts"))
    keys = {
        prefix + "keystore.type": "PKCS12",
        prefix + "keystore.location": str(tmp_path / "key.p12"),
        prefix + "keystore.password": "opens",
        prefix + "key.password": "opens",
        prefix + "truststore.type": "PKCS12",
        prefix + "truststore.location": str(tmp_path / "trust.p12"),
        prefix + "truststore.password": "trusts",
        prefix + "client.auth": "required",
        prefix + "enabled.protocols": "TLSv1.2",
        prefix + "protocol": "TLSv1.2",
        prefix + "cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    }
    change(admin, listeners(own, "TLS:SSL") | keys)
    client, trusted = authority.issue("client"), authority.chain_pem()
    mine = tmp_path / "client.pem"
    mine.write_text(client.key_pem() + client.chain_pem())
    version, cipher = handshake(ports(own)["TLS"], trusted, mine)
    assert version == "TLSv1.2"
    assert cipher.endswith("AES256-GCM-SHA384")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        handshake(ports(own)["TLS"], trusted)
    for wrong in ({"keystore.password": "shuts"}, {"truststore.location": str(tmp_path / "missing.p12")}):
        result = alter(admin, {prefix + name: value for name, value in wrong.items()})
        assert result.error_code == ErrorCode.INVALID_REQUEST, wrong
    assert handshake(ports(own)["TLS"], trusted, mine)[0] == "TLSv1.2"


def test_a_new_tls_listener_takes_pem_texts(own: KafkaServer, admin: Client) -> None:
    prefix = "listener.name.tls.ssl."
    keys = {
        prefix + "keystore.type": "PEM",
        prefix + "keystore.key": localhost().key_pem.decode(),
        prefix + "keystore.certificate.chain": localhost().chain_pem.decode(),
        prefix + "truststore.type": "PEM",
        prefix + "truststore.certificates": shared_ca().pem.decode(),
    }
    change(admin, listeners(own, "TLS:SSL") | keys)
    assert handshake(ports(own)["TLS"], shared_ca().pem.decode())[0] == "TLSv1.3"


def test_a_new_sasl_listener_logs_in(own: KafkaServer, admin: Client) -> None:
    prefix = "listener.name.login."
    keys = {
        prefix + "sasl.enabled.mechanisms": "PLAIN",
        prefix + "plain.sasl.jaas.config": f'{MODULE} required user_ann="secret";',
        prefix + "principal.builder.class": BUILDER,
    }
    change(admin, listeners(own, "LOGIN:SASL_PLAINTEXT") | keys)
    for password, error in (("secret", ErrorCode.NONE), ("wrong", ErrorCode.SASL_AUTHENTICATION_FAILED)):
        client = Client("127.0.0.1", ports(own)["LOGIN"])
        assert log_in_plain(client, "ann", password).error_code == error
        client.close()
    unknown = alter(admin, listeners(own, "LOGIN:SASL_PLAINTEXT", "B:PLAINTEXT") | {
        "listener.name.b.principal.builder.class": "no.such.Builder"
    })  # fmt: skip
    assert unknown.error_code == ErrorCode.INVALID_REQUEST
    assert "principal.builder.class" in unknown.error_message


@pytest.mark.parametrize(("mechanisms", "text"), [("PLAIN", "no module"), ("NO-SUCH", f"{MODULE} required;")])
def test_a_new_sasl_listener_that_cannot_run_is_refused(
    own: KafkaServer, admin: Client, mechanisms: str, text: str
) -> None:
    keys = {
        "listener.name.login.sasl.enabled.mechanisms": mechanisms,
        "listener.name.login.plain.sasl.jaas.config": text,
    }
    assert alter(admin, listeners(own, "LOGIN:SASL_PLAINTEXT") | keys).error_code == ErrorCode.INVALID_REQUEST
    assert "LOGIN" not in ports(own)


# --- no key is missing ----------------------------------------------------------------------------------------------


def test_every_dynamic_key_of_kafka_is_dynamic_here() -> None:
    assert not KAFKAS - OURS


def test_every_dynamic_key_has_an_effect_that_a_test_sees() -> None:
    of_listeners = {name for names in OF_LISTENERS.values() for name in names}
    seen = {*EFFECTS, *OTHER_VALUES, *of_listeners, *ELSEWHERE}
    assert (KAFKAS | OURS) - seen - WITHOUT_EFFECT == set()
    assert set(OF_LISTENERS) <= set(globals())
    assert seen & WITHOUT_EFFECT == set()
    assert {TOPIC_KEYS[key] for key in OTHER_VALUES} <= set(TOPIC_CONFIG_DEF.names)
