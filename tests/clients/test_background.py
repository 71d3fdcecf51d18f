"""BackgroundLoop: coroutines from other threads, time-outs, interrupts, the end, and forked children."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from kafkapy.clients.background import BackgroundLoop
from kafkapy.errors import IllegalStateError, KafkaTimeoutError


@pytest.fixture
def background() -> Iterator[BackgroundLoop]:
    made = BackgroundLoop("test-loop")
    yield made
    made.stop()


async def value(result: object) -> object:
    await asyncio.sleep(0)
    return result


def test_a_coroutine_runs_on_the_thread(background: BackgroundLoop) -> None:
    async def name() -> str:
        return threading.current_thread().name

    assert background.run(name()) == "test-loop"
    assert background.call(threading.get_ident) != threading.get_ident()


def test_from_many_threads_at_once(background: BackgroundLoop) -> None:
    results: list[object] = []
    threads = [
        threading.Thread(target=lambda n=n: results.extend(background.run(value(n)) for _ in range(50)))
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == sorted(list(range(8)) * 50)  # type: ignore[type-var]


def test_errors_come_out_as_they_are(background: BackgroundLoop) -> None:
    async def fail(error: Exception) -> None:
        raise error

    for error in (ValueError("no"), TimeoutError("its own"), KafkaTimeoutError("kafka's")):
        with pytest.raises(type(error), match=str(error)):
            background.run(fail(error), timeout_s=10)


def test_a_time_out_cancels_the_coroutine(background: BackgroundLoop) -> None:
    cancelled = threading.Event()

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    with pytest.raises(KafkaTimeoutError, match="0.05 s"):
        background.run(endless(), timeout_s=0.05)
    assert cancelled.wait(10)


def test_an_interrupt_cancels_the_coroutine(background: BackgroundLoop) -> None:
    started, cancelled = threading.Event(), threading.Event()

    async def endless() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    def interrupt() -> None:
        started.wait(10)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        background.run(endless())
    assert cancelled.wait(10)


def test_it_does_not_wait_for_itself(background: BackgroundLoop) -> None:
    async def nested() -> object:
        return background.run(value(1))

    with pytest.raises(IllegalStateError, match="would deadlock"):
        background.run(nested())


def test_posting_needs_no_answer(background: BackgroundLoop) -> None:
    called = threading.Event()
    background.post(called.set)
    assert called.wait(10)


def test_stopping_cancels_what_runs_and_refuses_what_comes() -> None:
    background = BackgroundLoop()
    started, ended = threading.Event(), threading.Event()
    outcome: list[BaseException] = []

    async def endless() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    def wait() -> None:
        try:
            background.run(endless())
        except BaseException as error:
            outcome.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    assert started.wait(10)
    background.stop()
    background.stop()
    waiter.join(10)
    assert ended.is_set()
    assert [type(error) for error in outcome] == [IllegalStateError]
    background.post(ended.clear)
    assert ended.is_set()
    with pytest.raises(IllegalStateError, match="closed"):
        background.run(value(1))


def test_it_can_be_stopped_from_its_own_thread() -> None:
    background = BackgroundLoop("own-end")
    background.post(background.stop)
    [thread] = [thread for thread in threading.enumerate() if thread.name == "own-end"] or [None]
    if thread is not None:
        thread.join(10)
        assert not thread.is_alive()


def test_a_thread_with_a_loop_does_not_wait_for_another_ones_end() -> None:
    """A garbage collection on the one may stop the other, and at the same time the other way round."""
    first, second = BackgroundLoop("first-end"), BackgroundLoop("second-end")
    held = threading.Event()
    first.post(held.wait, 10)
    stopped = threading.Event()
    second.post(lambda: (first.stop(), stopped.set()))
    assert stopped.wait(10), "the second loop waits for the first"
    held.set()
    first.join()
    second.stop()
    assert not [each for each in threading.enumerate() if each.name in ("first-end", "second-end")]


def test_nothing_is_left() -> None:
    gc.collect()
    before = len(os.listdir("/proc/self/fd")), threading.active_count()  # noqa: PTH208
    for _ in range(5):
        background = BackgroundLoop()
        background.run(value(1))
        background.stop()
        del background
    gc.collect()
    assert (len(os.listdir("/proc/self/fd")), threading.active_count()) == before  # noqa: PTH208


def test_a_forked_child_is_told_so() -> None:
    """In a process of its own: pytest's process has other threads."""
    code = """
import os
from kafkapy.clients.background import BackgroundLoop
from kafkapy.errors import IllegalStateError
background = BackgroundLoop()
async def one(): return 1
assert background.run(one()) == 1
child = os.fork()
if child == 0:
    try:
        background.run(one())
    except IllegalStateError as error:
        assert "after a fork" in str(error)
        background.post(print, "never")
        background.stop()
        background.stop()
        mine = BackgroundLoop()
        assert mine.run(one()) == 1
        mine.stop()
        raise SystemExit(7)
else:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert background.run(one()) == 1
    background.stop()
"""
    done = subprocess.run([sys.executable, "-c", code], timeout=60, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    "busy", ["", "background.run(asyncio.sleep(0.01))", "background.post(asyncio.ensure_future, spin())"]
)
def test_a_program_may_end_without_stopping_it(busy: str) -> None:
    code = f"""
import asyncio
from kafkapy.clients.background import BackgroundLoop
background = BackgroundLoop()
async def spin():
    while True:
        await asyncio.sleep(0)
{busy}
"""
    done = subprocess.run([sys.executable, "-c", code], timeout=60, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
