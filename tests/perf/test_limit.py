"""The machine's limit: its files hold the bytes that a broker would have written."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import measure
import pytest
from client import FETCH, Client, batch_of_size, produce_frame, record_batch, same_batch, write_frames
from peers.limit import Limit, ReplicatedLimit
from work import coordinators

from kafkapy.coordinator.group.offsets import CommittedOffset
from kafkapy.coordinator.group.records import GROUP_RECORDS, offset_commit
from kafkapy.coordinator.records import CoordinatorRecord
from kafkapy.protocol.header import decode_request, encode_response
from kafkapy.protocol.messages.fetch import FetchRequest, FetchResponse
from kafkapy.protocol.messages.group_metadata_records import OffsetCommitValue
from kafkapy.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kafkapy.protocol.messages.offset_fetch import OffsetFetchRequest
from kafkapy.records.batches import BatchView, decode_records, iter_batches
from kafkapy.testing.broker_process import BrokerProcess

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
        assert read is not None and isinstance(read.value, OffsetCommitValue)
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


# --- a follower -----------------------------------------------------------------------------------------------------

TOPIC = "copied"


def follow(port: int, folder: Path, **named: object) -> subprocess.CompletedProcess[str]:
    """Runs a follower until it has so many bytes."""
    folder.mkdir()
    options = measure.options(port=port, topic=TOPIC, **named)
    command = [str(measure.native("follower")), *options, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def segment(data_dir: Path, partition: int) -> bytes:
    """The first segment of a broker's partition."""
    return (data_dir / "logs" / f"{TOPIC}-{partition}" / f"{0:020}.log").read_bytes()


@pytest.mark.alone
def test_a_follower_has_the_segments_of_the_leader(tmp_path: Path) -> None:
    """A broker of kafkapy leads. One batch is larger than what a Fetch asks for, and replies end within batches."""
    sizes = [(200, 3000, 3072 + 21, 5000, 700_000), (1_500_000, 64 << 10, 900_000)]
    keys = {"max.message.bytes": "4194304", "message.max.bytes": "4194304"}
    with BrokerProcess(tmp_path / "broker", keys) as broker, Client(broker.port) as client:
        client.create_topic(TOPIC, len(sizes))
        for partition, own in enumerate(sizes):
            for size in own:
                batch, _ = batch_of_size(size, min(size // 2, 1000), size)
                assert client.produce(TOPIC, [partition], batch) == 0
        wanted = [segment(broker.data_dir, partition) for partition in range(len(sizes))]
        done = follow(broker.port, tmp_path / "follower", partitions=len(sizes), bytes=sum(map(len, wanted)))
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout)
    assert measured["bytes"] == sum(map(len, wanted)) > 2_000_000
    assert measured["cpu_s"] > 0 and measured["requests"] > 1
    assert [(tmp_path / "follower" / f"{TOPIC}-{index}").read_bytes() for index in range(len(sizes))] == wanted


@pytest.mark.parametrize("size", [300, 3072 + 21, 8000, 64 << 10])
@pytest.mark.parametrize("flipped", [30, -1])
def test_a_follower_refuses_a_wrong_checksum(tmp_path: Path, size: int, flipped: int) -> None:
    batch = bytearray(batch_of_size(size, size // 2, 1)[0])
    batch[flipped] ^= 1
    leader = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        connection, _ = leader.accept()
        with connection, connection.makefile("rb") as reader:
            header, _ = decode_request(reader.read(int.from_bytes(reader.read(4), "big")))
            found = FetchResponse.TopicResponse.Partition(partition_index=0, high_watermark=9, records=bytes(batch))
            response = FetchResponse(responses=[FetchResponse.TopicResponse(topic=TOPIC, partitions=[found])])
            frame = encode_response(FetchRequest.API_KEY, FETCH, header.correlation_id, response)
            connection.sendall(len(frame).to_bytes(4, "big") + frame)

    thread = threading.Thread(target=answer)
    thread.start()
    done = follow(leader.getsockname()[1], tmp_path / "follower", bytes=1)
    thread.join()
    leader.close()
    assert (done.returncode, done.stdout) == (1, "")
    assert "a wrong CRC at offset" in done.stderr


# --- a leader with two followers ------------------------------------------------------------------------------------


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ReplicatedLimit]:
    """A leader of three partitions with two followers."""
    started = ReplicatedLimit(tmp_path / "cluster", TOPIC, 3)
    try:
        started.start()
        yield started
    finally:
        started.kill()


def files(cluster: ReplicatedLimit) -> list[list[bytes]]:
    """The partitions of the leader, and of each follower; empty where a follower has not started."""
    replicas = [(cluster.follower_dir(replica), f"{TOPIC}-") for replica in cluster.FOLLOWERS]
    paths = [
        [folder / f"{prefix}{partition}" for partition in range(cluster.partitions)]
        for folder, prefix in [(cluster.leader_dir, ""), *replicas]
    ]
    return [[path.read_bytes() if path.exists() else b"" for path in replica] for replica in paths]


@pytest.mark.parametrize("size", [1000, 64 << 10])
def test_all_replicas_have_what_was_acknowledged(cluster: ReplicatedLimit, tmp_path: Path, size: int) -> None:
    """Small batches share writes. Two connections of six produce to each partition."""
    sent = [batch_of_size(size, 100, seed) for seed in range(cluster.partitions)]
    frames = write_frames(tmp_path, TOPIC, [batch for batch, _ in sent], -1)
    pids = ",".join(map(str, cluster.pids))
    options = measure.options(port=cluster.port, topic=TOPIC, seconds=0.2, connections=6, pids=pids)
    measured = measure.run_native("load", "produce", *options, *frames, pinned=False)
    assert measured["broker_cpu_s"] > 0
    leader, *followers = files(cluster)
    assert followers == [leader, leader]
    stored = [batches_in(data) for data in leader]
    assert sum(map(len, stored)) == measured["requests"] > 0
    for (batch, _), found in zip(sent, stored, strict=True):
        assert found[0].base_offset == 0
        assert all(same_batch(each.to_bytes(), batch) for each in found)
    again = cluster.caught_up(2)
    assert again["bytes"] == sum(map(len, leader))
    assert files(cluster) == [leader, *followers]
    with Client(cluster.port) as client:
        end = stored[1][-1].next_offset
        assert b"".join(client.batches(TOPIC, 1, 0, end)) == leader[1]


def test_an_acknowledgement_waits_for_both_followers(cluster: ReplicatedLimit) -> None:
    """A consumer does not see the batch before."""
    stopped = cluster.followers[2].pid
    os.kill(stopped, signal.SIGSTOP)
    batch = record_batch([b"x" * 100])
    frame = produce_frame(TOPIC, 0, batch, -1)
    address = ("127.0.0.1", cluster.port)
    with socket.create_connection(address) as producer, Client(cluster.port) as client:
        producer.sendall(len(frame).to_bytes(4, "big") + frame)
        producer.settimeout(0.3)
        with pytest.raises(TimeoutError):
            producer.recv(4)
        deadline = time.monotonic() + 10
        while (found := files(cluster))[1] != found[0] and time.monotonic() < deadline:
            time.sleep(0.01)
        leader, follower, _ = found
        assert leader == follower == [leader[0], b"", b""]
        assert same_batch(leader[0], batch)
        seen: list[bytes] = []
        consumer = threading.Thread(target=lambda: seen.extend(client.batches(TOPIC, 0, 0, 1)))
        consumer.start()
        consumer.join(0.2)
        assert consumer.is_alive() and not seen
        os.kill(stopped, signal.SIGCONT)
        producer.settimeout(30)
        assert len(producer.recv(4)) == 4
        consumer.join(30)
    assert seen == leader[:1]
    assert files(cluster) == [leader] * 3
