"""A broker whose metadata store is not there: at its start, for a while, and for good."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from peers.apache_kafka import PeerMissingError, free_port
from peers.etcd import Etcd
from peers.zookeeper import ZooKeeper
from waiting import wait_until

from kafkapy import KafkaProducer
from kafkapy.metadata.etcd import EtcdStore
from kafkapy.metadata.zookeeper import ZooKeeperStore
from kafkapy.testing.broker_process import BrokerFailedError, BrokerProcess

STORES = ("etcd", "zookeeper")
STOP_S = 300.0
"""Far more than the sum of the stop's own limits, on a busy machine."""


def keys(kind: str, address: str, session_ms: int = 6000) -> dict[str, str]:
    place = "kafkapy.etcd.endpoints" if kind == "etcd" else "zookeeper.connect"
    prefix = "kafkapy.etcd." if kind == "etcd" else "zookeeper."
    return {
        place: address,
        f"{prefix}session.timeout.ms": str(session_ms),
        f"{prefix}connection.timeout.ms": "2500",
        "kafkapy.metadata.store": kind,
    }


@pytest.fixture
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A server of the kind that the test names."""
    try:
        made = (Etcd if request.param == "etcd" else ZooKeeper)(tmp_path / "store")
    except PeerMissingError as missing:
        pytest.skip(str(missing))
    with made:
        made.kind = request.param
        yield made
        made.resume()


def registered(server: Any) -> bool:
    """Whether the store has a registration of a broker."""

    async def look() -> bool:
        address = f"127.0.0.1:{server.port}"
        store = EtcdStore([address]) if server.kind == "etcd" else ZooKeeperStore(address)
        await store.start()
        try:
            return bool(await store.children("/brokers/ids"))
        finally:
            await store.close()

    return asyncio.run(look())


@pytest.mark.parametrize("kind", STORES)
def test_a_start_without_the_store_ends_with_one_sentence_and_exit_code_1(kind: str, tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    broker = BrokerProcess(tmp_path / "broker", keys(kind, address))
    with pytest.raises(BrokerFailedError, match="ended with exit code 1"):
        broker.start(STOP_S)
    said = broker.log_path.read_text()
    name = "etcd" if kind == "etcd" else "ZooKeeper"
    assert said.count(f"{name} at {address} cannot be reached within 2.5 seconds: ") == 1
    assert "Traceback" not in said


@pytest.mark.parametrize("how", ["kill", "pause"])
@pytest.mark.parametrize("server", STORES, indirect=True)
def test_a_broker_whose_store_is_gone_serves_on_and_stops(server: Any, how: str, tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "broker", keys(server.kind, f"127.0.0.1:{server.port}"))
    broker.start(STOP_S)
    try:
        with KafkaProducer(bootstrap_servers=broker.bootstrap, acks="all", request_timeout_ms=60000) as producer:
            assert producer.send("t", b"before").get(STOP_S).offset == 0
            getattr(server, how)()
            wait_until(lambda: "session is suspended" in broker.log_path.read_text(), "the session is in doubt")
            assert producer.send("t", b"after").get(STOP_S).offset == 1
        assert broker.stop(STOP_S) == 0
    finally:
        broker.kill()
    assert "Traceback" not in broker.log_path.read_text()


@pytest.mark.parametrize("server", STORES, indirect=True)
def test_a_broker_registers_again_after_its_session_has_ended(server: Any, tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "broker", keys(server.kind, f"127.0.0.1:{server.port}", 4000))
    broker.start(STOP_S)
    try:
        with KafkaProducer(bootstrap_servers=broker.bootstrap, acks="all", request_timeout_ms=60000) as producer:
            assert producer.send("t", b"before").get(STOP_S).offset == 0
            # The broker is frozen, and its server ends the session.
            os.kill(broker.pid, signal.SIGSTOP)
            wait_until(lambda: not registered(server), "the registration is gone")
            os.kill(broker.pid, signal.SIGCONT)
            wait_until(lambda: "session is expired" in broker.log_path.read_text(), "the session is over")
            wait_until(lambda: "session is connected" in broker.log_path.read_text(), "there is a new session")
            assert producer.send("t", b"after").get(STOP_S).offset == 1
        deadline = time.monotonic() + STOP_S
        while True:  # a new topic needs the controller, which this broker is again
            try:
                with KafkaProducer(bootstrap_servers=broker.bootstrap, acks="all") as producer:
                    assert producer.send("new", b"x").get(STOP_S).offset >= 0
                break
            except Exception:
                if time.monotonic() > deadline:
                    raise
        assert broker.stop(STOP_S) == 0
    finally:
        broker.kill()
