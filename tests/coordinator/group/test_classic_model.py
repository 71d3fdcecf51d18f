"""Random lives of a classic group: members come, go and fall silent, time passes, the coordinator is killed.

What must hold at every moment is in the invariants. The coordinator is the real one; the clock is virtual, and a kill
leaves nothing but the log.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kafkapy.coordinator.group.classic.group import ClassicGroup, ClassicGroupState
from kafkapy.coordinator.result import Later
from kafkapy.errors import ErrorCode

PROTOCOLS: list[dict[str, bytes]] = [
    {"a": b"1", "b": b"2"},
    {"b": b"3", "a": b"4"},
    {"b": b"5"},
    {"b": b"6", "c": b"7"},
]
SESSION_MS, REBALANCE_MS, DELAY_MS = 10_000, 30_000, 3_000
LONGEST_WAIT_MS = REBALANCE_MS + DELAY_MS + 1
"""No answer takes longer than the rebalance timeout, and the delay of a first rebalance."""


@dataclass
class Client:
    """A member as it sees itself."""

    instance: str | None
    protocols: dict[str, bytes]
    member_id: str = ""
    generation: int = -1
    leader: bool = False
    members: list[str] = field(default_factory=list)
    heard_ms: int = 0
    """When the coordinator last heard of it, or it got an answer."""
    waiting: list[tuple[int, str, Later[Any]]] = field(default_factory=list)
    gone: bool = False


class ClassicGroupLife(RuleBasedStateMachine):
    bench_type: Any

    @initialize(delay=st.sampled_from([0, DELAY_MS]), size=st.sampled_from([2, 3, 100]))
    def begin(self, delay: int, size: int) -> None:
        self.bench = self.bench_type(initial_rebalance_delay_ms=delay, max_size=size)
        self.config = {"initial_rebalance_delay_ms": delay, "max_size": size}
        self.clients: list[Client] = []
        self.offsets: dict[tuple[str, int], int] = {}
        self.generation = 0
        self.assigned: dict[int, dict[str, bytes]] = {}
        self.next_offset = 0

    # --- what happens -------------------------------------------------------------------------------------------

    def group(self) -> ClassicGroup | None:
        found: ClassicGroup | None = self.bench.shard.find_classic(self.bench.group)
        return found

    def now(self) -> int:
        now: int = self.bench.clock.monotonic_ms()
        return now

    def alive(self, data: Any) -> Client:
        return data.draw(st.sampled_from([client for client in self.clients if not client.gone]))

    def send_join(self, client: Client) -> None:
        later = self.bench.join(
            client.member_id, instance=client.instance, protocols=client.protocols, rebalance_ms=REBALANCE_MS
        )
        client.waiting.append((self.now(), "join", later))
        client.heard_ms = self.now()
        self.collect()
        if client.member_id and client.generation == -1 and later.done:
            answer = later.result()
            if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.send_join(client)

    def collect(self) -> None:
        """Take in the answers that have arrived."""
        for client in self.clients:
            for entry in list(client.waiting):
                _, kind, later = entry
                if not later.done:
                    continue
                client.waiting.remove(entry)
                client.heard_ms = self.now()
                if later.error is None:
                    (self.joined if kind == "join" else self.synced)(client, later.result())

    def joined(self, client: Client, answer: Any) -> None:
        error = answer.error_code
        if error == ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id, client.generation = answer.member_id, -1
        elif error == ErrorCode.NONE:
            assert answer.protocol_name in client.protocols
            client.member_id, client.generation = answer.member_id, answer.generation_id
            client.leader = answer.leader == answer.member_id and not answer.skip_assignment
            client.members = [member.member_id for member in answer.members]
            if client.leader:
                assert client.member_id in client.members
        elif error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_MAX_SIZE_REACHED):
            client.member_id, client.generation = "", -1
        elif error == ErrorCode.FENCED_INSTANCE_ID:
            client.gone = True
        else:
            assert error in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.INCONSISTENT_GROUP_PROTOCOL), error

    def synced(self, client: Client, answer: Any) -> None:
        if answer.error_code != ErrorCode.NONE:
            return
        given = self.assigned[client.generation]
        if client.instance is None:
            assert answer.assignment == given.get(client.member_id, b"")
        else:
            # It may have taken over from the one before it under the same instance.
            assert answer.assignment in (b"", *given.values())

    @rule(protocols=st.sampled_from(PROTOCOLS), instance=st.sampled_from([None, None, None, "s1", "s2"]))
    def arrive(self, protocols: dict[str, bytes], instance: str | None) -> None:
        if len([client for client in self.clients if not client.gone]) < 6:
            if instance is not None:
                for other in self.clients:
                    other.gone = other.gone or other.instance == instance
            client = Client(instance, protocols)
            self.clients.append(client)
            self.send_join(client)

    @precondition(lambda self: any(not client.gone for client in self.clients))
    @rule(data=st.data())
    def join_again(self, data: Any) -> None:
        self.send_join(self.alive(data))

    @precondition(lambda self: any(not client.gone for client in self.clients))
    @rule(data=st.data(), protocols=st.sampled_from(PROTOCOLS))
    def change_protocols(self, data: Any, protocols: dict[str, bytes]) -> None:
        client = self.alive(data)
        if not client.waiting:
            client.protocols = protocols
            self.send_join(client)

    @precondition(lambda self: any(not client.gone for client in self.clients))
    @rule(data=st.data())
    def sync(self, data: Any) -> None:
        self.send_sync(self.alive(data))

    def send_sync(self, client: Client) -> None:
        if client.generation < 0:
            return
        assignments: dict[str, bytes] = {}
        group = self.group()
        if client.leader:
            assignments = {each: f"{client.generation}/{each}".encode() for each in client.members}
            completing = group is not None and group.state is ClassicGroupState.COMPLETING_REBALANCE
            if completing and group is not None and group.is_leader(client.member_id):
                self.assigned[client.generation] = assignments
        later = self.bench.sync(client.member_id, client.generation, assignments, instance=client.instance)
        client.waiting.append((self.now(), "sync", later))
        client.heard_ms = self.now()
        self.collect()

    @rule()
    def everybody_joins_and_syncs(self) -> None:
        """What clients do: follow the coordinator until the group is stable."""
        for _ in range(3):
            for client in [each for each in self.clients if not each.gone and not each.waiting]:
                if client.generation < 0 or self.beat(client) is not ErrorCode.NONE:
                    self.send_join(client)
            self.advance(DELAY_MS)
            for client in [each for each in self.clients if not each.gone and not each.waiting]:
                self.send_sync(client)

    @precondition(lambda self: any(not client.gone for client in self.clients))
    @rule(data=st.data())
    def heartbeat(self, data: Any) -> None:
        self.beat(self.alive(data))

    def beat(self, client: Client) -> ErrorCode:
        answer: ErrorCode = self.bench.heartbeat(client.member_id, client.generation, instance=client.instance)
        if answer in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            client.heard_ms = self.now()
        elif answer is ErrorCode.UNKNOWN_MEMBER_ID:
            client.member_id, client.generation = "", -1
        return answer

    @precondition(lambda self: any(not client.gone for client in self.clients))
    @rule(data=st.data())
    def leave(self, data: Any) -> None:
        client = self.alive(data)
        if client.member_id:
            self.bench.leave(client.member_id)
            client.gone = True
            self.collect()

    @precondition(lambda self: any(not client.gone for client in self.clients))
    @rule(data=st.data())
    def fall_silent(self, data: Any) -> None:
        self.alive(data).gone = True

    @precondition(lambda self: bool(self.clients))
    @rule(data=st.data(), partition=st.integers(0, 2))
    def commit(self, data: Any, partition: int) -> None:
        client = data.draw(st.sampled_from(self.clients))
        group = self.group()
        self.next_offset += 1
        answer = self.bench.commit(
            {("topic", partition): self.next_offset},
            member_id=client.member_id,
            generation_id=client.generation,
            group_instance_id=client.instance,
        )
        if isinstance(answer, dict):
            is_member = group is not None and client.member_id in group.members
            assert client.generation < 0 or (
                is_member and group is not None and group.generation_id == client.generation
            )
            self.offsets[("topic", partition)] = self.next_offset
            client.heard_ms = self.now()

    @rule(ms=st.sampled_from([1, 500, DELAY_MS, SESSION_MS - 1, SESSION_MS + 1, REBALANCE_MS + 1]))
    def advance(self, ms: int) -> None:
        # In steps, so that answers are seen when they come.
        while ms > 0:
            step = min(ms, 500)
            self.bench.clock.advance(step)
            ms -= step
            self.collect()

    @rule()
    def kill(self) -> None:
        before = self.group()
        described = self.bench.shard.describe_classic(self.bench.group)
        self.bench.restart(**self.config)
        after = self.group()
        if before is not None and before.state is ClassicGroupState.STABLE:
            assert self.bench.shard.describe_classic(self.bench.group) == described or (
                len(before.members) > self.config["max_size"]
            )
            assert after is not None and after.generation_id == before.generation_id
            assert after.leader_id == before.leader_id and after.static_members == before.static_members
        elif before is not None and before.state is ClassicGroupState.EMPTY and before.generation_id:
            assert after is not None and after.generation_id == before.generation_id and not after.members
        self.generation = 0 if after is None else after.generation_id
        for client in self.clients:
            client.waiting.clear()
            client.heard_ms = self.now()

    # --- what must hold -----------------------------------------------------------------------------------------

    @invariant()
    def generations_only_grow(self) -> None:
        group = self.group()
        if group is not None:
            assert group.generation_id >= self.generation
            self.generation = group.generation_id

    @invariant()
    def the_members_are_consistent(self) -> None:
        group = self.group()
        if group is None:
            return
        members = group.members
        assert group.awaiting_join_count == sum(member.awaiting_join is not None for member in members.values())
        instances = {m.group_instance_id: m.member_id for m in members.values() if m.group_instance_id is not None}
        assert group.static_members == instances
        assert (group.leader_id in members) if members else group.leader_id is None
        assert not group.pending_join & set(members)
        assert group.pending_sync <= set(members)
        if group.state is ClassicGroupState.EMPTY:
            assert not members
        elif group.state is not ClassicGroupState.PREPARING_REBALANCE:
            assert members and all(group.protocol_name in dict(member.protocols) for member in members.values())
            assert all(member.awaiting_join is None for member in members.values())
        if group.state is not ClassicGroupState.COMPLETING_REBALANCE:
            assert all(member.awaiting_sync is None for member in members.values())

    @invariant()
    def nobody_waits_longer_than_its_timeouts(self) -> None:
        for client in self.clients:
            for since, _, _ in client.waiting:
                assert self.now() - since <= LONGEST_WAIT_MS

    @invariant()
    def the_silent_are_removed(self) -> None:
        group = self.group()
        for client in self.clients:
            member = None if group is None or not client.member_id else group.members.get(client.member_id)
            # An absent static member is given time anew by each rebalance, as in Kafka.
            if member is not None and not client.waiting and client.instance is None:
                assert self.now() - client.heard_ms <= SESSION_MS

    @invariant()
    def every_member_and_rebalance_has_a_timeout(self) -> None:
        group = self.group()
        if group is None:
            return
        timer = self.bench.shard.timer
        for member in group.members.values():
            waits = member.awaiting_join is not None or member.awaiting_sync is not None
            assert waits or ("heartbeat", group.group_id, member.member_id) in timer
        for member_id in group.pending_join:
            assert ("heartbeat", group.group_id, member_id) in timer
        if group.state is ClassicGroupState.PREPARING_REBALANCE:
            assert ("join", group.group_id) in timer
        if group.state is ClassicGroupState.COMPLETING_REBALANCE and group.pending_sync:
            assert ("sync", group.group_id) in timer

    @invariant()
    def committed_offsets_never_go_back(self) -> None:
        fetched = {where: what.offset for where, what in self.bench.fetch().items()}
        assert fetched == self.offsets


@pytest.mark.parametrize("examples", [60])
def test_random_lives_of_a_group(make_bench: Any, examples: int) -> None:
    ClassicGroupLife.bench_type = make_bench
    test = ClassicGroupLife.TestCase
    test.settings = settings(
        max_examples=examples, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
    )
    test("runTest").runTest()
