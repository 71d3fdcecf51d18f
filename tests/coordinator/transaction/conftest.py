"""A transaction coordinator on a virtual clock, with a log in memory and partitions that remember their markers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from kafkapy import errors
from kafkapy.coordinator.result import Later
from kafkapy.coordinator.transaction.config import TransactionConfig
from kafkapy.coordinator.transaction.coordinator import TransactionCoordinator
from kafkapy.coordinator.transaction.markers import Marker
from kafkapy.coordinator.transaction.metadata import ProducerIdAndEpoch, TransactionMetadata
from kafkapy.errors import KafkaError, code_of
from kafkapy.metadata.topic_names import TRANSACTION_STATE_TOPIC
from kafkapy.testing.coordinator import MemoryWriter, VirtualClock
from kafkapy.types import TopicPartition

STATE = TopicPartition(TRANSACTION_STATE_TOPIC, 0)


class Partitions:
    """The partitions that producers write to: who has a transaction open in them, and how transactions ended.

    They refuse what comes with an older epoch than they know, as PartitionLog does. Those in `away` take no markers.
    """

    def __init__(self) -> None:
        self.epochs: dict[tuple[TopicPartition, int], int] = {}
        self.open: dict[tuple[TopicPartition, int], list[Any]] = {}
        self.outcomes: dict[tuple[TopicPartition, Any], bool] = {}
        self.markers: list[tuple[TopicPartition, Marker]] = []
        self.away: dict[TopicPartition, KafkaError] = {}

    def produce(self, partition: TopicPartition, producer: ProducerIdAndEpoch, what: Any) -> bool:
        """Whether the record was taken."""
        key = (partition, producer.producer_id)
        if producer.producer_epoch < self.epochs.get(key, -1):
            return False
        self.epochs[key] = producer.producer_epoch
        self.open.setdefault(key, []).append(what)
        return True

    def write(self, partition: TopicPartition, marker: Marker) -> Later[None]:
        """See MarkerWriter."""
        if partition in self.away:
            return Later.failure(self.away[partition])
        key = (partition, marker.producer_id)
        if marker.producer_epoch < self.epochs.get(key, -1):
            return Later.failure(errors.InvalidProducerEpochError())
        self.epochs[key] = marker.producer_epoch
        self.markers.append((partition, marker))
        for what in self.open.pop(key, ()):
            assert (partition, what) not in self.outcomes
            self.outcomes[(partition, what)] = marker.committed
        return Later.of(None)


class Bench:
    """One life of a coordinator: another one on the same logs is what comes after a crash."""

    def __init__(
        self, before: Bench | None = None, config: TransactionConfig | None = None, partitions: Any = None
    ) -> None:
        self.loop = before.loop if before else asyncio.new_event_loop()
        self.clock = before.clock if before else VirtualClock()
        self.partitions = before.partitions if before else partitions or Partitions()
        self.config = config or (before.config if before else TransactionConfig())
        self.writer = MemoryWriter()
        self.ids = before.ids if before else iter(range(1000, 10_000_000))
        self.gone: set[TopicPartition] = before.gone if before else set()
        self.epoch = before.epoch + 1 if before else 1
        self.transaction_version = before.transaction_version if before else 2
        """The cluster's finalized level."""
        self.two_phase_max_ms = before.two_phase_max_ms if before else -1
        """kafkapy.transaction.two.phase.commit.max.ms"""
        if before is not None:
            self.writer.batches = before.writer.batches
            self.writer.ends = before.writer.ends
            self.writer.commit()
            # Nothing of a dead coordinator's runs on.
            before.writer.failure = errors.KafkaStorageError()
            before.coordinator.runtime.on_leadership_change(STATE, self.epoch, False)
            before.coordinator.runtime.timer.close()
        self.coordinator = TransactionCoordinator(
            self.config,
            self.writer,
            self.clock,
            self.partitions,
            self._next_id,
            partition_count=lambda: 1,
            is_gone=self.gone.__contains__,
            transaction_version=lambda: self.transaction_version,
            two_phase_max_ms=lambda: self.two_phase_max_ms,
        )
        self.coordinator.start()
        self.coordinator.on_leadership_change(STATE, self.epoch, True)
        self.clock.run()
        self.clock.advance(1)

    async def _next_id(self) -> int:
        return next(self.ids)

    def crash(self) -> Bench:
        """The next life. What was not written yet is lost."""
        return Bench(self)

    def begin(self, request: Coroutine[Any, Any, Any] | Later[Any]) -> asyncio.Task[Any]:
        """Have a request do what it does before anything is written."""
        task = self.loop.create_task(request.wait() if isinstance(request, Later) else request)
        # Nobody asks for the answers of a coordinator that has crashed.
        task.add_done_callback(lambda done: None if done.cancelled() else done.exception())
        self.loop.run_until_complete(asyncio.sleep(0))
        return task

    def settle(self) -> None:
        """Let everything run that is ready."""

        async def run() -> None:
            for _ in range(5):
                await asyncio.sleep(0)
                self.clock.run()
            await asyncio.sleep(0)

        self.loop.run_until_complete(run())

    def ask(self, request: Coroutine[Any, Any, Any] | Later[Any]) -> Any:
        """The reply of a request, or the code of its error."""
        task = self.begin(request)
        self.settle()
        assert task.done()
        error = task.exception()
        if error is None:
            return task.result()
        if not isinstance(error, KafkaError):
            raise error
        return code_of(error)

    def advance(self, ms: int) -> None:
        """Let time pass."""
        self.clock.advance(ms)
        self.settle()

    def state(self, name: str) -> TransactionMetadata:
        """What is known of an id now."""
        return self.coordinator.runtime.shards()[0].transactions[name]

    # --- requests, in short -----------------------------------------------------------------------------------------

    def init(
        self, name: str = "t", expected: ProducerIdAndEpoch | None = None, timeout_ms: int = 60_000, **flags: bool
    ) -> Any:
        return self.ask(self.coordinator.init_producer_id(name, timeout_ms, expected, **flags))

    def add(self, producer: ProducerIdAndEpoch, *partitions: TopicPartition, version: int = 0, name: str = "t") -> Any:
        return self.ask(self.coordinator.add_partitions(name, producer, partitions, version))

    def end(self, producer: ProducerIdAndEpoch, committed: bool = True, version: int = 0, name: str = "t") -> Any:
        return self.ask(self.coordinator.end_transaction(name, producer, committed, version))


@pytest.fixture
def make_bench() -> Iterator[Callable[..., Bench]]:
    """Makes coordinators; their loops are closed after the test."""
    made: list[Bench] = []

    def make(**how: Any) -> Bench:
        made.append(Bench(**how))
        return made[-1]

    yield make
    for each in made:
        each.loop.close()


@pytest.fixture
def bench(make_bench: Callable[..., Bench]) -> Bench:
    """A coordinator that has nothing to do yet."""
    return make_bench()
