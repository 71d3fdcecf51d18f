"""KafkaScheduler: when tasks run, where they run, and what stops them."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kafkapy.broker.scheduler import KafkaScheduler


def on_loop(test: Callable[[KafkaScheduler], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a test on a loop of its own with a scheduler of two threads."""

    def run() -> None:
        async def body() -> None:
            scheduler = KafkaScheduler(2, asyncio.get_running_loop())
            try:
                await asyncio.wait_for(test(scheduler), 20)
            finally:
                await scheduler.shutdown()

        asyncio.run(body())

    run.__name__ = test.__name__
    run.__doc__ = test.__doc__
    return run


@on_loop
async def test_a_plain_function_runs_on_a_worker_thread(scheduler: KafkaScheduler) -> None:
    names: list[str] = []
    done = asyncio.Event()
    loop = asyncio.get_running_loop()

    def work() -> None:
        names.append(threading.current_thread().name)
        loop.call_soon_threadsafe(done.set)

    scheduler.schedule("work", work)
    await done.wait()
    assert names[0].startswith("kafka-scheduler")


@on_loop
async def test_a_coroutine_function_runs_on_the_loop(scheduler: KafkaScheduler) -> None:
    threads: list[threading.Thread] = []
    done = asyncio.Event()

    async def work() -> None:
        threads.append(threading.current_thread())
        done.set()

    scheduler.schedule("work", work)
    await done.wait()
    assert threads == [threading.current_thread()]


@on_loop
async def test_a_task_without_a_period_runs_once_and_is_forgotten(scheduler: KafkaScheduler) -> None:
    runs = 0

    async def work() -> None:
        nonlocal runs
        runs += 1

    scheduler.schedule("work", work)
    assert scheduler.pending == 1
    while scheduler.pending:
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.01)
    assert runs == 1


@on_loop
async def test_a_periodic_task_runs_again_after_it_has_failed(scheduler: KafkaScheduler) -> None:
    runs = 0
    enough = asyncio.Event()

    async def work() -> None:
        nonlocal runs
        runs += 1
        if runs == 3:
            enough.set()
        raise ValueError("on purpose")

    logging.getLogger("kafka.utils.KafkaScheduler").disabled = True
    try:
        scheduler.schedule("work", work, period_ms=1)
        await enough.wait()
    finally:
        logging.getLogger("kafka.utils.KafkaScheduler").disabled = False
    assert runs >= 3


@on_loop
async def test_a_periodic_task_never_overlaps_with_itself(scheduler: KafkaScheduler) -> None:
    running = most = runs = 0
    enough = asyncio.Event()

    async def work() -> None:
        nonlocal running, most, runs
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.005)
        running -= 1
        runs += 1
        if runs == 4:
            enough.set()

    scheduler.schedule("work", work, period_ms=0)
    await enough.wait()
    assert most == 1


@on_loop
async def test_a_cancelled_task_does_not_run_again(scheduler: KafkaScheduler) -> None:
    runs = 0

    async def work() -> None:
        nonlocal runs
        runs += 1

    task = scheduler.schedule("work", work, delay_ms=10_000)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    assert (runs, scheduler.pending) == (0, 0)


@on_loop
async def test_tasks_may_be_scheduled_from_other_threads(scheduler: KafkaScheduler) -> None:
    done = asyncio.Event()

    async def work() -> None:
        done.set()

    await asyncio.to_thread(scheduler.schedule, "work", work)
    await done.wait()


@on_loop
async def test_shutdown_waits_for_what_runs_and_refuses_what_is_new(scheduler: KafkaScheduler) -> None:
    started = threading.Event()
    release = threading.Event()
    finished: list[bool] = []

    def work() -> None:
        started.set()
        release.wait(10)
        finished.append(True)

    scheduler.schedule("work", work)
    await asyncio.to_thread(started.wait, 10)
    asyncio.get_running_loop().call_later(0.02, release.set)
    await scheduler.shutdown()
    assert finished == [True]
    with pytest.raises(RuntimeError, match="shut down"):
        scheduler.schedule("late", work)
