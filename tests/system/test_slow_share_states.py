"""A disk that stalls on the states of share-partitions holds up their acknowledgements, and nobody else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from broker.conftest import Client
from broker.test_share_partitions import ACCEPT, NOW_MS, Member, set_group
from system.slow_files import WRITE, SlowFiles
from waiting import wait_until

from kafkapy.coordinator.partitioning import partition_of
from kafkapy.coordinator.share.state import ShareKey
from kafkapy.protocol.messages.api_versions import ApiVersionsRequest
from kafkapy.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.alone

STALL_MS = 15_000
RECORD_LIMIT = 1
SLOW = "slow-group"


def member(broker: BrokerProcess, topic: UUID, group: str) -> Member:
    host, _, port = broker.bootstrap.rpartition(":")
    server: Any = SimpleNamespace(endpoints=[SimpleNamespace(host=host, port=int(port))])
    return Member(server, topic, group)


def state_directory(group: str, topic: UUID) -> str:
    return f"/__share_group_state-{partition_of(ShareKey(group, topic, 0).text, 50)}/"


class Stall:
    """Two groups on one topic, whose states are in logs of different directories."""

    def __init__(self, broker: BrokerProcess, files: SlowFiles) -> None:
        self.broker, self.files = broker, files
        host, _, port = broker.bootstrap.rpartition(":")
        self.client = Client(host, int(port))
        self.topic = self.client.create_topic("jobs")
        self.directory = state_directory(SLOW, self.topic)
        fast = next(name for n in range(100) if state_directory(name := f"group-{n}", self.topic) != self.directory)
        for group in (SLOW, fast):
            set_group(self.client, group, share_auto_offset_reset="earliest")
        for _ in range(20):
            self.client.produce("jobs", [(NOW_MS, b"x")])
        self.victims = [member(broker, self.topic, SLOW) for _ in range(3)]
        self.other = member(broker, self.topic, fast)
        self.held = {each: self.some(each) for each in [*self.victims, self.other]}
        for each in (self.victims[0], self.other):
            # The first is the control loop's, and those that follow are the network threads'.
            assert each.acknowledge(self.first_of(each)) == 0

    @staticmethod
    def some(each: Member) -> list[int]:
        """The offsets of six records that a member acquires."""
        found: list[int] = []
        while len(found) < 6:
            for first, last, _ in each.acquire(max_records=6 - len(found), share_acquire_mode=RECORD_LIMIT):
                found.extend(range(first, last + 1))
        return found

    def first_of(self, each: Member) -> tuple[int, int, list[int]]:
        offset = self.held[each].pop(0)
        return offset, offset, [ACCEPT]


@pytest.fixture(params=[500, 3])
def stall(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Stall]:
    """With 3 updates for a snapshot, the write that stalls is the last one of its lease."""
    files = SlowFiles(tmp_path / "slow", tmp_path / "broker" / "logs")
    keys = {
        "num.network.threads": "2",
        "group.share.record.lock.duration.ms": "60000",
        "share.coordinator.snapshot.update.records.per.snapshot": str(request.param),
    }
    with BrokerProcess(tmp_path / "broker", keys, environment=files.environment) as broker:
        yield Stall(broker, files)
        files.go_on()


def test_others_go_on_while_acknowledgements_wait_for_their_disk(stall: Stall) -> None:
    acks = {each: [stall.first_of(each), stall.first_of(each)] for each in stall.victims}
    with ThreadPoolExecutor(3) as threads:
        stall.files.be_slow(stall.directory, STALL_MS, WRITE)
        # Several of one share-partition: the first is written, and the others come meanwhile.
        waiting = [threads.submit(each.acknowledge, acks[each][0]) for each in stall.victims]
        wait_until(lambda: stall.files.hits > 0, "the disk stalls")
        began = time.monotonic()
        for _ in range(3):
            assert stall.client(ApiVersionsRequest(), 0).error_code == 0
            stall.client.produce("jobs", [(NOW_MS, b"y")])
            assert stall.other.acknowledge(stall.first_of(stall.other)) == 0
        assert not any(each.done() for each in waiting), "nothing was slow, or the others waited as long"
        assert stall.files.hits * STALL_MS / 1000 > time.monotonic() - began
        stall.files.go_on()
        assert [each.result(60) for each in waiting] == [0, 0, 0]
        assert [each.acknowledge(acks[each][1]) for each in stall.victims] == [0, 0, 0]
    for each in [*stall.victims, stall.other]:
        each.client.close()
    stall.client.close()
    stall.broker.kill()
    stall.broker.start()
    # What was accepted is stored, and nothing else.
    accepted = {first for pair in acks.values() for first, _, _ in pair}
    again = member(stall.broker, stall.topic, SLOW)
    wanted = {offset for each in stall.victims for offset in stall.held[each]}
    found: set[int] = set()

    def all_found() -> bool:
        found.update(offset for first, last, _ in again.acquire() for offset in range(first, last + 1))
        return wanted <= found

    wait_until(all_found, "records that nobody accepted come back")
    assert not found & accepted
    again.client.close()
