"""A network thread that gets no memory closes a connection or fails a request: the broker lives, and loses nothing."""

from __future__ import annotations

import mmap
import os
import resource
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from system.raw_client import RawClient, batch, fetch_request, framed, produce_request

from kafkapy.protocol.messages.api_versions import ApiVersionsRequest
from kafkapy.protocol.messages.fetch import FetchRequest
from kafkapy.protocol.messages.metadata import MetadataRequest
from kafkapy.records.batches import RecordBatchBuilder, decode_records, iter_batches
from kafkapy.testing.broker_process import BrokerProcess

MEGABYTE = 1 << 20
TOPIC = "t"
WIDE = 300
ATTEMPTS = 100
LEAST_LEAK = 100
"""Bytes of an attempt."""
ORDERS = struct.Struct("<qqqqqqq")
SANITIZED = "KAFKAPY_ASAN" in os.environ or "KAFKAPY_TSAN" in os.environ


class Allocations:
    """The library preloaded in the broker. `arm` says which allocation of its threads of C fails, from 1 on."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(ORDERS.size))
        with path.open("r+b") as file:
            self._orders = mmap.mmap(file.fileno(), ORDERS.size)

    def arm(self, number: int, times: int = 1, least: int = 0) -> None:
        self._orders[8:40] = struct.pack("<qqqq", times, least, 0, 0)
        self._orders[:8] = struct.pack("<q", number)

    def disarm(self) -> int:
        """How many allocations have failed."""
        self._orders[:8] = bytes(8)
        return int(ORDERS.unpack(self._orders[:])[4])

    def bytes_in_use(self) -> int:
        """What the broker has allocated and not freed. It must allocate something meanwhile: its control loop does."""
        self._orders[40:48] = struct.pack("<q", 1)
        deadline = time.monotonic() + 60
        while self._orders[40:48] != bytes(8):
            assert time.monotonic() < deadline
            time.sleep(0.001)
        return int(ORDERS.unpack(self._orders[:])[6])


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("library") / "allocation_faults.so"
    source = Path(__file__).with_name("allocation_faults.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(path), str(source)], check=True)
    return path


@pytest.fixture(scope="module")
def spoiled(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, Allocations]]:
    if SANITIZED:
        pytest.skip("the sanitizer has an allocator of its own")
    directory = tmp_path_factory.mktemp("spoiled")
    allocations = Allocations(directory / "orders")
    environment = {
        "LD_PRELOAD": str(library),
        "ALLOCATION_FAULTS": str(directory / "orders"),
        "ALLOCATION_FAULTS_THREADS": "kafka-",
    }
    # The records are of 2023, and the broker runs for longer than it waits with its first look for old segments.
    keys = {"num.partitions": "1", "kafkapy.validate.compressed": "full", "log.retention.ms": "-1"}
    broker = BrokerProcess(directory / "data", keys, environment=environment)
    with broker:
        client = RawClient(broker.bootstrap)
        for _ in range(100):
            metadata = client.call(MetadataRequest(topics=[MetadataRequest.Topic(name=TOPIC)]), 4)
            if metadata.topics[0].error_code == 0:
                break
        client.close()
        yield broker, allocations


def wide_fetch() -> FetchRequest:
    partitions = [FetchRequest.Topic.Partition(partition=0, fetch_offset=0, partition_max_bytes=1) for _ in range(WIDE)]
    request = fetch_request(TOPIC, 0)
    request.topics = [FetchRequest.Topic(topic=f"unknown-{i}", partitions=[each]) for i, each in enumerate(partitions)]
    return request


def session_fetch() -> FetchRequest:
    request = fetch_request(TOPIC, 0)
    request.session_id, request.session_epoch = 0, 0
    return request


def call(client: RawClient, request: Any, version: int) -> bool:
    try:
        client.call(request, version)
    except ConnectionError:
        return False
    return True


CASES: dict[str, Callable[[RawClient], bool]] = {
    "api versions": lambda client: call(client, ApiVersionsRequest(), 2),
    "metadata": lambda client: call(client, MetadataRequest(topics=None), 4),
    "fetch": lambda client: call(client, fetch_request(TOPIC, 0), 4),
    "fetch in a session": lambda client: call(client, session_fetch(), 11),
    "fetch of many topics": lambda client: call(client, wide_fetch(), 4),
    "fetch that waits": lambda client: call(
        client, fetch_request(TOPIC, 0, max_wait_ms=5, min_bytes=1 << 30, max_bytes=1 << 30), 4
    ),
}


def rounds(allocations: Allocations, attempt: Callable[[], None], times: int) -> int:
    """Makes each of the first 40 allocations fail in turn, then every so many; how many attempts it took."""
    number = attempts = 0
    while True:
        number += 1 if number < 40 else 1 + number // 4
        allocations.arm(number, times)
        attempt()
        attempts += 1
        if allocations.disarm() == 0:
            return attempts


@pytest.mark.parametrize("case", CASES)
def test_each_allocation_of_a_request_may_fail(spoiled: tuple[BrokerProcess, Allocations], case: str) -> None:
    broker, allocations = spoiled
    neighbour = RawClient(broker.bootstrap)

    def attempt() -> None:
        client = RawClient(broker.bootstrap)
        CASES[case](client)
        client.close()

    def grown() -> float:
        """Bytes that the broker keeps of an attempt."""
        before, attempts = allocations.bytes_in_use(), 0
        while attempts < ATTEMPTS:
            for times in (4, 1, 3):
                made = rounds(allocations, attempt, times)
                assert made > 1, "no allocation has failed"
                attempts += made
            assert CASES[case](neighbour), "a connection beside it is closed"
        return (allocations.bytes_in_use() - before) / attempts

    settled, kept = 0, []
    while settled < 3:
        # At first the broker still fills its own tables and caches. What leaks is seen in each turn.
        kept.append(grown())
        settled = settled + 1 if kept[-1] < LEAST_LEAK else 0
        assert len(kept) < 30, kept
    neighbour.close()


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("acks", [1, -1])
def test_what_is_acknowledged_is_there_once_and_nothing_is_there_twice(
    spoiled: tuple[BrokerProcess, Allocations], acks: int, codec: int
) -> None:
    broker, allocations = spoiled
    sent: list[bytes] = []
    acknowledged: set[bytes] = set()

    def attempt() -> None:
        value = f"acks {acks} codec {codec} number {len(sent)}".encode()
        sent.append(value)
        client = RawClient(broker.bootstrap)
        try:
            answer = client.call(produce_request(TOPIC, twice(value, codec), acks), 7)
        except ConnectionError:
            pass
        else:
            if answer.responses[0].partition_responses[0].error_code == 0:
                acknowledged.add(value)
        client.close()

    for times in (1, 2):
        assert rounds(allocations, attempt, times) > 1, "no allocation has failed"
        attempt()
        assert sent[-1] in acknowledged
    found: list[bytes] = []
    client = RawClient(broker.bootstrap)
    offset = 0
    while True:
        partition = client.call(fetch_request(TOPIC, offset), 4).responses[0].partitions[0]
        assert partition.error_code == 0
        if offset >= partition.high_watermark:
            break
        for each in iter_batches(partition.records):
            found += [record.value for record in decode_records(each)]
            offset = each.last_offset + 1
    client.close()
    ours = [value for value in found if value.startswith(f"acks {acks} codec {codec} ".encode())]
    assert {value: ours.count(value) for value in set(ours)} == dict.fromkeys(set(ours), 2)
    assert acknowledged <= set(ours) <= set(sent)


def twice(value: bytes, codec: int) -> bytes:
    """A batch of two records of that value."""
    builder = RecordBatchBuilder()
    for _ in range(2):
        builder.append(1_700_000_000_000, None, value)
    return builder.build(codec)


def large_fetch(partitions: int) -> bytes:
    """A Fetch of version 4 that names one partition so many times."""
    head = struct.pack(">hhi", 1, 4, 1) + struct.pack(">h", -1)
    body = struct.pack(">iiiib", -1, 0, 0, 1 << 20, 0) + struct.pack(">i", 1) + struct.pack(">h", 1) + TOPIC.encode()
    return framed(head + body + struct.pack(">i", partitions) + struct.pack(">iqi", 0, 0, 0) * partitions)


def outcome(bootstrap: str, frame: bytes) -> str:
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        try:
            connection.sendall(frame)
            return "answered" if connection.recv(4) else "closed"
        except ConnectionError:
            return "closed"


@pytest.mark.skipif(SANITIZED, reason="a sanitizer takes all of the address space")
def test_large_requests_are_refused_while_the_broker_has_no_memory(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, {"num.network.threads": "2"}) as broker:
        neighbour = RawClient(broker.bootstrap)
        request = MetadataRequest(topics=[MetadataRequest.Topic(name=TOPIC)])
        while neighbour.call(request, 4).topics[0].error_code:
            pass
        frame = large_fetch(150_000)
        assert outcome(broker.bootstrap, frame) == "answered"
        pages = int(Path(f"/proc/{broker.pid}/statm").read_text().split()[0])
        before = resource.prlimit(broker.pid, resource.RLIMIT_AS)
        resource.prlimit(broker.pid, resource.RLIMIT_AS, (pages * mmap.PAGESIZE + 24 * MEGABYTE, before[1]))
        for turn in range(10):
            assert outcome(broker.bootstrap, frame) == "closed"
            answer = neighbour.call(produce_request(TOPIC, batch(b"beside %d" % turn), 1), 7)
            assert answer.responses[0].partition_responses[0].error_code == 0
            assert call(neighbour, fetch_request(TOPIC, 0), 4)
        resource.prlimit(broker.pid, resource.RLIMIT_AS, before)
        assert outcome(broker.bootstrap, frame) == "answered"
        neighbour.close()
