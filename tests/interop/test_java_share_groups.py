"""Share groups beside Apache Kafka 4.4: the same answers, and each loads what the other wrote."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from broker.handlers import share_groups
from interop.conftest import JAVA, with_jars
from interop.differential.consumer_groups import Group as ConsumerGroup
from interop.differential.exchanges import Peer, plain
from interop.test_java_group_records import log_of, snapshot_of
from peers.apache_kafka import ApacheKafka
from waiting import wait_until

from kafkapy.coordinator.group.assignors.uniform import UniformAssignor
from kafkapy.coordinator.group.config import GroupConfig
from kafkapy.coordinator.group.coordinator import GroupCoordinator
from kafkapy.coordinator.group.records import GROUP_RECORDS
from kafkapy.protocol.messages.create_partitions import CreatePartitionsRequest
from kafkapy.protocol.messages.delete_groups import DeleteGroupsRequest
from kafkapy.protocol.messages.list_groups import ListGroupsRequest
from kafkapy.records.batches import decode_records, iter_batches
from kafkapy.testing.broker_process import BrokerProcess
from kafkapy.testing.coordinator import MemoryWriter, VirtualClock
from kafkapy.testing.share import share_parts
from kafkapy.types import TopicPartition

VERSION = "4.x"
PARTITION = TopicPartition("__consumer_offsets", 0)
OVERRIDES = {
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.share.max.session.timeout.ms": "600000",
    "group.share.session.timeout.ms": "600000",
    "group.share.max.size": "3",
}

pytestmark = JAVA


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], Any]]:
    """A running broker of that kind with one partition of each coordinator."""
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


class Group:
    """One share group on one peer. What is answered is noted, without how soon the next heartbeat is to come."""

    def __init__(self, peer: Peer, name: str) -> None:
        self.peer, self.name = peer, name
        self.epochs: dict[str, int] = {}
        self.owned: dict[str, dict[Any, list[int]]] = {}
        ConsumerGroup(peer, name, 1)  # which waits for the coordinator

    def note(self, label: str, value: Any) -> None:
        self.peer.note(f"{self.name}: {label}", value)

    def send(self, member: str, epoch: int, **fields: Any) -> Any:
        answer = share_groups.beat(self.peer.setup, fields.pop("group", self.name), member, epoch, **fields)
        if answer.error_code == 0:
            self.epochs[member] = answer.member_epoch
        if answer.assignment is not None:
            self.owned[member] = {each.topic_id: each.partitions for each in answer.assignment.topic_partitions}
        return answer

    def beat(self, label: str, member: str, epoch: int | None = None, **fields: Any) -> None:
        answer = self.send(member, self.epochs[member] if epoch is None else epoch, **fields)
        self.note(label, [answer.error_code, answer.error_message, answer.member_id, answer.member_epoch])

    def settle(self, label: str, *counts: tuple[str, int]) -> None:
        """Send heartbeats until the members have so many partitions; then the group is noted."""

        def settled() -> bool:
            for member, _ in counts:
                assert self.send(member, self.epochs[member]).error_code == 0
            [group] = share_groups.describe(self.peer.setup, self.name)
            epochs = {group.group_epoch, group.assignment_epoch, *(self.epochs[member] for member, _ in counts)}
            return len(epochs) == 1 and all(self.count(member) == number for member, number in counts)

        wait_until(settled, f"{self.peer.name}: {counts} of {self.name}, which are {self.owned}")
        self.describe(label)

    def count(self, member: str) -> int:
        return sum(map(len, self.owned.get(member, {}).values()))

    def describe(self, label: str, name: str | None = None) -> None:
        [group] = share_groups.describe(self.peer.setup, name or self.name)
        self.note(label, {
            "group": [
                group.error_code, group.error_message, group.group_state, group.group_epoch, group.assignment_epoch,
                group.assignor_name,
            ],
            "members": {
                each.member_id: [
                    each.rack_id, each.member_epoch, each.client_host, sorted(each.subscribed_topic_names),
                    # Which ones is a matter of Java's hashes.
                    {topic.topic_name: len(topic.partitions) for topic in each.assignment.topic_partitions},
                ]
                for each in group.members
            },
        })  # fmt: skip

    def offsets(self, label: str, topics: dict[str, list[int]] | None = None) -> None:
        found = share_groups.describe_offsets(self.peer.setup, self.name, topics)
        self.note(label, [found.error_code, found.error_message, sorted(map(repr, map(plain, found.topics)))])

    def alter(self, label: str, topics: dict[str, dict[int, int]]) -> None:
        answer = share_groups.alter_offsets(self.peer.setup, self.name, topics)
        self.note(label, [answer.error_code, answer.error_message, sorted(map(repr, map(plain, answer.responses)))])

    def forget(self, label: str, *topics: str) -> None:
        answer = share_groups.delete_offsets(self.peer.setup, self.name, *topics)
        self.note(label, [answer.error_code, answer.error_message, sorted(map(repr, map(plain, answer.responses)))])

    def listed(self, label: str) -> None:
        groups = self.peer.setup(ListGroupsRequest(), 5).groups
        found = [each for each in groups if each.group_id == self.name]
        self.note(label, [(each.protocol_type, each.group_state, each.group_type) for each in found])

    def delete(self, label: str) -> None:
        self.note(label, self.peer.setup(DeleteGroupsRequest(groups_names=[self.name]), 2).results[0].error_code)


def fill(peer: Peer) -> list[str]:
    """Share groups in every state; their names."""
    peer.scope("fill:")
    peer.create_topic("topic", 4)
    peer.create_topic("other", 2)

    group = Group(peer, "living")
    group.beat("no group id", "a", 1, group="")
    group.beat("blank group id", "a", 1, group=" ")
    group.beat("no member id", "", 1)
    group.beat("no member id, leaving", "", -1)
    group.beat("no rack id", "a", 1, rack_id="")
    group.beat("joins without topics", "a", 0)
    group.beat("joins with no topic", "a", 0, subscribed_topic_names=[])
    group.beat("epoch -2", "a", -2)
    group.beat("unknown group", "a", 1)
    group.beat("leaves an unknown group", "a", -1)
    group.describe("described, unknown")
    group.offsets("offsets, unknown")
    group.forget("forgets, unknown", "topic")

    group.beat("a joins", "a", 0, subscribed_topic_names=["topic"], rack_id="r")
    group.settle("a has all", ("a", 4))
    group.beat("b is not there", "b", 1)
    group.beat("b leaves and was not there", "b", -1)
    group.beat("a is too far", "a", 77)
    group.beat("a joins again", "a", 0, subscribed_topic_names=["topic"])
    group.beat("a in its previous epoch", "a", group.epochs["a"] - 1)
    group.beat("a says the same again", "a", subscribed_topic_names=["topic"], rack_id="r")
    group.settle("a has what it had", ("a", 4))
    group.listed("listed")
    group.offsets("offsets of a group with members")
    group.alter("alters with members", {"topic": {0: 1}})
    group.forget("forgets with members", "topic")
    group.delete("deletes with members")

    group.beat("b joins", "b", 0, subscribed_topic_names=["topic"])
    group.settle("two members", ("a", 2), ("b", 2))
    group.beat("b reads more", "b", subscribed_topic_names=["topic", "other", "nowhere"])
    group.settle("b has more", ("a", 2), ("b", 4))
    group.beat("c joins", "c", 0, subscribed_topic_names=["other"])
    group.settle("three members", ("a", 2), ("b", 3), ("c", 1))
    group.beat("d does not fit", "d", 0, subscribed_topic_names=["topic"])
    more = CreatePartitionsRequest.Topic(name="topic", count=6, assignments=None)
    peer.note(
        "more partitions",
        peer.setup(CreatePartitionsRequest(topics=[more], timeout_ms=10_000), 3).results[0].error_code,
    )
    group.settle("more partitions, described", ("a", 3), ("b", 4), ("c", 1))
    group.beat("c leaves", "c", -1)
    group.beat("c left", "c", 3)
    group.settle("without c", ("a", 3), ("b", 5))

    left = Group(peer, "left")
    left.beat("a joins", "a", 0, subscribed_topic_names=["other"])
    left.settle("a has all", ("a", 2))
    left.beat("a leaves", "a", -1)
    left.describe("described, empty")
    left.listed("listed, empty")
    left.offsets("offsets, empty")
    # Apache Kafka does not answer within 30 s for a partition that its topic does not have.
    left.offsets("some offsets", {"other": [0], "topic": [0], "nowhere": [0]})
    left.alter("alters", {"other": {0: 3, 1: 0, 9: 1}, "topic": {1: 5}, "nowhere": {0: 0}})
    left.offsets("offsets, altered")
    left.describe("described, altered")
    left.forget("forgets", "other", "nowhere")
    left.forget("forgets again", "other")
    left.offsets("offsets, forgotten")

    made = Group(peer, "made")
    made.alter("alters a new group", {"topic": {0: 4}})
    made.describe("described, made")
    made.listed("listed, made")
    made.offsets("offsets, made")

    gone = Group(peer, "gone")
    gone.alter("alters a new group", {"topic": {0: 4}})
    gone.delete("deletes")
    gone.describe("described, deleted")
    gone.listed("listed, deleted")
    gone.delete("deletes again")

    consumers = ConsumerGroup(peer, "consumers", 1)
    consumers.join("consumers: a joins", "a", "topic")
    mixed = Group(peer, "consumers")
    mixed.beat("a share member joins", "s", 0, subscribed_topic_names=["topic"])
    mixed.describe("described, of another protocol")
    mixed.alter("alters another protocol", {"topic": {0: 4}})
    mixed.forget("forgets another protocol", "topic")
    mixed.offsets("offsets of another protocol")
    theirs = ConsumerGroup(peer, "living", 1)
    theirs.join("living: a consumer joins", "x", "topic")
    theirs.commit("living: a consumer commits", "topic", "a", 1)
    theirs.fetch("living: a consumer fetches", "topic", "a", 1)
    return ["living", "left", "made"]


OTHER_WORDS = {
    "fill: living: no member id": "MemberId can't be empty.",
    "fill: living: no member id, leaving": "MemberId can't be empty.",
    "fill: living: alters with members": "The group still has members.",
    "fill: living: forgets with members": "The group still has members.",
}
"""Messages of kafkapy where Apache Kafka has none, or says the same in other words."""
NOT_OF_SHARE_GROUPS = {"fill: consumers: a joins"}
"""The first epoch of consumer groups is 2 in Apache Kafka 4.4, and was 1 before."""


def described(groups: list[Any]) -> dict[str, Any]:
    """What has to survive, by group and member, but for partitions of topics that have other ids."""
    return {
        group.group_id: (
            group.error_code,
            group.group_state,
            group.group_epoch,
            group.assignment_epoch,
            {
                each.member_id: (each.rack_id, each.member_epoch, each.client_host, sorted(each.subscribed_topic_names))
                for each in group.members
            },
        )
        for group in groups
    }


def test_answers_are_those_of_apache_kafka(start: Callable[[str], Any]) -> None:
    found = []
    for kind in ("kafkapy", "apache"):
        peer = Peer(kind, start(kind).bootstrap)
        fill(peer)
        found.append(peer.answers)
        peer.close()
    ours, theirs = found
    assert ours.keys() == theirs.keys()
    for label, message in OTHER_WORDS.items():
        assert ours[label][1] == message != theirs[label][1]
        ours[label][1] = theirs[label][1]
    different = [
        f"{label}: {ours[label]}, theirs {theirs[label]}"
        for label in sorted(ours.keys() - NOT_OF_SHARE_GROUPS)
        if ours[label] != theirs[label]
    ]
    assert not different, "\n".join(different)


def test_kafkapy_loads_what_kafka_wrote(start: Callable[[str], Any]) -> None:
    broker = start("apache")
    peer = Peer("apache", broker.bootstrap)
    names = fill(peer)
    theirs = share_groups.describe(peer.setup, *names)
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
    assert kinds >= {10, 11, 12, 13, 14, 15}

    coordinator = GroupCoordinator(
        GroupConfig(share_session_timeout_ms=600_000),
        writer,
        clock,
        partition_count=lambda: 1,
        assignors=[UniformAssignor()],
        metadata=lambda: snapshot,
        **share_parts(clock),
    )
    coordinator.runtime.on_leadership_change(PARTITION, 1, True)
    clock.run()
    shard = coordinator.runtime.shards()[0]
    ours = [shard.share.describe(name, snapshot) for name in names]
    assert described(ours) == described(theirs)
    partitions = [
        {member.member_id: plain(member.assignment) for group in each for member in group.members}
        for each in (ours, theirs)
    ]
    assert partitions[0] == partitions[1]
    listed = {each.group_id: each.group_type for each in shard.list_groups([], [])}
    assert listed == {**dict.fromkeys(names, "share"), "consumers": "consumer"}


def test_kafka_loads_what_kafkapy_wrote(start: Callable[[str], Any]) -> None:
    broker = start("kafkapy")
    peer = Peer("kafkapy", broker.bootstrap)
    names = fill(peer)
    ours = share_groups.describe(peer.setup, *names)
    peer.close()
    broker.stop()

    apache = start("apache")
    before = Peer("apache", apache.bootstrap)
    ConsumerGroup(before, "none", 1)
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
    ConsumerGroup(peer, "none", 1)
    assert described(share_groups.describe(peer.setup, *names)) == described(ours)
    listed = {each.group_id: each.group_type for each in peer.setup(ListGroupsRequest(), 5).groups}
    assert listed == {**dict.fromkeys(names, "share"), "consumers": "consumer"}
    peer.close()
