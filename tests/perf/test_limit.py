"""The machine's limit: its files hold the bytes that a broker would have written."""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import measure
import pytest
from client import Client
from peers.limit import Limit
from work import coordinators

from kafkapy.coordinator.group.offsets import CommittedOffset
from kafkapy.coordinator.group.records import GROUP_RECORDS, offset_commit
from kafkapy.coordinator.records import CoordinatorRecord
from kafkapy.protocol.header import encode_response
from kafkapy.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kafkapy.protocol.messages.offset_fetch import OffsetFetchRequest
from kafkapy.records.batches import BatchView, decode_records, iter_batches

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="the limit is compiled with gcc")


@pytest.fixture
def limit(tmp_path: Path) -> Iterator[Limit]:
    """A running limit."""
    started = Limit(tmp_path / "limit", {})
    started.start()
    yield started
    started.kill()


# --- offset commits -------------------------------------------------------------------------------------------------


def request(group: str, topics: dict[str, list[tuple[int, int, int, str | None]]]) -> OffsetCommitRequest:
    """A commit of partitions, offsets, leader epochs and metadata."""
    wanted = [
        OffsetCommitRequest.Topic(
            name=name,
            partitions=[
                OffsetCommitRequest.Topic.Partition(
                    partition_index=partition,
                    committed_offset=offset,
                    committed_leader_epoch=epoch,
                    committed_metadata=metadata,
                )
                for partition, offset, epoch, metadata in partitions
            ],
        )
        for name, partitions in topics.items()
    ]
    return OffsetCommitRequest(group_id=group, topics=wanted)


def batches_in(data: bytes) -> list[BatchView]:
    """All batches of a file, whose checksums are right and whose offsets have no gaps."""
    found = list(iter_batches(data, check_crc=True))
    assert sum(len(batch.to_bytes()) for batch in found) == len(data)
    for earlier, later in itertools.pairwise(found):
        assert later.base_offset == earlier.last_offset + 1
    return found


def commits_in(batch: BatchView) -> list[CoordinatorRecord]:
    """The records of a batch, as the group coordinator reads them, without their time."""
    found = []
    for record in decode_records(batch):
        assert record.key is not None
        read = GROUP_RECORDS.decode(record.key, record.value)
        assert read is not None
        assert read.value.commit_timestamp == record.timestamp
        assert abs(record.timestamp - time.time() * 1000) < 60_000
        read.value.commit_timestamp = 0
        found.append(read)
    return found


def commit(group: str, topic: str, partition: int, offset: int, epoch: int, metadata: str) -> CoordinatorRecord:
    """The record of the group coordinator, without its time."""
    return offset_commit(group, topic, partition, CommittedOffset(offset, epoch, metadata, 0))


def committed(client: Client, group: str, topic: str, partition: int) -> tuple[int, int, str | None]:
    wanted = OffsetFetchRequest.Topic(name=topic, partition_indexes=[partition])
    answer = client.call(OffsetFetchRequest(group_id=group, topics=[wanted]), coordinators.OFFSET_FETCH)
    assert answer.error_code == 0
    found = answer.topics[0].partitions[0]
    assert found.error_code == 0
    return found.committed_offset, found.committed_leader_epoch, found.metadata


def test_a_commit_is_the_record_of_the_group_coordinator(limit: Limit) -> None:
    """Two topics, and metadata so long that its lengths take two bytes each; then one more commit."""
    with Client(limit.port) as client:
        first = request("g", {"t": [(0, 5, 3, "m" * 100), (70, 1 << 40, -1, "")], "other": [(0, 7, 0, None)]})
        answer = client.call(first, coordinators.OFFSET_COMMIT)
        found = [(topic.name, p.partition_index, p.error_code) for topic in answer.topics for p in topic.partitions]
        assert found == [("t", 0, 0), ("t", 70, 0), ("other", 0, 0)]
        client.call(request("g", {"t": [(0, 6, 3, "m")]}), coordinators.OFFSET_COMMIT)
        batches = batches_in((limit.data_dir / "committed").read_bytes())
        assert [commits_in(batch) for batch in batches] == [
            [
                commit("g", "t", 0, 5, 3, "m" * 100),
                commit("g", "t", 70, 1 << 40, -1, ""),
                commit("g", "other", 0, 7, 0, ""),
            ],
            [commit("g", "t", 0, 6, 3, "m")],
        ]
        assert committed(client, "g", "t", 0) == (6, 3, "m")
        assert committed(client, "g", "t", 70) == (1 << 40, -1, "")
        assert committed(client, "g", "t", 1)[0] == committed(client, "another", "t", 0)[0] == -1


def test_commits_that_come_together_share_a_batch(limit: Limit, tmp_path: Path) -> None:
    """The generator of W7, each of its connections with a group."""
    groups = 64
    partition = OffsetCommitResponse.Topic.Partition(partition_index=0, error_code=0)
    expected = OffsetCommitResponse(
        topics=[OffsetCommitResponse.Topic(name=coordinators.TOPIC, partitions=[partition])]
    )
    version = coordinators.OFFSET_COMMIT
    reply = coordinators._write(tmp_path, "reply", encode_response(8, version, 0, expected))
    frames = [
        coordinators._request(tmp_path, f"commit-{number}", coordinators._commit(number), version)
        for number in range(groups)
    ]
    options = measure.options(port=limit.port, seconds=0.1, connections=groups, expected=reply)
    with Client(limit.port):
        measured = measure.run_native("coordinator", "commits", *options, *frames, pinned=False)
        batches = batches_in((limit.data_dir / "committed").read_bytes())
    commits = [each for batch in batches for each in commits_in(batch)]
    assert 0 < len(batches) < len(commits) == measured["requests"]
    wanted = [commit(f"group-{number}", coordinators.TOPIC, 0, coordinators.OFFSET, -1, "") for number in range(groups)]
    assert all(each in commits for each in wanted)
    assert all(each in wanted for each in commits)


def test_the_file_of_commits_is_emptied_when_nobody_is_connected(limit: Limit) -> None:
    """The table keeps the offsets."""
    file = limit.data_dir / "committed"
    with Client(limit.port) as client:
        client.call(request("g", {"t": [(0, 5, 3, "m")]}), coordinators.OFFSET_COMMIT)
        assert file.stat().st_size > 0
    deadline = time.monotonic() + 10
    while file.stat().st_size:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    with Client(limit.port) as client:
        assert committed(client, "g", "t", 0) == (5, 3, "m")
