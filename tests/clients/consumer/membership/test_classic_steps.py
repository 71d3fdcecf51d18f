"""The steps of a classic member, each by itself: what is sent, what an answer changes, who is told."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from clients.consumer.membership.fake_core import COOPERATIVE, FakeCore, Run, tps

from kafkapy.clients.consumer.membership import classic as module
from kafkapy.clients.consumer.membership.classic import ClassicMembership
from kafkapy.clients.consumer.membership.classic_requests import LONGEST_REASON
from kafkapy.clients.consumer.membership.generation import NO_GENERATION, Generation, MemberState
from kafkapy.clients.consumer.membership.protocol import (
    Assignment,
    ConsumerGroupMetadata,
    Subscription,
    encode_subscription,
)
from kafkapy.config.clients import ClientConfig
from kafkapy.config.consumer import CONSUMER
from kafkapy.errors import (
    CommitFailedError,
    ErrorCode,
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    IllegalGenerationError,
    IllegalStateError,
    InconsistentGroupProtocolError,
    KafkaError,
    RebalanceInProgressError,
    error_for,
)
from kafkapy.protocol.messages.join_group import JoinGroupResponse
from kafkapy.protocol.messages.sync_group import SyncGroupResponse

MINE = Generation(4, "m1", "range")
OTHER = Generation(3, "m1", "range")
GONE = [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION]


class Coordinator:
    """Answers with what a test has written down; keeps what it is asked."""

    def __init__(self) -> None:
        self.known = True
        self.answers: list[Any] = []
        self.asked: list[tuple[Any, int | None]] = []
        self.heard: list[ErrorCode] = []
        self.meanwhile: Callable[[], None] = lambda: None

    async def send(self, request: Any, *, timeout_ms: int | None = None) -> Any:
        self.asked.append((request, timeout_ms))
        self.meanwhile()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def answered(self, code: ErrorCode) -> None:
        self.heard.append(code)


class Bench:
    """A member that is in the group, without tasks."""

    def __init__(self, state: MemberState = MemberState.STABLE, topics: str = "a", **keys: object) -> None:
        config = ClientConfig(CONSUMER, {"bootstrap.servers": "localhost:1", "group.id": "orders", **keys})
        self.core = FakeCore(config)
        self.core.subscription.subscribe(topics.split(), None)
        self.member = ClassicMembership(self.core)
        self.core.membership = self.member
        self.coordinator = Coordinator()
        self.member._coordinator = self.coordinator  # type: ignore[assignment]
        self.member._state, self.member._generation = state, MINE
        self.member._rejoin_needed, self.member.ready = False, True
        self.polls = 0
        self.wakes = 0
        self.refreshes: list[Any] = []
        self.topics: list[set[str]] = []
        self.core.need_poll = self._need_poll  # type: ignore[method-assign]
        self.core.wake_fetcher = self._wake  # type: ignore[method-assign]
        self.core.group_topics_changed = lambda topics: self.topics.append(set(topics))  # type: ignore[method-assign]
        self.core.network.cluster.refresh = self._refresh  # type: ignore[method-assign]
        self.outcomes: list[Exception] = []

    def _need_poll(self) -> None:
        self.polls += 1

    def _wake(self) -> None:
        self.wakes += 1

    async def _refresh(self) -> None:
        self.refreshes.append(set(self.topics[-1]) if self.topics else None)
        if self.outcomes:
            raise self.outcomes.pop(0)

    def own(self, partitions: str) -> None:
        self.core.subscription.assign_from_subscribed(sorted(tps(partitions)))

    def left(self) -> tuple[MemberState, Generation, bool, bool]:
        """(state, generation, whether it joins again, whether it is ready)."""
        member = self.member
        return member._state, member._generation, member._rejoin_needed, member.ready


STAYS = (MemberState.STABLE, MINE, False, True)


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits of a member, none of which lasts."""
    waits: list[float] = []

    async def sleep(delay_s: float) -> None:
        waits.append(delay_s)

    monkeypatch.setattr(module, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": sleep}))
    return waits


def test_a_member_begins_outside_of_the_group() -> None:
    keys = {"session.timeout.ms": 7000, "heartbeat.interval.ms": 2000, "retry.backoff.ms": 300}
    bench = Bench(**keys, **{"retry.backoff.max.ms": 4000})
    member = ClassicMembership(bench.core)
    timer = member._heartbeat
    assert (timer.interval_s, timer._session_timeout_s, timer._backoff_s, timer._max_backoff_s) == (2, 7, 0.3, 4)
    assert (member._state, member._generation, member._rejoin_needed) == (MemberState.UNJOINED, NO_GENERATION, True)
    assert (member._is_leader, member.ready, member._needs_prepare, member.error) == (False, False, True, None)
    assert (member._rejoin_reason, member._joined_topics, member._watched) == ("", None, frozenset())
    assert member.group_metadata() == ConsumerGroupMetadata("orders", -1, "", None, "<unjoined>")
    assert member.fetch_identity() is None


# --- commits ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "error"),
    [
        (MemberState.UNJOINED, CommitFailedError),
        (MemberState.PREPARING_REBALANCE, RebalanceInProgressError),
        (MemberState.COMPLETING_REBALANCE, RebalanceInProgressError),
        (MemberState.STABLE, None),
    ],
)
def test_only_a_member_of_the_generation_commits(state: MemberState, error: type[Exception] | None) -> None:
    bench = Bench(state, **{"group.instance.id": "i"})
    if error is None:
        assert bench.member.commit_identity() == ConsumerGroupMetadata("orders", 4, "m1", "i")
    else:
        with pytest.raises(error):
            bench.member.commit_identity()


NOBODY = Generation(member_id="m1")


@pytest.mark.parametrize(
    ("code", "state", "sent", "error", "left"),
    [
        (ErrorCode.REBALANCE_IN_PROGRESS, MemberState.STABLE, MINE, RebalanceInProgressError, (MINE, True)),
        (ErrorCode.FENCED_INSTANCE_ID, MemberState.STABLE, MINE, FencedInstanceIdError, (MINE, False)),
        (ErrorCode.FENCED_INSTANCE_ID, MemberState.STABLE, OTHER, CommitFailedError, (MINE, False)),
        (ErrorCode.UNKNOWN_MEMBER_ID, MemberState.STABLE, MINE, CommitFailedError, (NO_GENERATION, True)),
        (ErrorCode.ILLEGAL_GENERATION, MemberState.STABLE, MINE, CommitFailedError, (NOBODY, True)),
        (ErrorCode.UNKNOWN_MEMBER_ID, MemberState.STABLE, OTHER, CommitFailedError, (MINE, False)),
        (ErrorCode.ILLEGAL_GENERATION, MemberState.STABLE, OTHER, CommitFailedError, (MINE, False)),
        *(
            (code, MemberState.PREPARING_REBALANCE, OTHER, RebalanceInProgressError, (MINE, False))
            for code in (*GONE, ErrorCode.FENCED_INSTANCE_ID)
        ),
        *((code, MemberState.COMPLETING_REBALANCE, OTHER, CommitFailedError, (MINE, False)) for code in GONE),
        (ErrorCode.UNKNOWN_MEMBER_ID, MemberState.PREPARING_REBALANCE, MINE, CommitFailedError, (NO_GENERATION, True)),
    ],
)
def test_what_a_refused_commit_says_of_the_member(
    code: ErrorCode, state: MemberState, sent: Generation, error: type[KafkaError], left: tuple[Generation, bool]
) -> None:
    bench = Bench(state)
    member = bench.member
    assert type(member.commit_refused(code, member._me(sent))) is error
    generation, rejoins = left
    reset = generation is not MINE
    assert bench.left() == (MemberState.UNJOINED if reset else state, generation, rejoins, not rejoins)
    assert member._changed.is_set() is rejoins
    if reset:
        assert member._needs_prepare
        assert member._rejoin_reason == f"the response to OffsetCommit was {code.name}"


# --- reasons to rejoin --------------------------------------------------------------------------------------------


def test_a_member_rejoins_for_other_topics_and_other_partitions() -> None:
    for rack in ("", "r"):
        bench = Bench(**{"client.rack": rack})
        member = bench.member
        seen: list[bool] = []
        member._joined_topics = frozenset("a")
        assert not member._should_rejoin()
        member._joined_topics = None
        assert not member._should_rejoin()
        member._joined_topics = frozenset("ab")
        assert member._should_rejoin()
        assert (member._rejoin_reason, member.ready) == ("subscription has changed", False)
        bench.core.subscription.unsubscribe()
        assert not member._should_rejoin()
        bench = Bench(**{"client.rack": rack})
        member = bench.member

        def snapshot(cluster: Any, topics: Any, with_racks: bool, seen: list[bool] = seen) -> Any:
            seen.append(with_racks)
            return {topic: [frozenset("r")] for topic in topics}

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "snapshot", snapshot)
            member._watch(frozenset("ab"))
            assert member._watched_were == {"a": [frozenset("r")], "b": [frozenset("r")]}
            assert not member._should_rejoin()
            member._watched_were = {"a": [frozenset("r")]}
            assert member._should_rejoin()
            assert member._rejoin_reason == "cached metadata has changed"
        assert set(seen) == {bool(rack)}


def test_a_membership_that_failed_is_not_ready_and_wakes_the_user() -> None:
    bench = Bench()
    error = KafkaError("x")
    bench.member._fail(error)
    assert (bench.member.error, bench.member.ready, bench.polls) == (error, False, 1)


# --- joining ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("pattern", "prepared", "refreshes"), [(True, False, 1), (True, True, 0), (False, False, 0)])
def test_a_pattern_is_matched_with_new_metadata_first(run: Run, pattern: bool, prepared: bool, refreshes: int) -> None:
    async def scenario() -> None:
        bench = Bench()
        if pattern:
            bench.core.subscription.unsubscribe()
            bench.core.subscription.subscribe_pattern(re.compile("a.*"), None)
            bench.core.subscription.subscribe_matching({"a"})
        bench.member._rejoin_needed = True
        bench.member._needs_prepare = not prepared
        bench.coordinator.answers = [GroupAuthorizationFailedError("x")]
        with pytest.raises(GroupAuthorizationFailedError):
            await bench.member._rejoin()
        assert len(bench.refreshes) == refreshes
        assert bench.member._needs_prepare is False
        assert bench.member._rejoin_reason == "rebalance failed due to GroupAuthorizationFailedError"

    run(scenario())


def test_only_errors_of_others_wait_before_the_next_join(run: Run, slept: list[float]) -> None:
    async def scenario() -> None:
        for error, waits in (
            (error_for(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), [0.25]),
            (error_for(ErrorCode.UNKNOWN_MEMBER_ID), []),
            (error_for(ErrorCode.ILLEGAL_GENERATION), []),
            (error_for(ErrorCode.REBALANCE_IN_PROGRESS), []),
            (error_for(ErrorCode.MEMBER_ID_REQUIRED), []),
        ):
            slept.clear()
            bench = Bench(**{"retry.backoff.ms": 250})
            bench.member._rejoin_needed = True
            bench.coordinator.answers = [error, GroupAuthorizationFailedError("x")]
            with pytest.raises(GroupAuthorizationFailedError):
                await bench.member._rejoin()
            assert slept == waits
            failed = 1 if error.code is ErrorCode.MEMBER_ID_REQUIRED else 2
            values = bench.core.commits.metrics.read(0)["consumer-coordinator-metrics"]
            assert values["failed-rebalance-total"] == failed

    run(scenario())


def test_metadata_is_asked_for_until_a_broker_answers(run: Run, slept: list[float]) -> None:
    async def scenario() -> None:
        bench = Bench(**{"retry.backoff.ms": 250})
        bench.outcomes = [error_for(ErrorCode.NETWORK_EXCEPTION)] * 2
        await bench.member._refresh()
        assert (len(bench.refreshes), slept) == (3, [0.25, 0.25])
        bench.outcomes = [GroupAuthorizationFailedError("x")]
        with pytest.raises(GroupAuthorizationFailedError):
            await bench.member._refresh()
        assert (len(bench.refreshes), slept) == (4, [0.25, 0.25])

    run(scenario())


@pytest.mark.parametrize("cooperative", [False, True])
@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize("tells", [False, True])
@pytest.mark.parametrize("owned", ["", "a0 a1", "a0 b0"])
def test_what_is_given_up_before_a_join(run: Run, cooperative: bool, outside: bool, tells: bool, owned: str) -> None:
    async def scenario() -> None:
        bench = Bench(topics="a b", **(COOPERATIVE if cooperative else {"partition.assignment.strategy": "range"}))
        core, member = bench.core, bench.member
        bench.own(owned)
        core.subscription.subscribe(["a"], None)
        core.tells_every_rebalance = tells
        member._is_leader = True
        if outside:
            member._generation = NOBODY
        asked: list[set[Any]] = []

        async def prepare_revocation(partitions: set[Any]) -> dict[Any, Any]:
            asked.append(set(partitions))
            return {}

        core.prepare_revocation = prepare_revocation  # type: ignore[method-assign]
        await member._prepare()
        given_up = "b0" if "b0" in owned and cooperative else "" if cooperative else owned
        assert asked == [tps(owned if outside else given_up)]
        if outside:
            told = [("lost", owned)] if owned else [("revoked", "")] if tells else []
            left = ""
        else:
            told = [("revoked", given_up)] if not cooperative or given_up or tells else []
            left = " ".join(each for each in owned.split() if each not in given_up.split())
        assert core.events == told
        assert core.subscription.assigned == tps(left)
        assert (member._is_leader, member.ready, bench.topics) == (False, False, [set()])

    run(scenario())


def answered_join(**fields: Any) -> JoinGroupResponse:
    given = {
        "generation_id": 5,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "leader": "other",
        "member_id": "m1",
        "members": [],
    }
    return JoinGroupResponse(**{**given, **fields})


def synced(**fields: Any) -> SyncGroupResponse:
    given = {"protocol_type": "consumer", "protocol_name": "range", "assignment": b"mine"}
    return SyncGroupResponse(**{**given, **fields})


@pytest.mark.parametrize(
    ("request_ms", "rebalance_ms", "timeout_ms"),
    [(30_000, 300_000, 305_000), (30_000, 25_000, 30_000), (30_000, 25_001, 30_001), (30_000, 1000, 30_000)],
)
def test_a_join_may_take_as_long_as_a_rebalance(run: Run, request_ms: int, rebalance_ms: int, timeout_ms: int) -> None:
    async def scenario() -> None:
        bench = Bench(**{"request.timeout.ms": request_ms, "max.poll.interval.ms": rebalance_ms})
        bench.member._rejoin_reason = "x" * (LONGEST_REASON + 1)
        bench.member._heartbeat._session_ends_at = 0.0
        bench.coordinator.answers = [answered_join(), synced()]
        assert await bench.member._join_and_sync() == b"mine"
        (join, join_timeout_ms), (sync, sync_timeout_ms) = bench.coordinator.asked
        assert (join_timeout_ms, sync_timeout_ms) == (timeout_ms, None)
        assert (join.rebalance_timeout_ms, join.session_timeout_ms) == (rebalance_ms, 45_000)
        assert (join.group_id, join.member_id, join.reason) == ("orders", "m1", "x" * 255)
        assert (sync.group_id, sync.generation_id, sync.member_id) == ("orders", 5, "m1")
        assert (sync.protocol_type, sync.protocol_name, sync.assignments) == ("consumer", "range", [])
        assert bench.member._heartbeat.session_left_s > 0
        assert (bench.member._joined.is_set(), bench.member._is_leader) == (True, False)
        assert (bench.member._rejoin_reason, bench.member._joined_topics) == ("", frozenset("a"))
        assert bench.left() == (MemberState.STABLE, Generation(5, "m1", "range"), False, True)

    run(scenario())


@pytest.mark.parametrize("kind", [None, "consumer", "connect"])
def test_a_group_of_another_kind_is_not_joined(run: Run, kind: str | None) -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.coordinator.answers = [answered_join(protocol_type=kind), synced()]
        if kind == "connect":
            with pytest.raises(InconsistentGroupProtocolError):
                await bench.member._join_and_sync()
            assert bench.member._state is MemberState.PREPARING_REBALANCE
        else:
            await bench.member._join_and_sync()

    run(scenario())


@pytest.mark.parametrize(
    ("code", "sent", "left"),
    [
        (ErrorCode.MEMBER_ID_REQUIRED, MINE, Generation(member_id="given")),
        (ErrorCode.UNKNOWN_MEMBER_ID, MINE, NO_GENERATION),
        (ErrorCode.UNKNOWN_MEMBER_ID, OTHER, MINE),
        (ErrorCode.ILLEGAL_GENERATION, MINE, MINE),
        (ErrorCode.NOT_COORDINATOR, MINE, MINE),
    ],
)
def test_what_a_refused_join_says_of_the_member(code: ErrorCode, sent: Generation, left: Generation) -> None:
    bench = Bench(MemberState.PREPARING_REBALANCE)
    bench.member._join_refused(code, answered_join(member_id="given"), sent)
    assert bench.member._generation == left
    assert bench.coordinator.heard == [code]
    assert (bench.member._state is MemberState.UNJOINED) is (left == NO_GENERATION)


@pytest.mark.parametrize("code", [*GONE, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.MEMBER_ID_REQUIRED])
@pytest.mark.parametrize("changed", [False, True])
def test_what_a_refused_sync_says_of_the_member(run: Run, code: ErrorCode, changed: bool) -> None:
    async def scenario() -> None:
        bench = Bench(MemberState.COMPLETING_REBALANCE)
        member = bench.member

        def another() -> None:
            member._generation = OTHER

        if changed:
            bench.coordinator.meanwhile = another
        bench.coordinator.answers = [synced(error_code=code)]
        with pytest.raises(KafkaError) as raised:
            await member._sync({})
        assert raised.value.code is code
        assert bench.coordinator.heard == [code]
        if changed or code not in GONE:
            assert bench.left()[:2] == (MemberState.COMPLETING_REBALANCE, OTHER if changed else MINE)
        else:
            left = NO_GENERATION if code is ErrorCode.UNKNOWN_MEMBER_ID else NOBODY
            assert bench.left() == (MemberState.UNJOINED, left, True, False)

    run(scenario())


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({}, None),
        ({"protocol_type": None, "protocol_name": None}, None),
        ({"protocol_type": "connect"}, InconsistentGroupProtocolError),
        ({"protocol_name": "roundrobin"}, InconsistentGroupProtocolError),
    ],
)
def test_an_assignment_is_of_the_protocol_that_was_joined(
    run: Run, fields: dict[str, Any], error: type[KafkaError] | None
) -> None:
    async def scenario() -> None:
        bench = Bench(MemberState.COMPLETING_REBALANCE)
        bench.coordinator.answers = [synced(**fields)]
        if error is None:
            assert await bench.member._sync({}) == b"mine"
            assert bench.member._state is MemberState.STABLE
            return
        with pytest.raises(error):
            await bench.member._sync({})
        assert bench.member._state is MemberState.COMPLETING_REBALANCE

    run(scenario())


def test_an_assignment_of_a_generation_that_is_over_is_not_taken(run: Run) -> None:
    async def scenario() -> None:
        for state, generation in ((MemberState.COMPLETING_REBALANCE, OTHER), (MemberState.UNJOINED, MINE)):
            bench = Bench(MemberState.COMPLETING_REBALANCE)
            member = bench.member

            def meanwhile(
                member: ClassicMembership = member, state: MemberState = state, generation: Generation = generation
            ) -> None:
                member._state, member._generation = state, generation

            bench.coordinator.meanwhile = meanwhile
            bench.coordinator.answers = [synced()]
            with pytest.raises(IllegalGenerationError):
                await member._sync({})
            assert member._state is state

    run(scenario())


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("given", ["a0", "a0 c1"])
def test_a_leader_knows_all_topics_that_it_assigns(run: Run, skip: bool, given: str) -> None:
    async def scenario() -> None:
        bench = Bench()
        member = bench.member
        assignments = {"m1": Assignment(tuple(sorted(tps(given))))}

        class Assignor:
            name = "range"

            def assign(self, cluster: Any, subscriptions: Any) -> Any:
                assert set(subscriptions) == {"m1", "z"}
                return assignments

        member._assignors = [Assignor()]  # type: ignore[list-item]
        members = [
            JoinGroupResponse.Member(member_id=name, metadata=encode_subscription(Subscription(topics)))
            for name, topics in (("m1", ("a",)), ("z", ("a", "b")))
        ]
        response = answered_join(leader="m1", members=members, skip_assignment=skip)
        assert await member._lead(response) == ({} if skip else assignments)
        topics = [{"a", "b"}, {"a", "b", "c"}] if "c1" in given and not skip else [{"a", "b"}]
        assert bench.topics == topics
        assert bench.refreshes == topics  # each time after the topics are wanted
        assert member._watched == topics[-1]

    run(scenario())


def test_an_assignor_that_nobody_has_is_an_error() -> None:
    bench = Bench()
    assert bench.member._assignor().name == "range"
    bench.member._generation = MINE._replace(assignor="nobody's")
    with pytest.raises(IllegalStateError, match='unknown assignor "nobody\'s"'):
        bench.member._assignor()
