"""A ZooKeeper cluster has one broker: the second one refuses to start, also when two start at once."""

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
from kafkapy.controller.controller_store import ControllerStore, OtherBrokersError
from kafkapy.metadata.znodes import BrokerRegistration
from kafkapy.metadata.zookeeper import ZooKeeperStore
from kafkapy.testing.broker_process import BrokerProcess
from kafkapy.types import Endpoint

pytestmark = pytest.mark.filterwarnings("ignore:No chroot path exists")  # the store makes it


def server(connect: str, broker_id: int, directory: Path) -> KafkaServer:
    properties = Properties("test")
    keys = {
        "broker.id": str(broker_id),
        "zookeeper.connect": connect,
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(directory / str(broker_id)),
    }
    for key, value in keys.items():
        properties.set(key, value)
    return KafkaServer(BrokerConfig.from_properties(properties))


def test_a_second_broker_refuses_to_start_and_the_first_goes_on(zookeeper: str, tmp_path: Path) -> None:
    connect = f"{zookeeper}/{uuid.uuid4().hex}"
    with server(connect, 0, tmp_path) as first:
        with pytest.raises(OtherBrokersError, match=r"Broker 0 .*: broker 1 cannot join it\.$"):
            server(connect, 1, tmp_path).start()
        assert set(first.context.metadata_cache.snapshot.brokers) == {0}
    # The place is free again, for the same broker and for another one.
    with server(connect, 0, tmp_path):
        pass
    with server(connect, 1, tmp_path):
        pass


def test_of_brokers_that_register_at_once_exactly_one_stays(zookeeper: str) -> None:
    async def race(connect: str) -> list[int]:
        stores = [ZooKeeperStore(connect) for _ in range(4)]
        for store in stores:
            await store.start()
        candidates = [ControllerStore(store) for store in stores]
        await candidates[0].ensure_paths()
        made = await asyncio.gather(
            *(
                each.register_only_broker(BrokerRegistration(number, (Endpoint("PLAINTEXT", "h", 9092),)))
                for number, each in enumerate(candidates)
            ),
            return_exceptions=True,
        )
        for each in made:
            assert isinstance(each, BrokerRegistration | OtherBrokersError), each
        winners = [number for number, each in enumerate(made) if isinstance(each, BrokerRegistration)]
        assert sorted(await candidates[0].live_brokers()) == winners
        for store in stores:
            await store.close()
        return winners

    async def races() -> None:
        for _ in range(5):
            assert len(await race(f"{zookeeper}/{uuid.uuid4().hex}")) == 1

    asyncio.run(races())


@pytest.mark.parametrize("successor", [2, 1], ids=["another broker", "its own id"])
def test_a_broker_whose_place_was_taken_while_its_session_had_expired_stops(
    zookeeper: str, tmp_path: Path, successor: int
) -> None:
    connect = f"{zookeeper}/{uuid.uuid4().hex}"
    keys = {"zookeeper.connect": connect, "zookeeper.session.timeout.ms": "2000"}
    frozen = BrokerProcess(tmp_path / "frozen", keys)
    with frozen:
        assert frozen.process is not None
        frozen.process.send_signal(signal.SIGSTOP)
        try:
            wait_until_nobody_is_registered(connect)
            with server(connect, successor, tmp_path) as second:
                frozen.process.send_signal(signal.SIGCONT)
                assert frozen.process.wait(60) == 1, frozen.log_tail()
                assert set(second.context.metadata_cache.snapshot.brokers) == {successor}
        finally:
            frozen.process.send_signal(signal.SIGCONT)
        frozen.process = None
    assert "This broker stops, because its ZooKeeper session expired" in frozen.log_tail()


def wait_until_nobody_is_registered(connect: str) -> None:
    async def wait() -> None:
        store = ZooKeeperStore(connect)
        await store.start()
        deadline = time.monotonic() + 60
        while await ControllerStore(store).live_brokers():
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        await store.close()

    asyncio.run(wait())
