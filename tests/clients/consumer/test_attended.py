"""AttendedConsumer: the user's thread and the loop's, the lock between threads, and what an end leaves."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from clients.consumer.facade import T0, Background, Core, asked, filled, made

from kafkapy.clients.consumer import attended
from kafkapy.clients.consumer.consumer import KafkaConsumer
from kafkapy.errors import IllegalStateError, KafkaError, NoBrokersAvailableError, WakeupError


class Coroutine:
    """Counts how often it was closed."""

    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> Any:
    return made(monkeypatch)


def test_a_new_consumer_waits_for_nothing(consumer: Any) -> None:
    assert (consumer._woken, consumer._closed, consumer._closing) == (False, False, False)
    assert (consumer._api_timeout_ms, consumer._max_poll_records) == (4321, 3)
    assert (consumer._timeout(None), consumer._timeout(0), consumer._timeout(7.9)) == (4321, 0, 7)


def test_a_core_that_does_not_start_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []

    async def close() -> None:
        ended.append("network")

    class Broken(Core):
        async def start(self) -> None:
            self.network.close = close
            raise NoBrokersAvailableError("nobody")

    made(monkeypatch)
    monkeypatch.setattr("kafkapy.clients.consumer.consumer.ConsumerCore", Broken)
    monkeypatch.setattr(Background, "stop", lambda background: ended.append("thread"))
    with pytest.raises(NoBrokersAvailableError, match="nobody"):
        KafkaConsumer(configs={"bootstrap.servers": "localhost:1"})
    assert ended == ["network", "thread"]


def test_a_forked_child_looks_up_before_its_next_record(consumer: Any) -> None:
    filled(consumer, 1)
    assert not consumer.fetch_buffer.attention
    attended._stop_in_child()
    assert consumer.fetch_buffer.attention


def test_a_call_that_is_refused_closes_its_coroutine(consumer: Any) -> None:
    for work, spoil in ((consumer._run, "closed"), (consumer._serve, "forked")):
        coroutine = Coroutine()
        if spoil == "closed":
            consumer._closed = True
        else:
            consumer._closed = False
            consumer._background.check = lambda: (_ for _ in ()).throw(IllegalStateError("forked"))
        with pytest.raises(IllegalStateError):
            work(coroutine)
        assert coroutine.closed == 1
    assert consumer._run("result") == "result"
    assert consumer._lock.acquire(blocking=False)
    consumer._lock.release()


class Serving:
    """A coroutine at work on the loop: each wait of the user's thread takes the next step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, consumer: Any, *steps: Any) -> None:
        self.future: Future[Any] = Future()
        self.steps = list(steps)
        self.served = 0
        self.waits: list[float] = []
        self.rings = 0
        consumer._bell = SimpleNamespace(wait=self._wait, ring=self._ring)
        consumer._core.attendance.serve = self._serve
        monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", lambda coroutine, loop: self.future)

    def _serve(self) -> None:
        self.served += 1

    def _ring(self) -> None:
        self.rings += 1

    def _wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.steps.pop(0)()


def raising(error: Exception) -> Any:
    return lambda: (_ for _ in ()).throw(error)


def test_listeners_run_here_while_the_loop_works(monkeypatch: pytest.MonkeyPatch, consumer: Any) -> None:
    done: list[int] = []
    works = consumer._core.works
    serving = Serving(
        monkeypatch,
        consumer,
        lambda: works.append(lambda: done.append(1)),
        lambda: (works.append(lambda: done.append(2)), serving.future.set_result("result")),
    )
    assert consumer._serve(Coroutine()) == "result"
    assert done == [1, 2]
    assert (serving.served, serving.rings) == (2, 1)
    assert serving.waits == [attended.SERVE_S] * 2


@pytest.mark.parametrize("fails", [True, False])
def test_the_error_of_the_loop_comes_before_a_listeners(
    monkeypatch: pytest.MonkeyPatch, consumer: Any, fails: bool
) -> None:
    works = consumer._core.works
    works.append(raising(ValueError("listener")))
    end = KafkaError("loop")
    serving = Serving(
        monkeypatch,
        consumer,
        lambda: None,
        lambda: serving.future.set_exception(end) if fails else serving.future.set_result(1),
    )
    with pytest.raises(KafkaError if fails else ValueError, match="loop" if fails else "listener"):
        consumer._serve(Coroutine())


# --- waits --------------------------------------------------------------------------------------------------------


def test_a_wait_ends_at_its_time(monkeypatch: pytest.MonkeyPatch, consumer: Any) -> None:
    now = [100.0]
    waits: list[float] = []
    hungry: list[int] = []
    monkeypatch.setattr(attended, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=lambda seconds: None))

    def wait(seconds: float) -> None:
        waits.append(seconds)
        now[0] += 2

    consumer._bell = SimpleNamespace(wait=wait)
    consumer._hungry = lambda: hungry.append(1)
    assert consumer._wait(lambda: 0, 4) == 0
    assert (waits, hungry) == ([4, 2], [1])
    takes = [0, 0, 7]
    assert consumer._wait(lambda: takes.pop(0), None) == 7
    assert hungry == [1, 1]
    assert consumer._wait(lambda: 7, 4) == 7
    assert hungry == [1, 1]


def test_a_wait_that_is_interrupted_is_over(consumer: Any) -> None:
    consumer._bell = SimpleNamespace(wait=lambda seconds: (_ for _ in ()).throw(KeyboardInterrupt()))
    asked(consumer)
    with pytest.raises(KeyboardInterrupt):
        consumer.poll(5000)
    assert not consumer._core.user_waits
    assert asked(consumer) == [("begin",), ("end",)]


def test_a_wakeup_while_a_poll_begins_is_not_lost(consumer: Any) -> None:
    filled(consumer, 1)
    rings: list[int] = []
    consumer._bell = SimpleNamespace(ring=lambda: rings.append(1))
    enter_poll = consumer._core.enter_poll

    def woken() -> None:
        consumer.wakeup()
        enter_poll()  # clears what wakeup() has set

    consumer._core.enter_poll = woken
    consumer.fetch_buffer.attention = True
    assert [each.offset for each in consumer.poll()[T0]] == [0]
    assert rings == [1]
    assert consumer.fetch_buffer.attention
    with pytest.raises(WakeupError):
        consumer.poll()


def test_an_iteration_lets_other_threads_call_afterwards(consumer: Any) -> None:
    filled(consumer, 1)
    consumer.fetch_buffer.attention = True
    assert next(consumer).offset == 0
    consumer._core.errors = [KafkaError("x")]
    consumer.fetch_buffer.attention = True
    with pytest.raises(KafkaError, match="x"):
        next(consumer)
    assert not consumer._lock._is_owned()


# --- the end ------------------------------------------------------------------------------------------------------


def test_only_deserializers_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Function:
        """A callable that has a close() for something else."""

        closed = 0

        def __call__(self, data: Any) -> Any:
            return data

        def close(self) -> None:
            self.closed += 1

    function = Function()
    endless = SimpleNamespace(deserialize=lambda topic, headers, data: data)
    consumer = made(monkeypatch, **{"key.deserializer": function, "value.deserializer": endless})
    consumer._serve = lambda outcome: None
    consumer.close()
    assert function.closed == 0
    assert consumer._closed
    assert not consumer._lock._is_owned()
