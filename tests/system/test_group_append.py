"""Requests of many connections that a network thread finds together: one write for each log, an answer for each.

The process is stopped while the requests are sent, so that one turn of its only network thread finds them all.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from interop.clients import ConfluentClient
from system.raw_client import RawClient, batch, produce_request
from system.slow_files import WRITE, SlowFiles
from waiting import WAIT_S, wait_until

from kafkapy.coordinator.group.offsets import CommittedOffset
from kafkapy.coordinator.group.records import offset_commit
from kafkapy.errors import ErrorCode
from kafkapy.protocol.header import decode_response
from kafkapy.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkapy.protocol.messages.offset_commit import OffsetCommitRequest
from kafkapy.protocol.messages.offset_fetch import OffsetFetchRequest
from kafkapy.protocol.schema import Request
from kafkapy.records.batches import BatchView, RecordBatchBuilder, iter_batches
from kafkapy.testing.broker_process import BrokerProcess

CONNECTIONS = 60
MOST_WRITES = 10  # of so many requests: a few events may come before or after the others


OFFSETS = "__consumer_offsets-0"
VERSION = 9


def commit(number: int, offset: int, **fields: Any) -> OffsetCommitRequest:
    partition = OffsetCommitRequest.Topic.Partition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequest.Topic(name="one", partitions=[partition])
    return OffsetCommitRequest(group_id=f"group-{number}", topics=[topic], **fields)


def code(answer: Any) -> int:
    return int(answer.topics[0].partitions[0].error_code)


class Rig:
    def __init__(self, directory: Path) -> None:
        self.directory = directory / "broker"
        self.disk = SlowFiles(directory / "slow", directory / "broker")
        self.broker = BrokerProcess(
            directory / "broker",
            {"num.network.threads": "1", "offsets.topic.num.partitions": "1"},
            environment=self.disk.environment,
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
        self.take_turns()
        ends = {topic: self.admin.end_offset(topic) for topic in topics}
        self.ask_at_once(
            [produce_request(topics[n % len(topics)], batch(b"%d" % n * size)) for n in range(CONNECTIONS)]
        )
        return ends

    def take_turns(self) -> None:
        """So many that the thread looks for groups again."""
        for _ in range(40):
            self.produce_alone("two")

    def ask_at_once(self, requests: Sequence[Request]) -> None:
        """Sends each connection's request, all of which one turn finds."""
        os.kill(self.broker.pid, signal.SIGSTOP)
        try:
            wait_until(self.is_stopped, "all threads stand still")
            for client, request in zip(self.clients, requests, strict=True):
                client.send(request, VERSION)
            # What was sent is in the sockets of the broker: they are on this machine.
        finally:
            os.kill(self.broker.pid, signal.SIGCONT)

    def answers(self, requests: Sequence[Request]) -> list[Any]:
        frames = [client.receive_frame() for client in self.clients]
        return [decode_response(each.API_KEY, VERSION, frame)[1] for each, frame in zip(requests, frames, strict=True)]

    def is_stopped(self) -> bool:
        threads = Path(f"/proc/{self.broker.pid}/task").glob("*/stat")
        return {thread.read_text().rpartition(")")[2].split()[0] for thread in threads} == {"T"}

    def commit_alone(self) -> None:
        """An offset of each connection's group, after which network threads may store them."""

        def is_stored(number: int) -> bool:
            return code(self.clients[number].call(commit(number, 1), VERSION)) == ErrorCode.NONE

        self.clients[0].call(FindCoordinatorRequest(coordinator_keys=["group-0"]), 4)
        for number in range(CONNECTIONS):
            wait_until(lambda number=number: is_stored(number), "the coordinator is loaded")

    def committed(self, number: int, client: RawClient | None = None) -> int:
        topic = OffsetFetchRequest.Topic(name="one", partition_indexes=[0])
        answer = (client or self.clients[0]).call(OffsetFetchRequest(group_id=f"group-{number}", topics=[topic]), 7)
        return int(answer.topics[0].partitions[0].committed_offset)

    def commit_batches(self) -> list[BatchView]:
        return list(iter_batches((self.directory / "logs" / OFFSETS / f"{0:020d}.log").read_bytes()))

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


def test_commits_of_a_turn_make_few_batches(rig: Rig) -> None:
    rig.commit_alone()
    before = len(rig.commit_batches())
    requests = [commit(number, 2) for number in range(CONNECTIONS)]
    rig.take_turns()
    rig.ask_at_once(requests)
    assert {code(answer) for answer in rig.answers(requests)} == {ErrorCode.NONE}
    made = rig.commit_batches()[before:]
    assert 1 <= len(made) <= MOST_WRITES
    assert sum(each.record_count for each in made) == CONNECTIONS
    assert {rig.committed(number) for number in range(CONNECTIONS)} == {2}


def test_commits_that_hang_hold_nobody_else_up(rig: Rig) -> None:
    """Neither other partitions, nor the group whose commit was refused; and connections may go meanwhile."""
    rig.commit_alone()
    refused = commit(0, 5, member_id="nobody", generation_id_or_member_epoch=7)
    requests = [refused, *(commit(number, 5) for number in range(1, CONNECTIONS))]
    other = RawClient(rig.broker.bootstrap)
    rig.take_turns()
    rig.disk.be_slow(f"/{OFFSETS}/0", int(WAIT_S * 1000), WRITE)
    rig.ask_at_once(requests)
    wait_until(lambda: rig.disk.hits > 0, "the write hangs")
    for _ in range(20):
        Rig.offset(other.call(produce_request("two", batch(b"other")), VERSION))
    assert rig.committed(0, other) == 1
    for client in rig.clients[40:]:
        client.close()
    time.sleep(0.2)
    rig.disk.go_on()
    frames = [client.receive_frame() for client in rig.clients[:40]]
    answers = [code(decode_response(refused.API_KEY, VERSION, frame)[1]) for frame in frames]
    assert answers == [ErrorCode.UNKNOWN_MEMBER_ID] + [ErrorCode.NONE] * 39
    rig.clients[40:] = [RawClient(rig.broker.bootstrap) for _ in range(40, CONNECTIONS)]
    assert {rig.committed(number) for number in range(1, 40)} == {5}
    other.close()


def test_produces_and_commits_into_one_log_go_apart(rig: Rig) -> None:
    rig.commit_alone()
    for client in rig.clients[::2]:
        client.close()
    rig.clients[::2] = [
        RawClient(rig.broker.bootstrap, client_id="__admin_client") for _ in range(0, CONNECTIONS, 2)
    ]
    record = offset_commit("foreign", "one", 0, CommittedOffset(7, -1, "", 1_700_000_000_000))
    builder = RecordBatchBuilder()
    builder.append(1_700_000_000_000, *record.encode({}))
    requests: list[Request] = [
        commit(number, 3) if number % 2 else produce_request("__consumer_offsets", builder.build())
        for number in range(CONNECTIONS)
    ]
    rig.take_turns()
    rig.ask_at_once(requests)
    answers = rig.answers(requests)
    assert {code(answer) for answer in answers[1::2]} == {ErrorCode.NONE}
    assert len({Rig.offset(answer) for answer in answers[::2]}) == CONNECTIONS // 2
    assert {rig.committed(number) for number in range(1, CONNECTIONS, 2)} == {3}
