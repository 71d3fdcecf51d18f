"""Idle, slow and stuck clients cost little, and those beside them are served as if they were not there."""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from interop.clients import ConfluentClient, Record
from interop.conftest import make_broker
from system.raw_client import RawClient, batch, fetch_request, produce_request

pytestmark = pytest.mark.alone

MEGABYTE = 1 << 20


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    made = make_broker(tmp_path_factory.mktemp("slow"))
    made.start()
    ConfluentClient(made.bootstrap).create_topic("t")
    yield made
    made.stop()
    made.remove()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def check_service(bootstrap: str, topic: str = "t") -> None:
    """An ordinary client produces and reads back."""
    client = ConfluentClient(bootstrap)
    start = client.end_offset(topic)
    client.produce(topic, [Record(b"k", b"v%d" % n) for n in range(100)])
    got = client.consume(topic, 100, offset=start)
    assert [r.record.value for r in got] == [b"v%d" % n for n in range(100)]


def test_a_thousand_idle_and_two_hundred_active_connections(broker: Any) -> None:
    idle = [RawClient(broker.bootstrap) for _ in range(1000)]
    before = broker.rss_bytes()
    active = [RawClient(broker.bootstrap) for _ in range(200)]
    frame = batch(b"x" * 100)
    for _ in range(25):
        for client in active:
            client.send(produce_request("t", frame), 9)
        for client in active:
            assert client.receive_frame()
    for client in idle[::100]:
        answer = client.call(produce_request("t", frame), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0
    check_service(broker.bootstrap)
    assert broker.rss_bytes() - before < 50 * MEGABYTE
    for client in idle + active:
        client.close()


def test_readers_that_never_drain_hold_no_memory_and_nobody_up(broker: Any) -> None:
    ConfluentClient(broker.bootstrap).create_topic("big")
    writer = RawClient(broker.bootstrap)
    for _ in range(64):
        answer = writer.call(produce_request("big", batch(b"x" * 10_000, 100)), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0
    before = broker.rss_bytes()
    stuck = [RawClient(broker.bootstrap, receive_buffer=4096) for _ in range(50)]
    for client in stuck:
        for _ in range(5):
            client.send(fetch_request("big", 0, max_bytes=50 * MEGABYTE), 11)
    for _ in range(3):
        check_service(broker.bootstrap)
    assert broker.rss_bytes() - before < 50 * MEGABYTE
    assert len(stuck[0].receive_frame()) > 40 * MEGABYTE, "a reader that comes back gets all of it"
    for client in stuck:
        client.close()
    check_service(broker.bootstrap)


def test_a_request_that_comes_byte_by_byte_is_answered_and_holds_nobody_up(broker: Any) -> None:
    slow = [RawClient(broker.bootstrap) for _ in range(20)]
    frames = [client.encode(produce_request("t", batch(b"slow")), 9) for client in slow]
    ConfluentClient(broker.bootstrap).create_topic("beside")
    done = threading.Event()
    rounds: list[float] = []
    problems: list[BaseException] = []

    def others() -> None:
        while not done.is_set() and not problems:
            try:
                check_service(broker.bootstrap, "beside")
            except BaseException as problem:
                problems.append(problem)
            rounds.append(time.monotonic())

    beside = threading.Thread(target=others)
    beside.start()
    try:
        for at in range(max(map(len, frames))):
            for client, frame in zip(slow, frames, strict=True):
                client.socket.sendall(frame[at : at + 1])
            time.sleep(0.02)
        for client in slow:
            assert client.receive_frame()
    finally:
        done.set()
        beside.join()
    assert not problems, problems
    assert len(rounds) >= 2
    for client in slow:
        client.close()


def test_pipelined_requests_are_answered_in_order(broker: Any, tmp_path: Path) -> None:
    client = RawClient(broker.bootstrap)
    frames = []
    for number in range(500):
        if number % 7 == 3:
            frames.append(client.encode(fetch_request("t", 0, max_bytes=1000), 11))
        else:
            frames.append(client.encode(produce_request("t", batch(b"%d" % number)), 9))
    client.socket.sendall(b"".join(frames))
    for number in range(500):
        assert int.from_bytes(client.receive_frame()[:4], "big") == number + 1
    client.close()
