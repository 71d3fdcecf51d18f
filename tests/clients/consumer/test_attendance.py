"""What the loop leaves to the user's thread: errors, callbacks, listeners, revocations; and without such a thread."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any

import pytest
from waiting import run

from kafkapy._speedups.clients.consumer.record_iterator import FetchBuffer
from kafkapy.clients.consumer.attendance import Attendance, ListenerKind
from kafkapy.clients.consumer.subscription import EARLIEST, SubscriptionState
from kafkapy.types import OffsetAndMetadata, TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Listener:
    """Keeps its calls, and raises what a test says."""

    def __init__(self, error: Exception | None = None) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.error = error

    def on_partitions_revoked(self, revoked: Any) -> None:
        self._called("revoked", revoked)

    def on_partitions_assigned(self, assigned: Any) -> None:
        self._called("assigned", assigned)

    def _called(self, kind: str, partitions: Any) -> None:
        self.calls.append((kind, partitions))
        if self.error is not None:
            raise self.error


class Bench:
    """An attendance with two partitions at the positions 5 and 6; `rings` counts the wakes of the user's thread."""

    def __init__(self, attended: bool = True, listener: Any = None) -> None:
        self.rings = 0
        self.buffer = FetchBuffer(lambda: None, lambda: None)
        self.subscription = SubscriptionState(EARLIEST, self.buffer.partition)
        self.subscription.subscribe(["t"], listener)
        self.subscription.assign_from_subscribed([T0, T1])
        for offset, partition in ((5, T0), (6, T1)):
            self.subscription.state_of(partition).seek(offset)
        self.buffer.attention = False
        self.attendance = Attendance(self.buffer, self.subscription, self._ring, attended)

    def _ring(self) -> None:
        self.rings += 1

    def asks(self) -> bool:
        """Whether the user's thread was made to poll since the last time."""
        asked = bool(self.buffer.attention)
        assert asked is (self.rings > 0)
        self.buffer.attention, self.rings = False, 0
        return asked


async def begun(work: Awaitable[Any]) -> asyncio.Task[Any]:
    """The task of what waits for the user's thread by now."""
    task = asyncio.ensure_future(work)
    await asyncio.sleep(0)
    return task


def test_each_error_is_raised_once_in_order() -> None:
    bench = Bench()
    attendance = bench.attendance
    assert not attendance.has_errors
    assert attendance.next_error() is None
    errors = [ValueError("a"), ValueError("b"), TypeError("a")]
    for error in (*errors, ValueError("a"), TypeError("a")):
        attendance.report(error)
        assert bench.asks()
    assert attendance.has_errors
    assert [attendance.next_error() for _ in range(4)] == [*errors, None]
    assert not attendance.has_errors
    attendance.report(errors[0])
    assert attendance.next_error() is errors[0]


@pytest.mark.parametrize("attended", [True, False])
def test_a_callback_runs_in_the_next_poll_or_at_once(attended: bool) -> None:
    bench = Bench(attended)
    done: list[int] = []
    bench.attendance.callback(lambda: done.append(1))
    bench.attendance.callback(lambda: done.append(2))
    assert bench.asks() is attended
    assert done == ([] if attended else [1, 2])
    while (work := bench.attendance.next_work()) is not None:
        work()
    assert done == [1, 2]


@pytest.mark.parametrize("attended", [True, False])
def test_revoked_partitions_stop_while_the_user_polls(attended: bool) -> None:
    async def main() -> None:
        bench = Bench(attended)
        task = await begun(bench.attendance.revoke({T0, TopicPartition("gone", 0)}))
        assert bench.asks() is attended
        assert task.done() is not attended
        assert bench.subscription.state_of(T0).pending_revocation is not attended
        bench.attendance.serve()
        assert await task == {T0: OffsetAndMetadata(5, "", -1)}
        assert [bench.subscription.state_of(each).pending_revocation for each in (T0, T1)] == [True, False]

    run(main)


def test_a_revocation_that_was_given_up_is_not_settled() -> None:
    async def main() -> None:
        bench = Bench()
        task = await begun(bench.attendance.revoke({T0}))
        task.cancel()
        await asyncio.wait({task})
        bench.attendance.serve()
        assert not bench.subscription.state_of(T0).pending_revocation

    run(main)


@pytest.mark.parametrize("error", [None, RuntimeError("no")])
@pytest.mark.parametrize("kind", ["revoked", "assigned"])
def test_a_listener_is_called_by_the_user_and_waited_for(kind: ListenerKind, error: Exception | None) -> None:
    async def main() -> None:
        listener = Listener(error)
        bench = Bench(listener=listener)
        task = await begun(bench.attendance.tell_listener(kind, {T1, T0}))
        assert bench.asks()
        assert not task.done()
        work = bench.attendance.next_work()
        assert work is not None
        if error is None:
            await asyncio.to_thread(work)
        else:
            with pytest.raises(RuntimeError, match="no"):
                await asyncio.to_thread(work)
        await task
        assert listener.calls == [(kind, [T0, T1])]
        assert not bench.attendance.has_errors  # it is the poll's already
        assert bench.attendance.next_work() is None

    run(main)


def test_a_listener_nobody_waits_for_is_not_called() -> None:
    async def main() -> None:
        bench = Bench(listener=Listener())
        task = await begun(bench.attendance.tell_listener("revoked", {T0}))
        task.cancel()
        await asyncio.wait({task})
        assert bench.attendance.next_work() is None

    run(main)


@pytest.mark.parametrize(
    ("attended", "kind", "told"),
    [
        (True, "revoked", False),
        (True, "assigned", True),
        (False, "revoked", True),
        (False, "assigned", True),
        (True, "lost", False),  # the listener has no such method
        (False, "lost", False),
    ],
)
def test_a_rebalance_that_changes_nothing(attended: bool, kind: ListenerKind, told: bool) -> None:
    async def main() -> None:
        listener = Listener()
        bench = Bench(attended, listener)
        task = await begun(bench.attendance.tell_listener(kind, set()))
        work = bench.attendance.next_work()
        assert (work is not None) is (attended and told)
        if work is not None:
            await asyncio.to_thread(work)
        await task
        assert listener.calls == ([(kind, [] if attended else set())] if told else [])

    run(main)


@pytest.mark.parametrize("attended", [True, False])
def test_without_a_listener_there_is_nothing_to_tell(attended: bool) -> None:
    async def main() -> None:
        bench = Bench(attended)
        await bench.attendance.tell_listener("assigned", {T0})
        assert not bench.asks()

    run(main)


@pytest.mark.parametrize("attended", [True, False])
def test_coroutines_of_a_listener_run_on_the_loop(attended: bool) -> None:
    async def main() -> None:
        loops: list[Any] = []

        class Coroutines:
            async def on_partitions_assigned(self, assigned: Any) -> None:
                loops.append(asyncio.get_running_loop())

        bench = Bench(attended, Coroutines())
        task = await begun(bench.attendance.tell_listener("assigned", {T0}))
        work = bench.attendance.next_work()
        if work is not None:
            await asyncio.to_thread(work)
        await task
        assert loops == [asyncio.get_running_loop()]

    run(main)


def test_without_polls_the_error_of_a_listener_is_reported_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        error = RuntimeError("no")
        bench = Bench(False, Listener(error))
        await bench.attendance.tell_listener("assigned", {T0})
        assert bench.attendance.next_error() is error
        (said,) = caplog.records
        assert (said.levelno, said.name) == (logging.ERROR, "kafka.consumer")
        assert said.message == "on_partitions_assigned of the rebalance listener failed"
        assert said.exc_info is not None

    run(main)
