"""SSL listeners of a broker process: foreign clients, client certificates, reload, and what keeps it from starting."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import confluent_kafka.admin
import kafka
import kafka.admin
import pytest
from certificates import Certificate, localhost, shared_ca
from waiting import wait_until

from kafkapy.testing.broker_process import BrokerFailedError, BrokerProcess

LARGE = os.urandom(700_000)


def pem(certificate: Certificate, directory: Path, name: str) -> Path:
    """A PEM keystore: key and chain in one file."""
    path = directory / f"{name}.pem"
    partial = path.with_suffix(".new")
    partial.write_bytes(certificate.key_pem + certificate.chain_pem)
    partial.rename(path)
    return path


def keys(directory: Path, **more: str) -> dict[str, str]:
    (directory / "trusted.pem").write_bytes(shared_ca().pem)
    return {
        "listeners": "SAFE://localhost:0",
        "listener.security.protocol.map": "SAFE:SSL",
        "inter.broker.listener.name": "SAFE",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(pem(localhost(), directory, "broker")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "trusted.pem"),
        **{key.replace("__", "."): value for key, value in more.items()},
    }


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    brokers = []

    def make(**more: str) -> BrokerProcess:
        broker = BrokerProcess(tmp_path / "broker", keys(tmp_path, **more))
        brokers.append(broker)
        return broker.start()

    yield make
    for broker in brokers:
        broker.stop()


def librdkafka(broker: BrokerProcess, directory: Path, certificate: Certificate | None = None, **more: Any) -> Any:
    config = {
        "bootstrap.servers": f"localhost:{broker.port}",
        "security.protocol": "ssl",
        "ssl.ca.location": str(directory / "trusted.pem"),
        **{key.replace("__", "."): value for key, value in more.items()},
    }
    if certificate is not None:
        chain, key = certificate.write(directory, "client")
        config |= {"ssl.certificate.location": chain, "ssl.key.location": key}
    return config


def python_client(broker: BrokerProcess, directory: Path, certificate: Certificate | None = None) -> dict[str, Any]:
    context = ssl.create_default_context(cafile=str(directory / "trusted.pem"))
    if certificate is not None:
        context.load_cert_chain(*certificate.write(directory, "client"))
    return {
        "bootstrap_servers": f"localhost:{broker.port}",
        "security_protocol": "SSL",
        "ssl_context": context,
    }


def poll(consumer: Any, count: int) -> list[bytes]:
    found: list[bytes] = []
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None:
            assert message.error() is None, message.error()
            found.append(message.value())
    return found


def test_librdkafka_produces_and_consumes_in_a_group(start: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    broker = start()
    config = librdkafka(broker, tmp_path)
    errors: list[Any] = []
    producer = confluent_kafka.Producer(config | {"message.max.bytes": 1_000_000, "linger.ms": 0})
    values = [b"small", LARGE, b"x" * 50_000, *(b"%d" % n for n in range(500))]
    for value in values:
        producer.produce("t", value, partition=0, on_delivery=lambda error, _: error and errors.append(error))
    assert producer.flush(60) == 0 and errors == []
    consumer = confluent_kafka.Consumer(config | {"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    assert poll(consumer, len(values)) == values
    consumer.commit(asynchronous=False)
    consumer.close()
    again = confluent_kafka.Consumer(config | {"group.id": "g", "auto.offset.reset": "earliest"})
    again.subscribe(["t"])
    producer.produce("t", b"after the commit", partition=0)
    producer.flush(60)
    assert poll(again, 1) == [b"after the commit"]
    again.close()


def test_kafka_python_produces_and_consumes(start: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    broker = start()
    options = python_client(broker, tmp_path)
    producer = kafka.KafkaProducer(**options, max_request_size=1_000_000)
    values = [b"small", LARGE, *(b"%d" % n for n in range(200))]
    for value in values:
        producer.send("t", value, partition=0)
    producer.flush(60)
    producer.close()
    consumer = kafka.KafkaConsumer("t", **options, auto_offset_reset="earliest", group_id="g")
    found = []
    for message in consumer:
        found.append(message.value)
        if len(found) == len(values):
            break
    consumer.close()
    assert found == values


@pytest.mark.parametrize("auth", ["required", "requested"])
def test_client_certificates(start: Callable[..., BrokerProcess], tmp_path: Path, auth: str) -> None:
    broker = start(ssl__client__auth=auth, ssl__principal__mapping__rules=r"RULE:^CN=(\\w+)-node.*$/$1/U,DEFAULT")
    known = confluent_kafka.admin.AdminClient(librdkafka(broker, tmp_path, shared_ca().sign("alice-node")))
    assert known.list_topics(timeout=30).brokers
    without = confluent_kafka.admin.AdminClient(librdkafka(broker, tmp_path))
    if auth == "requested":
        assert without.list_topics(timeout=30).brokers
    else:
        with pytest.raises(confluent_kafka.KafkaException):
            without.list_topics(timeout=1)
        wait_until(lambda: "peer did not return a certificate" in broker.log_tail(20_000), "the line of the log")


def test_a_principal_that_no_rule_makes_is_refused(start: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    broker = start(ssl__client__auth="required", ssl__principal__mapping__rules=r"RULE:^CN=(\\w+)-node$/$1/")
    client = confluent_kafka.admin.AdminClient(librdkafka(broker, tmp_path, shared_ca().sign("bob")))
    with pytest.raises(confluent_kafka.KafkaException):
        client.list_topics(timeout=1)
    wait_until(lambda: "the certificate gives no principal" in broker.log_tail(20_000), "the line of the log")


def alter(client: Any, changes: dict[str, str]) -> None:
    """By IncrementalAlterConfigs of the broker's own configuration."""
    entries = [
        confluent_kafka.admin.ConfigEntry(
            name, value, incremental_operation=confluent_kafka.admin.AlterConfigOpType.SET
        )
        for name, value in changes.items()
    ]
    resource = confluent_kafka.admin.ConfigResource("broker", "1", incremental_configs=entries)
    (future,) = client.incremental_alter_configs([resource]).values()
    future.result(30)


def served_certificate(broker: BrokerProcess) -> bytes:
    return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate(("localhost", broker.port)))


def test_stores_are_replaced_under_load_without_a_failed_request(
    start: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    broker = start()
    config = librdkafka(broker, tmp_path)
    admin = confluent_kafka.admin.AdminClient(config)
    stop = threading.Event()
    errors: list[Any] = []
    delivered: list[int] = []

    def produce() -> None:
        problem = lambda error: errors.append(error)  # noqa: E731
        producer = confluent_kafka.Producer(config | {"retries": 0, "error_cb": problem})
        while not stop.is_set():
            producer.produce("t", b"v", on_delivery=lambda e, _: errors.append(e) if e else delivered.append(1))
            producer.flush(30)
        # Fresh connections as well.
        consumer = confluent_kafka.Consumer(config | {"group.id": "g", "error_cb": problem})
        consumer.list_topics(timeout=30)
        consumer.close()

    threads = [threading.Thread(target=produce) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: len(delivered) > 10, "ten records")
        for turn in range(4):
            renewed = shared_ca().sign("localhost", ["localhost", "127.0.0.1"])
            path = pem(renewed, tmp_path, f"broker-{turn}")
            alter(admin, {"listener.name.safe.ssl.keystore.location": str(path)})
            assert served_certificate(broker) == renewed.der
            so_far = len(delivered)
            wait_until(lambda so_far=so_far: len(delivered) > so_far + 10, "ten more records")
        # The same values again, but the file has changed.
        renewed = shared_ca().sign("localhost", ["localhost", "127.0.0.1"])
        path = pem(renewed, tmp_path, "broker-3")
        os.utime(path, (2_000_000_000, 2_000_000_000))
        alter(admin, {"listener.name.safe.ssl.keystore.location": str(path)})
        assert served_certificate(broker) == renewed.der
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert errors == []


def test_a_store_that_does_not_fit_is_refused_and_the_old_one_stays(
    start: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    broker = start()
    admin = confluent_kafka.admin.AdminClient(librdkafka(broker, tmp_path))
    before = served_certificate(broker)
    other = pem(shared_ca().sign("elsewhere", ["elsewhere"]), tmp_path, "other")
    broken = tmp_path / "broken.pem"
    broken.write_text("nothing")
    for location, reason in (
        (other, "the new certificate is of another name|CN=elsewhere"),
        (broken, "broken.pem"),
        (tmp_path / "missing.pem", "missing.pem"),
    ):
        with pytest.raises(confluent_kafka.KafkaException, match=reason):
            alter(admin, {"listener.name.safe.ssl.keystore.location": str(location)})
    assert served_certificate(broker) == before


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"ssl.keystore.location": "/missing.pem"}, "/missing.pem"),
        ({"ssl.keystore.location": ""}, "ssl.keystore.location"),
        ({"ssl.cipher.suites": "TLS_NOTHING"}, "TLS_NOTHING"),
        ({"ssl.enabled.protocols": "TLSv9"}, "TLSv9"),
        ({"ssl.principal.mapping.rules": "RULE:("}, "ssl.principal.mapping.rules"),
    ],
)
def test_a_listener_without_usable_stores_keeps_the_broker_from_starting(
    changes: dict[str, str], reason: str, tmp_path: Path
) -> None:
    broker = BrokerProcess(tmp_path / "broker", keys(tmp_path) | changes)
    try:
        with pytest.raises(BrokerFailedError, match="exit code 1"):
            broker.start()
        last = broker.log_tail().strip().splitlines()[-1]
        assert last.startswith("kafkapy-server: ") and re.search(reason, last)
        assert not (tmp_path / "broker" / "logs").exists()
    finally:
        broker.kill()


def test_aiokafka_produces_and_consumes(start: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    broker = start()
    options = python_client(broker, tmp_path)
    values = [b"small", LARGE, *(b"%d" % n for n in range(200))]

    async def run() -> list[bytes]:
        async with aiokafka.AIOKafkaProducer(**options, max_request_size=1_000_000) as producer:
            for value in values:
                await producer.send_and_wait("t", value, partition=0)
        async with aiokafka.AIOKafkaConsumer("t", **options, auto_offset_reset="earliest", group_id="g") as consumer:
            return [(await consumer.getone()).value for _ in values]

    assert asyncio.run(asyncio.wait_for(run(), 120)) == values


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
@pytest.mark.parametrize("suite", ["TLS_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"])
def test_kcat_produces_and_consumes_with_a_chosen_cipher_suite(
    start: Callable[..., BrokerProcess], tmp_path: Path, suite: str
) -> None:
    broker = start(ssl__cipher__suites=suite)
    options = ["-b", f"localhost:{broker.port}", "-X", "security.protocol=ssl", "-t", "t"]
    options += ["-X", f"ssl.ca.location={tmp_path / 'trusted.pem'}"]
    lines = [f"line {n}" for n in range(1000)]
    subprocess.run(["kcat", "-P", *options], input="\n".join(lines), text=True, check=True, timeout=120)
    command = ["kcat", "-C", "-q", "-e", "-o", "beginning", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert sorted(done.stdout.splitlines()) == sorted(lines)
