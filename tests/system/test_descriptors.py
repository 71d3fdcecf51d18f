"""A broker with few descriptors: idle connections, auto-created topics and 10,000 segments under `ulimit -n`."""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from system.raw_client import RawClient, batch, fetch_request, produce_request

from kafkapy.errors import ErrorCode, error_for
from kafkapy.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from kafkapy.protocol.messages.create_topics import CreateTopicsRequest
from kafkapy.protocol.messages.metadata import MetadataRequest
from kafkapy.records.batches import decode_records, iter_batches
from kafkapy.testing.broker_process import BrokerProcess

LIMITS = (256, 1024)
BOUNDED = re.compile(r"lowers max.connections to (\d+)")
WAITING = "New connections wait"


def broker_with(limit: int, directory: Path, **keys: str) -> BrokerProcess:
    """The soft limit is low, so that the broker has to raise it; the hard one is `limit`."""
    script = f'ulimit -Sn 64 && ulimit -Hn {limit} && exec "$@"'
    command = ["sh", "-c", script, "sh", sys.executable, "-m", "kafkapy.tools.server"]
    overrides = {key.replace("_", "."): value for key, value in keys.items()}
    return BrokerProcess(directory, overrides, command=command)


def create(client: RawClient, name: str, **configs: str) -> None:
    made = CreateTopicsRequest.Topic(
        name=name,
        num_partitions=1,
        replication_factor=1,
        configs=[
            CreateTopicsRequest.Topic.Config(name=key.replace("_", "."), value=value) for key, value in configs.items()
        ],
    )
    assert client.call(CreateTopicsRequest(topics=[made], timeout_ms=10_000), 5).topics[0].error_code == 0


def produce(client: RawClient, topic: str, value: bytes) -> int:
    """The error code; what may be tried again is."""
    deadline = time.monotonic() + 30
    while True:
        code = client.call(produce_request(topic, batch(value)), 8).responses[0].partition_responses[0].error_code
        if code == 0 or not error_for(code).retriable or time.monotonic() > deadline:
            return code
        time.sleep(0.05)


def values(client: RawClient, topic: str, offset: int) -> list[bytes | None]:
    answer = client.call(fetch_request(topic, offset), 11).responses[0].partitions[0]
    assert answer.error_code == ErrorCode.NONE
    return [record.value for each in iter_batches(answer.records or b"") for record in decode_records(each)]


def check_healthy(broker: BrokerProcess, limit: int) -> None:
    said = broker.log_path.read_text()
    assert "offline" not in said
    assert "Traceback" not in said
    assert len(list(Path(f"/proc/{broker.pid}/fd").iterdir())) < limit


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def in_memory() -> Iterator[Path]:
    """A directory whose files are synced at once, where there is such a place."""
    memory = Path("/dev/shm")
    path = Path(tempfile.mkdtemp(prefix="kafkapy-descriptors-", dir=memory if os.access(memory, os.W_OK) else None))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.mark.parametrize("limit", LIMITS)
def test_idle_connections_leave_the_logs_their_descriptors(limit: int, in_memory: Path) -> None:
    with broker_with(limit, in_memory) as broker:
        client = RawClient(broker.bootstrap)
        create(client, "t", segment_bytes="2000")
        limits = Path(f"/proc/{broker.pid}/limits").read_text()
        assert re.search(rf"Max open files +{limit} +{limit} ", limits)
        bounds = BOUNDED.findall(broker.log_tail(100_000))
        assert len(bounds) == 1
        most = int(bounds[0])
        assert limit // 4 <= most < limit // 2
        idle = []
        for _ in range(most + 40):
            connection = socket.create_connection(("127.0.0.1", broker.port))
            idle.append(connection)
        eventually(lambda: WAITING in broker.log_tail(100_000))
        for number in range(20):  # every second one needs a new segment
            assert produce(client, "t", b"%02d" % number + b"x" * 1000) == 0
        late = RawClient(broker.bootstrap)
        for connection in idle:
            connection.close()
        assert produce(late, "t", b"late") == 0
        assert broker.log_tail(100_000).count(WAITING) == 1
        check_healthy(broker, limit)
        assert values(client, "t", 20) == [b"late"]


@pytest.mark.parametrize("limit", LIMITS)
def test_more_auto_created_topics_than_descriptors(limit: int, in_memory: Path) -> None:
    count = 2 * limit
    names = [f"auto-{number}" for number in range(count)]
    with broker_with(limit, in_memory) as broker:
        client = RawClient(broker.bootstrap)
        create(client, "before")
        assert produce(client, "before", b"1") == 0
        wanted = [MetadataRequest.Topic(name=name) for name in names]
        answer = client.call(MetadataRequest(topics=wanted, allow_auto_topic_creation=True), 8)
        for topic in answer.topics:
            assert topic.error_code == 0 or error_for(topic.error_code).retriable
        for name in (*names[:10], *names[-10:], "before"):
            assert produce(client, name, b"2") == 0
        check_healthy(broker, limit)
        broker.restart()
        client = RawClient(broker.bootstrap)
        for name in names[:: max(1, count // 200)]:
            assert produce(client, name, b"3") == 0
        assert values(client, "before", 0) == [b"1", b"2"]
        assert values(client, names[-1], 0) == [b"2"]
        check_healthy(broker, limit)


def fill(directory: Path, count: int) -> None:
    """Puts so many segments of one record into the directory of a partition; recovery makes their indexes."""
    data = batch(b"v" * 100)
    for offset in range(count):
        (directory / f"{offset:020d}.log").write_bytes(offset.to_bytes(8, "big") + data[8:])


def test_a_log_of_more_segments_than_descriptors_moves_while_it_is_read(in_memory: Path) -> None:
    count, limit = 1000, 256
    dirs = [in_memory / name for name in ("one", "two")]
    broker = broker_with(limit, in_memory / "broker", log_dirs=",".join(map(str, dirs)))
    with broker:
        client = RawClient(broker.bootstrap)
        create(client, "many", segment_bytes="200", retention_ms="-1")
        (old,) = [path for path in dirs if (path / "many-0").exists()]
        (new,) = [path for path in dirs if path != old]
        broker.stop()
        fill(old / "many-0", count)
        (old / ".kafka_cleanshutdown").unlink()
        (old / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
        broker.start(120)
        client = RawClient(broker.bootstrap)
        topic = AlterReplicaLogDirsRequest.Dir.Topic(name="many", partitions=[0])
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDirsRequest.Dir(path=str(new), topics=[topic])])
        assert client.call(request, 2).results[0].partitions[0].error_code == 0
        deadline = time.monotonic() + 120
        offset = 0
        while (old / "many-0").exists() or not (new / "many-0").exists():
            assert time.monotonic() < deadline, "the log does not move"
            assert values(client, "many", offset) == [b"v" * 100]
            offset = (offset + 7) % count
        for offset in range(0, count, 3):
            assert values(client, "many", offset) == [b"v" * 100]
        assert produce(client, "many", b"end") == 0
        check_healthy(broker, limit)
        assert "cannot be moved" not in broker.log_path.read_text()


def test_ten_thousand_segments_under_256_descriptors(in_memory: Path) -> None:
    count, limit = 10_000, 256
    broker = broker_with(limit, in_memory)
    with broker:
        client = RawClient(broker.bootstrap)
        create(client, "many", segment_bytes="200", retention_ms="-1")
        broker.stop()
        fill(in_memory / "logs" / "many-0", count)
        # Without the marker of a clean stop, and without indexes: everything is recovered.
        (in_memory / "logs" / ".kafka_cleanshutdown").unlink()
        (in_memory / "logs" / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
        broker.start(120)
        for _ in range(2):
            client = RawClient(broker.bootstrap)
            for offset in range(0, count, 7):
                assert values(client, "many", offset) == [b"v" * 100]
            assert produce(client, "many", b"end") == 0
            check_healthy(broker, limit)
            broker.restart()
        client = RawClient(broker.bootstrap)
        assert values(client, "many", count) == [b"end", b"end"]
