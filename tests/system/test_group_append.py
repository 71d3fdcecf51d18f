"""Requests of many connections that a network thread finds together: one write for each partition, an answer for each.

The process is stopped while the requests are sent, so that one turn of its only network thread finds them all.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from interop.clients import ConfluentClient
from system.raw_client import RawClient, batch, produce_request
from system.slow_files import WRITE, SlowFiles
from waiting import WAIT_S, wait_until

from kafkapy.protocol.header import decode_response
from kafkapy.testing.broker_process import BrokerProcess

CONNECTIONS = 60
MOST_WRITES = 10  # of so many requests: a few events may come before or after the others


class Rig:
    def __init__(self, directory: Path) -> None:
        self.disk = SlowFiles(directory / "slow", directory / "broker")
        self.broker = BrokerProcess(
            directory / "broker", {"num.network.threads": "1"}, environment=self.disk.environment
        ).start()
        self.admin = ConfluentClient(self.broker.bootstrap)
        for topic in ("one", "two"):
            self.admin.create_topic(topic)
        self.clients = [RawClient(self.broker.bootstrap) for _ in range(CONNECTIONS)]
        for topic in ("one", "two"):
            self.produce_alone(topic)

    def close(self) -> None:
        self.disk.go_on()
        for client in self.clients:
            client.close()
        self.broker.stop()

    def produce_alone(self, topic: str) -> int:
        """The offset behind one more record."""
        request = produce_request(topic, batch(b"alone"))
        return self.offset(self.clients[0].call(request, 9)) + 1

    @staticmethod
    def offset(answer: Any) -> int:
        entry = answer.responses[0].partition_responses[0]
        assert entry.error_code == 0
        return int(entry.base_offset)

    def send_at_once(self, topics: list[str], size: int = 100) -> dict[str, int]:
        """One request of each connection, to one topic after the other. Returns the topics' ends before."""
        for _ in range(40):
            self.produce_alone("two")  # turns, after which the thread looks for groups again
        ends = {topic: self.admin.end_offset(topic) for topic in topics}
        os.kill(self.broker.pid, signal.SIGSTOP)
        try:
            wait_until(self.is_stopped, "all threads stand still")
            for number, client in enumerate(self.clients):
                topic = topics[number % len(topics)]
                client.send(produce_request(topic, batch(b"%d" % number * size)), 9)
            # What was sent is in the sockets of the broker: they are on this machine.
        finally:
            os.kill(self.broker.pid, signal.SIGCONT)
        return ends

    def is_stopped(self) -> bool:
        threads = Path(f"/proc/{self.broker.pid}/task").glob("*/stat")
        return {thread.read_text().rpartition(")")[2].split()[0] for thread in threads} == {"T"}

    def offsets(self, topics: list[str]) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {topic: [] for topic in topics}
        for number, client in enumerate(self.clients):
            frame = client.receive_frame()
            assert frame
            found[topics[number % len(topics)]].append(self.offset(decode_response(0, 9, frame)[1]))
        return found


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    rig = Rig(tmp_path_factory.mktemp("group"))
    yield rig
    rig.close()


@pytest.mark.parametrize("topics", [["one"], ["one", "two"]])
def test_a_turn_writes_once_to_each_partition(rig: Rig, topics: list[str]) -> None:
    rig.disk.be_slow("/one-0/0", 0, WRITE)  # only counts
    starts = rig.send_at_once(topics)
    found = rig.offsets(topics)
    writes = rig.disk.hits
    rig.disk.be_fast()
    for topic in topics:
        count = CONNECTIONS // len(topics)
        assert sorted(found[topic]) == list(range(starts[topic], starts[topic] + count))
    assert 1 <= writes <= MOST_WRITES
    # Another client reads what was written, each record once.
    received = rig.admin.consume("one", starts["one"] + CONNECTIONS // len(topics))
    values = [record.record.value for record in received]
    sent = sorted(b"%d" % n * 100 for n in range(0, CONNECTIONS, len(topics)))
    assert sorted(values[starts["one"] :]) == sent


def test_large_requests_are_not_copied_into_one_write(rig: Rig) -> None:
    rig.disk.be_slow("/one-0/0", 0, WRITE)
    starts = rig.send_at_once(["one"], size=10_000)
    found = rig.offsets(["one"])["one"]
    assert rig.disk.hits >= CONNECTIONS
    rig.disk.be_fast()
    assert sorted(found) == list(range(starts["one"], starts["one"] + CONNECTIONS))


def test_a_group_that_hangs_holds_no_other_partition_up(rig: Rig) -> None:
    start = rig.produce_alone("one")
    other = RawClient(rig.broker.bootstrap)
    rig.disk.be_slow("/one-0/0", int(WAIT_S * 1000), WRITE)
    rig.send_at_once(["one"])
    wait_until(lambda: rig.disk.hits > 0, "the write hangs")
    # The only network thread goes on with the others.
    for _ in range(20):
        Rig.offset(other.call(produce_request("two", batch(b"other")), 9))
    hanging = rig.disk.hits
    rig.disk.go_on()
    assert sorted(rig.offsets(["one"])["one"]) == list(range(start, start + CONNECTIONS))
    assert hanging <= MOST_WRITES
    assert rig.produce_alone("one") == start + CONNECTIONS + 1
    other.close()


def test_connections_that_are_gone_meanwhile_leave_nothing_behind(rig: Rig) -> None:
    start = rig.produce_alone("one")
    rig.disk.be_slow("/one-0/0", int(WAIT_S * 1000), WRITE)
    rig.send_at_once(["one"])
    wait_until(lambda: rig.disk.hits > 0, "the write hangs")
    for client in rig.clients[1:]:
        client.close()
    time.sleep(0.2)
    rig.disk.go_on()
    frame = rig.clients[0].receive_frame()
    assert start <= Rig.offset(decode_response(0, 9, frame)[1]) < start + CONNECTIONS
    assert start < rig.produce_alone("one") <= start + CONNECTIONS + 1
    rig.clients[1:] = [RawClient(rig.broker.bootstrap) for _ in range(CONNECTIONS - 1)]
    rig.send_at_once(["one"])
    assert len(set(rig.offsets(["one"])["one"])) == CONNECTIONS
