"""Exchanges of consumer groups (KIP-848): ConsumerGroupHeartbeat and ConsumerGroupDescribe, and what members of both
protocols see of each other.

Which partitions a member gets is the assignor's business: only how many it has is compared.
"""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

from interop.differential.exchanges import Peer, scenario

from kafkapy.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kafkapy.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kafkapy.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kafkapy.protocol.messages.create_partitions import CreatePartitionsRequest
from kafkapy.protocol.messages.delete_groups import DeleteGroupsRequest
from kafkapy.protocol.messages.describe_groups import DescribeGroupsRequest
from kafkapy.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkapy.protocol.messages.heartbeat import HeartbeatRequest
from kafkapy.protocol.messages.join_group import JoinGroupRequest
from kafkapy.protocol.messages.leave_group import LeaveGroupRequest
from kafkapy.protocol.messages.list_groups import ListGroupsRequest
from kafkapy.protocol.messages.offset_commit import OffsetCommitRequest
from kafkapy.protocol.messages.offset_delete import OffsetDeleteRequest
from kafkapy.protocol.messages.offset_fetch import OffsetFetchRequest
from kafkapy.protocol.messages.sync_group import SyncGroupRequest
from kafkapy.protocol.registry import ApiKeys

Owned = dict[UUID, list[int]]


def wait_for_epoch(group: Group, member: str, epoch: int) -> None:
    """Until the group has seen that topics have changed: the coordinator hears of it a moment later."""
    for _ in range(600):
        group.beat_on(member)
        described = group.peer.setup(ConsumerGroupDescribeRequest(group_ids=[group.name]), 1).groups[0]
        if described.group_epoch == epoch:
            return
        time.sleep(0.05)
    raise AssertionError(f"{group.peer.name}: {group.name} stays in epoch {described.group_epoch}")


class Group:
    """One group on one peer: requests by their short forms, each recorded under its label."""

    def __init__(self, peer: Peer, name: str, version: int) -> None:
        self.peer, self.name, self.version = peer, name, version
        self.owned: dict[str, Owned] = {}
        self.epochs: dict[str, int] = {}
        for _ in range(600):
            found = peer.setup(FindCoordinatorRequest(key_type=0, coordinator_keys=[name]), 4).coordinators[0]
            if found.error_code == 0 and self._loaded():
                return
            time.sleep(0.05)
        raise AssertionError(f"{peer.name} does not coordinate {name}")

    def _loaded(self) -> bool:
        groups = [OffsetFetchRequest.Group(group_id=self.name, topics=None)]
        fetched = self.peer.setup(OffsetFetchRequest(groups=groups), 8).groups[0]
        return bool(fetched.error_code == 0)

    def beat(self, label: str, member: str, epoch: int, *, owns: bool = False, **fields: Any) -> None:
        """A heartbeat; with `owns` it says what the member has."""
        answer = self._send(member, epoch, owns=owns, **fields)
        self.peer.note(label, {
            "error": answer.error_code,
            "message": answer.error_message,
            "member": answer.member_id,
            "epoch": answer.member_epoch,
            "interval": answer.heartbeat_interval_ms,
            "assigned": None if answer.assignment is None else self.count(member),
        })  # fmt: skip

    def _send(self, member: str, epoch: int, *, owns: bool, **fields: Any) -> Any:
        if owns:
            fields["topic_partitions"] = [
                ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic, partitions=numbers)
                for topic, numbers in self.owned.get(member, {}).items()
            ]
        request = ConsumerGroupHeartbeatRequest(
            **{"group_id": self.name, "member_id": member, "member_epoch": epoch, **fields}
        )
        answer = self.peer.setup(request, self.version)
        if answer.error_code == 0:
            self.epochs[member] = answer.member_epoch
        if answer.assignment is not None:
            self.owned[member] = {each.topic_id: each.partitions for each in answer.assignment.topic_partitions}
        return answer

    def beat_on(self, member: str) -> None:
        """What a client does: a heartbeat in the epoch it was told, with what it was told. Not recorded."""
        answer = self._send(member, self.epochs[member], owns=True)
        assert answer.error_code == 0, f"{self.peer.name}: {answer}"

    def join(self, label: str, member: str, *topics: str, **fields: Any) -> None:
        first = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": list(topics), "topic_partitions": []}
        self.beat(label, member, 0, **{**first, **fields})

    def count(self, member: str) -> int:
        return sum(map(len, self.owned.get(member, {}).values()))

    def describe(self, label: str) -> None:
        group = self.peer.setup(ConsumerGroupDescribeRequest(group_ids=[self.name]), 1).groups[0]
        members = {
            each.member_id if each.member_type != 0 else "classic": {
                "instance": each.instance_id,
                "rack": each.rack_id,
                "epoch": each.member_epoch,
                "client": (each.client_id, each.client_host),
                "names": sorted(each.subscribed_topic_names),
                "regex": each.subscribed_topic_regex,
                "assigned": sum(len(topic.partitions) for topic in each.assignment.topic_partitions),
                "target": sum(len(topic.partitions) for topic in each.target_assignment.topic_partitions),
                "type": each.member_type,
            }
            for each in group.members
        }
        about = (
            group.error_code, group.error_message, group.group_state, group.group_epoch, group.assignment_epoch,
            group.assignor_name,
        )  # fmt: skip
        self.peer.note(label, {"group": list(about), "members": members})

    def listed(self, label: str) -> None:
        for group in self.peer.setup(ListGroupsRequest(), 5).groups:
            if group.group_id == self.name:
                self.peer.note(label, [group.protocol_type, group.group_state, group.group_type])
                return
        self.peer.note(label, None)

    def commit(self, label: str, topic: str, member: str, epoch: int, version: int = 9) -> None:
        partition = OffsetCommitRequest.Topic.Partition(partition_index=0, committed_offset=5)
        request = OffsetCommitRequest(
            group_id=self.name,
            generation_id_or_member_epoch=epoch,
            member_id=member,
            topics=[OffsetCommitRequest.Topic(name=topic, partitions=[partition])],
        )
        self.peer.note(label, self.peer.setup(request, version).topics[0].partitions[0].error_code)

    def fetch(self, label: str, topic: str, member: str | None, epoch: int) -> None:
        group = OffsetFetchRequest.Group(
            group_id=self.name,
            member_id=member,
            member_epoch=epoch,
            topics=[OffsetFetchRequest.Group.Topic(name=topic, partition_indexes=[0])],
        )
        answer = self.peer.setup(OffsetFetchRequest(groups=[group]), 9).groups[0]
        offsets = [each.committed_offset for topic in answer.topics for each in topic.partitions]
        self.peer.note(label, [answer.error_code, offsets])


@scenario(ApiKeys.CONSUMER_GROUP_HEARTBEAT)
def consumer_group_heartbeat(peer: Peer, version: int) -> None:
    topic, other = f"cg-{version}", f"cg-other-{version}"
    peer.create_topic(topic, 6)
    peer.create_topic(other, 2)
    if not peer.can(ApiKeys.CONSUMER_GROUP_DESCRIBE, 1):
        return  # 3.9 has the protocol in preview only
    group = Group(peer, f"group-{version}", version)

    group.beat("no group id", "a", 1, group_id="")
    group.beat("blank group id", "a", 1, group_id=" ")
    group.beat("no member id", "", 1)
    group.beat("no member id, leaving", "", -1)
    group.beat("no instance id", "a", 1, instance_id="")
    group.beat("no rack id", "a", 1, rack_id="")
    group.beat("joins without timeout", "a", 0, topic_partitions=[], subscribed_topic_names=[topic])
    group.beat("joins without owned partitions", "a", 0, rebalance_timeout_ms=5, subscribed_topic_names=[topic])
    group.beat("joins without topics", "a", 0, rebalance_timeout_ms=5, topic_partitions=[])
    group.beat("leaves for a while without instance", "a", -2)
    group.beat("epoch -3", "a", -3)
    group.join("unknown assignor", "a", topic, server_assignor="mine")
    group.beat("unknown group", "a", 1)
    group.beat("leaves an unknown group", "a", -1)
    group.describe("described, unknown")

    group.join("a joins", "a", topic, rack_id="r")
    group.beat("b is not there", "b", 1)
    group.beat("b leaves and was not there", "b", -1)
    group.beat("a lives", "a", 1)
    group.beat("a says everything", "a", 1, owns=True, rebalance_timeout_ms=60_000, subscribed_topic_names=[topic])
    group.beat("a is too far", "a", 2)
    group.beat("a joins again with nothing", "a", 0, rebalance_timeout_ms=60_000, topic_partitions=[],
               subscribed_topic_names=[topic])  # fmt: skip
    group.beat("a brings an instance id that nobody has", "a", 1, instance_id="i")
    group.describe("described, one member")
    group.listed("listed, one member")
    for epoch in (-1, 0, 1, 2):
        group.commit(f"a commits in {epoch}", topic, "a", epoch)
        group.fetch(f"a fetches in {epoch}", topic, "a", epoch)
    group.commit("a commits as of old", topic, "a", 1, 8)
    group.commit("nobody commits", topic, "", -1)
    group.commit("x commits", topic, "x", 1)
    group.fetch("nobody fetches", topic, None, -1)
    group.fetch("x fetches", topic, "x", 1)

    group.join("b joins", "b", topic)
    group.describe("described, reconciling")
    group.beat("a hears what to give up", "a", 1, owns=True)
    kept = group.owned["a"]
    group.describe("described, a gives up")
    group.beat("b waits", "b", 2, owns=True)
    group.owned["a"] = kept
    group.beat("a does not say", "a", 1)
    group.owned["a"] = kept
    group.beat("a has given up", "a", 1, owns=True)
    group.beat("a in its previous epoch with what it has", "a", 1, owns=True)
    group.beat("a in its previous epoch without saying", "a", 1)
    group.beat("b gets", "b", 2, owns=True)
    group.describe("described, two members")

    group.beat("b reads other topics", "b", 2, subscribed_topic_names=[topic, other])
    for turn in range(4):
        for member in ("a", "b"):
            epoch = 3 if turn > 1 else 2
            group.beat(f"{member} goes on, {turn}", member, epoch, owns=True)
    group.beat("b asks for range", "b", 3, server_assignor="range")
    group.describe("described, other topics")

    more = CreatePartitionsRequest.Topic(name=other, count=4, assignments=None)
    created = peer.setup(CreatePartitionsRequest(topics=[more], timeout_ms=10_000), 3)
    peer.note("partitions are added", created.results[0].error_code)
    wait_for_epoch(group, "b", 4)
    for member in ("a", "b") * 3:
        group.beat_on(member)
    group.describe("described, more partitions")

    group.beat("a leaves", "a", -1)
    group.beat("a left", "a", 5)
    group.beat("b leaves", "b", -1)
    group.describe("described, empty")
    group.listed("listed, empty")
    group.commit("nobody commits to an empty group", topic, "", -1)
    peer.note("deleted", peer.setup(DeleteGroupsRequest(groups_names=[group.name]), 2).results[0].error_code)
    group.listed("listed, deleted")


@scenario(ApiKeys.CONSUMER_GROUP_DESCRIBE)
def static_and_classic_members(peer: Peer, version: int) -> None:
    topic = f"cd-{version}"
    peer.create_topic(topic, 4)
    if not peer.can(ApiKeys.CONSUMER_GROUP_DESCRIBE, 1):
        return  # 3.9 has the protocol in preview only
    group = Group(peer, f"static-{version}", version)
    group.join("i joins", "a", topic, instance_id="i")
    group.join("i joins from elsewhere", "b", topic, instance_id="i")
    group.beat("b is fenced", "b", 1, instance_id="i")
    group.beat("b leaves and is fenced", "b", -1, instance_id="i")
    group.beat("i leaves for a while", "a", -2, instance_id="i")
    group.describe("described, i is away")
    group.join("i is back", "b", topic, instance_id="i")
    group.beat("a is fenced", "a", 1, instance_id="i")
    group.beat("a without instance id", "a", 1)
    group.describe("described, i is back")
    group.beat("j is unknown", "b", 1, instance_id="j")
    group.beat("i leaves", "b", -1, instance_id="i")
    group.describe("described, i is gone")

    group = Group(peer, f"mixed-{version}", version)
    group.join("new joins", "new", topic)
    classic = Classic(peer, group.name, topic)
    classic.join("classic joins")
    group.describe("described, mixed")
    group.listed("listed, mixed")
    group.beat("new gives up", "new", 1, owns=True)
    group.beat("new has given up", "new", 1, owns=True)
    classic.heartbeat("classic has to join")
    classic.join("classic joins again")
    classic.heartbeat("classic lives")
    group.describe("described, mixed and stable")
    group.commit("classic commits", topic, classic.member_id, classic.generation, 8)
    group.commit("classic commits, wrong generation", topic, classic.member_id, 9, 8)
    group.fetch("classic fetches, wrong generation", topic, classic.member_id, 9)
    classic.heartbeat("classic, wrong generation", 77)
    classic.sync("classic syncs, wrong generation", 77)
    peer.note("described as classic", [
        (each.error_code, each.group_state, bool(each.error_message))
        for each in peer.setup(DescribeGroupsRequest(groups=[group.name]), 6).groups
    ])  # fmt: skip
    Topic = OffsetDeleteRequest.Topic
    asked = [Topic(name=topic, partitions=[Topic.Partition(partition_index=0)])]
    deleted = peer.setup(OffsetDeleteRequest(group_id=group.name, topics=asked), 0)
    peer.note("offsets that are read", [deleted.error_code, deleted.topics[0].partitions[0].error_code])
    group.beat("new leaves", "new", -1)
    group.describe("described, classic")
    group.listed("listed, classic")
    classic.heartbeat("classic has to rebalance", 2)
    classic.leave("classic leaves")
    group.listed("listed, classic and empty")
    group.join("a new one takes the empty group", "new", topic)
    group.listed("listed, consumer")


class Classic:
    """A member of the classic protocol."""

    def __init__(self, peer: Peer, group: str, topic: str) -> None:
        self.peer, self.group, self.topic = peer, group, topic
        self.member_id, self.generation, self.numbers = "", -1, []  # type: str, int, list[int]

    def join(self, label: str) -> None:
        owned = [ConsumerProtocolSubscription.TopicPartitions(topic=self.topic, partitions=self.numbers)]
        subscription = ConsumerProtocolSubscription(topics=[self.topic], owned_partitions=owned)
        protocol = JoinGroupRequest.Protocol(name="range", metadata=subscription.encode_versioned(1))
        request = JoinGroupRequest(
            group_id=self.group, session_timeout_ms=60_000, rebalance_timeout_ms=60_000, member_id=self.member_id,
            protocol_type="consumer", protocols=[protocol],
        )  # fmt: skip
        answer = self.peer.setup(request, 9)
        codes = [answer.error_code]
        if answer.error_code == 79:
            request.member_id = answer.member_id
            answer = self.peer.setup(request, 9)
            codes.append(answer.error_code)
        self.member_id, self.generation = answer.member_id, answer.generation_id
        self.peer.note(label, [
            codes, answer.generation_id, answer.protocol_type, answer.protocol_name, answer.leader, answer.members,
            answer.skip_assignment,
        ])  # fmt: skip
        self.sync(f"{label}, syncs", self.generation)

    def sync(self, label: str, generation: int) -> None:
        request = SyncGroupRequest(
            group_id=self.group, generation_id=generation, member_id=self.member_id, protocol_type="consumer",
            protocol_name="range", assignments=[],
        )  # fmt: skip
        answer = self.peer.setup(request, 5)
        found = []
        if answer.error_code == 0:
            assignment = ConsumerProtocolAssignment.decode_versioned(answer.assignment)[1]
            found = [number for each in assignment.assigned_partitions for number in each.partitions]
            self.numbers = found
        self.peer.note(label, [answer.error_code, answer.protocol_type, answer.protocol_name, len(found)])

    def heartbeat(self, label: str, generation: int | None = None) -> None:
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation if generation is None else generation,
            member_id=self.member_id,
        )
        self.peer.note(label, self.peer.setup(request, 4).error_code)

    def leave(self, label: str) -> None:
        request = LeaveGroupRequest(group_id=self.group, members=[LeaveGroupRequest.Member(member_id=self.member_id)])
        answer = self.peer.setup(request, 5)
        self.peer.note(label, [answer.error_code, [each.error_code for each in answer.members]])
