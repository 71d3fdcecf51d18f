"""ConsumerCore: subscriptions and polls, step by step, and what each asks of the parts."""

from __future__ import annotations

import asyncio
import re
from types import SimpleNamespace
from typing import Any

import pytest
from clients.consumer.core_bench import T0, T1, T2, Bench, Listener
from waiting import run

from kafkapy.clients.consumer.core import ConsumerCore
from kafkapy.clients.consumer.subscription import (
    EARLIEST,
    LeaderAndEpoch,
    SubscriptionPattern,
    SubscriptionType,
)
from kafkapy.errors import IllegalStateError, KafkaError
from kafkapy.types import OffsetAndMetadata

# --- subscription and assignment ----------------------------------------------------------------------------------


def test_a_new_core_has_done_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch)
        core = bench.core
        assert (core.closed, core.user_waits, core._member_started, core._calls_seen) == (False, False, False, 0)
        assert (core._consumed, core._initializer, core._assigner, core._timer) == ({}, None, None, None)
        config = core.config
        assert ConsumerCore(config, post=lambda call: None, ring=lambda: None).attendance.attended

    run(main)


@pytest.mark.parametrize("started", [False, True])
def test_a_subscription_is_told_to_the_member_and_the_metadata(monkeypatch: pytest.MonkeyPatch, started: bool) -> None:
    async def main() -> None:
        pattern = re.compile("t.*")
        listener: Any = object()
        for chosen, kind, matches in (
            (None, SubscriptionType.TOPICS, False),
            (pattern, SubscriptionType.PATTERN, True),
            (SubscriptionPattern("t.*"), SubscriptionType.SERVER_PATTERN, False),
        ):
            bench = Bench(monkeypatch, group_protocol="consumer")
            bench.core._member_started = started
            bench.core.subscribe(["t"], chosen, listener)
            told = ["topics.want", *["match pattern"] * matches, *["subscription changed"] * started]
            assert bench.taken() == told
            assert bench.asks()
            assert (bench.core.subscription.type, bench.core.subscription.listener) == (kind, listener)

    run(main)


def test_a_pattern_of_the_broker_needs_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, group=False, group_protocol="consumer")
    with pytest.raises(IllegalStateError, match="SubscriptionPattern needs a group"):
        bench.core.subscribe((), SubscriptionPattern("t"), None)
    assert bench.core.subscription.type is SubscriptionType.NONE


def test_assigned_partitions_get_the_leaders_that_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    core = bench.core
    core.assign([T0, T1, T2])
    assert bench.taken() == ["topics.want", "fetcher.wake"]
    assert bench.asks()
    core.assign([T0, T1, T2])  # the same ones
    assert (bench.taken(), bench.asks()) == ([], True)
    bench.state(T0).seek(5)
    bench.state(T1).seek(5, -1, LeaderAndEpoch(0, 2))
    bench.state(T2).request_reset(EARLIEST)
    core._leaders_known()
    assert [bench.state(each).leader for each in (T0, T1, T2)] == [(1, 4), (0, 2), (-1, -1)]
    bench.state(T0).seek(5)
    core.assign([T0])
    assert bench.state(T0).leader == (1, 4)


@pytest.mark.parametrize("started", [True, False])
def test_unsubscribe_leaves_a_group_that_was_joined(monkeypatch: pytest.MonkeyPatch, started: bool) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch, attended=False)
        core = bench.core
        core.subscribe(["t"], None, Listener(bench.calls))
        core.subscription.assign_from_subscribed([T0])
        core._member_started = started
        bench.taken()
        await core.unsubscribe()
        left = [("leave", "the consumer unsubscribed from all topics")]
        assert bench.taken() == [*(left if started else [("revoked", {T0})]), "topics.want"]
        assert core.subscription.type is SubscriptionType.NONE
        assert not core._member_started
        await core.unsubscribe()  # nothing is left
        assert bench.taken() == ["topics.want"]

    run(main)


def test_the_topics_of_the_group_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    bench.core.group_topics_changed(["a", "b", "a"])
    assert bench.core.subscription.group_topics == {"a", "b"}
    assert bench.taken() == ["topics.want"]


@pytest.mark.parametrize("matches", [True, False])
@pytest.mark.parametrize("started", [True, False])
def test_new_metadata_may_change_the_subscription(
    monkeypatch: pytest.MonkeyPatch, started: bool, matches: bool
) -> None:
    bench = Bench(monkeypatch)
    core = bench.core
    core.assign([T0])
    bench.state().seek(5)
    bench.matches, core._member_started = matches, started
    error = KafkaError("no topic")
    monkeypatch.setattr(core.topics, "errors", lambda: [error])
    bench.taken()
    core._metadata_changed(core.network.cluster)
    assert core.attendance.next_error() is error
    told = ["subscription changed"] * (matches and started)
    assert bench.taken() == ["match pattern", *told, "offsets.wake", "fetcher.wake"]
    assert bench.state().leader == (1, 4)


def test_without_a_group_all_partitions_are_assigned(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch, group=False, attended=False)
        core = bench.core
        listener: Any = Listener(bench.calls)
        core._metadata_changed(core.network.cluster)
        assert core._assigner is None  # there is no subscription
        bench.wanted = {T1, T0}
        core.subscribe(["t"], None, listener)
        first = core._assigner
        core._assign_all()
        assert core._assigner is first  # it is at work
        await bench.settle()
        assert [call for call in bench.taken() if call[0] == "assigned"] == [("assigned", {T0, T1})]
        assert list(core.subscription._assignment) == [T0, T1]  # in order
        assert core._assigner is None
        core._metadata_changed(core.network.cluster)
        assert core._assigner is None  # nothing new
        # What changes meanwhile is assigned next.
        listener.then = lambda: bench.wanted.discard(T1)
        bench.wanted = {T1, T2}
        core._metadata_changed(core.network.cluster)
        await bench.settle()
        told = [call for call in bench.taken() if call[0] in ("assigned", "revoked")]
        assert told == [("revoked", {T0}), ("assigned", {T2}), ("revoked", {T1})]
        assert core.subscription.assigned == {T2}

    run(main)


def test_records_stop_before_the_listener_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch, group=False)
        core = bench.core
        bench.wanted = {T0}
        core.subscribe(["t"], None, None)
        await bench.settle()
        bench.state().seek(5)
        bench.wanted = {T1}
        bench.asks()
        core._metadata_changed(core.network.cluster)
        for _ in range(3):
            await asyncio.sleep(0)
        assert bench.asks()
        assert core.subscription.assigned == {T0}  # until the user polls
        core.enter_poll()
        await bench.settle()
        assert core.subscription.assigned == {T1}

    run(main)


def test_unsubscribe_ends_an_assignment_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch, group=False, attended=False)
        core = bench.core
        listener: Any = Listener(bench.calls)
        listener.then = lambda: asyncio.get_running_loop().create_future()
        bench.wanted = {T0}
        core.subscribe(["t"], None, listener)
        for _ in range(3):
            await asyncio.sleep(0)
        assigner = core._assigner
        bench.taken()
        await core.unsubscribe()
        assert bench.taken() == [("revoked", {T0}), "topics.want"]
        await bench.settle()
        assert assigner.cancelled()
        assert core._assigner is None
        assert not core.attendance.has_errors

    run(main)


# --- polls --------------------------------------------------------------------------------------------------------


def test_the_first_poll_joins_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch, enable_auto_commit=False)
        core = bench.core
        core.subscribe(["t"], None, None)
        bench.taken()
        core.enter_poll()
        assert not core.buffer.attention
        assert bench.taken() == ["poll called", "offsets.resume", "fetcher.resume"]
        await bench.settle()
        assert bench.taken() == ["join"]
        core.enter_poll()
        await bench.settle()
        assert bench.taken() == ["poll called", "offsets.resume", "fetcher.resume"]
        # A fatal error of the member is raised by each poll, which does not go on.
        bench.member.error = KafkaError("fenced")
        for _ in range(2):
            core.enter_poll()
            assert core.buffer.attention
            assert bench.taken() == ["poll called"]
            assert core.attendance.next_error() is bench.member.error

    run(main)


@pytest.mark.parametrize("group", [True, False])
def test_a_poll_with_partitions_assigned_by_hand_joins_nothing(monkeypatch: pytest.MonkeyPatch, group: bool) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch, group=group)
        core = bench.core
        begun: list[Any] = []
        core._auto_committer = SimpleNamespace(begin=begun.append)
        core.assign([T0])
        core.seek(T0, 5)
        bench.taken()
        core.buffer.attention = True
        core.enter_poll()
        assert bench.taken() == ["offsets.resume", "fetcher.resume"]
        assert not core.buffer.attention
        assert core._consumed == ({T0: OffsetAndMetadata(5, "", -1)} if group else {})
        assert begun == [core._consumed] * group

    run(main)


def test_without_a_group_a_poll_joins_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch, group=False)
        bench.core.subscribe(["t"], None, None)
        bench.taken()
        bench.core.enter_poll()
        assert bench.taken() == ["offsets.resume", "fetcher.resume"]

    run(main)


def test_a_poll_serves_what_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch)
        core = bench.core
        core.subscribe(["t"], None, None)
        core.subscription.assign_from_subscribed([T0])
        bench.state().seek(5)
        task = asyncio.ensure_future(core.prepare_revocation({T0}))
        await asyncio.sleep(0)
        assert not task.done()
        core.enter_poll()
        assert await task == {T0: OffsetAndMetadata(5, "", -1)}

    run(main)


@pytest.mark.parametrize("kind", ["assigned", "revoked", "lost"])
def test_records_go_on_after_the_listener_was_told_of_new_partitions(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch, attended=False)
        core = bench.core
        listener: Any = Listener(bench.calls)
        core.subscribe(["t"], None, listener)
        core.subscription.assign_from_subscribed([T0])
        seen: list[Any] = []
        listener.then = lambda: seen.append(bench.state().pending_assigned)
        bench.taken()
        await core.run_listener(kind, {T0})
        state = bench.state()
        if kind == "assigned":
            assert seen == [True]
            assert (state.pending_assigned, state.pending_revocation) == (False, False)
            assert bench.taken() == [("assigned", {T0}), "fetcher.wake"]
            await bench.settle()
            assert bench.taken()[0] == ("committed", [T0])
        else:
            assert (state.pending_assigned, state.pending_revocation) == (True, True)
            assert bench.taken() == [("revoked", {T0})] * (kind == "revoked")
            assert core._initializer is None

    run(main)


@pytest.mark.parametrize(("interval_ms", "delay_s"), [(300_000, 1.0), (4_000, 1.0), (2_000, 0.5)])
def test_polls_are_looked_for_in_time(monkeypatch: pytest.MonkeyPatch, interval_ms: int, delay_s: float) -> None:
    async def main() -> None:
        timers: list[Any] = []
        monkeypatch.setattr(asyncio.get_running_loop(), "call_later", lambda *given: timers.append(given))
        for group in (True, False):
            bench = Bench(monkeypatch, group=group, max_poll_interval_ms=interval_ms, session_timeout_ms=6000)
            core = bench.core
            monkeypatch.setattr(core.network, "start", bench.awaiting("network.start"))
            monkeypatch.setattr(core.telemetry, "start", bench.noting("telemetry.start"))
            monkeypatch.setattr(core.network.cluster, "add_listener", bench.noting("listener"))
            await core.start()
            assert bench.taken() == [("listener", core._metadata_changed), "network.start", "telemetry.start"]
            assert timers == [(delay_s, core._check_polls)] * group
            timers.clear()
            core.closed = True
            core._arm()
            assert timers == []

    run(main)


@pytest.mark.parametrize(
    ("calls", "waits", "started", "group", "polls"),
    [
        (7, False, True, True, True),
        (3, True, True, True, True),
        (3, False, True, True, False),
        (7, False, False, True, False),
        (7, True, True, False, False),
    ],
)
def test_reading_counts_as_polling(
    monkeypatch: pytest.MonkeyPatch, calls: int, waits: bool, started: bool, group: bool, polls: bool
) -> None:
    bench = Bench(monkeypatch, group=group)
    core = bench.core
    monkeypatch.setattr(core, "_arm", bench.noting("arm"))
    core.buffer = SimpleNamespace(calls=calls)
    core._calls_seen, core.user_waits, core._member_started = 3, waits, started
    core._check_polls()
    assert bench.taken() == [*["poll called"] * polls, "arm"]
    assert core._calls_seen == (calls if polls else 3)
    core.user_waits = False
    core._check_polls()
    assert bench.taken() == ["arm"]


@pytest.mark.parametrize("attended", [True, False])
@pytest.mark.parametrize("due", [True, False])
@pytest.mark.parametrize("failed", [True, False, None])
def test_a_commit_that_is_due_needs_a_poll(
    monkeypatch: pytest.MonkeyPatch, attended: bool, due: bool, failed: bool | None
) -> None:
    bench = Bench(monkeypatch, attended=attended, group=failed is not None)
    core = bench.core
    monkeypatch.setattr(core, "_arm", lambda: None)
    core.assign([T0])
    core.seek(T0, 5)
    bench.asks()
    bench.taken()
    core._auto_committer = SimpleNamespace(due=due, begin=bench.noting("begin"))
    bench.member.error = KafkaError("x") if failed else None
    core._check_polls()
    begun = due and not attended
    assert bench.taken() == [("begin", {T0: OffsetAndMetadata(5, "", -1)})] * begun
    assert bench.asks() is bool(due or failed)
