"""Producers, elections, lost messages and brokers that are away, in random order, among three brokers:

- all records of a transaction have the same outcome, and the one that the producer was told;
- a record of a committed transaction, once acknowledged, is there;
- no partition keeps a transaction open when the faults have ended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from coordinator.brokers import STATES, Broker, Cluster

from kafkapy.coordinator.result import Later
from kafkapy.coordinator.transaction.metadata import ProducerIdAndEpoch
from kafkapy.coordinator.transaction.verification import Operation
from kafkapy.errors import ErrorCode, KafkaError
from kafkapy.types import TopicPartition

PARTITIONS = [TopicPartition(topic, 0) for topic in "abc"]
STEPS = 120
FATAL = (
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
)


@dataclass(eq=False)
class Producer:
    """A client with a transactional id. One request of it is on its way at a time."""

    name: str
    version: int
    """2 for KIP-890, where the brokers add partitions and each transaction has an epoch."""
    producer: ProducerIdAndEpoch | None = None
    transaction: int = 0
    busy: bool = False
    begun: bool = False
    ending: bool | None = None
    acknowledged: list[tuple[TopicPartition, Any]] = field(default_factory=list)

    @property
    def token(self) -> tuple[str, int]:
        return (self.name, self.transaction)


class Run:
    """One random schedule."""

    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self.cluster = Cluster()
        self.producers = [Producer(f"{version}-{number}", version) for version in (0, 2) for number in range(2)]
        self.told: dict[tuple[str, int], bool] = {}
        self.kept: list[tuple[tuple[str, int], TopicPartition, Any]] = []
        self.numbers = iter(range(1_000_000))

    # --- producers --------------------------------------------------------------------------------------------------

    def coordinator(self, producer: Producer) -> Broker:
        """The broker that the client believes to coordinate its id, perhaps one that was replaced."""
        if self.dice.random() < 0.1:
            return self.dice.choice(list(self.cluster.brokers.values()))
        return self.cluster.coordinator(producer.name)

    def ask(self, producer: Producer, request: Any, then: Callable[[Any, ErrorCode | None], None]) -> None:
        producer.busy = True
        later: Later[Any] = Later()

        async def run() -> None:
            try:
                later.set(await (request.wait() if isinstance(request, Later) else request))
            except KafkaError as error:
                later.fail(error)

        def done(answer: Later[Any]) -> None:
            producer.busy = False
            error = answer.error
            assert error is None or isinstance(error, KafkaError), error
            if self.dice.random() < 0.1:
                return  # the client did not get the answer
            then(None if error else answer.result(), None if error is None else error.code)

        later.then(done)
        self.cluster.start(run())

    def act(self, producer: Producer) -> None:
        if producer.busy:
            return
        if producer.producer is None:
            self.begin(producer)
        elif producer.ending is not None:
            self.end(producer)
        elif producer.begun and self.dice.random() < 0.3:
            producer.ending = self.dice.random() < 0.6
            self.end(producer)
        else:
            self.write(producer)

    def begin(self, producer: Producer) -> None:
        def began(identity: Any, error: ErrorCode | None) -> None:
            if error is None:
                self.forget(producer)
                producer.producer = identity

        self.ask(producer, self.coordinator(producer).transaction.init_producer_id(producer.name, 60_000, None), began)

    def forget(self, producer: Producer) -> None:
        producer.transaction += 1
        producer.producer = None
        producer.begun = False
        producer.ending = None
        producer.acknowledged.clear()

    def write(self, producer: Producer) -> None:
        partition = self.dice.choice(PARTITIONS)
        identity = producer.producer
        assert identity is not None
        if producer.version:
            self.append(producer, identity, partition)
            return

        def added(_: Any, error: ErrorCode | None) -> None:
            if error is None:
                producer.begun = True
                self.append(producer, identity, partition)
            elif error in FATAL:
                self.forget(producer)

        self.ask(
            producer, self.coordinator(producer).transaction.add_partitions(producer.name, identity, [partition]), added
        )

    def append(self, producer: Producer, identity: ProducerIdAndEpoch, partition: TopicPartition) -> None:
        """What the partition's leader does with a first batch: it asks the coordinator, and appends."""
        log = self.cluster.logs[partition]
        leader = self.cluster.leader(partition)
        epoch, markers = log.epoch, log.markers.get(identity.producer_id, 0)
        how = Operation.ADD_PARTITION if producer.version else Operation.GENERIC_ERROR
        token, what = producer.token, next(self.numbers)

        def answered(refused: Any, error: ErrorCode | None) -> None:
            assert error is None
            if refused:
                if set(refused.values()) & {*FATAL, ErrorCode.TRANSACTION_ABORTABLE}:
                    self.forget(producer)
                return
            # The guard of the log: no marker since the question, and the same leader.
            same = log.epoch == epoch and log.markers.get(identity.producer_id, 0) == markers
            producer.begun = True
            if not same or producer.token != token or not log.produce(identity, (token, what)):
                return
            if self.cluster.replicate:
                log.high_watermark = log.end
                producer.acknowledged.append((partition, (token, what)))

        self.ask(producer, leader.verification.ask(producer.name, identity, [partition], how), answered)

    def end(self, producer: Producer) -> None:
        identity, committed = producer.producer, producer.ending
        assert identity is not None and committed is not None

        def ended(next_identity: Any, error: ErrorCode | None) -> None:
            if error is None:
                self.told[producer.token] = committed
                if committed:
                    self.kept += [(producer.token, *each) for each in producer.acknowledged]
                self.forget(producer)
                producer.producer = next_identity
            elif error in FATAL:
                self.forget(producer)

        self.ask(
            producer,
            self.coordinator(producer).transaction.end_transaction(
                producer.name, identity, committed, producer.version
            ),
            ended,
        )

    # --- faults -----------------------------------------------------------------------------------------------------

    def disturb(self) -> None:
        cluster, dice = self.cluster, self.dice
        brokers = list(cluster.brokers.values())
        what = dice.randrange(9)
        if what == 0:
            partition = dice.choice([*PARTITIONS, *STATES])
            cluster.elect(partition, dice.choice(brokers).id, kept=dice.randrange(3), old_hears=dice.random() < 0.7)
        elif what == 1:
            for partition, log in cluster.logs.items():
                for broker in brokers:
                    if partition in broker.leads and log.leader != broker.id and dice.random() < 0.5:
                        broker.lead(partition, log.epoch, False)
        elif what in (2, 3):
            dice.choice(brokers).learn()
        elif what == 4:
            broker = dice.choice(brokers)
            broker.away = not broker.away
        elif what == 5:
            broker = dice.choice(brokers)
            broker.hangs = not broker.hangs
        elif what == 6:
            cluster.fates.extend(dice.choices(["", "request lost", "answer lost"], k=3))
        elif what == 7:
            cluster.replicate = not cluster.replicate
        else:
            cluster.commit()

    def check(self) -> None:
        cluster = self.cluster
        cluster.heal()
        for _ in range(4):
            cluster.advance(10_000)
            cluster.commit()
        for broker in cluster.brokers.values():
            cluster.clock.advance(70_000)
            broker.transaction.abort_timed_out()
        for _ in range(4):
            cluster.advance(10_000)
            cluster.commit()
        outcomes: dict[Any, set[bool]] = {}
        for partition in PARTITIONS:
            log = cluster.logs[partition]
            assert log.open == {}, (partition, log.open)
            for (token, _), outcome in log.outcomes.items():
                outcomes.setdefault(token, set()).add(outcome)
        for token, found in outcomes.items():
            assert len(found) == 1, token
            assert found == {self.told.get(token, next(iter(found)))}, token
        for token, partition, what in self.kept:
            assert cluster.logs[partition].outcomes.get(what) is True, (token, partition)


def play(seed: int) -> None:
    run = Run(seed)
    try:
        for _ in range(STEPS):
            for _ in range(run.dice.randrange(3)):
                run.act(run.dice.choice(run.producers))
            if run.dice.random() < 0.4:
                run.disturb()
            if run.dice.random() < 0.7:
                run.cluster.settle()
            else:
                run.cluster.advance(run.dice.choice([50, 200, 1000]))
        run.check()
    finally:
        run.cluster.close()


@pytest.mark.parametrize("seed", range(40))
def test_transactions_end_as_their_producers_were_told(seed: int) -> None:
    play(seed)


@pytest.mark.soak
@pytest.mark.parametrize("seeds", [range(first, first + 100) for first in range(1000, 6000, 100)], ids=str)
def test_transactions_end_as_their_producers_were_told_in_thousands_of_schedules(seeds: range) -> None:
    for seed in seeds:
        play(seed)
