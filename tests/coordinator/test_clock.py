"""The control loop's clock: blocking work, its callbacks, and deadlines."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

from waiting import until

from kafkapy.coordinator.clock import LoopClock

Test = Callable[[LoopClock], Awaitable[None]]


def run(test: Test) -> None:
    async def begun() -> None:
        clock = LoopClock()
        try:
            await test(clock)
        finally:
            clock.close()

    asyncio.run(begun())


def test_blocking_work_runs_on_another_thread_and_calls_back_on_the_loops() -> None:
    async def test(clock: LoopClock) -> None:
        done: list[Any] = []
        failed: list[Exception] = []
        clock.run_blocking(
            threading.get_ident, lambda worker: done.append((worker, threading.get_ident())), failed.append
        )
        await until(lambda: done or failed, "the work is done")
        ((worker, caller),) = done
        assert worker != caller == threading.get_ident()
        assert not failed

    run(test)


def test_the_error_of_blocking_work_is_called_back() -> None:
    async def test(clock: LoopClock) -> None:
        done: list[Any] = []
        failed: list[Exception] = []
        clock.run_blocking(lambda: 1 // 0, done.append, failed.append)
        await until(lambda: done or failed, "the work has failed")
        assert not done
        assert isinstance(failed[0], ZeroDivisionError)

    run(test)


def test_a_closed_clock_starts_no_blocking_work() -> None:
    async def test(clock: LoopClock) -> None:
        called: list[Any] = []
        clock.close()
        clock.run_blocking(lambda: called.append("work"), called.append, called.append)
        for _ in range(5):
            await asyncio.sleep(0)
        assert not called

    run(test)


def test_no_call_comes_before_its_deadline_and_a_cancelled_one_never() -> None:
    async def test(clock: LoopClock) -> None:
        called: dict[int, int] = {}
        now = clock.monotonic_ms()
        clock.call_at(now + 1, lambda: called.update({-1: 0})).cancel()
        for deadline in range(now, now + 20):
            clock.call_at(deadline, lambda deadline=deadline: called.update({deadline: clock.monotonic_ms()}))
        await until(lambda: len(called) == 20, "all calls have come")
        assert all(deadline <= at for deadline, at in called.items())
        assert sorted(called) == list(range(now, now + 20))
        before, told, after = time.time_ns(), clock.time_ms(), time.time_ns()
        assert before // 1_000_000 <= told <= after // 1_000_000

    run(test)
