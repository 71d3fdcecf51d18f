"""A disk that stalls on one partition holds up that partition, and no client that the control loop serves otherwise."""

from __future__ import annotations

import select
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from interop.clients import ConfluentClient
from system.raw_client import RawClient, batch, produce_request
from system.slow_files import SlowFiles

from kafkapy.coordinator.partitioning import partition_of
from kafkapy.protocol.messages.api_versions import ApiVersionsRequest
from kafkapy.protocol.messages.create_topics import CreateTopicsRequest
from kafkapy.protocol.messages.delete_records import DeleteRecordsRequest
from kafkapy.protocol.messages.delete_topics import DeleteTopicsRequest
from kafkapy.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkapy.protocol.messages.list_offsets import ListOffsetsRequest
from kafkapy.protocol.messages.metadata import MetadataRequest
from kafkapy.protocol.messages.offset_commit import OffsetCommitRequest
from kafkapy.protocol.messages.offset_fetch import OffsetFetchRequest
from kafkapy.protocol.schema import Request
from kafkapy.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.alone

PARTITIONS = 50
STALL_MS = 15_000
ROUNDS = 5
"""Of requests by others while the disk stalls. Each takes a few ms; all of them, waiting for the disk, would take far
longer than it stalls, at most: it goes on when they have been served."""
SLOW = "slow-group"
FAST = next(name for n in range(100) if partition_of(name := f"group-{n}", 50) != partition_of(SLOW, 50))


def commit(group: str, offset: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequest.Topic.Partition(partition_index=0, committed_offset=offset)
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[OffsetCommitRequest.Topic(name="t", partitions=[partition])],
    )


def committed(client: RawClient, group: str) -> int:
    topic = OffsetFetchRequest.Topic(name="t", partition_indexes=[0])
    answer = client.call(OffsetFetchRequest(group_id=group, topics=[topic]), 5)
    return int(answer.topics[0].partitions[0].committed_offset)


def error_of(answer: object) -> int:
    return int(answer.topics[0].partitions[0].error_code)  # type: ignore[attr-defined]


class Stall:
    """A broker with one group in a partition that can stall, and one in another."""

    def __init__(self, broker: BrokerProcess, files: SlowFiles) -> None:
        self.broker, self.files = broker, files
        ConfluentClient(broker.bootstrap).create_topic("t")
        self.victim, self.other = RawClient(broker.bootstrap), RawClient(broker.bootstrap)
        self.directory = f"/__consumer_offsets-{partition_of(SLOW, PARTITIONS)}/"
        for group in (SLOW, FAST):
            self.commit_when_loaded(group)

    def commit_when_loaded(self, group: str) -> None:
        deadline = time.monotonic() + 60
        while error_of(self.other.call(commit(group, 1), 6)) != 0:
            assert time.monotonic() < deadline
            self.other.call(FindCoordinatorRequest(key=group, key_type=0), 2)
            time.sleep(0.1)

    def others_are_served(self, *, answered: bool = False) -> None:
        """Unless what stalls may be `answered` before its disk is done, it must take longer than all of this."""
        for number in range(ROUNDS):
            assert self.other.call(ApiVersionsRequest(), 0).error_code == 0
            assert self.other.call(MetadataRequest(topics=None), 5).topics
            assert error_of(self.other.call(commit(FAST, 10 + number), 6)) == 0
            assert committed(self.other, FAST) == 10 + number
            assert self.other.call(produce_request("t", batch(b"x")), 9).responses[0].partition_responses[0]
        readable, _, _ = select.select([self.victim.socket], [], [], 0)
        assert answered or not readable, "nothing was slow, or the others waited as long"

    def close(self) -> None:
        self.files.go_on()
        self.victim.close()
        self.other.close()


@pytest.fixture
def stall(tmp_path: Path) -> Iterator[Stall]:
    root = tmp_path / "broker" / "logs"
    files = SlowFiles(tmp_path / "slow", root)
    environment = files.environment
    overrides = {"offsets.topic.num.partitions": str(PARTITIONS), "offsets.commit.timeout.ms": "30000"}
    with BrokerProcess(tmp_path / "broker", overrides, environment=environment) as broker:
        made = Stall(broker, files)
        yield made
        made.close()


def test_an_offset_commit_into_a_partition_that_stalls(stall: Stall) -> None:
    stall.files.be_slow(stall.directory, STALL_MS)
    stall.victim.send(commit(SLOW, 42), 6)
    time.sleep(0.3)
    stall.others_are_served()
    stall.files.go_on()
    assert stall.victim.receive_frame()
    assert committed(stall.victim, SLOW) == 42


def deletion(topic: str) -> DeleteRecordsRequest:
    partition = DeleteRecordsRequest.Topic.Partition(partition_index=0, offset=1)
    entry = DeleteRecordsRequest.Topic(name=topic, partitions=[partition])
    return DeleteRecordsRequest(topics=[entry], timeout_ms=30_000)


def lookup(topic: str) -> ListOffsetsRequest:
    partition = ListOffsetsRequest.Topic.Partition(partition_index=0, timestamp=1_700_000_000_000)
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsRequest.Topic(name=topic, partitions=[partition])])


STALLS: dict[str, tuple[str, Request, int]] = {
    "a topic that is created": (
        "/new-0",
        CreateTopicsRequest(
            topics=[CreateTopicsRequest.Topic(name="new", num_partitions=1, replication_factor=1)], timeout_ms=30_000
        ),
        4,
    ),
    "a topic that is deleted": ("/slow-0", DeleteTopicsRequest(topic_names=["slow"], timeout_ms=30_000), 3),
    "a leader epoch that is written": ("/slow-0", deletion("slow"), 1),
    "a lookup by timestamp": ("/slow-0", lookup("slow"), 5),
}
"""What is sent while operations on a path with that text in it stall."""


@pytest.mark.parametrize("what", STALLS)
def test_administration_of_a_partition_that_stalls(stall: Stall, what: str) -> None:
    text, request, version = STALLS[what]
    ConfluentClient(stall.broker.bootstrap).create_topic("slow")
    for _ in range(2):
        assert stall.other.call(produce_request("slow", batch(b"x")), 9).responses[0].partition_responses[0]
    # A roll or an index that is not mapped would make the produce above slow, and not what is meant here.
    stall.files.be_slow(text, STALL_MS)
    stall.victim.send(request, version)
    time.sleep(0.3)
    stall.others_are_served(answered=what == "a leader epoch that is written")
    stall.files.go_on()
    assert stall.victim.receive_frame()


def test_a_metadata_store_that_stalls(stall: Stall) -> None:
    """Only what changes metadata waits for its disk."""
    stall.files.be_slow("/kafkapy-metadata.db", STALL_MS)
    topic = CreateTopicsRequest.Topic(name="new", num_partitions=1, replication_factor=1)
    stall.victim.send(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 4)
    time.sleep(0.3)
    stall.others_are_served()
    stall.files.go_on()
    assert stall.victim.receive_frame()
