"""KafkaConsumer as a facade: what each call asks of the core, what is refused, and how a poll waits; no cluster."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from clients.consumer.facade import T0, T1, asked, filled, made

from kafkapy.clients.consumer import attended
from kafkapy.clients.consumer.attended import Doorbell
from kafkapy.clients.consumer.consumer import _offsets, _partition, _partitions
from kafkapy.clients.consumer.interceptors import ConsumerInterceptors
from kafkapy.clients.consumer.subscription import EARLIEST, LATEST, SubscriptionPattern
from kafkapy.errors import IllegalStateError, KafkaError, KafkaTimeoutError, NoBrokersAvailableError, WakeupError
from kafkapy.types import OffsetAndMetadata, OffsetAndTimestamp


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> Any:
    return made(monkeypatch)


def test_a_consumer_starts_with_its_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(made(monkeypatch, "a", "b")) == [("subscribe", ("a", "b"), None, None), ("start",), ("learn",)]
    consumer = made(monkeypatch)
    assert asked(consumer) == [("start",), ("learn",)]
    assert consumer in attended._open
    with pytest.raises(TypeError, match="topics must be a sequence of names"):
        made(monkeypatch, 5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("timeout_ms", "timeout_s"),
    [(-1, None), (-2, None), (2**63 - 1, None), (0, 0), (1500, 1.5), (2**63 - 2, (2**63 - 2) / 1000)],
)
def test_an_iteration_ends_after_its_timeout(
    monkeypatch: pytest.MonkeyPatch, timeout_ms: int, timeout_s: float | None
) -> None:
    assert made(monkeypatch, **{"consumer.timeout.ms": timeout_ms})._consumer_timeout_s == timeout_s


CALLS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "subscribe": (lambda each: each.subscribe(["a"]), ("subscribe", ["a"], None, None)),
    "unsubscribe": (lambda each: each._core.unsubscribe() and None, ("unsubscribe",)),
    "assign": (lambda each: each.assign([T0, T0, ("t", 1)]), ("assign", [T0, T1])),
    "seek": (lambda each: each.seek(T0, 0), ("seek", T0, 0, -1)),
    "seek with epoch": (lambda each: each.seek(("t", 0), OffsetAndMetadata(5, "", 7)), ("seek", T0, 5, 7)),
    "seek_to_beginning": (lambda each: each.seek_to_beginning(T1), ("reset", [T1], EARLIEST)),
    "seek_to_end": (lambda each: each.seek_to_end(T0), ("reset", [T0], LATEST)),
    "commit": (lambda each: each.commit(), ("commit", None, 4321)),
    "commit some": (
        lambda each: each.commit({T0: 5, ("t", 1): (6, "x", 2)}, 7),
        ("commit", {T0: OffsetAndMetadata(5), T1: OffsetAndMetadata(6, "x", 2)}, 7),
    ),
}


@pytest.mark.parametrize("call", CALLS)
def test_each_call_asks_the_core(consumer: Any, call: str) -> None:
    asked(consumer)
    work, expected = CALLS[call]
    assert work(consumer) is None
    assert asked(consumer) == [expected]
    if call == "unsubscribe":
        return
    consumer._closed = True
    with pytest.raises(IllegalStateError, match="has already been closed"):
        work(consumer)
    consumer._closed = False
    work(consumer)  # the lock was released


def test_only_one_thread_at_a_time_may_call(consumer: Any) -> None:
    asked(consumer)
    got: list[Any] = []

    def other() -> None:
        for call in (lambda: consumer.commit(), lambda: consumer.poll(0), lambda: next(consumer)):
            with pytest.raises(IllegalStateError, match="not safe for use by several threads at a time"):
                call()
        got.append(consumer.assignment())

    with consumer._lock:
        consumer.fetch_buffer.attention = True
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert got == [{T0, T1}]


def test_what_cannot_be_subscribed_to(consumer: Any) -> None:
    with pytest.raises(ValueError, match="Must provide topics or pattern"):
        consumer.subscribe()
    with pytest.raises(IllegalStateError, match="mutually exclusive"):
        consumer.subscribe(["a"], "b")
    for topics in ("a", [5]):
        with pytest.raises(TypeError, match="topics must be a sequence of names"):
            consumer.subscribe(topics)
    with pytest.raises(TypeError, match="listener must be a ConsumerRebalanceListener"):
        consumer.subscribe(["a"], listener=object())
    asked(consumer)
    listener = SimpleNamespace(on_partitions_assigned=None)
    consumer.subscribe(pattern="a.*", listener=listener)
    server = SubscriptionPattern("b.*")
    consumer.subscribe(pattern=server)
    assert asked(consumer) == [
        ("subscribe", (), re.compile("a.*"), listener),
        ("subscribe", (), server, None),
    ]


def test_what_the_core_has_can_be_looked_at(consumer: Any) -> None:
    core = consumer._core
    assert consumer.subscription() is None
    core.subscription.subscription = {"t"}
    assert consumer.subscription() == {"t"}
    assert (consumer.assignment(), consumer.paused()) == ({T0, T1}, set())
    asked(consumer)
    consumer.pause(T0, T0)
    assert (consumer.paused(), asked(consumer)) == ({T0}, [("wake_fetcher",)])
    consumer.resume(T0)
    assert (consumer.paused(), asked(consumer)) == (set(), [("wake_fetcher",)])
    assert consumer.highwater(T0) == 9
    core.answers |= {"lag": 4, "position": 7, "group_metadata": "me", "names": ["a"], "partitions_of": [0, 1]}
    assert (consumer.lag(T1), consumer.position(T0), consumer.position(T0, 5)) == (4, 7, 7)
    assert (consumer.group_metadata(), consumer.topics(), consumer.partitions_for_topic("t", 8)) == (
        "me",
        {"a"},
        {0, 1},
    )
    assert asked(consumer) == [
        ("lag", T1),
        ("position", T0, 4321),
        ("position", T0, 5),
        ("group_metadata",),
        ("names", 4321),
        ("partitions_of", "t", 8),
    ]
    assert consumer.metrics() == {"group": {"name": 1.0}}
    assert consumer.client_instance_id(1500) == ("instance", 1.5)
    assert consumer.bootstrap_connected()
    consumer._closed = True
    assert not consumer.bootstrap_connected()
    for look in (consumer.subscription, consumer.assignment, consumer.metrics, consumer.group_metadata):
        with pytest.raises(IllegalStateError, match="has already been closed"):
            look()


def test_the_cluster_may_be_waited_for(consumer: Any) -> None:
    core = consumer._core
    asked(consumer)
    consumer.bootstrap()
    assert asked(consumer) == []
    consumer.bootstrap(5, refresh=True)
    core.cluster.bootstrapping = True
    assert not consumer.bootstrap_connected()
    consumer.bootstrap()
    assert asked(consumer) == [("refresh", 5), ("bootstrap", 4321)]
    core.answers["bootstrap"] = NoBrokersAvailableError("nobody")
    with pytest.raises(KafkaTimeoutError, match="nobody"):
        consumer.bootstrap()


def test_offsets_are_listed_by_partition(consumer: Any) -> None:
    found = SimpleNamespace(offset=5, timestamp=6, leader_epoch=7)
    core = consumer._core
    core.answers["list_offsets"] = {T0: found}
    asked(consumer)
    assert consumer.beginning_offsets([T0, T0]) == consumer.end_offsets([("t", 0)], 3) == {T0: 5}
    assert consumer.offsets_for_times({T0: 0}) == {T0: OffsetAndTimestamp(5, 6, 7)}
    assert asked(consumer) == [
        ("list_offsets", {T0: -2}, 4321),
        ("list_offsets", {T0: -1}, 3),
        ("list_offsets", {T0: 0}, 4321),
    ]
    for offset, known in ((0, True), (-1, False)):
        found.offset = offset
        assert consumer.offsets_for_times({T0: 1}) == {T0: OffsetAndTimestamp(0, 6, 7) if known else None}
    with pytest.raises(ValueError, match="it cannot be negative"):
        consumer.offsets_for_times({T0: -1})
    for committed, plain, full in ((None, None, None), (OffsetAndMetadata(4), 4, OffsetAndMetadata(4))):
        core.answers["committed"] = {} if committed is None else {T0: committed}
        assert consumer.committed(T0) == plain
        assert consumer.committed(T0, True, 3) == full
    assert asked(consumer)[-2:] == [("committed", [T0], 4321), ("committed", [T0], 3)]


def test_arguments_that_are_no_positions(consumer: Any) -> None:
    for offset in (-1, True, "5", None, 1.0, OffsetAndMetadata(-1)):
        with pytest.raises(ValueError, match="offset must be an int of at least 0"):
            consumer.seek(T0, offset)
    consumer._core.subscription.assigned = set()
    for seek in (consumer.seek_to_beginning, consumer.seek_to_end):
        with pytest.raises(ValueError, match="No partitions are currently assigned"):
            seek()
    for wrong in ("t", ["t", 0], ("t",), ("t", 0, 1)):
        with pytest.raises(TypeError, match="partition must be a TopicPartition"):
            _partition(wrong)  # type: ignore[arg-type]
    assert _partitions([T1, ("t", 0), T1]) == [T1, T0]  # type: ignore[list-item]
    assert (_offsets(None), _offsets({T0: 0})) == (None, {T0: OffsetAndMetadata(0)})
    with pytest.raises(ValueError, match="The offset of .* is negative: -1"):
        _offsets({T0: -1})


def test_a_commit_without_waiting_tells_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    consumer = made(monkeypatch, **{"default.offset.commit.callback": lambda *given: told.append(("default", *given))})
    asked(consumer)
    for callback in (None, lambda *given: told.append(("own", *given))):
        future = consumer.commit_async({T0: 5}, callback)
        ((name, offsets, done),) = asked(consumer)
        assert (name, offsets, future.is_done) == ("commit_soon", {T0: OffsetAndMetadata(5)}, False)
        done(offsets, None)
        assert future.is_done
    assert told == [("default", {T0: OffsetAndMetadata(5)}, None), ("own", {T0: OffsetAndMetadata(5)}, None)]


# --- polls --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"timeout_ms": -1}, ValueError),
        ({"max_records": 0}, ValueError),
        ({"max_records": -1}, ValueError),
        ({"max_records": 1.0}, TypeError),
        ({"max_records": 1}, None),
    ],
)
def test_the_arguments_of_a_poll(consumer: Any, arguments: dict[str, Any], error: type[Exception] | None) -> None:
    for poll in (consumer.poll, consumer.poll_batch):
        if error is None:
            assert not poll(**arguments)
        else:
            with pytest.raises(error):
                poll(**arguments)


def test_a_poll_takes_what_is_there(consumer: Any) -> None:
    filled(consumer, 9)
    asked(consumer)
    assert [record.offset for record in consumer.poll()[T0]] == [0, 1, 2]
    assert asked(consumer) == [("begin",), ("end",)]
    assert [record.offset for record in consumer.poll(max_records=2, update_offsets=False)[T0]] == [3, 4]
    assert asked(consumer) == [("begin",), ("end",), ("seek", T0, 3)]
    assert [record.offset for record in consumer.poll_batch(3)] == [5, 6, 7]
    consumer._consumer_timeout_s = 0
    assert [record.offset for record in consumer] == [8]
    assert (consumer.poll(), consumer.poll_batch()) == ({}, [])
    consumer._closed = True
    assert list(consumer) == []


def test_a_poll_waits_up_to_its_timeout(consumer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    waits: list[tuple[float, bool]] = []
    slept: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=slept.append)
    monkeypatch.setattr(attended, "time", clock)

    def wait(seconds: float) -> None:
        waits.append((seconds, consumer._core.user_waits))
        now[0] += 2

    consumer._bell.wait = wait
    assert consumer.poll(0) == {}
    assert (slept, waits) == ([0], [])
    assert consumer.poll(5000) == {}
    assert (waits, slept, consumer._core.user_waits) == ([(5.0, True), (3.0, True), (1.0, True)], [0], False)
    waits.clear()
    consumer._bell.wait = lambda seconds: waits.append((seconds, True)) or filled(consumer, 1)
    assert next(consumer).offset == 0
    assert waits == [(math.inf, True)]


def test_attention_does_the_loops_work_first(consumer: Any, caplog: pytest.LogCaptureFixture) -> None:
    core = consumer._core
    filled(consumer, 1)
    done: list[int] = []
    core.works = [lambda: done.append(1), lambda: done.append(2)]
    core.errors = [KafkaError("x"), KafkaError("y")]
    consumer.fetch_buffer.attention = True
    asked(consumer)
    with pytest.raises(KafkaError, match="x"):
        consumer.poll()
    assert (done, asked(consumer)) == ([1, 2], [("begin",), ("enter_poll",), ("end",)])

    def fails() -> None:
        raise ValueError("first")

    def fails_too() -> None:
        raise KeyError("second")

    core.works = [fails, fails_too, lambda: done.append(3)]
    consumer.fetch_buffer.attention = True
    with pytest.raises(ValueError, match="first"):
        consumer.poll()
    # The poll raises one of them; the others are logged.
    assert [each.exc_info[0] for each in caplog.records if each.exc_info] == [KeyError]
    assert done[-1] == 3
    assert len(core.errors) == 1  # the next poll raises it
    core.answers["enter"] = None
    core.enter_poll = lambda: (_ for _ in ()).throw(KeyboardInterrupt())
    consumer.fetch_buffer.attention = True
    with pytest.raises(KeyboardInterrupt):
        consumer.poll()
    assert consumer.fetch_buffer.attention
    del core.enter_poll
    with pytest.raises(KafkaError, match="y"):
        consumer.poll()
    assert [record.offset for record in consumer.poll()[T0]] == [0]


def test_a_wakeup_ends_one_wait(consumer: Any) -> None:
    filled(consumer, 1)
    consumer.wakeup()
    with pytest.raises(WakeupError):
        consumer.poll()
    assert [record.offset for record in consumer.poll()[T0]] == [0]
    # One that comes while the loop's work is done is for the next poll.
    consumer._core.works = [consumer.wakeup]
    consumer.fetch_buffer.attention = True
    assert consumer.poll() == {}
    with pytest.raises(WakeupError):
        consumer.poll()
    assert consumer.poll() == {}


def test_interceptors_see_all_records(consumer: Any) -> None:
    class Halves:
        def on_consume(self, records: Any) -> Any:
            return {place: [each for each in taken if each.offset % 2] for place, taken in records.items()}

        def close(self) -> None:
            closed.append(1)

    closed: list[int] = []
    consumer._interceptors = ConsumerInterceptors([Halves()])
    filled(consumer, 9)
    assert [record.offset for record in consumer.poll(max_records=3)[T0]] == [1]
    assert [record.offset for record in consumer.poll_batch(4)] == [3, 5]
    consumer._consumer_timeout_s = 0
    consumer.fetch_buffer.attention = True
    assert next(consumer).offset == 7
    assert consumer.fetch_buffer.attention  # the next one goes the slow way too
    consumer._interceptors.close()
    assert closed == [1]


def test_a_doorbell_rings_for_the_next_wait() -> None:
    bell = Doorbell()
    bell.wait(0)
    bell.ring()
    bell.ring()
    bell.wait(60)
    assert not bell._lock.acquire(blocking=False)
    seen: list[float] = []
    bell._lock = SimpleNamespace(acquire=lambda timeout: seen.append(timeout))  # type: ignore[assignment]
    for seconds in (0.0, attended.SLICE_S, attended.SLICE_S + 1):
        bell.wait(seconds)
    assert seen == [0.0, attended.SLICE_S, attended.SLICE_S]


# --- the end ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("timeout_ms", "limit"), [(None, 30_000), (0, 0), (70.5, 70)])
def test_a_consumer_is_closed_once(consumer: Any, timeout_ms: float | None, limit: int) -> None:
    background = consumer._background
    served: list[Any] = []
    consumer._serve = served.append
    consumer._core.answers["close"] = "closing"
    asked(consumer)
    consumer.close(False, timeout_ms)
    consumer.close()
    assert (asked(consumer), served) == ([("close", False, limit)], ["closing"])
    assert (background.stops, consumer._closed) == (1, True)
    with pytest.raises(IllegalStateError, match="has already been closed"):
        consumer.poll()


def test_the_request_timeout_bounds_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    for request_ms, limit in ((29_999, 29_999), (30_000, 30_000), (40_000, 30_000)):
        consumer = made(monkeypatch, **{"request.timeout.ms": request_ms})
        consumer._serve = lambda outcome: None
        asked(consumer)
        consumer.close()
        assert asked(consumer) == [("close", True, limit)]


def test_a_close_within_a_close_does_nothing(consumer: Any) -> None:
    calls: list[bool] = []

    def serve(outcome: Any) -> None:
        calls.append(consumer.fetch_buffer.attention)
        consumer.close()
        raise KafkaError("x")

    consumer._serve = serve
    with pytest.raises(KafkaError, match="x"):
        consumer.close()
    assert (calls, consumer._closed, consumer._background.stops) == ([True], True, 1)


def test_a_forked_child_drops_the_consumer(consumer: Any) -> None:
    asked(consumer)
    consumer._background.foreign = True
    consumer.close()
    assert (consumer._closed, asked(consumer), consumer._background.stops) == (True, [], 0)


def test_deserializers_with_an_end_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Deserializer:
        def __init__(self) -> None:
            self.closed = 0

        def deserialize(self, topic: str, headers: Any, data: Any) -> Any:
            return data

        def close(self) -> None:
            self.closed += 1

    key = Deserializer()
    consumer = made(monkeypatch, **{"key.deserializer": key, "value.deserializer": lambda data: data})
    consumer._serve = lambda outcome: None
    with consumer as entered:
        assert entered is consumer
    assert key.closed == 1
