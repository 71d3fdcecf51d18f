"""KafkaProducer as a facade: what each call asks of the core, and what is refused, without a cluster."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy._speedups.clients.producer.record_accumulator import RecordAccumulator
from kafkapy.clients.producer import producer as module
from kafkapy.clients.producer.producer import KafkaProducer
from kafkapy.errors import BufferExhaustedError, IllegalStateError
from kafkapy.types import OffsetAndMetadata, TopicPartition

PLACE = TopicPartition("t", 0)


class Background:
    """Stands for the loop's thread: what it is given is the result."""

    def __init__(self) -> None:
        self.foreign = False
        self.stops = 0
        self.timeouts: list[Any] = []

    def run(self, outcome: Any, timeout_s: float | None = None) -> Any:
        self.timeouts.append(timeout_s)
        return outcome

    def call(self, function: Callable[..., Any], *given: Any) -> Any:
        return function(*given)

    def stop(self) -> None:
        self.stops += 1


class Core:
    """Keeps what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.network = SimpleNamespace(cluster=SimpleNamespace(bootstrapping=False))
        self.telemetry = SimpleNamespace(client_instance_id=lambda timeout: ("instance", timeout))

    def __getattr__(self, name: str) -> Any:
        def ask(*given: Any) -> Any:
            self.asked.append((name, *given))
            return name, *given

        return ask

    def all_metrics(self) -> dict[str, dict[str, float]]:
        return {"group": {"name": 1.0}}

    def refusal(self) -> BaseException:
        return IllegalStateError("the reason")


class Serializer:
    """Counts its ends."""

    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def made(memory: int = 1 << 20) -> Any:
    producer: Any = KafkaProducer.__new__(KafkaProducer)
    producer.accumulator = RecordAccumulator(memory, 1000, 5, 1 << 20, [1])
    producer._core, producer._background = Core(), Background()
    producer._serializers = [Serializer(), None]
    producer._closed, producer._pid, producer._max_block_s = False, os.getpid(), 4.0
    return producer


CALLS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "partitions": (lambda producer: producer.partitions_for("t"), ("partitions", "t")),
    "client_instance_id": (lambda producer: producer.client_instance_id(3), ("instance", 3)),
    "init": (lambda producer: producer.init_transactions(), ("init_transactions", False)),
    "init and keep": (lambda producer: producer.init_transactions(True), ("init_transactions", True)),
    "begin": (lambda producer: producer.begin_transaction(), ("begin_transaction",)),
    "prepare": (lambda producer: producer.prepare_transaction(), ("prepare_transaction",)),
    "complete": (lambda producer: producer.complete_transaction("state"), ("complete_transaction", "state")),
    "commit": (lambda producer: producer.commit_transaction(), ("commit_transaction",)),
    "abort": (lambda producer: producer.abort_transaction(), ("abort_transaction",)),
    "offsets": (
        lambda producer: producer.send_offsets_to_transaction({PLACE: 5}, "g"),
        ("send_offsets_to_transaction", {PLACE: OffsetAndMetadata(5)}, module._Group("g")),
    ),
}


@pytest.mark.parametrize("call", CALLS)
def test_each_call_asks_the_core_unless_the_producer_is_closed(call: str) -> None:
    work, asked = CALLS[call]
    producer = made()
    result = work(producer)
    assert producer._core.asked == ([] if call == "client_instance_id" else [asked])
    assert result == (asked if call in ("partitions", "client_instance_id", "prepare") else None)
    producer._closed = True
    producer._core.asked.clear()
    with pytest.raises(IllegalStateError, match="the producer is closed"):
        work(producer)
    assert producer._core.asked == []


def test_offsets_are_of_a_group_or_of_a_member() -> None:
    producer = made()
    given = OffsetAndMetadata(7, "text", 2)
    member: Any = object()
    producer.send_offsets_to_transaction({PLACE: given}, member)
    assert producer._core.asked == [("send_offsets_to_transaction", {PLACE: given}, member)]
    group = module._Group("g")
    assert (group.group_id, group.generation_id, group.member_id, group.group_instance_id) == ("g", -1, "", None)


def test_what_a_closed_producer_answers() -> None:
    producer = made()
    assert producer.bootstrap_connected()
    producer._core.network.cluster.bootstrapping = True
    assert not producer.bootstrap_connected()
    producer._core.network.cluster.bootstrapping = False
    producer.flush(3)
    assert producer._core.asked == [("flush", 3)]
    producer._closed = True
    assert not producer.bootstrap_connected()
    producer.flush(3)
    assert len(producer._core.asked) == 1
    assert producer.metrics() == {"group": {"name": 1.0}}
    assert producer.metrics(raw=True) == {("group", "name"): 1.0}
    assert KafkaProducer.max_usable_produce_magic((0, 11)) == 2


def test_a_record_is_refused_with_the_reason() -> None:
    producer = made()
    with pytest.raises(IllegalStateError, match="the reason"):
        producer.refuse()
    producer._pid += 1
    with pytest.raises(IllegalStateError, match="belongs to the parent process"):
        producer.refuse()


# --- waits --------------------------------------------------------------------------------------------------------


def test_one_deadline_is_for_all_waits_of_a_send(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = made()
    clock = SimpleNamespace(monotonic=lambda: 100.0)
    monkeypatch.setattr(module, "time", clock)
    assert producer.await_topic("t", None, None) == 104.0
    clock.monotonic = lambda: 103.0
    assert producer.await_topic("t", 2, 104.0) == 104.0
    clock.monotonic = lambda: 105.0
    producer.await_topic("t", 2, 104.0)
    assert producer._core.asked == [
        ("await_partition", "t", None, 4.0),
        ("await_partition", "t", 2, 1.0),
        ("await_partition", "t", 2, 0.0),
    ]
    producer.join_transaction("queue")
    assert producer._core.asked[-1] == ("join_transaction", "queue")


def test_room_is_waited_for_until_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    class Event:
        def set(self) -> None: ...

        def wait(self, timeout_s: float) -> None:
            waits.append(timeout_s)

    monkeypatch.setattr(module, "threading", SimpleNamespace(Event=Event, get_ident=threading.get_ident))
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: 100.0))
    producer = made(1000)
    accumulator = producer.accumulator
    # There is room again: the thread does not spin all the same.
    assert producer.await_room(1000, None) == 104.0
    assert producer.await_room(1001, None) == 104.0
    assert producer.await_room(1000, 100.001) == 100.001
    assert producer.await_room(1001, 100.001) == 100.001
    left_s = 100.001 - 100.0
    came_s, check_s = module.ROOM_CAME_S, module.ROOM_CHECK_S
    assert waits == [came_s, check_s, min(left_s, came_s), min(left_s, check_s)]
    with pytest.raises(BufferExhaustedError, match="within 4 s"):
        producer.await_room(1, 100.0)
    accumulator.open = False
    assert producer.await_room(1, 100.0) == 100.0
    assert len(waits) == 4
    assert accumulator.pool.waiting == 0


# --- the end ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout", [None, 0, 5])
def test_a_producer_is_closed_once(timeout: float | None) -> None:
    producer = made()
    module._open.add(producer)
    with pytest.raises(ValueError, match="timeout -1 is negative"):
        producer.close(-1)
    producer.close(timeout)
    producer.close(timeout)
    assert producer._core.asked == [("close", timeout)]
    assert producer._background.timeouts == [None if timeout is None else timeout + module.MARGIN_S]
    assert (producer._background.stops, producer._serializers[0].closed) == (1, 1)
    assert producer not in module._open


def test_a_forked_child_sends_nothing() -> None:
    producer = made()
    producer._background.foreign = True
    producer.accumulator.wake = print
    module._open.add(producer)
    try:
        module._forked()
    finally:
        module._open.discard(producer)
    assert (producer.accumulator.open, producer.accumulator.wake) == (False, None)
    producer.close()
    assert (producer._core.asked, producer._background.stops, producer._serializers[0].closed) == ([], 1, 0)


def test_a_callback_may_close_the_producer() -> None:
    producer = made()
    tasks: list[Any] = []
    producer._background.loop = SimpleNamespace(create_task=tasks.append)
    producer.accumulator.pool.loop_thread = threading.get_ident()
    producer.close()
    (task,) = tasks
    task.close()
    assert producer._core.asked == [("stop_taking",)]
    assert (producer._background.stops, producer._serializers[0].closed) == (0, 1)


def test_what_is_closed_at_exit_is_what_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = made()
    monkeypatch.setattr(module, "_open", {producer})
    module._close_all()
    assert producer._core.asked == [("close", module.CLOSE_AT_EXIT_S)]


def test_a_context_manager_closes() -> None:
    producer = made()
    with producer as entered:
        assert entered is producer
        assert not producer._closed
    assert producer._closed
    assert producer._core.asked == [("close", None)]
