"""A KafkaConsumer over a core that keeps what it is asked for; no thread and no cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from clients.consumer.fetched import batch, chunk

from kafkapy._speedups.clients.consumer.record_iterator import FetchBuffer
from kafkapy.clients.consumer import attended
from kafkapy.clients.consumer.consumer import KafkaConsumer
from kafkapy.clients.consumer.interceptors import ConsumerInterceptors
from kafkapy.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


NOTHING: Any = SimpleNamespace(close=lambda: None)
"""A coroutine that nobody waits for."""


class Background:
    """Stands for the loop's thread; a coroutine's result is what the core says of it."""

    def __init__(self) -> None:
        self.foreign = False
        self.stops = 0
        self.loop = None

    def run(self, outcome: Any, timeout_s: float | None = None) -> Any:
        if asyncio.iscoroutine(outcome):
            try:
                outcome.send(None)
            except StopIteration as end:
                return end.value
            raise AssertionError("it waits")
        return outcome

    def call(self, function: Callable[..., Any], *given: Any) -> Any:
        return function(*given)

    def check(self) -> None: ...

    def post(self, function: Callable[..., Any], *given: Any) -> None:
        function(*given)

    def stop(self) -> None:
        self.stops += 1


class Core:
    """Keeps what it is asked for, and gives what a test says."""

    def __init__(self, config: Any, *, post: Any, ring: Any) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.answers: dict[str, Any] = {}
        self.buffer = FetchBuffer(lambda: None, lambda: None)
        self.states = {
            place: SimpleNamespace(topic_partition=place, paused=False, high_watermark=9) for place in (T0, T1)
        }
        self.subscription = SimpleNamespace(
            subscription=set(),
            assigned={T0, T1},
            all_states=list(self.states.values()),
            state_of=self.states.__getitem__,
        )
        self.interceptors = ConsumerInterceptors([])
        self.works: list[Callable[[], None]] = []
        self.errors: list[Exception] = []
        self.attendance = SimpleNamespace(
            next_work=lambda: self.works.pop(0) if self.works else None,
            next_error=lambda: self.errors.pop(0) if self.errors else None,
            serve=lambda: None,
        )
        self.polls = SimpleNamespace(begin=lambda: self.note("begin"), end=lambda: self.note("end"))
        self.telemetry = SimpleNamespace(client_instance_id=lambda timeout_s: ("instance", timeout_s))
        self.topics = SimpleNamespace(
            names=lambda timeout: self.say("names", timeout),
            partitions_of=lambda *given: self.say("partitions_of", *given),
            refresh=lambda timeout: self.say("refresh", timeout),
        )
        self.cluster = SimpleNamespace(bootstrapping=False)
        self.network = SimpleNamespace(
            cluster=self.cluster,
            learn_api_version=lambda config: self.note("learn"),
            bootstrap=lambda timeout: self.say("bootstrap", timeout),
        )
        self.user_waits = False

    def note(self, *call: Any) -> None:
        self.asked.append(call)

    def say(self, name: str, *given: Any) -> Any:
        self.asked.append((name, *given))
        answer = self.answers.get(name, NOTHING)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def __getattr__(self, name: str) -> Any:
        return lambda *given: self.say(name, *given)

    async def start(self) -> None:
        self.note("start")

    def enter_poll(self) -> None:
        self.buffer.attention = False
        self.note("enter_poll")

    def all_metrics(self) -> dict[str, Any]:
        return {"group": {"name": 1.0}}


def made(monkeypatch: pytest.MonkeyPatch, *topics: str, **config: Any) -> Any:
    monkeypatch.setattr(attended, "BackgroundLoop", lambda name: Background())
    monkeypatch.setattr("kafkapy.clients.consumer.consumer.ConsumerCore", Core)
    keys = {"default.api.timeout.ms": 4321, "max.poll.records": 3, **config}
    made_consumer: Any = KafkaConsumer(*topics, configs={"bootstrap.servers": "localhost:1", **keys})
    made_consumer.fetch_buffer.attention = False
    return made_consumer


def asked(consumer: Any) -> list[tuple[Any, ...]]:
    """What the core was asked since the last time."""
    taken, consumer._core.asked = consumer._core.asked, []
    return taken


def filled(consumer: Any, count: int, first: int = 0) -> None:
    """Has records of the first partition in the buffer."""
    buffer = consumer.fetch_buffer.partition(T0)
    buffer.seek(first)
    buffer.readable = True
    buffer.add(chunk(batch(first, count), start=first))
