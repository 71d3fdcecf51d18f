"""KafkaConsumer: how long each way of reading waits, what interceptors see, and that no call keeps the lock."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from clients.consumer.facade import T0, T1, asked, filled, made

from kafkapy.clients.consumer.interceptors import ConsumerInterceptors
from kafkapy.errors import KafkaError
from kafkapy.types import OffsetAndMetadata


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> Any:
    return made(monkeypatch)


@pytest.mark.parametrize(
    ("read", "seconds"),
    [
        (lambda each: each.poll(), 0),
        (lambda each: each.poll(1500), 1.5),
        (lambda each: each.poll_batch(), 0),
        (lambda each: each.poll_batch(2, 1500), 1.5),
        (lambda each: each.poll_arrow(), 0),
        (lambda each: each.poll_arrow(1500), 1.5),
        (lambda each: each._next_record(), None),
    ],
)
def test_each_way_of_reading_waits_as_long_as_it_is_told(
    consumer: Any, read: Callable[[Any], Any], seconds: float | None
) -> None:
    waited: list[Any] = []
    consumer._wait_for = lambda take, seconds: waited.append(seconds)
    read(consumer)
    assert waited == [seconds]
    assert not consumer._lock._is_owned()
    consumer._wait_for = lambda take, seconds: (_ for _ in ()).throw(KafkaError("x"))
    with pytest.raises(KafkaError):
        read(consumer)
    assert not consumer._lock._is_owned()


CALLS: list[Callable[[Any], Any]] = [
    lambda each: each.subscribe(["t"]),
    lambda each: each.unsubscribe(),
    lambda each: each.assign([T0]),
    lambda each: each.assign([]),
    lambda each: each.pause(T0),
    lambda each: each.seek(T0, 5),
    lambda each: each.seek_to_end(),
    lambda each: each.commit(),
    lambda each: each.commit_async(),
    lambda each: each.highwater(T0),
    lambda each: each.close(),
]


@pytest.mark.parametrize("call", CALLS)
def test_no_call_keeps_the_lock(consumer: Any, call: Callable[[Any], Any]) -> None:
    consumer._serve = lambda outcome: None
    call(consumer)
    assert not consumer._lock._is_owned()


def test_no_partitions_are_no_assignment(consumer: Any) -> None:
    served: list[Any] = []
    consumer._serve = served.append
    consumer._core.answers["unsubscribe"] = "left"
    asked(consumer)
    consumer.assign([])
    consumer.unsubscribe()
    assert (asked(consumer), served) == ([("unsubscribe",)] * 2, ["left"] * 2)


@pytest.mark.parametrize("move", [lambda each: each.seek(T0, 0), lambda each: each.seek_to_beginning(T0)])
def test_records_of_another_position_are_dropped(consumer: Any, move: Callable[[Any], Any]) -> None:
    consumer._intercepted.append("a record")
    move(consumer)
    assert not consumer._intercepted


def test_an_iteration_intercepts_records_one_by_one(consumer: Any) -> None:
    seen: list[int] = []

    class Twice:
        def on_consume(self, records: Any) -> Any:
            (taken,) = records.values()
            seen.append(len(taken))
            return {} if taken[0].offset == 1 else {T0: taken, T1: taken}

    consumer._interceptors = ConsumerInterceptors([Twice()])
    consumer._consumer_timeout_s = 0
    filled(consumer, 3)
    consumer.fetch_buffer.attention = True
    assert next(consumer).offset == 0
    assert next(consumer).offset == 0
    assert seen == [1]
    assert consumer._next_intercepted() is None  # the interceptor drops it
    assert [next(consumer).offset, next(consumer).offset] == [2, 2]
    assert list(consumer) == []
    assert seen == [1, 1, 1]
    assert (consumer.poll(), seen) == ({}, [1, 1, 1])  # no call without records


def test_positions_stay_only_if_they_are_told_to(consumer: Any) -> None:
    asked(consumer)
    assert consumer.poll(update_offsets=False) == {}
    assert asked(consumer) == [("begin",), ("end",)]
    filled(consumer, 1)
    consumer.poll()
    assert asked(consumer) == [("begin",), ("end",)]


def test_a_committed_offset_is_a_number_or_has_its_metadata(consumer: Any) -> None:
    consumer._core.answers["committed"] = {T0: OffsetAndMetadata(0, "m", 3)}
    assert consumer.committed(T0) == 0
    assert consumer.committed(T0, metadata=True) == OffsetAndMetadata(0, "m", 3)


def test_callbacks_hear_of_failed_commits(consumer: Any) -> None:
    heard: list[Any] = []
    asked(consumer)
    error = KafkaError("x")
    for callback in (None, lambda *given: heard.append(given)):
        future = consumer.commit_async(None, callback)
        ((_, offsets, done),) = asked(consumer)
        assert offsets is None
        done({}, error)
        assert (future.is_done, future.exception) == (True, error)
    assert heard == [({}, error)]


def test_an_end_commits_unless_it_is_told_not_to(monkeypatch: pytest.MonkeyPatch) -> None:
    for given, commits in (((), True), ((True,), True), ((False,), False)):
        consumer = made(monkeypatch)
        closed: list[int] = []
        consumer._interceptors = SimpleNamespace(close=lambda closed=closed: closed.append(1))
        consumer._serve = lambda outcome: None
        asked(consumer)
        consumer.close(*given)
        assert asked(consumer) == [("close", commits, 30_000)]
        assert closed == [1]
