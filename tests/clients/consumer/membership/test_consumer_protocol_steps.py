"""The steps of a member of the consumer protocol, each by itself: what it reports, what an answer changes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from clients.consumer.membership.fake_core import FakeCore, Run, tps
from clients.consumer.membership.test_classic_steps import Coordinator

from kafkapy.clients.consumer.membership import consumer_protocol as module
from kafkapy.clients.consumer.membership.consumer_protocol import (
    NO_PARTITIONS,
    NOTHING_REPORTED,
    OUTSIDE,
    ConsumerProtocolMembership,
    MemberState,
)
from kafkapy.config.clients import ClientConfig
from kafkapy.config.consumer import CONSUMER
from kafkapy.errors import (
    CommitFailedError,
    ErrorCode,
    GroupAuthorizationFailedError,
    KafkaError,
    StaleMemberEpochError,
    UnsupportedVersionError,
    error_for,
)
from kafkapy.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse

IDS = {name: UUID(int=number) for number, name in enumerate("abc", 1)}
INSIDE = [state for state in MemberState if state not in OUTSIDE]


def places(text: str) -> dict[UUID, frozenset[int]]:
    """Partitions of "a0 a1 b0" by topic id."""
    found: dict[UUID, set[int]] = {}
    for each in tps(text):
        found.setdefault(IDS[each.topic], set()).add(each.partition)
    return {topic_id: frozenset(numbers) for topic_id, numbers in found.items()}


def answer(assigned: str | None = None, **fields: Any) -> ConsumerGroupHeartbeatResponse:
    kind = ConsumerGroupHeartbeatResponse.Assignment
    given = {"member_id": "m1", "member_epoch": 4, "heartbeat_interval_ms": 3000, **fields}
    if assigned is not None:
        given["assignment"] = kind(
            topic_partitions=[
                kind.TopicPartitions(topic_id=topic_id, partitions=sorted(numbers))
                for topic_id, numbers in places(assigned).items()
            ]
        )
    return ConsumerGroupHeartbeatResponse(**given)


class Bench:
    """A member without tasks, whose cluster knows three topics by their ids."""

    def __init__(self, state: MemberState = MemberState.STABLE, epoch: int = 3, **keys: object) -> None:
        given = {"bootstrap.servers": "localhost:1", "group.id": "orders", "group.protocol": "consumer", **keys}
        self.core = FakeCore(ClientConfig(CONSUMER, given))
        self.core.subscription.subscribe(["a"], None)
        self.member = ConsumerProtocolMembership(self.core)
        self.core.membership = self.member
        self.coordinator = Coordinator()
        self.member._coordinator = self.coordinator  # type: ignore[assignment]
        self.member._member_id = "m1"
        self.member._state, self.member._epoch = state, epoch
        self.polls = 0
        self.wakes = 0
        self.stale = 0
        self.revoked: list[set[Any]] = []
        self.names = {topic_id: name for name, topic_id in IDS.items()}
        self.core.need_poll = self._need_poll  # type: ignore[method-assign]
        self.core.wake_fetcher = self._wake  # type: ignore[method-assign]
        self.core.prepare_revocation = self._prepare  # type: ignore[method-assign]
        cluster = self.core.network.cluster
        cluster.topic_name = self.names.get  # type: ignore[method-assign, assignment]
        cluster.invalidate = self._invalidate  # type: ignore[method-assign]

    def _need_poll(self) -> None:
        self.polls += 1

    def _wake(self) -> None:
        self.wakes += 1

    def _invalidate(self) -> None:
        self.stale += 1

    async def _prepare(self, partitions: set[Any]) -> dict[Any, Any]:
        self.revoked.append(set(partitions))
        return {}

    def own(self, partitions: str) -> None:
        self.core.subscription.subscribe(["a", "b", "c"], None)
        self.core.subscription.assign_from_subscribed(sorted(tps(partitions)))
        self.member._current = places(partitions)
        self.member._names = dict(self.names)

    def rebalances(self) -> tuple[float, float]:
        """How many rebalances have ended, and how many have failed."""
        values = self.core.commits.metrics.read(0)["consumer-coordinator-metrics"]
        return values["rebalance-total"], values["failed-rebalance-total"]


def test_a_member_begins_outside_of_the_group() -> None:
    keys = {"retry.backoff.ms": 300, "retry.backoff.max.ms": 4000, "max.poll.interval.ms": 70_000}
    bench = Bench(**keys)
    member = ConsumerProtocolMembership(bench.core)
    timer = member._heartbeat
    assert (timer.interval_s, timer._session_timeout_s, timer._backoff_s, timer._max_backoff_s) == (5, 70, 0.3, 4)
    assert (member._epoch, member._state, member._joins) == (0, MemberState.UNSUBSCRIBED, 0)
    assert (member._target, member._current, member._acknowledged) == ({}, None, None)
    assert (member._reported, member.error, member.ready) == (NOTHING_REPORTED, None, False)
    assert member.fetch_identity() is None
    assert member.commit_identity().generation_id == -1
    assert tuple(NOTHING_REPORTED) == (None, None, "", None, None)


@pytest.mark.parametrize("state", list(MemberState))
def test_each_state_is_shown(state: MemberState) -> None:
    shown = "<stable>" if state is MemberState.STABLE else "<unjoined>" if state in OUTSIDE else "<rebalancing>"
    bench = Bench(state)
    assert bench.member.group_metadata().state == shown
    assert bench.member.ready is (state is MemberState.STABLE)
    outside = {MemberState.UNSUBSCRIBED, MemberState.FENCED, MemberState.STALE, MemberState.FATAL}
    assert outside == OUTSIDE


@pytest.mark.parametrize(("epoch", "told"), [(-2, -1), (-1, -1), (0, -1), (1, 1), (7, 7)])
def test_a_member_without_an_epoch_has_minus_one(epoch: int, told: int) -> None:
    bench = Bench(epoch=epoch, **{"group.instance.id": "i"})
    me = bench.member.commit_identity()
    assert (me.group_id, me.generation_id, me.member_id, me.group_instance_id) == ("orders", told, "m1", "i")
    assert bench.member.fetch_identity() == (me if epoch > 0 else None)


def test_a_stale_epoch_is_the_cause_of_a_failed_commit() -> None:
    bench = Bench()
    for code in (ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
        error = bench.member.commit_refused(code, bench.member.commit_identity())
        assert type(error) is CommitFailedError
        assert str(error).startswith("The commit of member m1 failed: ")
        assert isinstance(error.__cause__, StaleMemberEpochError) is (code is ErrorCode.STALE_MEMBER_EPOCH)


# --- states -------------------------------------------------------------------------------------------------------


def test_rebalances_are_counted_with_the_states() -> None:
    bench = Bench()
    for before in MemberState:
        for after in MemberState:
            ended, failed = bench.rebalances()
            bench.member._state = before
            bench.core.commits.metrics.rebalance_begins()
            bench.member._enter(after)
            assert bench.member._state is after
            ended += after is MemberState.ACKNOWLEDGING
            failed += before is MemberState.RECONCILING and after in OUTSIDE
            assert bench.rebalances() == (ended, failed)


def test_a_join_starts_over(run: Run) -> None:
    async def scenario() -> None:
        bench = Bench()
        member = bench.member
        bench.own("a0")
        member._target = member._acknowledged = places("a0")
        member._reported = NOTHING_REPORTED._replace(pattern="x")
        member._join()
        assert (member._epoch, member._joins, member._state) == (0, 1, MemberState.JOINING)
        assert (member._target, member._current, member._acknowledged) == ({}, None, None)
        assert (member._reported, member._due.is_set()) == (NOTHING_REPORTED, True)
        member._epoch = 9
        await member._lose_all()
        assert (member._epoch, member._joins) == (0, 2)
        assert (bench.core.events, bench.revoked) == ([("lost", "a0")], [tps("a0")])
        assert bench.core.subscription.assigned == set()
        await member._lose_all()
        assert (member._joins, len(bench.revoked)) == (3, 1)

    run(scenario())


def test_a_failed_membership_is_not_started_again(run: Run) -> None:
    async def scenario() -> None:
        bench = Bench(MemberState.UNSUBSCRIBED, 0)
        error = KafkaError("x")
        bench.member._fail(error)
        assert (bench.member.error, bench.member._state, bench.polls) == (error, MemberState.FATAL, 1)
        await bench.member.start()
        assert (bench.member._tasks, bench.member._joins) == ([], 0)
        bench = Bench(MemberState.UNSUBSCRIBED, 0)
        await bench.member.start()
        await bench.member.start()
        assert (len(bench.member._tasks), bench.member._joins) == (2, 1)
        await bench.member.stop()

    run(scenario())


# --- heartbeats ---------------------------------------------------------------------------------------------------


def test_a_request_carries_what_has_changed() -> None:
    bench = Bench(MemberState.JOINING, 0, **{"client.rack": "r", "group.remote.assignor": "uniform"})
    member = bench.member
    request, reported = member._request()
    assert (request.rack_id, request.server_assignor, request.rebalance_timeout_ms) == ("r", "uniform", 300_000)
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == (["a"], None)
    assert (request.topic_partitions, request.member_epoch, request.member_id) == ([], 0, "m1")
    member._reported, member._state, member._epoch = reported, MemberState.STABLE, 4
    request, again = member._request()
    assert (request.rack_id, request.server_assignor, request.rebalance_timeout_ms) == (None, None, -1)
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == (None, None)
    assert (request.topic_partitions, request.member_epoch) == (None, 4)
    assert again == reported
    bench.own("a1 a0")
    request, again = member._request()
    assert request.subscribed_topic_names == ["a", "b", "c"]
    assert [(each.topic_id, each.partitions) for each in request.topic_partitions or ()] == [(IDS["a"], [0, 1])]
    member._reported = again
    assert member._request()[0].topic_partitions is None
    # What was taken over anew is reported even if it is the same.
    member._current = dict(member._current or {})
    assert len(member._request()[0].topic_partitions or ()) == 1


def test_an_expression_is_told_with_each_join_and_each_change() -> None:
    bench = Bench(MemberState.STABLE)
    member, subscription = bench.member, bench.core.subscription
    subscription.unsubscribe()
    subscription.subscribe_server_pattern("x.*", None)
    request, reported = member._request()
    assert request.subscribed_topic_regex == "x.*"
    member._reported = reported
    assert member._request()[0].subscribed_topic_regex is None
    member._state = MemberState.JOINING
    assert member._request()[0].subscribed_topic_regex == "x.*"
    subscription.unsubscribe()
    subscription.subscribe(["a"], None)
    assert member._request()[0].subscribed_topic_regex == ""
    member._reported = NOTHING_REPORTED
    assert member._request()[0].subscribed_topic_regex is None


@pytest.mark.parametrize(
    ("state", "current", "assigned", "after"),
    [
        (MemberState.JOINING, None, None, MemberState.JOINING),
        (MemberState.JOINING, None, "", MemberState.STABLE),
        (MemberState.JOINING, None, "a0", MemberState.RECONCILING),
        (MemberState.RECONCILING, "a0", "a0", MemberState.STABLE),
        (MemberState.RECONCILING, "a0", "a1", MemberState.RECONCILING),
        (MemberState.ACKNOWLEDGING, "a0", "a0", MemberState.ACKNOWLEDGING),
        (MemberState.STABLE, "a0", "a0", MemberState.STABLE),
        (MemberState.STABLE, "a0", "", MemberState.RECONCILING),
        (MemberState.STABLE, "a0", None, MemberState.STABLE),
        *((state, "a0", "a1", state) for state in sorted(OUTSIDE, key=lambda each: each.name)),
    ],
)
def test_a_target_is_reconciled(
    state: MemberState, current: str | None, assigned: str | None, after: MemberState
) -> None:
    bench = Bench(state)
    member = bench.member
    if current is not None:
        bench.own(current)
    member._target = before = places("c0")
    member._heard(answer(assigned, member_id="m2"))
    inside = state not in OUTSIDE
    assert (member._state, member._epoch, member._member_id) == (after, 4 if inside else 3, "m2" if inside else "m1")
    told = inside and assigned is not None
    assert member._target == (places(assigned or "") if told else before)
    assert member._to_reconcile.is_set() is (told and after is MemberState.RECONCILING)
    became_stable = told and after is MemberState.STABLE and state is not MemberState.STABLE
    assert bench.polls == int(became_stable)


@pytest.mark.parametrize(("epoch", "taken"), [(-2, 3), (-1, 3), (0, 0), (1, 1)])
def test_the_epoch_of_a_goodbye_is_none(epoch: int, taken: int) -> None:
    bench = Bench()
    bench.member._heard(answer(member_epoch=epoch, member_id=None))
    assert (bench.member._epoch, bench.member._member_id) == (taken, "m1")


def test_topics_without_partitions_are_no_part_of_a_target() -> None:
    bench = Bench()
    kind = ConsumerGroupHeartbeatResponse.Assignment
    response = answer("a0")
    assert response.assignment is not None
    response.assignment.topic_partitions.append(kind.TopicPartitions(topic_id=IDS["b"], partitions=[]))
    bench.member._heard(response)
    assert bench.member._target == places("a0")


@pytest.mark.parametrize(
    ("told_ms", "interval_s"), [(-1, 5.0), (0, 5.0), (1, 0.01), (10, 0.01), (11, 0.011), (700, 0.7)]
)
def test_the_broker_sets_the_interval(run: Run, told_ms: int, interval_s: float) -> None:
    async def scenario() -> None:
        bench = Bench()
        member = bench.member
        member._due.set()
        member._heartbeat._failures = 3
        bench.coordinator.answers = [answer(heartbeat_interval_ms=told_ms)]
        await member._beat()
        assert (member._heartbeat.interval_s, member._heartbeat._failures) == (interval_s, 0)
        assert (member._due.is_set(), member._epoch) == (False, 4)
        assert member._heartbeat._due_at == member._heartbeat._sent_at + interval_s
        assert member._reported == member._request()[1]

    run(scenario())


@pytest.mark.parametrize(
    ("target", "after"), [("a0", MemberState.STABLE), ("a1", MemberState.RECONCILING), ("", MemberState.RECONCILING)]
)
def test_a_heartbeat_with_the_partitions_ends_the_acknowledgment(run: Run, target: str, after: MemberState) -> None:
    async def scenario() -> None:
        bench = Bench(MemberState.ACKNOWLEDGING)
        bench.own("a0")
        bench.member._target = places(target)
        bench.coordinator.answers = [answer()]
        await bench.member._beat()
        assert (bench.member._state, bench.polls, bench.member._to_reconcile.is_set()) == (after, 1, True)

    run(scenario())


@pytest.mark.parametrize("pattern", [False, True])
@pytest.mark.parametrize("version", [0, 1])
def test_expressions_need_a_broker_that_knows_them(run: Run, pattern: bool, version: int) -> None:
    async def scenario() -> None:
        bench = Bench()
        if pattern:
            bench.core.subscription.unsubscribe()
            bench.core.subscription.subscribe_server_pattern("x.*", None)
        bench.coordinator.answers = [answer()]
        await bench.member._beat()
        ((request, _),) = bench.coordinator.asked
        if pattern and version == 0:
            with pytest.raises(UnsupportedVersionError, match="does not support subscription patterns"):
                request.build(version)
        else:
            assert request.build(version).group_id == "orders"

    run(scenario())


@pytest.mark.parametrize(
    ("error", "fatal", "failures"),
    [
        (UnsupportedVersionError("old"), True, 0),
        (error_for(ErrorCode.NETWORK_EXCEPTION), False, 1),
        (GroupAuthorizationFailedError("x"), True, 1),
    ],
)
def test_a_heartbeat_without_an_answer(run: Run, error: KafkaError, fatal: bool, failures: int) -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.member._reported = bench.member._request()[1]
        bench.coordinator.answers = [error]
        await bench.member._beat()
        assert (bench.member.error is not None) is fatal
        assert bench.member._heartbeat._failures == failures
        if isinstance(error, UnsupportedVersionError):
            assert str(bench.member.error).startswith("group.protocol=consumer is not available: ")
        else:
            assert bench.member._reported == NOTHING_REPORTED

    run(scenario())


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_AUTHORIZATION_FAILED])
def test_an_answer_for_an_earlier_join_says_nothing(run: Run, code: ErrorCode) -> None:
    async def scenario() -> None:
        bench = Bench()

        def meanwhile() -> None:
            bench.member._joins += 1

        bench.coordinator.meanwhile = meanwhile
        bench.coordinator.answers = [answer("a0", error_code=code)]
        await bench.member._beat()
        assert (bench.member._epoch, bench.member._state, bench.member.error) == (3, MemberState.STABLE, None)
        assert (bench.coordinator.heard, bench.member._reported) == ([], NOTHING_REPORTED)

    run(scenario())


@pytest.mark.parametrize(
    ("code", "state", "failures", "reported"),
    [
        (ErrorCode.FENCED_MEMBER_EPOCH, MemberState.JOINING, 0, []),
        (ErrorCode.UNKNOWN_MEMBER_ID, MemberState.JOINING, 0, []),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, MemberState.RECONCILING, 1, [ErrorCode.TOPIC_AUTHORIZATION_FAILED]),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, MemberState.RECONCILING, 1, []),
        (ErrorCode.NOT_COORDINATOR, MemberState.RECONCILING, 1, []),
        (ErrorCode.INVALID_REQUEST, MemberState.FATAL, 0, []),
        (ErrorCode.UNRELEASED_INSTANCE_ID, MemberState.FATAL, 0, []),
    ],
)
def test_what_a_refused_heartbeat_says_of_the_member(
    run: Run, code: ErrorCode, state: MemberState, failures: int, reported: list[ErrorCode]
) -> None:
    async def scenario() -> None:
        bench = Bench(MemberState.RECONCILING)
        bench.own("a0")
        bench.member._reported = bench.member._request()[1]
        bench.coordinator.answers = [answer(error_code=code, error_message="its text")]
        await bench.member._beat()
        assert (bench.member._state, bench.member._heartbeat._failures) == (state, failures)
        assert [error.code for error in bench.core.errors] == reported  # type: ignore[attr-defined]
        assert (bench.coordinator.heard, bench.member._reported) == ([code], NOTHING_REPORTED)
        fenced = state is MemberState.JOINING
        assert bench.core.events == ([("lost", "a0")] if fenced else [])
        assert (bench.member._epoch, bench.member._joins) == ((0, 2) if fenced else (3, 0))
        assert (bench.member.error is not None) is (state is MemberState.FATAL)
        if bench.member.error is not None:
            assert "its text" in str(bench.member.error)
        assert bench.rebalances()[1] == int(state is not MemberState.RECONCILING)

    run(scenario())


# --- polls and the end --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", list(MemberState))
def test_a_member_whose_user_does_not_poll_leaves_until_the_next_poll(run: Run, state: MemberState) -> None:
    async def scenario() -> None:
        bench = Bench(state)
        bench.own("a0")
        member = bench.member
        polls = SimpleNamespace(left_s=0.0, called=lambda: None)
        member._polls = polls  # type: ignore[assignment]
        bench.coordinator.answers = [answer(member_epoch=-1)]
        left = asyncio.ensure_future(member._leave_until_polled())
        for _ in range(5):
            await asyncio.sleep(0)
        inside = state not in OUTSIDE
        assert member._state is (MemberState.STALE if inside else state)
        assert len(bench.coordinator.asked) == int(inside)
        assert bench.core.events == ([("lost", "a0")] if inside else [])
        member.poll_called()
        for _ in range(3):
            await asyncio.sleep(0)
        assert not left.done()  # that poll was too late as well
        polls.left_s = 0.001
        member.poll_called()
        await left
        assert member._state is MemberState.JOINING

    run(scenario())


@pytest.mark.parametrize(("instance", "epoch"), [(None, -1), ("i", -2)])
@pytest.mark.parametrize(("request_ms", "timeout_ms"), [(4999, 4999), (5000, 5000), (30_000, 5000)])
def test_a_goodbye_says_for_how_long(
    run: Run, instance: str | None, epoch: int, request_ms: int, timeout_ms: int
) -> None:
    async def scenario() -> None:
        for given in (answer(), answer(error_code=25), error_for(ErrorCode.NETWORK_EXCEPTION)):
            keys: dict[str, object] = {"request.timeout.ms": request_ms}
            bench = Bench(**keys, **({"group.instance.id": instance} if instance else {}))
            bench.coordinator.answers = [given]
            await bench.member._say_goodbye("bye")
            ((request, waits),) = bench.coordinator.asked
            assert (request.group_id, request.member_id, request.instance_id) == ("orders", "m1", instance)
            assert (request.member_epoch, waits) == (epoch, timeout_ms)

    run(scenario())


@pytest.mark.parametrize("state", list(MemberState))
@pytest.mark.parametrize(("epoch", "known"), [(0, True), (1, True), (1, False)])
def test_what_a_member_that_leaves_gives_up(run: Run, state: MemberState, epoch: int, known: bool) -> None:
    async def scenario() -> None:
        bench = Bench(state, epoch)
        bench.own("a0")
        bench.coordinator.known = known
        bench.coordinator.answers = [answer(member_epoch=-1)]
        await bench.member.leave("bye")
        assert bench.core.events == []  # it has no tasks: nothing has begun
        bench.member._begin([asyncio.Event().wait()])
        await bench.member.leave("bye")
        inside = state not in OUTSIDE
        assert bench.core.events == [("revoked" if inside and epoch else "lost", "a0")]
        assert bench.revoked == ([tps("a0")] if inside and epoch else [])
        assert len(bench.coordinator.asked) == int(inside and known)
        assert bench.core.subscription.assigned == set()
        assert (bench.member._state, bench.member._epoch) == (MemberState.UNSUBSCRIBED, 0)

    run(scenario())


# --- reconciliation -----------------------------------------------------------------------------------------------


def test_only_the_join_that_began_goes_on() -> None:
    bench = Bench()
    bench.member._joins = 5
    for state in MemberState:
        bench.member._state = state
        for join in (4, 5, 6):
            assert bench.member._goes_on(join) is (state is MemberState.RECONCILING and join == 5)


@pytest.mark.parametrize("auto_commit", [False, True])
@pytest.mark.parametrize("tells", [False, True])
@pytest.mark.parametrize(
    ("before", "target", "revoked", "added"),
    [("a0 a1", "a1 b0", "a0", "b0"), ("a0", "a0 b0", "", "b0"), ("", "", "", "")],
)
def test_partitions_are_given_up_before_others_are_taken(
    run: Run, auto_commit: bool, tells: bool, before: str, target: str, revoked: str, added: str
) -> None:
    async def scenario() -> None:
        bench = Bench(MemberState.RECONCILING)
        member, core = bench.member, bench.core
        bench.own(before)
        if not before:
            member._current = None
        core.auto_commit, core.tells_every_rebalance = auto_commit, tells
        committed: list[Any] = []

        async def commit_before_rebalance(positions: Any, timeout_ms: int) -> None:
            committed.append((positions, timeout_ms))

        core.commits.commit_before_rebalance = commit_before_rebalance  # type: ignore[method-assign]
        member._target = places(target)
        await member._reconcile()
        first = [("revoked", revoked)] if revoked or tells else []
        assert core.events == [*first, ("assigned", added)]
        assert bench.revoked == ([tps(revoked)] if revoked or auto_commit else [])
        assert committed == ([({}, 300_000)] if auto_commit else [])
        assert core.subscription.assigned == tps(target)
        assert (member._current, member._acknowledged) == (places(target), places(target))
        assert (member._state, member._due.is_set(), bench.wakes) == (MemberState.ACKNOWLEDGING, True, 1)
        assert set(member._names) == set(places(target))

    run(scenario())


@pytest.mark.parametrize("kind", ["revoked", "assigned"])
def test_what_was_begun_before_another_join_ends(run: Run, kind: str) -> None:
    async def scenario() -> None:
        bench = Bench(MemberState.RECONCILING)
        bench.own("a0")
        bench.member._target = places("b0")

        async def listener() -> None:
            if bench.core.events[-1][0] == kind:
                bench.member._joins += 1

        bench.core.in_listener = listener
        await bench.member._reconcile()
        assert bench.member._state is MemberState.RECONCILING
        assert bench.core.subscription.assigned == tps("a0" if kind == "revoked" else "b0")
        assert (bench.member._current, bench.wakes) == (places("a0"), 0)

    run(scenario())


def test_topics_without_a_name_wait_for_metadata(run: Run) -> None:
    async def scenario() -> None:
        bench = Bench(MemberState.RECONCILING)
        member = bench.member
        bench.own("a0")
        del bench.names[IDS["c"]], member._names[IDS["c"]]
        member._target = places("a0 c0")
        await member._reconcile()
        # The broker hears that the target has come, though a part of it waits.
        assert (member._state, bench.core.events, bench.stale) == (MemberState.ACKNOWLEDGING, [], 1)
        assert (member._acknowledged, member._current) == (member._target, places("a0"))
        member._state = MemberState.RECONCILING
        await member._reconcile()
        assert (member._state, bench.stale) == (MemberState.RECONCILING, 2)
        # A name that was known once stays known.
        del bench.names[IDS["a"]]
        bench.names[IDS["c"]] = "c"
        await member._reconcile()
        assert (bench.core.events, bench.stale) == ([("assigned", "c0")], 2)
        assert member._current == places("a0 c0")

    run(scenario())


@pytest.mark.parametrize(
    ("state", "current", "works"),
    [
        (MemberState.RECONCILING, "a0", True),
        (MemberState.RECONCILING, "a1", False),
        (MemberState.STABLE, "a0", False),
        (MemberState.ACKNOWLEDGING, "a0", False),
    ],
)
def test_reconciling_is_done_where_something_differs(run: Run, state: MemberState, current: str, works: bool) -> None:
    async def scenario() -> None:
        bench = Bench(state)
        bench.own(current)
        bench.member._target = places("a1")
        calls: list[int] = []

        async def reconcile() -> None:
            calls.append(1)
            raise KafkaError("x")

        bench.member._reconcile = reconcile  # type: ignore[method-assign]
        task = asyncio.ensure_future(bench.member._reconciliations())
        for _ in range(3):
            await asyncio.sleep(0)
        assert (len(calls), task.done()) == (int(works), works)
        assert (bench.member.error is not None, bench.member._due.is_set()) == (works, works)
        task.cancel()
        await asyncio.wait({task})

    run(scenario())


def test_the_numbers_of_the_protocol() -> None:
    assert (module.JOINING_EPOCH, module.LEAVING_EPOCH, module.LEAVING_STATIC_EPOCH) == (0, -1, -2)
    assert NO_PARTITIONS == {}
