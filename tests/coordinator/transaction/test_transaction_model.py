"""Producers, crashes, lost answers and partitions that are away, in any order, against what transactions promise:

- all records of a transaction have the same outcome, and the one that the producer was told;
- no partition keeps a transaction open for ever;
- epochs of a producer id only grow;
- a producer whose transactional id was taken over gets nothing done any more;
- a coordinator that starts again knows what the one before knew.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kafkapy.coordinator.transaction.metadata import ProducerIdAndEpoch
from kafkapy.errors import ErrorCode, error_for
from kafkapy.types import TopicPartition

NAMES = st.sampled_from(["a", "b"])
PARTITIONS = [TopicPartition("p", number) for number in range(3)]
ANSWERED, LOST, CRASHED = "answered", "lost", "crashed before it was written"
WHICH = st.integers(0, 3)
FATES = st.sampled_from([ANSWERED] * 4 + [LOST, CRASHED])


@dataclass(eq=False)
class Producer:
    """One instance of a program with a transactional id, as a client library would run it."""

    name: str
    producer: ProducerIdAndEpoch
    version: int
    """Of EndTxn's behaviour: 0, or 2 for KIP-890."""
    transaction: int = 0
    added: set[TopicPartition] = field(default_factory=set)
    ending: bool | None = None
    """The outcome that it has asked for, without having been answered."""
    dead: bool = False

    @property
    def token(self) -> tuple[int, int]:
        """Its current transaction."""
        return (id(self), self.transaction)

    def ended(self, producer: ProducerIdAndEpoch) -> None:
        self.transaction += 1
        self.added.clear()
        self.ending = None
        if self.version:
            self.producer = producer


class Transactions(RuleBasedStateMachine):
    """The rules; `make_bench` is put in by the test."""

    make_bench: Any
    kept: list[Producer] = []

    @property
    def alive(self) -> list[Producer]:
        """Those that run still, as far as they know."""
        return [each for each in self.kept if not each.dead]

    @initialize()
    def begin(self) -> None:
        self.bench = type(self).make_bench()
        self.kept = []
        self.current: dict[str, Producer] = {}
        self.written: dict[tuple[int, int], set[TopicPartition]] = {}
        self.told: dict[tuple[int, int], bool] = {}
        self.epochs: dict[int, int] = {}

    def ask(self, fate: str, request: Any) -> Any:
        """The reply or the error; None when the client never heard."""
        if fate == CRASHED:
            self.bench.begin(request)
            self.crash()
            return ErrorCode.NETWORK_EXCEPTION
        reply = self.bench.ask(request)
        return ErrorCode.NETWORK_EXCEPTION if fate == LOST else reply

    @rule(name=NAMES, version=st.sampled_from([0, 2]), fate=FATES)
    def start_producer(self, name: str, version: int, fate: str) -> None:
        """Asked again for as long as a transaction is being ended; nobody waits for partitions that are away."""
        reply = self.ask(fate, self.bench.coordinator.init_producer_id(name, 60_000, None))
        if reply is ErrorCode.CONCURRENT_TRANSACTIONS:
            reply = self.ask(fate, self.bench.coordinator.init_producer_id(name, 60_000, None))
        if isinstance(reply, ErrorCode):
            assert reply in (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NETWORK_EXCEPTION)
            # It may have taken the id over without having been told so.
            self.current.pop(name, None)
            return
        made = Producer(name, reply, version)
        self.kept.append(made)
        self.current[name] = made

    @precondition(lambda self: self.alive)
    @rule(which=WHICH, fate=FATES)
    def go_on_after_an_error(self, which: int, fate: str) -> None:
        producer = self.alive[which % len(self.alive)]
        if producer.ending is not None or producer.added:
            return
        reply = self.ask(fate, self.bench.coordinator.init_producer_id(producer.name, 60_000, producer.producer))
        if isinstance(reply, ErrorCode):
            self.refused(producer, reply)
            if reply is ErrorCode.NETWORK_EXCEPTION:
                producer.dead = True
        else:
            self.check_current(producer)
            producer.producer = reply
            producer.transaction += 1

    @precondition(lambda self: self.alive)
    @rule(which=WHICH, partition=st.sampled_from(PARTITIONS), fate=FATES, produces=st.booleans())
    def add_partition(self, which: int, partition: TopicPartition, fate: str, produces: bool) -> None:
        producer = self.alive[which % len(self.alive)]
        if producer.ending is not None:
            return
        reply = self.ask(fate, self.bench.coordinator.add_partitions(producer.name, producer.producer, [partition]))
        if reply is None:
            self.check_current(producer)
            producer.added.add(partition)
            if produces:
                self.write(producer, partition)
        else:
            self.refused(producer, reply)

    @precondition(lambda self: self.kept)
    @rule(which=WHICH)
    def produce(self, which: int) -> None:
        """Also for a producer that was fenced, and does not know it yet."""
        producer = self.kept[which % len(self.kept)]
        if producer.ending is None:
            for partition in producer.added:
                self.write(producer, partition)

    def write(self, producer: Producer, partition: TopicPartition) -> None:
        # A record of each transaction and partition is enough: all in between have its outcome.
        if partition in self.written.get(producer.token, ()):
            return
        if self.bench.partitions.produce(partition, producer.producer, producer.token):
            self.written.setdefault(producer.token, set()).add(partition)

    @precondition(lambda self: self.alive)
    @rule(which=WHICH, committed=st.booleans(), fate=FATES)
    def end(self, which: int, committed: bool, fate: str) -> None:
        producer = self.alive[which % len(self.alive)]
        if producer.ending is None and not producer.added:
            return
        if producer.ending is None:
            producer.ending = committed
        asked = producer.ending
        reply = self.ask(
            fate,
            self.bench.coordinator.end_transaction(producer.name, producer.producer, asked, producer.version),
        )
        if isinstance(reply, ErrorCode):
            if reply is not ErrorCode.CONCURRENT_TRANSACTIONS:
                self.refused(producer, reply)
        else:
            self.told[producer.token] = asked
            producer.ended(reply)

    def refused(self, producer: Producer, error: ErrorCode) -> None:
        if error is ErrorCode.NETWORK_EXCEPTION or error is ErrorCode.CONCURRENT_TRANSACTIONS:
            return
        fatal = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_TXN_STATE)
        assert error in fatal, error
        producer.dead = True

    def check_current(self, producer: Producer) -> None:
        """Who gets something done is the one that came last, or nobody knows who did."""
        assert self.current.get(producer.name, producer) is producer

    @rule(partition=st.sampled_from(PARTITIONS))
    def partition_goes_away(self, partition: TopicPartition) -> None:
        self.bench.partitions.away[partition] = error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    @rule()
    def partitions_come_back(self) -> None:
        self.bench.partitions.away.clear()

    @rule(ms=st.sampled_from([50, 500, 30_000]))
    def time_passes(self, ms: int) -> None:
        self.bench.advance(ms)

    @rule()
    def crash(self) -> None:
        self.bench = self.bench.crash()

    @rule()
    def crash_when_all_is_written(self) -> None:
        self.bench.settle()
        before = dict(self.bench.coordinator.runtime.shards()[0].transactions)
        away = dict(self.bench.partitions.away)
        for partition in PARTITIONS:
            # Else the one that comes after would go on at once.
            self.bench.partitions.away[partition] = error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.bench = self.bench.crash()
        assert self.bench.coordinator.runtime.shards()[0].transactions == before
        self.bench.partitions.away.clear()
        self.bench.partitions.away.update(away)

    @invariant()
    def epochs_only_grow(self) -> None:
        if not hasattr(self, "bench"):
            return
        for metadata in self.bench.coordinator.runtime.shards()[0].transactions.values():
            before = self.epochs.get(metadata.producer_id, 0)
            # What was never written, and so never told to anybody, may be lost with the broker.
            assert metadata.producer_epoch >= before
            self.epochs[metadata.producer_id] = metadata.producer_epoch

    @invariant()
    def outcomes_are_those_told(self) -> None:
        if not hasattr(self, "bench"):
            return
        for (_, token), committed in self.bench.partitions.outcomes.items():
            assert self.told.get(token, committed) == committed

    def teardown(self) -> None:
        if not hasattr(self, "bench"):
            return
        self.bench.partitions.away.clear()
        self.bench.advance(120_000)
        states = self.bench.coordinator.runtime.shards()[0].transactions.values()
        assert all(each.state.may_expire for each in states), states
        assert len(self.bench.coordinator.completions) == 0
        partitions = self.bench.partitions
        assert not partitions.open, "a partition has a transaction that never ends"
        for token, written in self.written.items():
            outcomes = {partitions.outcomes[(partition, token)] for partition in written}
            assert len(outcomes) == 1
            if token in self.told:
                assert outcomes == {self.told[token]}


def test_transactions_keep_their_promises(make_bench: Any) -> None:
    machine = type("Machine", (Transactions,), {"make_bench": staticmethod(make_bench)})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=150,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
        ),
    )


@pytest.mark.soak
def test_transactions_keep_their_promises_for_long(make_bench: Any) -> None:
    machine = type("Machine", (Transactions,), {"make_bench": staticmethod(make_bench)})
    run_state_machine_as_test(machine, settings=settings(max_examples=3000, stateful_step_count=80, deadline=None))
