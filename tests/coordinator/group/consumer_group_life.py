"""Random lives of a consumer group (KIP-848): members of both protocols come, change, go and fall silent, topics come,
grow and go, answers are lost, time passes, and the coordinator is killed.

What must hold at every moment is in the invariants. The coordinator is the real one; the clock is virtual, and a kill
leaves nothing but the log. A member has a partition from the moment it is told so until it says that it has given it
up, or it is no member any more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID, uuid5

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kafkapy.coordinator.group.classic.group import ClassicGroup, ClassicGroupState
from kafkapy.coordinator.group.consumer.group import ConsumerGroup, ConsumerGroupState, has_left_for_a_while
from kafkapy.coordinator.group.consumer.member import ConsumerGroupMember, MemberState
from kafkapy.coordinator.group.subscription_patterns import resolve
from kafkapy.coordinator.result import Later
from kafkapy.errors import ErrorCode
from kafkapy.metadata.cache import MetadataSnapshot
from kafkapy.testing.coordinator import snapshot_of
from kafkapy.types import ZERO_UUID

SESSION_MS, REBALANCE_MS, DELAY_MS = 10_000, 7_000, 3_000
NAMES = ["t1", "t2", "u1"]
SUBSCRIPTIONS: list[tuple[tuple[str, ...], str]] = [
    (("t1",), ""),
    (("t1",), ""),
    (("t1", "t2"), ""),
    (("t2", "u1", "missing"), ""),
    ((), ""),
    ((), "t.*"),
    ((), ".*1"),
    (("u1",), "t.*"),
]
IN_THE_LOG = (
    "epoch",
    "assignment_epoch",
    "metadata_hash",
    "members",
    "static_members",
    "resolved",
    "classic_count",
    "_owners",
    "_names",
    "_regexes",
    "_assignors",
    "_classic_protocols",
    "_reconciled",
)
Pairs = frozenset[tuple[UUID, int]]
NOTHING: Pairs = frozenset()


@dataclass(eq=False)
class Client:
    """A member as it sees itself."""

    member_id: str
    instance: str | None
    topics: tuple[str, ...]
    regex: str = ""
    assignor: str | None = None
    classic: bool = False
    epoch: int = 0
    has: Pairs = NOTHING
    """What it reads from, so that nobody else may have it."""
    told: Pairs = NOTHING
    """What it was last told to have."""
    unsure: bool = True
    """It has to say everything again: it is new, or an answer was lost."""
    heard_ms: int = 0
    waiting: list[tuple[str, Later[Any]]] = field(default_factory=list)
    """Joins and syncs of the classic protocol."""
    must_join: bool = True
    left_for_a_while: bool = False
    outdated: bool = False
    """A static member of a classic group that has missed a generation: it stays in it and has nothing."""
    gone: bool = False


def pairs_of(listed: Iterable[Any]) -> Pairs:
    return frozenset((each.topic_id, number) for each in listed for number in each.partitions)


def by_topic(pairs: Pairs) -> dict[Any, set[int]]:
    found: dict[Any, set[int]] = {}
    for topic, number in pairs:
        found.setdefault(topic, set()).add(number)
    return found


def is_revoking(member: ConsumerGroupMember) -> bool:
    """Whether its rebalance timeout runs; for one that left for a while the session decides."""
    return (
        member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None and not has_left_for_a_while(member)
    )


class ConsumerGroupLife(RuleBasedStateMachine):
    bench_type: Any
    settling_ms = 16_000
    """Until then all timeouts of those who are silent are over."""

    @initialize(assignor=st.sampled_from([None, "uniform", "range"]), eager=st.booleans())
    def begin(self, assignor: str | None, eager: bool) -> None:
        self.bench = self.bench_type(
            consumer_session_timeout_ms=SESSION_MS, consumer_heartbeat_interval_ms=1_000, consumer_max_size=8
        )
        self.assignor = assignor
        self.eager = eager
        self.clients: list[Client] = []
        self.born = 0
        self.topics = {"t1": (0, 6), "t2": (0, 3)}
        self.publish()
        self.epoch = 0
        self.last_group: ConsumerGroup | ClassicGroup | None = None
        self.member_epochs: dict[str, int] = {}
        self.revoking: dict[tuple[str, int], int] = {}
        self.offsets: dict[tuple[str, int], int] = {}
        self.next_offset = 0

    # --- what is there ------------------------------------------------------------------------------------------

    def publish(self) -> None:
        """Topics as (incarnation, partitions): one that is created anew has another id."""
        plain = snapshot_of({name: count for name, (_, count) in self.topics.items()})
        topics = {
            name: replace(topic, topic_id=uuid5(ZERO_UUID, f"{name}/{self.topics[name][0]}"), memo={})
            for name, topic in plain.topics.items()
        }
        names = {topic.topic_id: name for name, topic in topics.items()}
        self.bench.snapshot = MetadataSnapshot(topics=topics, topic_names=names)

    def group(self) -> ConsumerGroup | ClassicGroup | None:
        found: ConsumerGroup | ClassicGroup | None = self.bench.shard.groups.get(self.bench.group)
        return found

    def consumer_group(self) -> ConsumerGroup | None:
        group = self.group()
        return group if isinstance(group, ConsumerGroup) else None

    def is_member(self, client: Client) -> bool:
        group = self.group()
        return group is not None and client.member_id in group.members

    def now(self) -> int:
        now: int = self.bench.clock.monotonic_ms()
        return now

    def living(self) -> list[Client]:
        return [each for each in self.clients if not each.gone]

    def draw(self, data: Any, **how: Any) -> Client | None:
        found = [each for each in self.living() if all(getattr(each, name) == value for name, value in how.items())]
        chosen: Client | None = data.draw(st.sampled_from(found)) if found else None
        return chosen

    def name(self) -> str:
        self.born += 1
        return f"m{self.born}"

    # --- members of the consumer protocol -----------------------------------------------------------------------

    def beat(self, client: Client, *, give_up: bool = True, lost: bool = False, silent: bool = False) -> ErrorCode:
        """One heartbeat. `give_up`: it stops reading what it was told to give up; `silent`: it does not say what it
        has; `lost`: the answer never arrives.
        """
        fields: dict[str, Any] = {}
        if client.epoch == 0:
            client.has = client.told = NOTHING
        if give_up:
            client.has &= client.told
        if client.unsure or client.epoch == 0:
            fields = {
                "subscribed_topic_names": list(client.topics),
                "subscribed_topic_regex": client.regex,
                "rebalance_timeout_ms": REBALANCE_MS,
            }
            if client.assignor is not None:
                fields["server_assignor"] = client.assignor
            silent = False
        if client.instance is not None:
            fields["instance_id"] = client.instance
        owned = None if silent else {topic: frozenset(numbers) for topic, numbers in by_topic(client.has).items()}
        response = self.bench.beat(client.member_id, client.epoch, owned=owned, **fields)
        error = ErrorCode(response.error_code)
        if error is ErrorCode.NONE:
            client.heard_ms = self.now()
        if lost:
            client.unsure = True
        else:
            self.take(client, error, response)
        self.a_partition_has_one_owner()
        return error

    def take(self, client: Client, error: ErrorCode, response: Any) -> None:
        """An answer has arrived."""
        if error is ErrorCode.NONE:
            client.unsure = False
            assert response.member_epoch >= client.epoch
            client.epoch = response.member_epoch
            if response.assignment is not None:
                client.told = pairs_of(response.assignment.topic_partitions)
                client.has |= client.told
        elif error in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND):
            client.epoch, client.has, client.told, client.unsure = 0, NOTHING, NOTHING, True
        elif error in (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID):
            client.gone = True
        else:
            assert error is ErrorCode.GROUP_MAX_SIZE_REACHED, (error, response.error_message)

    @rule(
        subscription=st.sampled_from(SUBSCRIPTIONS),
        instance=st.sampled_from([None, None, None, "s1", "s2"]),
        lost=st.booleans(),
    )
    def arrive(self, subscription: tuple[tuple[str, ...], str], instance: str | None, lost: bool) -> None:
        if len(self.living()) >= 6:
            return
        topics, regex = subscription
        client = Client(self.name(), instance, topics, regex, self.assignor)
        before = next((each for each in self.living() if each.instance == instance is not None), None)
        taken = before is not None and self.is_member(before) and not before.left_for_a_while and not before.classic
        if before is not None and not taken:
            before.gone = True
        self.clients.append(client)
        error = self.beat(client, lost=lost)
        if before is not None and taken:
            assert error in (ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.GROUP_MAX_SIZE_REACHED)
            client.gone = True

    @precondition(lambda self: self.living())
    @rule(data=st.data(), give_up=st.booleans(), lost=st.booleans(), silent=st.booleans())
    def heartbeat(self, data: Any, give_up: bool, lost: bool, silent: bool) -> None:
        client = self.draw(data, classic=False, left_for_a_while=False)
        if client is not None:
            self.beat(client, give_up=give_up, lost=lost, silent=silent)

    @precondition(lambda self: self.living())
    @rule(data=st.data(), difference=st.sampled_from([-2, -1, 1, 2]))
    def beat_with_another_epoch(self, data: Any, difference: int) -> None:
        """Such as one that was fenced and does not know it yet. Nothing comes of it."""
        client = self.draw(data, classic=False, left_for_a_while=False)
        if client is None or client.epoch + difference <= 0:
            return
        before = self.state()
        fields = {} if client.instance is None else {"instance_id": client.instance}
        group = self.consumer_group()
        member = None if group is None else group.members.get(client.member_id)
        # Whose last answer was lost may hit upon the epoch that it does not know of.
        is_right = member is not None and member.member_epoch == client.epoch + difference
        response = self.bench.beat(client.member_id, client.epoch + difference, **fields)
        if response.error_code == ErrorCode.NONE:
            client.heard_ms = self.now()
        if not is_right:
            fenced = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)
            refused = ErrorCode.FENCED_INSTANCE_ID, ErrorCode.GROUP_MAX_SIZE_REACHED
            assert response.error_code in (*fenced, *refused)
            after = self.state()
            assert after == before, [
                (k, before[k], None if after is None else after[k])
                for k in before
                if after is None or after[k] != before[k]
            ]

    @rule()
    def everybody_beats(self) -> None:
        for client in self.living():
            self.follow(client)

    @precondition(lambda self: self.living())
    @rule(data=st.data(), subscription=st.sampled_from(SUBSCRIPTIONS))
    def subscribe_anew(self, data: Any, subscription: tuple[tuple[str, ...], str]) -> None:
        client = self.draw(data, classic=False, left_for_a_while=False)
        if client is not None:
            client.topics, client.regex = subscription
            client.unsure = True
            self.beat(client)

    @precondition(lambda self: self.living())
    @rule(data=st.data())
    def leave(self, data: Any) -> None:
        client = self.draw(data)
        if client is None:
            return
        client.gone, client.has = True, NOTHING
        if client.classic:
            self.bench.leave(client.member_id)
            self.collect()
        else:
            fields = {} if client.instance is None else {"instance_id": client.instance}
            self.bench.beat(client.member_id, -1, **fields)

    @precondition(lambda self: self.living())
    @rule(data=st.data())
    def leave_for_a_while(self, data: Any) -> None:
        client = self.draw(data, classic=False, left_for_a_while=False)
        if client is None or client.instance is None:
            return
        client.has = client.told = NOTHING
        client.left_for_a_while = True
        self.bench.beat(client.member_id, -2, instance_id=client.instance)

    @precondition(lambda self: self.living())
    @rule(data=st.data())
    def come_back(self, data: Any) -> None:
        client = self.draw(data, left_for_a_while=True)
        if client is None:
            return
        group = self.consumer_group()
        known = None if group is None else group.members.get(client.member_id)
        reserved = NOTHING
        if known is not None and group is not None and group.assignment_epoch == group.epoch:
            wanted = group.target.get(client.member_id, {})
            reserved = frozenset(
                (topic, number)
                for topic, numbers in known.assigned.items()
                for number in numbers & wanted.get(topic, frozenset())
            )
        epoch = 0 if group is None else group.epoch
        back = Client(self.name(), client.instance, client.topics, client.regex, self.assignor)
        client.gone = True
        self.clients.append(back)
        error = self.beat(back)
        after = self.consumer_group()
        if known is not None and error is ErrorCode.NONE and after is not None and after.epoch == epoch:
            assert back.has >= reserved

    @precondition(lambda self: self.living())
    @rule(data=st.data())
    def fall_silent(self, data: Any) -> None:
        client = self.draw(data)
        if client is not None:
            client.gone = True

    # --- topics, offsets, time ----------------------------------------------------------------------------------

    @rule(name=st.sampled_from(NAMES), count=st.integers(1, 4))
    def create_or_grow_a_topic(self, name: str, count: int) -> None:
        incarnation, before = self.topics.get(name, (self.next_offset, 0))
        self.topics[name] = incarnation, min(before + count, 9)
        self.publish()

    @rule(name=st.sampled_from(NAMES))
    def delete_a_topic(self, name: str) -> None:
        if name in self.topics:
            del self.topics[name]
            self.next_offset += 1
            self.publish()

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), partition=st.integers(0, 2))
    def commit(self, data: Any, partition: int) -> None:
        client = data.draw(st.sampled_from(self.clients))
        group = self.group()
        self.next_offset += 1
        answer = self.bench.commit(
            {("topic", partition): self.next_offset},
            version=9,
            member_id=client.member_id,
            generation_id=client.epoch,
            group_instance_id=client.instance,
        )
        if isinstance(group, ConsumerGroup):
            member = group.members.get(client.member_id)
            current = member is not None and member.member_epoch == client.epoch
            assert isinstance(answer, dict) == current, answer
            stale = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION)
            assert current or answer in stale
        if isinstance(answer, dict):
            self.offsets[("topic", partition)] = self.next_offset
            if isinstance(group, ClassicGroup):
                client.heard_ms = self.now()

    @rule(ms=st.sampled_from([1, 500, 1_000, 4_000, REBALANCE_MS + 1, SESSION_MS + 1]))
    def advance(self, ms: int) -> None:
        # In steps, so that answers are seen when they come.
        while ms > 0:
            step = min(ms, 500)
            self.bench.clock.advance(step)
            ms -= step
            self.collect()
            self.watch_revocations()

    @rule()
    def kill(self) -> None:
        before = self.state()
        classic = self.group()
        self.bench.restart()
        if before is not None:
            after = self.state()
            assert after == before, [
                (k, before[k], None if after is None else after[k])
                for k in before
                if after is None or after[k] != before[k]
            ]
        elif isinstance(classic, ClassicGroup) and classic.state is ClassicGroupState.STABLE:
            after = self.group()
            assert isinstance(after, ClassicGroup)
            assert after.generation_id == classic.generation_id
            assert after.members.keys() == classic.members.keys()
        for client in self.clients:
            client.waiting.clear()
            client.heard_ms = self.now()
        self.revoking = dict.fromkeys(self.revoking, self.now())
        if not isinstance(self.group(), ConsumerGroup):
            group = self.group()
            self.epoch = 0 if group is None else group.generation_id

    def state(self) -> dict[str, Any] | None:
        """All of a consumer group that is in its log, and what follows from that."""
        group = self.consumer_group()
        if group is None:
            return None
        known = {name: getattr(group, name) for name in IN_THE_LOG}
        # Nothing and no record of it are the same.
        known["target"] = {member: partitions for member, partitions in group.target.items() if partitions}
        return known | {"state": group.state}

    # --- everybody does what it should --------------------------------------------------------------------------

    def follow(self, client: Client) -> None:
        """What a client does at its heartbeat."""
        if not client.left_for_a_while:
            self.beat(client)

    def collect(self) -> None:
        """Take in the answers that have arrived; members of the classic protocol wait for them."""

    @rule()
    def settle(self) -> None:
        """Once everybody has done what it should for long enough, the assignment is complete and balanced."""
        for _ in range(self.settling_ms // 2_000):
            self.everybody_beats()
            self.advance(2_000)
        for _ in range(2 * len(self.living()) + 3):
            self.everybody_beats()
            self.advance(100)
        self.check_settled()

    def check_settled(self) -> None:
        group = self.consumer_group()
        members = [each for each in self.living() if not each.left_for_a_while]
        if not members:
            assert group is None or group.state is ConsumerGroupState.EMPTY
            return
        assert group is not None, f"there is {self.group()}"
        assert group.state is ConsumerGroupState.STABLE
        assert group.members.keys() == {each.member_id for each in members}
        snapshot = self.bench.snapshot
        subscribed = {each.member_id: self.subscribed(each) for each in members}
        expected: set[tuple[UUID, int]] = set()
        for name in frozenset().union(*subscribed.values()):
            topic = snapshot.topics[name]
            expected |= {(topic.topic_id, number) for number in range(topic.partition_count)}
        assert sorted(pair for each in members for pair in each.has) == sorted(expected)
        for each in members:
            assert {snapshot.topic_names[topic] for topic, _ in each.has} <= subscribed[each.member_id]
            assert each.epoch == group.epoch
        sizes = [len(each.has) for each in members]
        if len(set(subscribed.values())) == 1 and self.assignor != "range":
            assert max(sizes) - min(sizes) <= 1

    def subscribed(self, client: Client) -> frozenset[str]:
        matched = resolve([client.regex], self.bench.snapshot.topics)[client.regex] if client.regex else frozenset()
        return matched | (frozenset(client.topics) & frozenset(self.bench.snapshot.topics))

    # --- what must hold -----------------------------------------------------------------------------------------

    @invariant()
    def epochs_only_grow(self) -> None:
        group = self.group()
        if group is None:
            return
        epoch = group.epoch if isinstance(group, ConsumerGroup) else group.generation_id
        before, self.last_group = self.last_group, group
        if before is not None and before is not group and before.is_empty:
            self.epoch = 0  # an empty group makes room for one of the other protocol, as in Kafka
            self.member_epochs.clear()
        assert epoch >= self.epoch
        self.epoch = epoch
        if isinstance(group, ConsumerGroup):
            assert group.assignment_epoch <= group.epoch
            for member in group.members.values():
                assert member.member_epoch <= group.epoch
                known = self.member_epochs.get(member.member_id, 0)
                assert member.member_epoch >= known or member.member_epoch == -2
                self.member_epochs[member.member_id] = max(known, member.member_epoch)

    @invariant()
    def a_partition_has_one_owner(self) -> None:
        owners: dict[tuple[UUID, int], str] = {}
        for client in self.clients:
            if self.is_member(client) and not client.outdated:
                for pair in client.has:
                    assert pair not in owners, f"{pair} is with {owners[pair]} and {client.member_id}"
                    owners[pair] = client.member_id

    @invariant()
    def a_partition_is_in_one_target(self) -> None:
        group = self.consumer_group()
        if group is not None:
            targets = [
                (topic, number)
                for partitions in group.target.values()
                for topic, numbers in partitions.items()
                for number in numbers
            ]
            assert len(targets) == len(set(targets))
            assert group.target.keys() <= group.members.keys()

    @invariant()
    def the_counts_are_those_of_the_members(self) -> None:
        group = self.consumer_group()
        if group is None:
            return
        instances = {each.instance_id: each.member_id for each in group.members.values() if each.is_static}
        assert group.static_members == instances
        assert group.classic_count == sum(each.classic is not None for each in group.members.values())
        owned = {
            (topic, number): member.member_id
            for member in group.members.values()
            for partitions in (member.assigned, member.pending_revocation)
            for topic, numbers in partitions.items()
            for number in numbers
        }
        assert {(topic, n): who for topic, by_number in group._owners.items() for n, who in by_number.items()} == owned
        assert set(group.resolved) <= set(group.subscribed_regexes)
        reconciled = [each.is_reconciled_to(group.assignment_epoch) for each in group.members.values()]
        assert (group.state is ConsumerGroupState.STABLE) == (
            bool(reconciled) and all(reconciled) and group.epoch == group.assignment_epoch
        )

    @invariant()
    def the_silent_are_removed(self) -> None:
        for client in self.clients:
            if self.is_member(client) and not client.classic:
                assert self.now() - client.heard_ms <= SESSION_MS

    @invariant()
    def watch_revocations(self) -> None:
        """Nobody keeps what it has to give up for longer than its rebalance timeout."""
        group = self.consumer_group()
        now: dict[tuple[str, int], int] = {}
        for member in [] if group is None else group.members.values():
            if is_revoking(member):
                key = member.member_id, member.member_epoch
                now[key] = self.revoking.get(key, self.now())
                assert self.now() - now[key] <= REBALANCE_MS
        self.revoking = now

    @invariant()
    def every_member_has_a_timeout(self) -> None:
        group = self.consumer_group()
        if group is None:
            return
        timer = self.bench.shard.timer
        for member in group.members.values():
            assert ("consumer-session", group.group_id, member.member_id) in timer
            if is_revoking(member):
                assert ("consumer-rebalance", group.group_id, member.member_id) in timer

    @invariant()
    def committed_offsets_never_go_back(self) -> None:
        fetched = {where: what.offset for where, what in self.bench.fetch().items()}
        assert fetched == self.offsets
