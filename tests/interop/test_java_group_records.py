"""Consumer groups in the log of another broker: Kafka 4.1 loads what kafkapy wrote, and kafkapy what Kafka wrote."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from interop.conftest import JAVA, with_jars
from interop.differential.consumer_groups import Classic, Group
from interop.differential.exchanges import Peer
from peers.apache_kafka import ApacheKafka

from kafkapy.coordinator.group.assignors.range import RangeAssignor
from kafkapy.coordinator.group.assignors.uniform import UniformAssignor
from kafkapy.coordinator.group.config import GroupConfig
from kafkapy.coordinator.group.coordinator import GroupCoordinator
from kafkapy.coordinator.group.records import GROUP_RECORDS
from kafkapy.metadata.cache import MetadataSnapshot, TopicMetadata
from kafkapy.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kafkapy.protocol.messages.list_groups import ListGroupsRequest
from kafkapy.records.batches import decode_records, iter_batches
from kafkapy.testing.broker_process import BrokerProcess
from kafkapy.testing.coordinator import MemoryWriter, VirtualClock
from kafkapy.testing.share import share_parts
from kafkapy.types import TopicPartition

VERSION = "4.1.1"
PARTITION = TopicPartition("__consumer_offsets", 0)
OVERRIDES = {
    "offsets.topic.num.partitions": "1",
    "group.consumer.min.session.timeout.ms": "45000",
    "group.consumer.max.session.timeout.ms": "600000",
    "group.consumer.session.timeout.ms": "600000",
}

pytestmark = JAVA


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], Any]]:
    """A running broker of that kind with one partition of __consumer_offsets."""
    with_jars(VERSION)
    made: list[Any] = []

    def make(kind: str) -> Any:
        place = tmp_path / kind
        broker = BrokerProcess(place, OVERRIDES) if kind == "kafkapy" else ApacheKafka(VERSION, place, OVERRIDES)
        made.append(broker)
        return broker.start()

    yield make
    for each in made:
        each.remove()


def fill(peer: Peer) -> list[str]:
    """Groups in the middle of everything; their names."""
    peer.scope("fill:")
    peer.create_topic("topic", 6)
    peer.create_topic("other", 3)

    moving = Group(peer, "moving", 1)
    moving.join("moving: a", "a", "topic", rack_id="rack")
    moving.join("moving: b", "b", "topic", "other", instance_id="i", server_assignor="range")
    moving.beat("moving: a has to give up", "a", 1, owns=True)

    away = Group(peer, "away", 1)
    away.join("away: a", "a", "topic", instance_id="i")
    away.beat("away: a leaves for a while", "a", -2, instance_id="i")

    matching = Group(peer, "matching", 1)
    matching.join("matching: a", "a", subscribed_topic_names=None, subscribed_topic_regex="to.*")
    deadline = time.monotonic() + 60
    while not matching.owned.get("a"):
        assert time.monotonic() < deadline, "the expression matches nothing"
        matching.beat_on("a")
        time.sleep(0.05)

    mixed = Group(peer, "mixed", 1)
    mixed.join("mixed: a", "a", "topic")
    classic = Classic(peer, "mixed", "topic")
    classic.join("mixed: classic")

    back = Group(peer, "back", 1)
    back.join("back: a", "a", "topic")
    Classic(peer, "back", "topic").join("back: classic")
    back.beat("back: a leaves", "a", -1)

    empty = Group(peer, "empty", 1)
    empty.join("empty: a", "a", "topic")
    empty.commit("empty: commit", "topic", "a", 1)
    empty.beat("empty: a leaves", "a", -1)
    return ["moving", "away", "matching", "mixed", "back", "empty"]


def described(groups: list[Any], *, with_partitions: bool) -> dict[str, Any]:
    """What has to survive, by group and member."""

    def partitions(assignment: Any) -> Any:
        listed = {each.topic_name: sorted(each.partitions) for each in assignment.topic_partitions}
        return listed if with_partitions else None

    return {
        group.group_id: (
            group.error_code,
            group.group_state,
            group.group_epoch,
            group.assignment_epoch,
            group.assignor_name,
            {
                member.member_id: (
                    member.instance_id,
                    member.rack_id,
                    member.member_epoch,
                    member.client_id,
                    member.client_host,
                    sorted(member.subscribed_topic_names),
                    member.subscribed_topic_regex,
                    member.member_type,
                    partitions(member.assignment),
                    partitions(member.target_assignment),
                )
                for member in group.members
            },
        )
        for group in groups
    }


def describe(peer: Peer, names: list[str]) -> list[Any]:
    groups: list[Any] = peer.setup(ConsumerGroupDescribeRequest(group_ids=names), 1).groups
    return groups


def log_of(broker: Any) -> Path:
    (path,) = (broker.data_dir / "logs" / "__consumer_offsets-0").glob("*.log")
    return Path(path)


def snapshot_of(peer: Peer) -> MetadataSnapshot:
    """The topics of a running broker, with its ids."""
    from kafkapy.protocol.messages.metadata import MetadataRequest

    topics = {
        each.name: TopicMetadata(each.name, each.topic_id, dict.fromkeys(range(len(each.partitions))))  # type: ignore[arg-type]
        for each in peer.setup(MetadataRequest(topics=None), 12).topics
    }
    return MetadataSnapshot(topics=topics, topic_names={each.topic_id: each.name for each in topics.values()})


def test_kafkapy_loads_what_kafka_wrote(start: Callable[[str], Any]) -> None:
    broker = start("apache")
    peer = Peer("apache", broker.bootstrap)
    names = fill(peer)
    theirs = describe(peer, names)
    snapshot = snapshot_of(peer)
    peer.close()
    broker.stop()

    writer, clock = MemoryWriter(), VirtualClock()
    kinds = set()
    for batch in iter_batches(log_of(broker).read_bytes(), check_crc=True):
        writer.put(PARTITION, batch.to_bytes())
        for record in decode_records(batch):
            key = record.key or b""
            decoded = GROUP_RECORDS.decode(key, record.value)
            assert decoded is not None, key
            assert decoded.encode() == (key, record.value)
            kinds.add(decoded.key_version)
    assert kinds >= {1, 2, 3, 4, 5, 6, 7, 8, 16}

    coordinator = GroupCoordinator(
        GroupConfig(consumer_session_timeout_ms=600_000),
        writer,
        clock,
        partition_count=lambda: 1,
        assignors=[UniformAssignor(), RangeAssignor()],
        metadata=lambda: snapshot,
        **share_parts(clock),
    )
    coordinator.runtime.on_leadership_change(PARTITION, 1, True)
    clock.run()
    shard = coordinator.runtime.shards()[0]
    ours = shard.consumer.describe(names, snapshot)
    assert described(ours, with_partitions=True) == described(theirs, with_partitions=True)
    assert {each.group_id: each.group_type for each in shard.list_groups([], [])} == {
        **dict.fromkeys(names, "consumer"),
        "back": "classic",
    }


def test_kafka_loads_what_kafkapy_wrote(start: Callable[[str], Any]) -> None:
    broker = start("kafkapy")
    peer = Peer("kafkapy", broker.bootstrap)
    names = fill(peer)
    # A group that was deleted, and one that went to the classic protocol and back: their tombstones are checked too.
    gone = Group(peer, "gone", 1)
    gone.join("gone: a", "a", subscribed_topic_names=["topic"], subscribed_topic_regex="o.*")
    gone.beat("gone: a leaves", "a", -1)
    ours = describe(peer, names)
    peer.close()
    broker.stop()

    apache = start("apache")
    before = Peer("apache", apache.bootstrap)
    Group(before, "none", 1)
    before.close()
    apache.stop()
    partition = log_of(apache).parent
    for path in partition.iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    shutil.copy(log_of(broker), partition / log_of(broker).name)
    (apache.data_dir / "logs" / ".kafka_cleanshutdown").unlink(missing_ok=True)
    apache.start()

    peer = Peer("apache", apache.bootstrap)
    Group(peer, "none", 1)
    theirs = describe(peer, names)
    # Its topics have other ids, so that it shows no partitions.
    assert described(theirs, with_partitions=False) == described(ours, with_partitions=False)
    listed = {each.group_id: each.group_type for each in peer.setup(ListGroupsRequest(), 5).groups}
    assert listed == {**dict.fromkeys([*names, "gone"], "consumer"), "back": "classic"}
    peer.close()
