"""One fetcher thread's side on the control loop: its settings, its connection, the pauses between attempts, its end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from waiting import until

from kafkapy._speedups.base.event_queue import EventQueue
from kafkapy._speedups.replica.throttle import ReplicationThrottle
from kafkapy.config.broker import BrokerConfig
from kafkapy.errors import KafkaError
from kafkapy.replica import leader_fetcher
from kafkapy.replica.leader_fetcher import LeaderFetcher
from tests.replica.isr_leader import settle


class Kernel:
    """A fetcher without a thread, which notes what it is told."""

    handle = 7

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        self.made = (arguments, keywords)
        self.settings: list[dict[str, int]] = []
        self.told: list[tuple[Any, ...]] = []
        self.answered = 0

    def configure(self, **settings: int) -> None:
        self.settings.append(settings)

    def counters(self) -> tuple[int, int, int, bool]:
        return (self.answered, 2, 3, True)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *arguments: self.told.append((name, *arguments))


class Connections:
    """Answers attempts to connect as the test says: an error, or the end of the session."""

    def __init__(self, *answers: Exception | float | None) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[Any, int, int]] = []

    async def connect(self, fetcher: Any, leader_id: int, index: int) -> float | None:
        self.asked.append((fetcher, leader_id, index))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


KEYS = {
    "replica.fetch.wait.max.ms": 501,
    "replica.fetch.min.bytes": 2,
    "replica.fetch.response.max.bytes": 3003,
    "replica.fetch.max.bytes": 4004,
    "socket.request.max.bytes": 5005,
    "replica.fetch.backoff.ms": 1,
    "replica.socket.timeout.ms": 7007,
}


def config(**keys: int) -> BrokerConfig:
    values = KEYS | {name.replace("_", "."): value for name, value in keys.items()}
    return BrokerConfig({"log.dirs": "/x", **{name: str(value) for name, value in values.items()}})


Test = Callable[[LeaderFetcher, Any, Connections], Awaitable[None]]


def run(test: Test, *answers: Exception | float | None, **keys: int) -> None:
    async def body() -> None:
        connections: Any = Connections(*answers)
        fetcher = LeaderFetcher(
            config(**keys), 2, 1, 5, connections, EventQueue(), ReplicationThrottle(3, 1000), 66, make_kernel=Kernel
        )
        try:
            await test(fetcher, fetcher._kernel, connections)
        finally:
            fetcher.stop()

    asyncio.run(body())


async def connected(fetcher: LeaderFetcher) -> None:
    await until(lambda: fetcher._connecting is None, "it is connected")


def test_it_is_named_and_set_up_as_the_broker_is_configured() -> None:
    async def test(fetcher: LeaderFetcher, kernel: Any, connections: Connections) -> None:
        arguments, keywords = kernel.made
        assert (arguments[:2], keywords) == (("broker-2-fetcher-5", 2), {"name": "fetcher-1-5"})
        expected = {
            "broker_epoch": 66,
            "max_wait_ms": 501,
            "min_bytes": 2,
            "max_bytes": 3003,
            "partition_max_bytes": 4004,
            "max_batch_bytes": 5005,
            "backoff_ms": 1,
            "timeout_ms": 7007,
        }
        assert kernel.settings == [expected]
        assert kernel.told == [("start",)]
        fetcher.configure(config(replica_fetch_wait_max_ms=6006), 67)
        assert kernel.settings[1] == expected | {"broker_epoch": 67, "max_wait_ms": 6006}
        assert (fetcher.handle, fetcher.leader_id, fetcher.index) == (7, 1, 5)

    run(test)


def test_partitions_are_counted_and_handed_on() -> None:
    async def test(fetcher: LeaderFetcher, kernel: Any, connections: Connections) -> None:
        one: Any = object()
        kernel.told.clear()
        fetcher.add(one)
        fetcher.add(one)
        assert fetcher.partitions == 2
        fetcher.remove(one)
        assert fetcher.partitions == 1
        fetcher.resume(one)
        fetcher.resume(one, 30)
        fetcher.set_throttled(one, True)
        fetcher.join()
        assert kernel.told == [
            ("add", one),
            ("add", one),
            ("remove", one),
            ("resume", one, 0),
            ("resume", one, 30),
            ("set_throttled", one, True),
            ("join",),
        ]
        assert fetcher.counters() == (0, 2, 3, True)

    run(test)


def test_the_rate_is_taken_again_and_again_until_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_fetcher, "TICK_S", 0)

    async def test(fetcher: LeaderFetcher, kernel: Any, connections: Connections) -> None:
        rates = []
        monkeypatch.setattr(fetcher, "_rate", SimpleNamespace(tick=rates.append, per_second=12.5))
        assert fetcher.fetch_rate == 12.5
        for kernel.answered in (10, 20):
            await until(lambda: rates[-1:] == [kernel.answered], "the next tick")
        fetcher.stop()
        seen = len(rates)
        await settle()
        assert len(rates) == seen

    run(test)


def test_it_connects_until_that_succeeds_and_warns_of_an_error_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "kafka.server.ReplicaFetcherThread")

    async def test(fetcher: LeaderFetcher, kernel: Any, connections: Connections) -> None:
        fetcher.connection_wanted(0, "")
        fetcher.connection_wanted(0, "")
        await connected(fetcher)
        assert connections.asked == [(kernel, 1, 5)] * 5
        assert connections.answers == [None]
        fetcher.connection_wanted(104, "reset by peer")
        connections.answers.insert(0, KafkaError("refused"))
        await connected(fetcher)
        assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
            ("WARNING", "Fetcher 5 has no connection to leader 1: refused"),
            ("DEBUG", "Fetcher 5 has no connection to leader 1: refused"),
            ("WARNING", "Fetcher 5 has no connection to leader 1: no route"),
            ("WARNING", "Fetcher 5 has no connection to leader 1: refused"),
            ("INFO", "Fetcher 5 of leader 1 lost its connection: reset by peer"),
            # It was connected meanwhile: this is another failure.
            ("WARNING", "Fetcher 5 has no connection to leader 1: refused"),
        ]

    refused = KafkaError("refused")
    run(test, refused, refused, OSError("no route"), refused, None, None)


def test_attempts_are_as_far_apart_as_configured() -> None:
    async def test(fetcher: LeaderFetcher, kernel: Any, connections: Connections) -> None:
        # The first one is at once.
        fetcher.connection_wanted(0, "")
        await connected(fetcher)
        fetcher.connection_wanted(104, "reset by peer")
        await settle()
        assert (len(connections.asked), len(connections.answers)) == (1, 1)
        assert fetcher._connecting is not None
        connecting = fetcher._connecting
        fetcher.stop()
        await settle()
        assert connecting.cancelled()
        assert kernel.told[-1] == ("stop",)

    run(test, None, None, replica_fetch_backoff_ms=3_600_000)


def test_a_new_connection_replaces_one_whose_session_ends() -> None:
    async def test(fetcher: LeaderFetcher, kernel: Any, connections: Connections) -> None:
        fetcher.connection_wanted(0, "")
        await until(lambda: len(connections.asked) == 2, "the next connection")
        await connected(fetcher)
        renewal = fetcher._renewal
        assert renewal is not None and not renewal.cancelled()
        loop = asyncio.get_running_loop()
        assert 3000 < renewal.when() - loop.time() <= 3600
        fetcher.connection_wanted(104, "reset by peer")
        await connected(fetcher)
        assert renewal.cancelled() and fetcher._renewal is not None
        last = fetcher._renewal
        fetcher.stop()
        assert last.cancelled()

    run(test, time.monotonic(), time.monotonic() + 3600, time.monotonic() + 3600)
