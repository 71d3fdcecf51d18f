"""Our producer and our consumers at work at once while connections are cut within frames and the broker is killed.

Every record is in the log exactly once and in order; a consumer with assigned partitions returns it exactly once and in
order; the members of a group return it at least once, and none before those ahead of it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from clients.producer.cutting_proxy import CuttingProxy

from kafkapy import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafkapy.admin import NewTopic
from kafkapy.aio import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from kafkapy.errors import KafkaError
from kafkapy.testing.broker_process import BrokerProcess

TOPIC = "trouble"
PARTITIONS = 3
QUICK: dict[str, Any] = {"retry_backoff_ms": 20, "reconnect_backoff_ms": 10, "reconnect_backoff_max_ms": 200}
READ: dict[str, Any] = QUICK | {"auto_offset_reset": "earliest", "max_partition_fetch_bytes": 100_000}
GROUPS: dict[str, dict[str, Any]] = {
    "classic": READ | {"group_id": "group", "session_timeout_ms": 6000, "heartbeat_interval_ms": 300},
    "consumer": READ | {"group_id": "group", "group_protocol": "consumer"},
}
OVERRIDES = {
    "num.partitions": str(PARTITIONS),
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.heartbeat.interval.ms": "300",
}


@pytest.fixture
def proxy() -> Iterator[CuttingProxy]:
    with CuttingProxy() as proxy:
        yield proxy


@pytest.fixture
def broker(proxy: CuttingProxy) -> Iterator[BrokerProcess]:
    """A broker that clients reach through the proxy only."""
    overrides = OVERRIDES | {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"}
    with BrokerProcess(overrides=overrides) as running:
        proxy.target_port = running.port
        with KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{proxy.port}") as admin:
            admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])
        yield running


class Delivered:
    """What consumers returned, checked as it comes. Partition p holds the numbers 0, 1, 2, ... in order."""

    def __init__(self, exactly_once: bool) -> None:
        self.ends = [0] * PARTITIONS
        """How many numbers of each partition were returned."""
        self.repeated = 0
        self.wrong: list[str] = []
        self._exactly_once = exactly_once
        self._lock = threading.Lock()

    def add(self, record: Any) -> None:
        number, partition = int(record.value), record.partition
        with self._lock:
            end = self.ends[partition]
            if number != record.offset:
                self.wrong.append(f"number {number} of partition {partition} is at offset {record.offset}")
            if number > end or (self._exactly_once and number < end):
                self.wrong.append(f"number {number} of partition {partition} came after {end - 1}")
            if number < end:
                self.repeated += 1
            else:
                self.ends[partition] = number + 1

    def complete(self, counts: list[int]) -> bool:
        with self._lock:
            return bool(self.wrong) or self.ends == counts


class Worker(threading.Thread):
    """Runs a consumer until it is told to stop; what it raised is raised by `finish`."""

    def __init__(self, body: Callable[[threading.Event], None]) -> None:
        super().__init__(daemon=True)
        self._body = body
        self._stop_asked = threading.Event()
        self._failure: BaseException | None = None

    def run(self) -> None:
        try:
            self._body(self._stop_asked)
        except BaseException as error:  # for the thread that finishes this one
            self._failure = error

    def finish(self) -> None:
        self._stop_asked.set()
        self.join(60)
        assert not self.is_alive()
        if self._failure is not None:
            raise self._failure


def read_assigned(bootstrap: str, delivered: Delivered) -> Worker:
    def body(stop: threading.Event) -> None:
        with KafkaConsumer(bootstrap_servers=bootstrap, **READ) as consumer:
            consumer.assign([TopicPartition(TOPIC, number) for number in range(PARTITIONS)])
            while not stop.is_set():
                for record in consumer.poll_batch(1000, 100):
                    delivered.add(record)

    return Worker(body)


def read_in_group(bootstrap: str, delivered: Delivered, protocol: str) -> Worker:
    def body(stop: threading.Event) -> None:
        settings = {"bootstrap_servers": bootstrap, "auto_commit_interval_ms": 200} | GROUPS[protocol]
        with KafkaConsumer(TOPIC, **settings) as consumer:
            while not stop.is_set():
                for records in consumer.poll(100, 1000).values():
                    for record in records:
                        delivered.add(record)

    return Worker(body)


def read_in_group_on_asyncio(bootstrap: str, delivered: Delivered, protocol: str) -> Worker:
    async def main(stop: threading.Event) -> None:
        settings = {"bootstrap_servers": bootstrap, "enable_auto_commit": False} | GROUPS[protocol]
        async with AIOKafkaConsumer(TOPIC, **settings) as consumer:
            while not stop.is_set():
                for records in (await consumer.getmany(timeout_ms=100, max_records=1000)).values():
                    for record in records:
                        delivered.add(record)
                try:
                    await consumer.commit()
                except KafkaError:
                    pass  # the group rebalances, or the broker is gone: who gets the partition reads these again

    return Worker(lambda stop: asyncio.run(main(stop)))


class Trouble:
    """Cuts connections, and kills the broker and starts it again, while in its block."""

    def __init__(self, proxy: CuttingProxy, broker: BrokerProcess, kills: int, cut_every: int, pause_s: float) -> None:
        self.killed = 0
        self._proxy, self._broker = proxy, broker
        self._kills, self._cut_every, self._pause_s = kills, cut_every, pause_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    @property
    def over(self) -> bool:
        return self.killed == self._kills

    def _run(self) -> None:
        while self.killed < self._kills and not self._stop.wait(self._pause_s):
            self._broker.kill()
            time.sleep(0.1)
            self._broker.start()
            self.killed += 1

    def __enter__(self) -> Trouble:
        self._proxy.cut_every = self._cut_every
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._proxy.cut_every = 0


def wait_until(done: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not done() and time.monotonic() < deadline:
        time.sleep(0.05)


def through_trouble(
    proxy: CuttingProxy, broker: BrokerProcess, count: int, *, kills: int, cut_every: int, protocol: str = "classic"
) -> None:
    bootstrap = f"127.0.0.1:{proxy.port}"
    once, group = Delivered(exactly_once=True), Delivered(exactly_once=False)
    workers = [
        read_assigned(bootstrap, once),
        read_in_group(bootstrap, group, protocol),
        read_in_group_on_asyncio(bootstrap, group, protocol),
    ]
    for worker in workers:
        worker.start()
    number = 0
    futures = []
    with (
        KafkaProducer(bootstrap_servers=bootstrap, linger_ms=1, compression_type="lz4", **QUICK) as producer,
        Trouble(proxy, broker, kills, cut_every, 0.8) as trouble,
    ):
        while number < count or not trouble.over:
            futures.append(producer.send(TOPIC, b"%d" % (number // PARTITIONS), partition=number % PARTITIONS))
            number += 1
            if number % 1000 == 0:
                time.sleep(0.02)
        producer.flush(timeout=120)
    assert [future.exception for future in futures if not future.succeeded()] == []
    assert all(futures[n].get(0).offset == n // PARTITIONS for n in range(0, number, 97))
    counts = [len(range(partition, number, PARTITIONS)) for partition in range(PARTITIONS)]
    wait_until(lambda: once.complete(counts) and group.complete(counts), 60)
    time.sleep(0.3)  # whatever comes twice has the time to come
    for worker in workers:
        worker.finish()
    assert once.wrong == group.wrong == []
    assert once.ends == counts
    assert group.ends == counts
    assert once.repeated == 0
    assert proxy.cuts > 0
    with KafkaConsumer(bootstrap_servers=bootstrap) as consumer:
        ends = consumer.end_offsets([TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)])
    assert [ends[TopicPartition(TOPIC, partition)] for partition in range(PARTITIONS)] == counts


def test_every_record_through_cuts_and_a_kill(proxy: CuttingProxy, broker: BrokerProcess) -> None:
    through_trouble(proxy, broker, 15_000, kills=1, cut_every=60_000)


@pytest.mark.soak
@pytest.mark.parametrize("protocol", list(GROUPS))
def test_a_million_records_through_cuts_and_kills(proxy: CuttingProxy, broker: BrokerProcess, protocol: str) -> None:
    through_trouble(proxy, broker, 1_000_000, kills=6, cut_every=1_000_000, protocol=protocol)


def test_an_asyncio_producer_through_cuts_and_a_kill(proxy: CuttingProxy, broker: BrokerProcess) -> None:
    bootstrap = f"127.0.0.1:{proxy.port}"
    count = 6_000
    delivered = Delivered(exactly_once=True)

    async def main() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, **QUICK) as producer:
            with Trouble(proxy, broker, 1, 60_000, 0.5) as trouble:
                futures = []
                while len(futures) < count or not trouble.over:
                    number = len(futures)
                    value = b"%d" % (number // PARTITIONS)
                    futures.append(await producer.send(TOPIC, value, partition=number % PARTITIONS))
                    if number % 100 == 0:
                        await asyncio.sleep(0.01)
                results = await asyncio.gather(*futures)
            assert [each.offset for each in results] == [n // PARTITIONS for n in range(len(results))]
        async with AIOKafkaConsumer(bootstrap_servers=bootstrap, **READ) as consumer:
            consumer.assign([TopicPartition(TOPIC, number) for number in range(PARTITIONS)])
            for _ in results:
                delivered.add(await consumer.getone())
            assert await consumer.getmany(timeout_ms=200) == {}

    asyncio.run(main())
    assert delivered.wrong == []
