"""kafkapy.testing.Broker: a whole broker inside of a test's process, of which nothing stays."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from interop.clients import ConfluentClient, Record

import kafkapy.testing
from kafkapy.errors import (
    ConfigError,
    IllegalStateError,
    InvalidTopicError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from kafkapy.testing import Broker


@pytest.fixture(scope="module")
def broker() -> Any:
    with Broker() as running:
        yield running


def test_records_come_back_as_they_were_sent(broker: Broker) -> None:
    client = ConfluentClient(broker.bootstrap_servers)
    broker.create_topic("records", 2)
    records = [Record(b"%d" % n, b"v" * n, (("h", b"%d" % n),), 1_000_000 + n) for n in range(500)]
    for compression in ("none", "lz4"):
        client.produce("records", records, partition=1, compression=compression, idempotent=True)
    got = client.consume("records", 1000, partition=1)
    assert [each.record for each in got] == records + records
    assert client.end_offset("records", 0) == 0


def test_groups_and_transactions_work(broker: Broker) -> None:
    broker.create_topic("in")
    broker.create_topic("out")
    ConfluentClient(broker.bootstrap_servers).produce("in", [Record(None, b"%d" % n) for n in range(20)])
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "workers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["in"])
    got: list[Any] = []
    while len(got) < 20:
        got += consumer.consume(20 - len(got), timeout=1)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "mover", "linger.ms": 0}
    )
    producer.init_transactions(30)
    for commit in (False, True):
        producer.begin_transaction()
        for message in got:
            producer.produce("out", message.value() + (b"" if commit else b" aborted"))
        producer.flush(30)
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), 30
        )
        if commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    assert consumer.committed(consumer.assignment(), timeout=30)[0].offset == 20
    consumer.close()
    # 20 records that were aborted and a marker come before.
    moved = ConfluentClient(broker.bootstrap_servers).consume("out", 20)
    assert [(each.offset, each.record.value) for each in moved] == [(21 + n, b"%d" % n) for n in range(20)]


def test_topics_are_made_and_deleted(broker: Broker) -> None:
    topic_id = broker.create_topic("made", 3, {"cleanup.policy": "compact", "preallocate": True})
    topic = broker.server.context.metadata_cache.topic("made")
    assert topic is not None
    assert (topic.topic_id, topic.partition_count) == (topic_id, 3)
    keys = broker.server.context.dynamic_config.topic_keys("made")
    assert keys == {"cleanup.policy": "compact", "preallocate": "true"}
    with pytest.raises(TopicAlreadyExistsError, match="made"):
        broker.create_topic("made")
    with pytest.raises(InvalidTopicError):
        broker.create_topic("no spaces")
    with pytest.raises(ConfigError, match=r"cleanup\.policy"):
        broker.create_topic("other", configs={"cleanup.policy": "burn"})
    broker.delete_topic("made")
    with pytest.raises(UnknownTopicOrPartitionError):
        broker.delete_topic("made")
    assert broker.create_topic("made") != topic_id


def test_a_deleted_topic_frees_its_memory() -> None:
    def held() -> int:
        count = 0
        for path in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed in the meantime
                count += "memfd:kafkapy:deleted-soon-" in str(path.readlink())
        return count

    with Broker() as broker:
        broker.create_topic("deleted-soon", 3)
        assert held() == 3
        broker.delete_topic("deleted-soon")
        deadline = time.monotonic() + 30
        while held() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert held() == 0


def test_keys_are_written_with_underscores() -> None:
    with Broker(num_partitions=4, auto_create_topics_enable=False, **{"message.max.bytes": 2000}) as broker:
        config = broker.server.config
        assert config.get_int("num.partitions") == 4
        assert not config.get_bool("auto.create.topics.enable")
        assert config.get_int("message.max.bytes") == 2000
        broker.create_topic("four")
        topic = broker.server.context.metadata_cache.topic("four")
        assert topic is not None
        assert topic.partition_count == 4


def test_a_wrong_key_or_value_is_said_at_once() -> None:
    with pytest.raises(ConfigError, match=r"num\.partition"):
        Broker(num_partition=1)
    with pytest.raises(ConfigError, match=r"num\.partitions"):
        Broker(num_partitions="many")
    with pytest.raises(ConfigError, match=r"kafkapy\.storage\.backend"):
        Broker(kafkapy_storage_backend="local")


def test_a_topic_cannot_ask_for_files(broker: Broker) -> None:
    with pytest.raises(ConfigError, match="local"):
        broker.create_topic("on-disk", configs={"kafkapy.storage.backend": "local"})


def test_brokers_beside_each_other_know_nothing_of_each_other() -> None:
    with Broker() as one, Broker() as two, Broker() as three:
        brokers = [one, two, three]
        assert len({each.port for each in brokers}) == 3
        assert len({each.server.context.cluster_id for each in brokers}) == 3
        for number, each in enumerate(brokers):
            each.create_topic("same", number + 1)
            ConfluentClient(each.bootstrap_servers).produce("same", [Record(None, b"of %d" % number)])
        two.stop()
        for number, each in ((0, one), (2, three)):
            got = ConfluentClient(each.bootstrap_servers).consume("same", 1)
            assert [received.record.value for received in got] == [b"of %d" % number]


def test_a_stopped_broker_is_not_there_and_may_start_again() -> None:
    broker = Broker()
    with pytest.raises(IllegalStateError):
        _ = broker.bootstrap_servers
    broker.start().create_topic("gone")
    port = broker.port
    assert broker.start().port == port
    broker.stop()
    broker.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=10)
    with pytest.raises(IllegalStateError):
        broker.create_topic("t")
    with broker:
        assert broker.server.context.metadata_cache.topic("gone") is None


def test_a_coroutine_starts_one_too() -> None:
    async def main() -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticking = asyncio.create_task(tick())
        async with kafkapy.testing.Broker(num_partitions=2) as broker:
            broker.create_topic("t")
            assert ticks > 1  # the loop went on while the broker started
            _, writer = await asyncio.open_connection("127.0.0.1", broker.port)
            writer.close()
            await writer.wait_closed()
        ticking.cancel()
        with pytest.raises(IllegalStateError):
            _ = broker.port

    asyncio.run(main())


def test_a_start_that_is_cancelled_leaves_no_broker() -> None:
    async def main() -> None:
        broker = Broker()
        starting = asyncio.create_task(broker.__aenter__())
        await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        with pytest.raises(IllegalStateError):
            _ = broker.server

    asyncio.run(main())


def test_a_start_that_fails_says_why() -> None:
    with Broker() as broker:
        taken = Broker(listeners=f"PLAINTEXT://127.0.0.1:{broker.port}")
        with pytest.raises(OSError, match="taken"):
            taken.start()
        with pytest.raises(IllegalStateError):
            _ = taken.server


def test_signals_and_logging_are_the_programs_own() -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)]
    root, level = list(logging.getLogger().handlers), logging.getLogger().level
    with Broker():
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)] == handlers
        assert (logging.getLogger().handlers, logging.getLogger().level) == (root, level)
        assert signal.set_wakeup_fd(-1) == -1


ROUNDS = """
import asyncio, gc, os, socket, sys, threading, time
from kafkapy.testing import Broker

gc.disable()  # what is left must not depend on when garbage is looked for

def descriptors():
    links = []
    for name in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:
            pass
    return links

def state():
    # A joined thread of Python's has one last step to go in the kernel.
    deadline = time.monotonic() + 30
    while len(os.listdir("/proc/self/task")) > 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    kinds = sorted(link.split(":")[0] for link in descriptors())
    return kinds, os.listdir("/proc/self/task"), threading.active_count()

def use(broker):
    broker.create_topic("t", 2)
    paths = [path for path in descriptors() if path.startswith("/") and not path.startswith(("/dev/", "/proc"))]
    assert any(path.startswith("/memfd:") for path in paths), paths
    assert all(path.startswith("/memfd:") for path in paths), paths

def with_block():
    with Broker() as broker:
        use(broker)

async def async_block():
    async with Broker() as broker:
        use(broker)

async def cancelled():
    starting = asyncio.create_task(Broker().__aenter__())
    await asyncio.sleep(0)
    starting.cancel()
    await asyncio.wait([starting])
    assert starting.cancelled()

def failed(taken):
    try:
        Broker(listeners=f"PLAINTEXT://127.0.0.1:{taken}").start()
    except OSError:
        return
    raise AssertionError

def rounds(count):
    for _ in range(count):
        with_block()
    for _ in range(count // 20 + 1):
        asyncio.run(async_block())
        asyncio.run(cancelled())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        for _ in range(count // 20 + 1):
            failed(listener.getsockname()[1])
    gc.collect()  # errors hold the frames that they came through

with_block()
rounds(1)
before = state()
for _ in range(int(sys.argv[1])):
    with_block()
after = state()
assert after == before, (before, after)
rounds(20)
after = state()
assert after == before, (before, after)
"""


@pytest.mark.parametrize("count", [50, pytest.param(1000, marks=pytest.mark.soak)])
def test_nothing_is_left_of_many_brokers(tmp_path: Path, count: int) -> None:
    """No thread, no descriptor, no memory file, and no file: the broker has an empty directory to write to."""
    done = subprocess.run(
        [sys.executable, "-c", ROUNDS, str(count)],
        cwd=tmp_path,
        env=os.environ | {"TMPDIR": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []
    assert not Path("/memory").exists()


@pytest.mark.parametrize("how", ["returns", "raises", "exits"])
def test_a_program_that_forgets_to_stop_it_ends_all_the_same(how: str) -> None:
    end = {"returns": "", "raises": "raise SystemExit(0)", "exits": "import os; os._exit(0)"}[how]
    program = f"from kafkapy.testing import Broker\nb = Broker().start()\nb.create_topic('t')\n{end}\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_one_is_started_on_any_thread() -> None:
    ports: list[int] = []

    def body() -> None:
        with Broker() as broker:
            ports.append(broker.port)

    threads = [threading.Thread(target=body) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ports) == 3
