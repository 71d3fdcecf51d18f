"""Brokers register in ZooKeeper: an id and an address belong to one process, and a killed broker's own wait for it."""

from __future__ import annotations

import asyncio
import signal
import time
import uuid
from pathlib import Path

import pytest

from kafkapy.broker.server import KafkaServer
from kafkapy.config.broker import BrokerConfig
from kafkapy.config.properties import Properties
from kafkapy.controller.controller_store import ControllerStore
from kafkapy.errors import DuplicateBrokerRegistrationError
from kafkapy.metadata.store import NodeExistsError
from kafkapy.metadata.znodes import BrokerRegistration, broker_path
from kafkapy.metadata.zookeeper import ZooKeeperStore
from kafkapy.testing.broker_process import BrokerProcess
from kafkapy.types import Endpoint

pytestmark = pytest.mark.filterwarnings("ignore:No chroot path exists")  # the store makes it


def server(connect: str, broker_id: int, directory: Path, **keys: str) -> KafkaServer:
    properties = Properties("test")
    keys = {
        "broker.id": str(broker_id),
        "zookeeper.connect": connect,
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(directory / uuid.uuid4().hex),
    } | {key.replace("_", "."): value for key, value in keys.items()}
    for key, value in keys.items():
        properties.set(key, value)
    return KafkaServer(BrokerConfig.from_properties(properties))


def test_an_id_belongs_to_one_process(zookeeper: str, tmp_path: Path) -> None:
    connect = f"{zookeeper}/{uuid.uuid4().hex}"
    with server(connect, 1, tmp_path) as first:
        with pytest.raises(DuplicateBrokerRegistrationError, match="a broker with id 1 is registered already"):
            server(connect, 1, tmp_path).start()
        assert set(first.context.metadata_cache.snapshot.brokers) == {1}
    with server(connect, 1, tmp_path):
        pass


def test_an_address_belongs_to_one_broker(zookeeper: str, tmp_path: Path) -> None:
    connect = f"{zookeeper}/{uuid.uuid4().hex}"
    address = "PLAINTEXT://broker.example:9092"
    refused = pytest.raises(DuplicateBrokerRegistrationError, match=r"^broker\.example:9092 .* of broker 1, which")
    with server(connect, 1, tmp_path, advertised_listeners=address), refused:
        server(connect, 2, tmp_path, advertised_listeners=address).start()


def test_a_killed_broker_waits_for_the_end_of_its_own_session(zookeeper: str, tmp_path: Path) -> None:
    connect = f"{zookeeper}/{uuid.uuid4().hex}"
    keys = {"zookeeper.connect": connect, "zookeeper.session.timeout.ms": "3000"}
    with BrokerProcess(tmp_path / "killed", keys) as broker:
        broker.kill()
        assert epoch_of(connect, 1) is not None
        broker.start()
        assert "waits for the end of this broker's earlier session" in broker.log_tail()


def test_a_broker_whose_id_was_taken_while_its_session_had_expired_stops(zookeeper: str, tmp_path: Path) -> None:
    connect = f"{zookeeper}/{uuid.uuid4().hex}"
    keys = {"zookeeper.connect": connect, "zookeeper.session.timeout.ms": "2000"}
    frozen = BrokerProcess(tmp_path / "frozen", keys)
    with frozen:
        assert frozen.process is not None
        frozen.process.send_signal(signal.SIGSTOP)
        try:
            wait_until_nobody_is_registered(connect)
            with server(connect, 1, tmp_path) as second:
                frozen.process.send_signal(signal.SIGCONT)
                assert frozen.process.wait(60) == 1, frozen.log_tail()
                assert set(second.context.metadata_cache.snapshot.brokers) == {1}
        finally:
            frozen.process.send_signal(signal.SIGCONT)
        frozen.process = None
    assert "This broker stops, because its session with the metadata store expired" in frozen.log_tail()


def test_a_registration_is_replaced_in_the_same_process_only(zookeeper: str) -> None:
    """The store may not know yet that the process's earlier session has ended (KAFKA-7165)."""

    async def test() -> None:
        connect = f"{zookeeper}/{uuid.uuid4().hex}"
        first, second = ZooKeeperStore(connect), ZooKeeperStore(connect)
        await first.start()
        await second.start()
        mine = BrokerRegistration(1, (Endpoint("PLAINTEXT", "h", 9092),))
        await ControllerStore(first).ensure_paths()
        made = await ControllerStore(first).register_broker(mine)
        value, stat = await first.get(broker_path(1))
        assert (stat.version, stat.created_transaction) == (1, made.epoch)
        assert value.startswith(b'{"')
        with pytest.raises(NodeExistsError):
            await ControllerStore(second).register_broker(mine)
        again = await ControllerStore(second).register_broker(mine, first.session_id)
        assert again.epoch > made.epoch
        assert (await second.get(broker_path(1)))[1].ephemeral_owner == second.session_id
        # An answer that was lost: the session finds its own node.
        assert (await ControllerStore(second).register_broker(mine)).epoch > again.epoch
        await first.close()
        assert await second.exists(broker_path(1)) is not None
        await second.close()

    asyncio.run(test())


def epoch_of(connect: str, broker_id: int) -> int | None:
    async def read() -> int | None:
        store = ZooKeeperStore(connect)
        await store.start()
        found = await ControllerStore(store).registration(broker_id)
        await store.close()
        return None if found is None else found.epoch

    return asyncio.run(read())


def wait_until_nobody_is_registered(connect: str) -> None:
    deadline = time.monotonic() + 60
    while epoch_of(connect, 1) is not None:
        assert time.monotonic() < deadline
