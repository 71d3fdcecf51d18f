"""ConsumerCore: positions, commits and the end, step by step, and what each asks of the parts."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from clients.consumer.core_bench import T0, T1, T2, Bench, Listener
from waiting import run

from kafkapy.clients.consumer.subscription import (
    EARLIEST,
    NO_RESET,
    FetchState,
    SubscriptionType,
)
from kafkapy.clients.telemetry import CLOSE_S
from kafkapy.errors import IllegalStateError, KafkaError, KafkaTimeoutError, NoOffsetForPartitionError
from kafkapy.types import OffsetAndMetadata

# --- positions ----------------------------------------------------------------------------------------------------


def test_positions_come_from_commits_and_else_from_the_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch, auto_offset_reset="earliest")
        core = bench.core
        core.assign([T0, T1, T2])
        bench.taken()
        bench.found = {T0: OffsetAndMetadata(7, "", 3), T2: OffsetAndMetadata(9)}
        core.initialize_positions()
        core.initialize_positions()  # it is at work
        await asyncio.sleep(0)
        core.seek(T2, 1)  # meanwhile
        bench.taken()
        core._changed.clear()
        await bench.settle()
        assert bench.taken() == ["offsets.wake", "fetcher.wake"]
        assert core._changed.is_set()
        states = [bench.state(each) for each in (T0, T1, T2)]
        found = [(each.state, each.buffer.position, each.buffer.position_epoch, each.leader) for each in states]
        assert found == [
            (FetchState.AWAIT_VALIDATION, 7, 3, (1, 4)),
            (FetchState.AWAIT_RESET, -1, -1, (-1, -1)),
            (FetchState.FETCHING, 1, -1, (1, 4)),
        ]
        assert states[1].reset is EARLIEST
        assert core._initializer is None
        core.initialize_positions()
        assert core._initializer is None  # there are none without a position

    run(main)


@pytest.mark.parametrize("group", [True, False])
def test_partitions_that_come_meanwhile_are_next(monkeypatch: pytest.MonkeyPatch, group: bool) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch, group=group, auto_offset_reset="earliest")
        core = bench.core
        core.assign([T0])
        core.initialize_positions()
        if group:
            await asyncio.sleep(0)
        core.assign([T1])
        await bench.settle()
        assert bench.state(T1).state is FetchState.AWAIT_RESET
        asked = [call for call in bench.taken() if call[0] == "committed"]
        assert asked == [("committed", [T0]), ("committed", [T1])] * group

    run(main)


def test_a_partition_waits_for_the_listener_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch, auto_offset_reset="earliest")
        core = bench.core
        core.subscribe(["t"], None, None)
        core.subscription.assign_from_subscribed([T0, T1])
        core.initialize_positions()
        assert core._initializer is None
        core.initialize_positions(asked=T1)
        await bench.settle()
        assert [bench.state(each).state for each in (T0, T1)] == [FetchState.INITIALIZING, FetchState.AWAIT_RESET]
        core.closed = True
        core.initialize_positions(asked=T0)
        assert core._initializer is None

    run(main)


@pytest.mark.parametrize("fails", [True, False])
def test_positions_that_cannot_be_found_are_an_error(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch, auto_offset_reset="none")
        core = bench.core
        assert core.subscription.default_reset is NO_RESET
        core.assign([T0])
        bench.commit_error = KafkaError("no") if fails else None
        bench.taken()
        core.initialize_positions()
        await bench.settle()
        error = core.attendance.next_error()
        assert type(error) is (KafkaError if fails else NoOffsetForPartitionError)
        assert core._initializer is None
        assert bench.taken() == [("committed", [T0])]

    run(main)


def test_a_position_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch, auto_offset_reset="earliest")
        core = bench.core
        core.subscribe(["t"], None, None)
        core.subscription.assign_from_subscribed([T0])
        bench.taken()
        core._changed.set()
        task = asyncio.ensure_future(core.position(T0, 60_000))
        for _ in range(3):
            await asyncio.sleep(0)
        await bench.settle()
        assert bench.taken() == ["offsets.resume", ("committed", [T0]), "offsets.wake", "fetcher.wake"]
        assert not task.done()
        bench.state().seek(5)
        core._positions_changed()
        assert await task == 5

    run(main)


def test_offsets_are_listed_while_their_topics_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch)
        core = bench.core

        async def list_offsets(timestamps: Any, timeout_ms: int) -> Any:
            return dict(core.topics._transient), timestamps, timeout_ms

        monkeypatch.setattr(core.offsets, "list_offsets", list_offsets)
        assert await core.list_offsets({T0: -1, T1: -2}, 5) == ({"t": 1}, {T0: -1, T1: -2}, 5)
        assert bench.taken() == ["topics.want", "topics.want"]
        assert not core.topics._transient

    run(main)


# --- commits ------------------------------------------------------------------------------------------------------

FIVE, SIX = {T0: OffsetAndMetadata(5, "", -1)}, {T0: OffsetAndMetadata(6)}


@pytest.mark.parametrize("error", [None, KafkaError("no")])
@pytest.mark.parametrize(("offsets", "chosen"), [(None, FIVE), (SIX, SIX), ({}, {})])
def test_commits_are_told_to_interceptors(
    monkeypatch: pytest.MonkeyPatch, offsets: Any, chosen: Any, error: KafkaError | None
) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch, default_api_timeout_ms=77_000)
        core = bench.core
        core.interceptors = SimpleNamespace(on_commit=bench.noting("on_commit"))
        core.assign([T0])
        core.seek(T0, 5)
        bench.taken()
        bench.commit_error = error
        tells = [("on_commit", chosen)] * (error is None)
        if error is not None and chosen:
            with pytest.raises(KafkaError, match="no"):
                await core.commit(offsets, 9)
        else:
            await core.commit(offsets, 9)
        assert bench.taken() == ([("commit", chosen, 9), *tells] if chosen else [])
        done: list[Any] = []
        core.commit_soon(offsets, lambda *given: done.append(given))
        assert len(core._commits) == 1
        core.seek(T0, 8)  # too late
        bench.taken()
        bench.asks()
        await bench.settle()
        assert bench.taken() == ([("commit", chosen, 77_000), *tells] if chosen else [])
        assert (done, core._commits, bench.asks()) == ([], set(), True)
        core.attendance.next_work()()
        assert done == [(chosen, error if chosen else None)]

    run(main)


@pytest.mark.parametrize("error", [None, KafkaError("no")])
def test_the_default_callback_hears_of_automatic_commits(
    monkeypatch: pytest.MonkeyPatch, error: KafkaError | None
) -> None:
    heard: list[Any] = []
    for callback in (None, lambda *given: heard.append(given)):
        bench = Bench(monkeypatch, default_offset_commit_callback=callback)
        bench.core._auto_committer._callback(FIVE, error)
        work = bench.core.attendance.next_work()
        assert (work is None) is (callback is None)
        if work is not None:
            work()
    assert heard == [(FIVE, error)]


def test_automatic_commits_are_made_in_the_time_of_an_api_call(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch, default_api_timeout_ms=77_000, auto_commit_interval_ms=3000, retry_backoff_ms=70)
        await bench.core._auto_committer._commit(FIVE)
        assert bench.taken() == [("commit", FIVE, 77_000)]
        automatic = bench.core._auto_committer
        assert (automatic._interval_s, automatic._retry_backoff_s) == (3.0, 0.07)

    run(main)


def test_committed_offsets_are_waited_for_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch)
        bench.found = FIVE
        assert await bench.core.committed([T0], 60_000) is FIVE
        with pytest.raises(KafkaTimeoutError, match="not available within 0 ms"):
            await bench.core.committed([T0], 0)
        with pytest.raises(IllegalStateError):
            await Bench(monkeypatch, group=False).core.committed([T0], 0)

    run(main)


# --- the end ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("autocommit", [True, False])
@pytest.mark.parametrize("subscribed", [True, False])
@pytest.mark.parametrize("leaves", [True, False])
@pytest.mark.parametrize(("timeout_ms", "telemetry_s"), [(40_000, 40), (250, 0.25), (3_600_000, CLOSE_S)])
def test_the_end_has_an_order(
    monkeypatch: pytest.MonkeyPatch,
    autocommit: bool,
    subscribed: bool,
    leaves: bool,
    timeout_ms: int,
    telemetry_s: float,
) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch, attended=False, internal_leave_group_on_close=leaves)
        core = bench.core
        if subscribed:
            core.subscribe(["t"], None, Listener(bench.calls))
            core.subscription.assign_from_subscribed([T0])
            core._member_started = True
        else:
            core.assign([T0])
        core.seek(T0, 5)
        core._arm()
        forever = core._spawn(asyncio.Event().wait())
        monkeypatch.setattr(asyncio, "timeout_at", lambda deadline: asyncio.timeout(None))
        core.commit_soon(SIX, lambda *given: bench.calls.append("committed"))
        bench.taken()
        await core.close(autocommit, timeout_ms)
        left = [("leave", "the consumer is being closed"), "topics.want"] if leaves else [("revoked", {T0})]
        assert bench.taken() == [
            ("commit", SIX, core.config["default.api.timeout.ms"]),
            "committed",
            *[("commit", FIVE, core.config["default.api.timeout.ms"])] * autocommit,
            *(left if subscribed else []),
            "fetcher.close",
            ("telemetry.close", min(telemetry_s, CLOSE_S)),
            "offsets.close",
            "stop member",
            "network.close",
        ]
        assert core.closed
        assert core._timer.cancelled()
        assert core.subscription.type is SubscriptionType.NONE
        assert not core.auto_commit
        await asyncio.sleep(0)
        assert forever.cancelled()
        await core.close(autocommit, timeout_ms)
        assert bench.taken() == []

    run(main)


@pytest.mark.parametrize("autocommit", [True, False])
def test_an_end_in_time_is_whole_and_one_without_time_is_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, autocommit: bool
) -> None:
    async def main() -> None:
        for timeout_ms, closed in ((3_600_000, ["fetcher.close"]), (0, [])):
            bench = Bench(monkeypatch, group=False)
            await bench.core.close(autocommit, timeout_ms)
            assert bench.taken() == [
                *closed,
                ("telemetry.close", min(CLOSE_S, timeout_ms / 1000)),
                "offsets.close",
                "network.close",
            ]
            assert bench.core.closed
            assert [each.levelname for each in caplog.records] == ["WARNING"] * (not closed)

    run(main)


def test_a_task_that_fails_is_an_error_of_the_next_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        core = Bench(monkeypatch).core

        async def fails() -> None:
            raise error

        error = ValueError("x")
        task = core._spawn(fails())
        assert core._tasks == {task}
        await asyncio.wait({task})
        await asyncio.sleep(0)
        assert core.attendance.next_error() is error
        for coroutine in (asyncio.sleep(0), asyncio.Event().wait()):
            task = core._spawn(coroutine)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait({task})
        await asyncio.sleep(0)
        assert not core.attendance.has_errors
        assert core._tasks == set()

    run(main)
