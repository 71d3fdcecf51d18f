"""Spoiled requests of every served API and version: the broker stays up, stays small, and its other clients see
nothing.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from fuzz.frames import FUZZ_TOPIC, Maker, exchange, served_versions, spoil
from interop.clients import ConfluentClient, Record
from interop.conftest import make_broker

from kafkapy.types import ZERO_UUID

MEGABYTE = 1 << 20


class WellBehaved:
    """A client beside the hostile one: produces, reads back and commits in a loop, and notes every error, wrong record
    and lost offset."""

    def __init__(self, bootstrap: str) -> None:
        self.rounds = 0
        self.problems: list[str] = []
        self._client = ConfluentClient(bootstrap)
        self._client.create_topic("well-behaved")
        self._group = confluent_kafka.Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "well-behaved", "enable.auto.commit": "false"}
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        sent = 0
        while not self._stop.is_set() or self.rounds == 0:
            records = [Record(b"k", b"%d" % n) for n in range(sent, sent + 10)]
            try:
                self._client.produce("well-behaved", records, idempotent=True)
                got = self._client.consume("well-behaved", 10, offset=sent)
                if [(r.offset, r.record.value) for r in got] != [(n, b"%d" % n) for n in range(sent, sent + 10)]:
                    self.problems.append(f"records {sent} to {sent + 9} came back as {got}")
                end = confluent_kafka.TopicPartition("well-behaved", 0, sent + 10)
                self._group.commit(offsets=[end], asynchronous=False)
                [committed] = self._group.committed([confluent_kafka.TopicPartition("well-behaved", 0)], 60)
                if committed.offset != end.offset:
                    self.problems.append(f"committed {end.offset}, and got {committed}")
            except Exception as error:
                self.problems.append(repr(error))
            sent += 10
            self.rounds += 1
            self._stop.wait(0.2)

    def finish(self) -> None:
        self._stop.set()
        self._thread.join(120)
        self._group.close()
        assert not self.problems, self.problems[:3]
        assert self.rounds > 0


def rss_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Any]:
    made = make_broker(tmp_path, **{"socket.request.max.bytes": str(16 * MEGABYTE)})
    made.start()
    yield made
    made.remove()


def hammer(broker: Any, frames: Iterator[bytes], threads: int = 3) -> int:
    """Sends every frame from several threads; returns how many were answered. A hang fails."""
    host, _, port = broker.bootstrap.rpartition(":")
    address = (host, int(port))
    lock = threading.Lock()
    answered = 0
    problems: list[str] = []

    def work(number: int) -> None:
        nonlocal answered
        count = 0
        while not problems:
            with lock:
                frame = next(frames, None)
            if frame is None:
                return
            count += 1
            try:
                reply = exchange(address, frame, f"127.0.{number + 1}.{count % 50 + 1}")
            except TimeoutError:
                problems.append(f"no answer and no close for {frame.hex()}")
                return
            except OSError as error:
                # A worker that ended in silence would leave frames unsent.
                problems.append(f"{error!r} on frame {count} of worker {number}")
                return
            with lock:
                answered += bool(reply)

    workers = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not problems, problems[0]
    assert next(frames, None) is None, "frames were left unsent"
    return answered


def prepare(broker: Any) -> tuple[dict[int, tuple[int, int]], Any]:
    ConfluentClient(broker.bootstrap).create_topic(FUZZ_TOPIC)
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap})
    described = admin.describe_topics(confluent_kafka.TopicCollection([FUZZ_TOPIC]))[FUZZ_TOPIC].result(30)
    import uuid

    topic_id = described.topic_id
    number = (topic_id.get_most_significant_bits() % 2**64) << 64 | topic_id.get_least_significant_bits() % 2**64
    return served_versions(broker.bootstrap), uuid.UUID(int=number) if number else ZERO_UUID


def assault(broker: Any, count: int, seed: int) -> None:
    served, topic_id = prepare(broker)
    pid = broker.pid
    valid = [frame for _, _, frame in Maker(seed, topic_id).frames(served, each=3)]
    assert hammer(broker, iter(valid)) > len(valid) * 0.6, "the unspoiled requests are not answered"
    before = rss_bytes(pid)
    neighbour = WellBehaved(broker.bootstrap)
    source = random.Random(seed)
    hammer(broker, (spoil(source.choice(valid), source) for _ in range(count)))
    neighbour.finish()
    assert broker.process.poll() is None
    assert broker.pid == pid
    assert rss_bytes(pid) - before < 150 * MEGABYTE
    ConfluentClient(broker.bootstrap).create_topic("after")


@pytest.mark.timeout(900)
def test_spoiled_requests_of_every_served_version(broker: Any) -> None:
    assault(broker, int(os.environ.get("KAFKAPY_FUZZ_FRAMES", "8000")), seed=1)


def test_every_served_request_cut_at_every_byte(broker: Any) -> None:
    served, topic_id = prepare(broker)
    neighbour = WellBehaved(broker.bootstrap)
    newest = {key: (high, high) for key, (_, high) in served.items()}
    whole = [frame for _, _, frame in Maker(5, topic_id).frames(newest, each=1)]
    hammer(broker, (frame[:end] for frame in whole for end in range(len(frame))))
    neighbour.finish()
    assert broker.process.poll() is None


def test_sizes_that_lie_cost_no_memory(broker: Any) -> None:
    """A hundred connections that each announce the largest request allowed and send little of it."""
    import socket

    host, _, port = broker.bootstrap.rpartition(":")
    prepare(broker)
    before = rss_bytes(broker.pid)
    held = [socket.create_connection((host, int(port))) for _ in range(100)]
    try:
        for connection in held:
            connection.sendall((16 * MEGABYTE).to_bytes(4, "big") + b"\0\0\0\x09" + b"\0" * 1000)
        neighbour = WellBehaved(broker.bootstrap)
        time.sleep(1)
        neighbour.finish()
        assert rss_bytes(broker.pid) - before < 40 * MEGABYTE
    finally:
        for connection in held:
            connection.close()


def test_impossible_frame_sizes_close_the_connection(broker: Any) -> None:
    host, _, port = broker.bootstrap.rpartition(":")
    for size in (-1, -(2**31), 16 * MEGABYTE + 1, 2**31 - 1):
        assert exchange((host, int(port)), b"\0\x03\0\0", "127.0.0.1", size=size) == b"", size
        assert broker.process.poll() is None, size


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_a_million_spoiled_requests(broker: Any) -> None:
    assault(broker, 1_000_000, seed=time.time_ns())
