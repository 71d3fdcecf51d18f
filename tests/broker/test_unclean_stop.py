"""What consumers learn of records that a power failure took: the leader epoch has risen (KIP-320)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kafkapy.broker.server import KafkaServer
from kafkapy.errors import ErrorCode
from kafkapy.metadata.embedded import EmbeddedStore
from kafkapy.metadata.znodes import decode_partition_state, encode_partition_state
from kafkapy.protocol.messages.fetch import FetchRequest
from kafkapy.protocol.messages.metadata import MetadataRequest
from kafkapy.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kafkapy.types import TopicPartition

TOPIC = TopicPartition("topic", 0)
STATE = "/brokers/topics/topic/partitions/0/state"


def leader_epoch(client: Any) -> int:
    asked = MetadataRequest(topics=[MetadataRequest.Topic(name="topic")], allow_auto_topic_creation=False)
    epoch: int = client(asked, 9).topics[0].partitions[0].leader_epoch
    return epoch


def end_of_epoch(client: Any, epoch: int) -> tuple[int, int]:
    asked = OffsetForLeaderEpochRequest.Topic.Partition(partition=0, current_leader_epoch=-1, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderEpochRequest.Topic(topic="topic", partitions=[asked])])
    answer = client(request, 4).topics[0].partitions[0]
    return answer.leader_epoch, answer.end_offset


def fetched(client: Any, offset: int, last_epoch: int, current_epoch: int = -1) -> Any:
    partition = FetchRequest.Topic.Partition(
        partition=0,
        fetch_offset=offset,
        current_leader_epoch=current_epoch,
        last_fetched_epoch=last_epoch,
        partition_max_bytes=1 << 20,
    )
    topics = [FetchRequest.Topic(topic="topic", partitions=[partition])]
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=topics)
    return client(request, 12).responses[0].partitions[0]


def written(server: KafkaServer, client: Any, count: int) -> None:
    for number in range(count):
        client.produce("topic", [(1, b"%d" % number)])


def lose(directory: Path, batches: int) -> None:
    """As a power failure leaves it: no mark of a clean stop, and the last batches are not there."""
    (directory / ".kafka_cleanshutdown").unlink()
    path = directory / "topic-0" / f"{0:020d}.log"
    data = path.read_bytes()
    starts = [0]
    while starts[-1] < len(data):
        starts.append(starts[-1] + 12 + int.from_bytes(data[starts[-1] + 8 : starts[-1] + 12], "big"))
    path.write_bytes(data[: starts[len(starts) - 1 - batches]])
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (directory / name).write_text("0\n0\n")
    for snapshot in (directory / "topic-0").glob("*.snapshot"):
        snapshot.unlink()


def test_a_consumer_of_lost_records_finds_out_whatever_was_written_since(
    tmp_path: Path, make_config: Any, connect: Any
) -> None:
    with KafkaServer(make_config(tmp_path)) as server:
        client = connect(server)
        client.create_topic("topic")
        written(server, client, 10)
        first = leader_epoch(client)
    lose(tmp_path, 3)
    with KafkaServer(make_config(tmp_path)) as server:
        client = connect(server)
        written(server, client, 10)
        second = leader_epoch(client)
        assert second > first
        assert end_of_epoch(client, first) == (first, 7)
        assert end_of_epoch(client, second) == (second, 17)
        told = fetched(client, 10, first)
        assert (told.diverging_epoch.epoch, told.diverging_epoch.end_offset) == (first, 7)
        assert fetched(client, 10, first, current_epoch=first).error_code == ErrorCode.FENCED_LEADER_EPOCH
        in_step = fetched(client, 7, first)
        assert (in_step.error_code, in_step.diverging_epoch.epoch) == (ErrorCode.NONE, -1)
        assert in_step.records


def test_a_log_that_is_gone_is_led_in_a_new_epoch(tmp_path: Path, make_config: Any, connect: Any) -> None:
    with KafkaServer(make_config(tmp_path)) as server:
        client = connect(server)
        client.create_topic("topic")
        written(server, client, 10)
        first = leader_epoch(client)
    for path in (tmp_path / "topic-0").iterdir():
        path.unlink()
    (tmp_path / "topic-0").rmdir()
    with KafkaServer(make_config(tmp_path)) as server:
        client = connect(server)
        written(server, client, 12)
        assert leader_epoch(client) > first
        assert end_of_epoch(client, first) == (first, 0)


def test_a_clean_stop_leaves_the_epoch_as_it_is(tmp_path: Path, make_config: Any, connect: Any) -> None:
    epochs = []
    for _ in range(3):
        with KafkaServer(make_config(tmp_path)) as server:
            client = connect(server)
            if not epochs:
                client.create_topic("topic")
            written(server, client, 1)
            epochs.append(leader_epoch(client))
    assert len(set(epochs)) == 1


def test_a_store_that_is_older_than_the_log_leads_in_a_newer_epoch(
    tmp_path: Path, make_config: Any, connect: Any
) -> None:
    with KafkaServer(make_config(tmp_path)) as server:
        client = connect(server)
        client.create_topic("topic")
        written(server, client, 2)
    for _ in range(2):
        lose(tmp_path, 0)
        with KafkaServer(make_config(tmp_path)) as server:
            client = connect(server)
            written(server, client, 1)
            newest = leader_epoch(client)

    async def restore() -> None:
        store = EmbeddedStore(tmp_path)
        await store.start()
        state = decode_partition_state(TOPIC, (await store.get(STATE))[0], 0)
        await store.set(STATE, encode_partition_state(state._replace(leader_epoch=0)))
        await store.close()

    asyncio.run(restore())
    with KafkaServer(make_config(tmp_path)) as server:
        client = connect(server)
        written(server, client, 1)
        assert leader_epoch(client) > newest
        assert end_of_epoch(client, newest) == (newest, 4)


@pytest.mark.parametrize("crashes", range(1, 4))
def test_each_crash_is_an_epoch_of_its_own(tmp_path: Path, make_config: Any, connect: Any, crashes: int) -> None:
    """Also when nothing of the epoch before was left to tell of it."""
    ends = {}
    for number in range(crashes + 1):
        with KafkaServer(make_config(tmp_path)) as server:
            client = connect(server)
            if not number:
                client.create_topic("topic")
                written(server, client, 3)
            else:
                for epoch, end in ends.items():
                    assert end_of_epoch(client, epoch)[1] <= end
            written(server, client, 2)
            ends[leader_epoch(client)] = 3
        lose(tmp_path, 2)
    assert len(ends) == crashes + 1
