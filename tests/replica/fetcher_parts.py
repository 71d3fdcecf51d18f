"""Fetchers of broker 2 without logs, threads, connections and leaders: each part notes what it is told."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from kafkapy.config.broker import BrokerConfig
from kafkapy.config.topic import LogConfig
from kafkapy.errors import KafkaError
from kafkapy.replica.fetcher_api import FetchStart, FollowerVersions
from kafkapy.replica.fetcher_manager import ReplicaFetcherManager
from kafkapy.types import TopicPartition

T0 = TopicPartition("t", 0)
ID = UUID(int=9)


class Log:
    """A log by its numbers, which is cut as it is told."""

    def __init__(self, end: int = 9, start: int = 0, epochs: Any = ((1, 0),), high_watermark: int = 5) -> None:
        self.log_end_offset, self.log_start_offset, self.high_watermark = end, start, high_watermark
        self.leader_epoch = 4
        self.epochs = list(epochs)
        self.config = LogConfig.create()
        self.appended: list[tuple[bytes, int]] = []

    def leader_epochs(self) -> list[tuple[int, int]]:
        return list(self.epochs)

    def offset_for_leader_epoch(self, epoch: int) -> tuple[int, int]:
        """Every epoch is known, and reaches up to the end."""
        return epoch, self.log_end_offset

    def append_as_follower(self, data: bytes, *, leader_epoch: int) -> None:
        self.appended.append((data, leader_epoch))

    def write_leader_epochs(self) -> None:
        raise OSError(errno.EIO, "broken")


class Logs:
    """The log manager: notes the cuts."""

    def __init__(self) -> None:
        self.cuts: list[tuple[Any, ...]] = []
        self.errors: list[Exception] = []

    def truncate_to(self, tp: TopicPartition, offset: int, *, followed: Any, leader_epoch: int) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.cuts.append((tp, offset, leader_epoch))
        followed.log_end_offset = min(followed.log_end_offset, offset)

    def truncate_fully_and_start_at(self, tp: TopicPartition, offset: int, *, followed: Any, leader_epoch: int) -> None:
        self.cuts.append((tp, "empty", offset, leader_epoch))
        followed.log_end_offset = followed.log_start_offset = offset


class Partition:
    """A FollowedPartition without a kernel."""

    handles = 100
    lag = 3

    def __init__(self, log: Any, topic_id: bytes, leader_epoch: int, throttled: bool) -> None:
        Partition.handles += 1
        self.handle = Partition.handles
        self.made = (log, topic_id, leader_epoch, throttled)


class Fetcher:
    """A LeaderFetcher without a thread."""

    made: list[Fetcher]
    errors: list[OSError]
    fetch_rate = 2.0

    def __init__(self, config: Any, broker_id: int, leader_id: int, index: int, *more: Any) -> None:
        if Fetcher.errors:
            raise Fetcher.errors.pop(0)
        self.arguments = (config, broker_id, *more)
        self.key = leader_id, index
        self.handle = 1000 + len(Fetcher.made)
        self.told: list[tuple[Any, ...]] = []
        self.followed: list[Any] = []
        self.numbers = (10, 200, 3, True)
        Fetcher.made.append(self)

    @property
    def partitions(self) -> int:
        return len(self.followed)

    def add(self, partition: Any) -> None:
        self.followed.append(partition)

    def remove(self, partition: Any) -> None:
        self.followed.remove(partition)

    def counters(self) -> tuple[int, int, int, bool]:
        return self.numbers

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *what: self.told.append((name, *what))


class Connections:
    """The leader's answers as the test gives them: values, or errors to raise."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.asked: list[Any] = []
        self.closed = 0

    def _answer(self) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def offset(self, leader_id: int, tp: TopicPartition, epoch: int, timestamp: int) -> int:
        self.asked.append((leader_id, tp, epoch, timestamp))
        return int(self._answer())

    async def epoch_ends(self, leader_id: int, asked: dict[TopicPartition, tuple[int, int]]) -> Any:
        self.asked.append((leader_id, dict(asked)))
        answer = self._answer()
        return answer(asked) if callable(answer) else answer

    async def close(self) -> None:
        self.closed += 1


class Manager:
    """Fetchers of broker 2 on fakes only."""

    def __init__(self, versions: FollowerVersions, **keys: str) -> None:
        names = {name.replace("_", "."): value for name, value in keys.items()}
        self.config = BrokerConfig({"log.dirs": "/x", "replica.fetch.backoff.ms": "0"} | names)
        self.logs, self.connections = Logs(), Connections()
        self.failed: list[tuple[TopicPartition, int, KafkaError]] = []
        fakes: Any = SimpleNamespace(
            logs=self.logs,
            connections=self.connections,
            events=SimpleNamespace(partition_failed=lambda *what: self.failed.append(what)),
            nothing=None,
        )
        self.fetchers = ReplicaFetcherManager(
            self.config, 2, fakes.logs, fakes.nothing, fakes.nothing, fakes.events,
            versions=versions, connections=fakes.connections,
        )  # fmt: skip
        self.pauses = 0
        self.may_pause = True

        async def back_off() -> None:
            self.pauses += 1
            if not self.may_pause:
                await asyncio.Event().wait()
            await asyncio.sleep(0)

        self.fetchers._back_off = back_off  # type: ignore[method-assign]

    def follow(self, log: Log, tp: TopicPartition = T0, *, leader: int = 1, epoch: int = 4, initial: int = -1) -> Any:
        made: Any = log
        self.fetchers.add({tp: FetchStart(made, ID, leader, epoch, initial)})
        return self.fetchers._followed[tp]

    def fetched(self, tp: TopicPartition = T0) -> bool:
        followed = self.fetchers._followed.get(tp)
        return followed is not None and followed.partition is not None

    async def done(self) -> None:
        """All that was begun in the background is over."""
        while self.fetchers._tasks:
            await asyncio.gather(*self.fetchers._tasks, return_exceptions=True)
            await asyncio.sleep(0)
