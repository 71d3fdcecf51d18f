"""A log directory on a disk that really fails: only what is on it goes offline; without any the broker ends.

The disks are file systems in files (a loop device) or in memory, so these tests need root; elsewhere they are skipped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from system.disks import Disk, DiskRefusedError
from system.raw_client import RawClient, batch, fetch_request, produce_request

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from kafkapy.protocol.messages.create_topics import CreateTopicsRequest
from kafkapy.protocol.messages.delete_records import DeleteRecordsRequest
from kafkapy.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from kafkapy.protocol.messages.metadata import MetadataRequest
from kafkapy.testing.broker_process import BrokerProcess

PARTITIONS = 4


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[[str], Disk]]:
    made: list[Disk] = []

    def make(kind: str) -> Disk:
        try:
            made.append(Disk(tmp_path / "disk", tmp_path / "image" if kind == "ext4" else None))
        except DiskRefusedError as error:
            pytest.skip(str(error))
        return made[-1]

    yield make
    for each in made:
        each.unmount()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    made: list[BrokerProcess] = []

    def begin(*dirs: Path, **overrides: str) -> BrokerProcess:
        keys = {"log.dirs": ",".join(map(str, dirs))}
        keys |= {name.replace("_", "."): value for name, value in overrides.items()}
        made.append(BrokerProcess(tmp_path / "broker", keys))
        return made[-1].start()

    yield begin
    for broker in made:
        broker.remove()


def create(client: RawClient) -> None:
    topic = CreateTopicsRequest.Topic(
        name="t", num_partitions=PARTITIONS, replication_factor=1, assignments=[], configs=[]
    )
    assert client.call(CreateTopicsRequest(topics=[topic]), 4).topics[0].error_code == ErrorCode.NONE


def produce(client: RawClient, partition: int, value: bytes = b"value") -> int:
    answer = client.call(produce_request("t", batch(value), partition=partition), 9)
    return int(answer.responses[0].partition_responses[0].error_code)


def fetch(client: RawClient, partition: int) -> tuple[int, bytes]:
    request = fetch_request("t", 0)
    request.topics[0].partitions[0].partition = partition
    found = client.call(request, 11).responses[0].partitions[0]
    return int(found.error_code), bytes(found.records or b"")


def partition_metadata(client: RawClient) -> dict[int, Any]:
    topic = MetadataRequest.Topic(name="t")
    answer = client.call(MetadataRequest(topics=[topic]), 8)
    return {each.partition_index: each for each in answer.topics[0].partitions}


def dirs_of(client: RawClient) -> dict[str, Any]:
    return {result.log_dir: result for result in client.call(DescribeLogDirsRequest(topics=None), 4).results}


def homes(client: RawClient) -> dict[int, str]:
    """Partition to log directory."""
    found = dirs_of(client).items()
    return {each.partition_index: path for path, result in found for each in result.topics[0].partitions}


def until(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.02)
    raise TimeoutError(what)


def delete_records(client: RawClient, partition: int) -> int:
    entry = DeleteRecordsRequest.Topic.Partition(partition_index=partition, offset=1)
    topic = DeleteRecordsRequest.Topic(name="t", partitions=[entry])
    answer = client.call(DeleteRecordsRequest(topics=[topic], timeout_ms=1000), 1)
    return int(answer.topics[0].partitions[0].error_code)


CAUSES: dict[str, tuple[str, Callable[[Disk], None], Callable[[RawClient, int], int] | None]] = {
    "write: EIO": ("ext4", Disk.fail, produce),
    "write: EROFS": ("ext4", Disk.fail_writes, produce),
    "write: ENOSPC": ("tmpfs", Disk.fill, lambda client, partition: produce(client, partition, b"x" * 20_000)),
    "read: EIO": ("ext4", Disk.fail, lambda client, partition: fetch(client, partition)[0]),
    "leader epochs: EIO": ("ext4", Disk.fail, delete_records),
    "checkpoint: EIO": ("ext4", Disk.fail, None),
}


SLOW = {"write: EROFS", "leader epochs: EIO", "checkpoint: EIO"}


@pytest.mark.parametrize(
    "cause", [pytest.param(cause, marks=[pytest.mark.soak] if cause in SLOW else []) for cause in CAUSES]
)
def test_only_the_failed_directory_is_offline(disk: Any, start: Any, tmp_path: Path, cause: str) -> None:
    kind, fail, notice = CAUSES[cause]
    sick = disk(kind)
    healthy, failing = tmp_path / "healthy", sick.path / "logs"
    broker = start(healthy, failing, log_flush_offset_checkpoint_interval_ms="200" if notice is None else "60000")
    client = RawClient(broker.bootstrap)
    create(client)
    home = homes(client)
    for partition in range(PARTITIONS):
        assert produce(client, partition) == ErrorCode.NONE
    lost = [partition for partition, path in home.items() if path == str(failing)]
    kept = [partition for partition in home if partition not in lost]
    assert len(lost) == len(kept) == 2

    if cause.startswith("read"):
        # Where the last batches are is remembered: a broker that has just started has to look for them.
        client.close()
        broker.restart()
        client = RawClient(broker.bootstrap)
        until(lambda: all(fetch(client, each)[0] == ErrorCode.NONE for each in home), "the broker leads again")

    fail(sick)
    if notice is not None:
        assert notice(client, lost[0]) == ErrorCode.KAFKA_STORAGE_ERROR
    # The other partition on that disk goes as well, though nobody has touched it.
    until(lambda: dirs_of(client)[str(failing)].error_code == ErrorCode.KAFKA_STORAGE_ERROR, "the directory is offline")
    for partition in lost:
        assert produce(client, partition) == ErrorCode.KAFKA_STORAGE_ERROR
        assert fetch(client, partition) == (ErrorCode.KAFKA_STORAGE_ERROR, b"")
    until(lambda: all(partition_metadata(client)[each].leader_id == -1 for each in lost), "the controller has heard")
    shown = partition_metadata(client)
    for partition in lost:
        assert shown[partition].error_code == ErrorCode.LEADER_NOT_AVAILABLE
        assert shown[partition].offline_replicas == [1]
    for partition in kept:
        assert (shown[partition].error_code, shown[partition].leader_id) == (ErrorCode.NONE, 1)
        assert produce(client, partition) == ErrorCode.NONE
        error, records = fetch(client, partition)
        assert (error, records.count(b"value")) == (ErrorCode.NONE, 2)
    topic = AlterReplicaLogDirsRequest.Dir.Topic(name="t", partitions=[kept[0], lost[0]])
    for path in (healthy, failing):
        moves = [AlterReplicaLogDirsRequest.Dir(path=str(path), topics=[topic])]
        answer = client.call(AlterReplicaLogDirsRequest(dirs=moves), 2).results[0]
        expected = ErrorCode.NONE if path == healthy else ErrorCode.KAFKA_STORAGE_ERROR
        codes = {each.partition_index: each.error_code for each in answer.partitions}
        assert codes == {kept[0]: expected, lost[0]: ErrorCode.KAFKA_STORAGE_ERROR}
    client.close()
    assert broker.stop() == 0


def test_without_any_directory_the_broker_ends(disk: Any, start: Any, tmp_path: Path) -> None:
    sick = disk("ext4")
    broker = start(sick.path / "one", sick.path / "two", metadata_log_dir=str(tmp_path / "metadata"))
    client = RawClient(broker.bootstrap)
    create(client)
    process = broker.process
    sick.fail()
    for partition in range(PARTITIONS):
        try:
            produce(client, partition)
        except OSError:
            break
    assert process.wait(60) == 1
    assert "Shutdown broker because all log dirs in" in broker.log_tail(100_000)
    assert "Traceback" not in broker.log_tail(100_000)


def test_a_move_to_a_disk_that_fills_up_ends_and_the_log_lives_on(disk: Any, start: Any, tmp_path: Path) -> None:
    small = disk("tmpfs")
    healthy, failing = tmp_path / "healthy", small.path / "logs"
    broker = start(healthy, failing)
    client = RawClient(broker.bootstrap)
    create(client)
    home = homes(client)
    (moved, *_) = (partition for partition, path in home.items() if path == str(healthy))
    for number in range(60):
        assert produce(client, moved, b"%d" % number * 50_000) == ErrorCode.NONE
    topic = AlterReplicaLogDirsRequest.Dir.Topic(name="t", partitions=[moved])
    moves = [AlterReplicaLogDirsRequest.Dir(path=str(failing), topics=[topic])]
    answer = client.call(AlterReplicaLogDirsRequest(dirs=moves), 2).results[0]
    assert answer.partitions[0].error_code == ErrorCode.NONE
    until(lambda: dirs_of(client)[str(failing)].error_code == ErrorCode.KAFKA_STORAGE_ERROR, "the directory is offline")
    assert produce(client, moved) == ErrorCode.NONE
    assert partition_metadata(client)[moved].leader_id == 1
    (found,) = (each for each in dirs_of(client)[str(healthy)].topics[0].partitions if each.partition_index == moved)
    assert found.partition_size > 4_000_000
    client.close()
    assert broker.stop() == 0
