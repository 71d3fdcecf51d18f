"""The life of some groups as a random sequence of requests, for brokers that are to give the same answers."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

from broker.conftest import Client

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kafkapy.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kafkapy.protocol.messages.delete_groups import DeleteGroupsRequest
from kafkapy.protocol.messages.delete_topics import DeleteTopicsRequest
from kafkapy.protocol.messages.end_txn import EndTxnRequest
from kafkapy.protocol.messages.heartbeat import HeartbeatRequest
from kafkapy.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkapy.protocol.messages.join_group import JoinGroupRequest
from kafkapy.protocol.messages.leave_group import LeaveGroupRequest
from kafkapy.protocol.messages.offset_commit import OffsetCommitRequest
from kafkapy.protocol.messages.offset_delete import OffsetDeleteRequest
from kafkapy.protocol.messages.offset_fetch import OffsetFetchRequest
from kafkapy.protocol.messages.sync_group import SyncGroupRequest
from kafkapy.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

Topic = OffsetCommitRequest.Topic
PARTITIONS: Final = 3
STABLE: Final = "stable"
"""A topic that no step deletes."""
UNSTABLE: Final = "unstable"
INSTANCE: Final = "instance-1"


def commit(
    group: str,
    offsets: dict[tuple[str, int], int],
    *,
    member: str = "",
    generation: int = -1,
    instance: str | None = None,
    metadata: str | None = "",
    retention_ms: int = -1,
) -> OffsetCommitRequest:
    """The request of one entry for each partition."""
    topics: dict[str, list[Topic.Partition]] = {}
    for (name, number), offset in offsets.items():
        each = Topic.Partition(partition_index=number, committed_offset=offset, committed_metadata=metadata)
        topics.setdefault(name, []).append(each)
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        group_instance_id=instance,
        retention_time_ms=retention_ms,
        topics=[Topic(name=name, partitions=partitions) for name, partitions in topics.items()],
    )


def join(
    group: str, member: str = "", instance: str | None = None, session_timeout_ms: int = 30_000
) -> JoinGroupRequest:
    """The request of a consumer of the classic protocol."""
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=30_000,
        member_id=member,
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.Protocol(name="range", metadata=b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00")],
    )


class Life:
    """The requests of a seed, sent to one broker. Answers have no ids and epochs that the broker makes."""

    def __init__(self, client: Client, seed: int) -> None:
        self.client = client
        self.random = random.Random(seed)
        self.groups = [f"group-{seed}-{n}" for n in range(4)]
        self.classic, self.consumer = self.groups[:2], self.groups[2:3]
        """Groups with members; those of the other one only store offsets."""
        self.members: dict[str, tuple[str, int, str | None]] = {}
        """By group: member id, generation, instance id."""
        self.epochs: dict[str, tuple[str, int]] = {}
        """By consumer group: member id and epoch."""
        self.steps: list[Callable[[], object]] = [
            *[self.commit] * 14,
            *[self.fetch] * 3,
            self.join,
            self.leave,
            self.heartbeat,
            self.consumer_heartbeat,
            self.delete_offsets,
            self.delete_group,
            self.transaction,
            self.make_topic_again,
        ]

    def step(self) -> tuple[str, object]:
        """Send the next request; its name and what the broker answered."""
        chosen = self.random.choice(self.steps)
        return chosen.__name__, chosen()

    def commit(self) -> object:
        """Commit some times as one client of a group."""
        group = self.random.choice(self.groups)
        names = self.random.choices([STABLE, UNSTABLE, "unknown"], [8, 3, 1], k=self.random.choice([1, 1, 2]))
        partitions = [(name, self.random.randrange(PARTITIONS + (self.random.random() < 0.1))) for name in names]
        return [self._commit(group, partitions) for _ in range(self.random.randrange(1, 8))]

    def _commit(self, group: str, partitions: list[tuple[str, int]]) -> object:
        """Commit as a member, as one of another generation, or as nobody."""
        version = self.random.randrange(2, 10)
        member, generation, instance = self.members.get(group, ("", -1, None))
        if group in self.epochs:
            member, generation = self.epochs[group]
            version = self.random.choice([8, 9, 9, 9])
        wrong = self.random.random()
        if wrong < 0.05:
            generation += self.random.choice([-1, 1])
        elif wrong < 0.08:
            member, generation = "", -1
        elif wrong < 0.1:
            member = "stranger"
        if self.random.random() < 0.5:
            instance = None
        elif self.random.random() < 0.1:
            instance = "somebody"
        request = commit(
            group,
            {each: self.random.randrange(1000) for each in partitions},
            member=member,
            generation=generation,
            instance=instance if version >= 7 else None,
            metadata=self.random.choice([None, "", "plain", "plain", "näme"]),
            retention_ms=self.random.choice([-1, -1, -1, 3_600_000]) if version <= 4 else -1,
        )
        answer = self.client(request, version)
        return [(each.name, [p.error_code for p in each.partitions]) for each in answer.topics]

    def fetch(self) -> object:
        """The offsets of a group."""
        return self.offsets(self.random.choice(self.groups))

    def offsets(self, group: str) -> object:
        """What the broker has of a group, in the order of partitions."""
        request = OffsetFetchRequest(groups=[OffsetFetchRequest.Group(group_id=group, topics=None)])
        (found,) = self.client(request, 8).groups
        return found.error_code, sorted(
            (topic.name, each.partition_index, each.committed_offset, each.committed_leader_epoch, each.metadata)
            for topic in found.topics
            for each in topic.partitions
        )

    def join(self) -> object:
        """Join alone, anew or again, and sync."""
        group = self.random.choice(self.classic)
        member, _, instance = self.members.get(group, ("", -1, None))
        if not member and self.random.random() < 0.3:
            instance = INSTANCE
        answer = self.client(join(group, member, instance), 5)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            answer = self.client(join(group, answer.member_id, instance), 5)
        if answer.error_code:
            return answer.error_code
        member, generation = answer.member_id, answer.generation_id
        self.members[group] = (member, generation, instance)
        assignment = SyncGroupRequest.Assignment(member_id=member, assignment=b"")
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member,
            group_instance_id=instance,
            assignments=[assignment],
        )
        # The commit of a member that has joined and knows no assignment yet.
        early = self.client(commit(group, {(STABLE, 0): 5}, member=member, generation=generation), 8)
        return early.topics[0].partitions[0].error_code, self.client(request, 3).error_code

    def leave(self) -> object:
        """Leave a group, in either protocol."""
        group = self.random.choice(self.groups)
        if group in self.members:
            member, _, instance = self.members.pop(group)
            identity = LeaveGroupRequest.Member(member_id=member, group_instance_id=instance)
            return self.client(LeaveGroupRequest(group_id=group, members=[identity]), 4).members[0].error_code
        if group in self.epochs:
            member, _ = self.epochs.pop(group)
            request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=-1)
            return self.client(request, 1).error_code
        return None

    def heartbeat(self) -> object:
        """The heartbeat of a classic member."""
        group = self.random.choice(self.groups)
        member, generation, _ = self.members.get(group, ("stranger", 1, None))
        return self.client(HeartbeatRequest(group_id=group, generation_id=generation, member_id=member), 2).error_code

    def consumer_heartbeat(self) -> object:
        """Join a group by the consumer protocol, or go on in it."""
        group = self.random.choice(self.consumer)
        member, epoch = self.epochs.get(group, (f"member-of-{group}", 0))
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member,
            member_epoch=epoch,
            rebalance_timeout_ms=30_000 if epoch == 0 else -1,
            subscribed_topic_names=[STABLE] if epoch == 0 else None,
            topic_partitions=[] if epoch == 0 else None,
        )
        answer = self.client(request, 1)
        if not answer.error_code:
            self.epochs[group] = (member, answer.member_epoch)
        return answer.error_code

    def delete_offsets(self) -> object:
        """OffsetDelete of one partition."""
        name, number = self.random.choice([STABLE, UNSTABLE]), self.random.randrange(PARTITIONS)
        topic = OffsetDeleteRequest.Topic(
            name=name, partitions=[OffsetDeleteRequest.Topic.Partition(partition_index=number)]
        )
        answer = self.client(OffsetDeleteRequest(group_id=self.random.choice(self.groups), topics=[topic]), 0)
        return answer.error_code, [each.error_code for topic in answer.topics for each in topic.partitions]

    def delete_group(self) -> object:
        """DeleteGroups of one group, which may have members."""
        group = self.random.choice(self.groups)
        return self.client(DeleteGroupsRequest(groups_names=[group]), 2).results[0].error_code

    def transaction(self) -> object:
        """Offsets by a transaction, with a commit by nobody between them and its end."""
        group, name = self.random.choice(self.groups), f"producer-{self.groups[0]}"
        self.client.coordinate_transactions(name)
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        producer = self.client(request, 2)
        ids = {"transactional_id": name, "producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
        answers = [producer.error_code, self.client(AddOffsetsToTxnRequest(**ids, group_id=group), 2).error_code]
        each = TxnOffsetCommitRequest.Topic.Partition(
            partition_index=0, committed_offset=self.random.randrange(1000), committed_metadata="txn"
        )
        topics = [TxnOffsetCommitRequest.Topic(name=STABLE, partitions=[each])]
        answer = self.client(TxnOffsetCommitRequest(**ids, group_id=group, topics=topics), 2)
        answers.append(answer.topics[0].partitions[0].error_code)
        between = self.client(commit(group, {(STABLE, self.random.randrange(2)): self.random.randrange(1000)}), 8)
        answers.append(between.topics[0].partitions[0].error_code)
        answers.append(self.client(EndTxnRequest(**ids, committed=self.random.random() < 0.7), 2).error_code)
        return answers

    def make_topic_again(self) -> Any:
        """Delete a topic, and create one of its name."""
        answer = self.client(DeleteTopicsRequest(topic_names=[UNSTABLE], timeout_ms=30_000), 4)
        left = [self.offsets(group) for group in self.groups]
        self.client.create_topic(UNSTABLE, PARTITIONS)
        return answer.responses[0].error_code, left
