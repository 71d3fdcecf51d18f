"""Random lives of a group whose members speak both protocols (see consumer_group_life.py)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from coordinator.group.consumer_group_life import (
    NOTHING,
    REBALANCE_MS,
    SESSION_MS,
    Client,
    ConsumerGroupLife,
    by_topic,
)
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from kafkapy.coordinator.group.classic.group import ClassicGroup, ClassicGroupState
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription


class MixedGroupLife(ConsumerGroupLife):
    """Members of the classic protocol take part: the group is upgraded by the first of the other, and downgraded by
    the last.
    """

    settling_ms = 2 * SESSION_MS + 3 * REBALANCE_MS

    # --- members of the classic protocol ------------------------------------------------------------------------

    @rule(
        topics=st.sampled_from([("t1",), ("t1", "t2"), ("t2", "u1", "missing")]),
        instance=st.sampled_from([None, None, None, "s1", "s2"]),
    )
    def arrive_classic(self, topics: tuple[str, ...], instance: str | None) -> None:
        if len(self.living()) >= 6:
            return
        for other in self.living():
            other.gone = other.gone or other.instance == instance is not None
        client = Client("", instance, topics, classic=True)
        self.clients.append(client)
        self.send_join(client)

    def send_join(self, client: Client) -> None:
        snapshot = self.bench.snapshot
        client.has = NOTHING if self.eager or client.outdated else client.has & client.told
        client.has = frozenset(pair for pair in client.has if snapshot.topic_names.get(pair[0]) in client.topics)
        owned = [
            ConsumerProtocolSubscription.TopicPartitions(topic=snapshot.topic_names[topic], partitions=sorted(numbers))
            for topic, numbers in by_topic(client.has).items()
            if topic in snapshot.topic_names
        ]
        said = ConsumerProtocolSubscription(
            topics=list(client.topics), owned_partitions=owned, generation_id=client.epoch
        )
        client.must_join = False
        later = self.bench.join(
            client.member_id,
            instance=client.instance,
            protocols={"eager" if self.eager else "cooperative": said.encode_versioned(3)},
            session_ms=SESSION_MS,
            rebalance_ms=REBALANCE_MS,
        )
        client.waiting.append(("join", later))
        self.collect()

    def collect(self) -> None:
        for client in self.clients:
            for entry in list(client.waiting):
                kind, later = entry
                if later.done:
                    client.waiting.remove(entry)
                    client.heard_ms = self.now()
                    (self.joined if kind == "join" else self.synced)(client, later.result())

    def lost_membership(self, client: Client, error: int) -> None:
        if error == ErrorCode.FENCED_INSTANCE_ID:
            client.gone, client.has = True, NOTHING
        elif error == ErrorCode.UNKNOWN_MEMBER_ID:
            client.member_id, client.epoch, client.has, client.told = "", 0, NOTHING, NOTHING
        else:
            retried = (
                ErrorCode.REBALANCE_IN_PROGRESS,
                ErrorCode.ILLEGAL_GENERATION,
                ErrorCode.GROUP_MAX_SIZE_REACHED,
            )
            assert error in retried, ErrorCode(error)
            if error == ErrorCode.ILLEGAL_GENERATION:
                client.epoch, client.has, client.told = 0, NOTHING, NOTHING
        client.must_join = True

    def joined(self, client: Client, answer: Any) -> None:
        if client.gone:
            return
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = answer.member_id
            self.send_join(client)
        elif answer.error_code == ErrorCode.NONE:
            client.member_id, client.epoch, client.outdated = answer.member_id, answer.generation_id, False
            self.see_who_missed_it(answer.generation_id)
            assignments = self.assign(answer.members) if answer.leader == client.member_id else {}
            later = self.bench.sync(client.member_id, client.epoch, assignments, instance=client.instance)
            client.waiting.append(("sync", later))
            self.collect()
        else:
            self.lost_membership(client, answer.error_code)

    def see_who_missed_it(self, generation: int) -> None:
        group = self.group()
        if isinstance(group, ClassicGroup) and group.state is ClassicGroupState.COMPLETING_REBALANCE:
            for each in self.clients:
                joined = any(kind == "join" and later.done for kind, later in each.waiting)
                if self.is_member(each) and each.epoch != generation and not joined:
                    each.outdated = True

    def assign(self, members: Iterable[Any]) -> dict[str, bytes]:
        """What a leader does: nobody loses what it has, and the rest goes to those who have least."""
        snapshot = self.bench.snapshot
        said = {each.member_id: ConsumerProtocolSubscription.decode_versioned(each.metadata)[1] for each in members}
        given: dict[str, dict[str, list[int]]] = {member_id: {} for member_id in said}
        claims = {
            (each.topic, number): member_id
            for member_id, subscription in said.items()
            for each in subscription.owned_partitions
            for number in each.partitions
            if each.topic in subscription.topics
        }
        for name, topic in snapshot.topics.items():
            subscribers = [member_id for member_id, subscription in said.items() if name in subscription.topics]
            for number in range(topic.partition_count) if subscribers else ():
                least = min(subscribers, key=lambda each: sum(map(len, given[each].values())))
                given[claims.get((name, number), least)].setdefault(name, []).append(number)
        TopicPartitions = ConsumerProtocolAssignment.TopicPartitions
        return {
            member_id: ConsumerProtocolAssignment(
                assigned_partitions=[TopicPartitions(topic=name, partitions=n) for name, n in partitions.items()]
            ).encode_versioned(3)
            for member_id, partitions in given.items()
        }

    def synced(self, client: Client, answer: Any) -> None:
        if client.gone:
            return
        if answer.error_code != ErrorCode.NONE:
            self.lost_membership(client, answer.error_code)
            return
        assigned = ConsumerProtocolAssignment.decode_versioned(answer.assignment)[1] if answer.assignment else None
        topics = self.bench.snapshot.topics
        client.told = frozenset(
            (topics[each.topic].topic_id, number)
            for each in ([] if assigned is None else assigned.assigned_partitions)
            for number in each.partitions
            if each.topic in topics
        )
        client.must_join = not client.has <= client.told
        client.has |= client.told
        self.a_partition_has_one_owner()

    def follow(self, client: Client) -> None:
        if not client.classic:
            super().follow(client)
            return
        if client.waiting:
            return
        if not client.must_join and client.member_id:
            answer = self.bench.heartbeat(client.member_id, client.epoch, instance=client.instance)
            if answer is ErrorCode.NONE:
                client.heard_ms = self.now()
                return
            self.lost_membership(client, answer)
        if not client.gone:
            self.send_join(client)

    @precondition(lambda self: self.living())
    @rule(data=st.data())
    def heartbeat_classic(self, data: Any) -> None:
        client = self.draw(data, classic=True)
        if client is not None:
            self.follow(client)

    def check_settled(self) -> None:
        members = [each for each in self.living() if not each.left_for_a_while]
        group = self.group()
        if not members or not all(each.classic for each in members):
            super().check_settled()
            return
        assert isinstance(group, ClassicGroup)
        assert group.state is ClassicGroupState.STABLE
        assert group.members.keys() == {each.member_id for each in members}
