"""Transactions without a timeout, and producers that take prepared ones over (KIP-939), on a virtual clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafkapy.coordinator.transaction.config import TransactionConfig
from kafkapy.coordinator.transaction.metadata import (
    LAST_EPOCH,
    MAX_EPOCH,
    TWO_PHASE_TIMEOUT_MS,
    ProducerIdAndEpoch,
    TakenOver,
    TransactionMetadata,
)
from kafkapy.coordinator.transaction.records import metadata_of, transaction_record
from kafkapy.coordinator.transaction.state import TransactionState
from kafkapy.errors import ErrorCode, NotLeaderOrFollowerError
from kafkapy.protocol.messages.transaction_log_records import TransactionLogValue
from kafkapy.types import TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 3)
DAY_MS = 24 * 60 * 60 * 1000
ONGOING = TransactionState.ONGOING
COMPLETE = {True: TransactionState.COMPLETE_COMMIT, False: TransactionState.COMPLETE_ABORT}


@pytest.fixture
def two_phase(make_bench: Callable[..., Any]) -> Any:
    """A coordinator that allows two-phase commit."""
    return make_bench(config=TransactionConfig(two_phase_commit=True))


def opened(bench: Any, version: int, *, two_phase: bool = True) -> ProducerIdAndEpoch:
    """A producer with an open transaction that has one record in A."""
    producer: ProducerIdAndEpoch = bench.init(two_phase=two_phase)
    assert bench.add(producer, A, version=version) is None
    assert bench.partitions.produce(A, producer, "record")
    return producer


def successor(producer: ProducerIdAndEpoch, by: int = 1) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(producer.producer_id, producer.producer_epoch + by)


def test_two_phase_commit_must_be_enabled(bench: Any, two_phase: Any) -> None:
    assert bench.init(two_phase=True) is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert two_phase.init(two_phase=True).producer_epoch == 0
    assert two_phase.state("t").timeout_ms == TWO_PHASE_TIMEOUT_MS
    # Only the flag gives it, not the number.
    assert two_phase.init(timeout_ms=TWO_PHASE_TIMEOUT_MS) is ErrorCode.INVALID_TRANSACTION_TIMEOUT


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("committed", [False, True])
def test_only_a_client_ends_the_transaction(two_phase: Any, version: int, committed: bool) -> None:
    bench = two_phase
    producer = opened(bench, version)
    other = bench.init("other")
    bench.add(other, B, name="other")
    for _ in range(3):
        bench.advance(DAY_MS)
        bench.coordinator.abort_timed_out()
        bench.coordinator.expire()
        bench.settle()
        bench = bench.crash()
    assert bench.state("other").state is TransactionState.COMPLETE_ABORT
    assert bench.state("t").state is ONGOING
    assert bench.state("t").is_two_phase
    found = bench.coordinator.numbers()
    assert (found.open_two_phase, found.longest_open_ms // DAY_MS) == (1, 3)
    assert isinstance(bench.end(producer, committed, version), ProducerIdAndEpoch)
    bench.settle()
    assert bench.coordinator.numbers()[1:] == (0, 0)
    assert bench.state("t").state is COMPLETE[committed]
    assert bench.partitions.outcomes == {(A, "record"): committed}


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("taken_over", [False, True])
def test_an_operator_limits_transactions_without_a_timeout(two_phase: Any, version: int, taken_over: bool) -> None:
    bench = two_phase
    producer = opened(bench, version)
    other = bench.init("other", timeout_ms=60_000)
    bench.add(other, B, name="other", version=version)
    if taken_over:
        producer = bench.init(keep_prepared=True, timeout_ms=60_000).producer
    bench.two_phase_max_ms = 2 * DAY_MS
    bench.advance(2 * DAY_MS)
    bench.coordinator.abort_timed_out()
    bench.settle()
    assert bench.state("other").state is TransactionState.COMPLETE_ABORT, "the limit is not for others"
    assert bench.state("t").state is ONGOING
    bench.advance(1)
    bench.two_phase_max_ms = -1
    bench.coordinator.abort_timed_out()
    assert bench.state("t").state is ONGOING
    bench.two_phase_max_ms = 2 * DAY_MS
    bench.coordinator.abort_timed_out()
    bench.settle()
    assert bench.partitions.outcomes == {(A, "record"): False}
    assert bench.end(producer, True, version) in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE)
    assert bench.state("t").is_two_phase is not taken_over


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("crashes", [False, True])
def test_a_prepared_transaction_is_taken_over(two_phase: Any, version: int, committed: bool, crashes: bool) -> None:
    bench = two_phase
    first = opened(bench, version)
    for attempt in (1, 2):
        taken = bench.init(two_phase=True, keep_prepared=True)
        assert taken == TakenOver(successor(first, attempt), first)
        before = bench.state("t")
        if crashes:
            bench = bench.crash()
        assert bench.state("t") == before, "memory has no more than the log"
    assert (before.producer, before.client) == (first, taken.producer)
    # The producers before it are fenced, and it may only end the transaction.
    for old in (first, successor(first)):
        assert bench.end(old, committed, version) is ErrorCode.PRODUCER_FENCED
        assert bench.add(old, B, version=version) is ErrorCode.PRODUCER_FENCED
    assert bench.add(taken.producer, B, version=version) is ErrorCode.INVALID_TXN_STATE
    assert bench.state("t").partitions == {A}
    ended = bench.end(taken.producer, committed, version)
    bench.settle()
    assert ended == successor(taken.producer, 1 if version else 0)
    assert bench.partitions.outcomes == {(A, "record"): committed}
    if crashes:
        bench = bench.crash()
    assert (bench.state("t").producer, bench.state("t").state) == (ended, COMPLETE[committed])
    # The answer was lost: the same again.
    assert bench.end(taken.producer, committed, version) == ended
    assert bench.end(taken.producer, not committed, version) is ErrorCode.INVALID_TXN_STATE
    # The transaction's records are fenced, and the producer goes on.
    assert bench.add(ended, B, version=version) is None
    assert bench.end(ended, True, version) == successor(ended, 1 if version else 0)


@pytest.mark.parametrize("version", [0, 2])
def test_the_end_of_a_kept_transaction_survives_a_crash(two_phase: Any, version: int) -> None:
    bench = two_phase
    first = opened(bench, version)
    taken = bench.init(two_phase=True, keep_prepared=True)
    bench.partitions.away[A] = NotLeaderOrFollowerError()
    ended = bench.end(taken.producer, True, version)
    assert bench.end(taken.producer, True, version) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert bench.init(keep_prepared=True) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert bench.end(first, True, version) in (ErrorCode.PRODUCER_FENCED, ErrorCode.CONCURRENT_TRANSACTIONS)
    before = bench.state("t")
    bench = bench.crash()
    assert bench.state("t") == before
    bench.partitions.away.clear()
    bench.advance(300)
    assert bench.partitions.outcomes == {(A, "record"): True}
    assert bench.state("t").producer == ended
    assert bench.end(taken.producer, True, version) == ended


def test_there_is_nothing_to_keep(two_phase: Any) -> None:
    first = two_phase.init(keep_prepared=True)
    assert isinstance(first, ProducerIdAndEpoch)
    assert not isinstance(first, TakenOver)
    assert two_phase.init(keep_prepared=True) == successor(first)


@pytest.mark.parametrize("version", [0, 2])
def test_another_producer_aborts_what_was_kept(two_phase: Any, version: int) -> None:
    bench = two_phase
    first = opened(bench, version)
    taken = bench.init(two_phase=True, keep_prepared=True)
    assert bench.init() is ErrorCode.CONCURRENT_TRANSACTIONS
    bench.settle()
    assert bench.partitions.outcomes == {(A, "record"): False}
    assert bench.end(taken.producer, True, version) in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE)
    after = bench.init()
    assert after.producer_id == first.producer_id
    assert after.producer_epoch > taken.producer.producer_epoch
    assert bench.end(taken.producer, True, version) is ErrorCode.PRODUCER_FENCED


def test_a_kept_transaction_without_two_phases_times_out(bench: Any) -> None:
    first = opened(bench, 2, two_phase=False)
    taken = bench.init(keep_prepared=True, timeout_ms=30_000)
    assert bench.state("t").timeout_ms == 60_000, "never less time than it had"
    bench.advance(61_000)
    bench.coordinator.abort_timed_out()
    bench.settle()
    assert bench.partitions.outcomes == {(A, "record"): False}
    assert bench.state("t").producer == successor(taken.producer)
    assert bench.end(taken.producer, True, 2) is ErrorCode.INVALID_TXN_STATE
    assert bench.init(expected=taken.producer).producer_id == first.producer_id


def test_a_transaction_that_has_ended_since_the_search_is_not_aborted(two_phase: Any) -> None:
    producer = opened(two_phase, 2)
    shard = two_phase.coordinator.runtime.shards()[0]
    two_phase.advance(DAY_MS)
    late_ms = two_phase.clock.time_ms()
    assert shard.timed_out(late_ms, 1) == ["t"]
    two_phase.end(producer, True, 2)
    for name in ("t", "forgotten"):
        result = shard.abort_timed_out(name, late_ms, 1)
        assert (result.reply, list(result.records)) == (False, [])


def test_a_kept_transaction_keeps_having_no_timeout(two_phase: Any) -> None:
    opened(two_phase, 2)
    two_phase.init(keep_prepared=True, timeout_ms=1)
    assert two_phase.state("t").is_two_phase


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("crashes", [False, True])
def test_the_next_transactions_have_the_timeout_of_the_producer(
    two_phase: Any, version: int, committed: bool, crashes: bool
) -> None:
    """Only the transaction that it has taken over has none."""
    bench = two_phase
    opened(bench, version)
    bench.init(keep_prepared=True, timeout_ms=1)
    taken = bench.init(keep_prepared=True, timeout_ms=30_000)
    bench = bench.crash() if crashes else bench
    bench.advance(DAY_MS)
    bench.coordinator.abort_timed_out()
    assert bench.state("t").state is ONGOING
    # Its end is decided, and the markers are not written yet.
    bench.partitions.away[A] = NotLeaderOrFollowerError()
    ended = bench.end(taken.producer, committed, version)
    before = bench.state("t")
    bench = bench.crash() if crashes else bench
    assert bench.state("t") == before, "memory has no more than the log"
    bench.partitions.away.clear()
    bench.advance(300)
    before = bench.state("t")
    assert (before.state, before.timeout_ms) == (COMPLETE[committed], 30_000)
    bench = bench.crash() if crashes else bench
    assert bench.state("t") == before
    assert bench.add(ended, B, version=version) is None
    assert bench.partitions.produce(B, ended, "next")
    bench.advance(30_001)
    bench.coordinator.abort_timed_out()
    bench.settle()
    assert bench.partitions.outcomes == {(A, "record"): committed, (B, "next"): False}


def test_a_shorter_timeout_holds_for_the_next_transactions(bench: Any) -> None:
    opened(bench, 2, two_phase=False)
    taken = bench.init(keep_prepared=True, timeout_ms=30_000)
    assert bench.state("t").timeout_ms == 60_000
    bench.end(taken.producer, True, 2)
    bench.settle()
    assert bench.state("t").timeout_ms == 30_000


@pytest.mark.parametrize("version", [0, 2])
def test_a_two_phase_producer_goes_on_without_a_timeout(two_phase: Any, version: int) -> None:
    """Whoever had taken the transaction over before it."""
    opened(two_phase, version, two_phase=False)
    two_phase.init(keep_prepared=True, timeout_ms=30_000)
    taken = two_phase.init(keep_prepared=True, two_phase=True)
    assert two_phase.state("t").is_two_phase
    two_phase.end(taken.producer, True, version)
    two_phase.settle()
    assert two_phase.state("t").is_two_phase


def test_an_expected_producer_must_be_the_last(two_phase: Any) -> None:
    first = opened(two_phase, 2)
    taken = two_phase.init(keep_prepared=True, expected=first)
    assert two_phase.init(keep_prepared=True, expected=first) is ErrorCode.PRODUCER_FENCED
    assert two_phase.state("t").state is ONGOING
    assert two_phase.init(keep_prepared=True, expected=taken.producer).producer == successor(taken.producer)


def test_a_cluster_without_version_1_keeps_nothing(two_phase: Any) -> None:
    two_phase.transaction_version = 0
    opened(two_phase, 0)
    assert two_phase.init(keep_prepared=True) is ErrorCode.UNSUPPORTED_VERSION
    assert two_phase.state("t").state is ONGOING


@pytest.mark.parametrize("version", [0, 2])
def test_epochs_run_out(two_phase: Any, version: int) -> None:
    bench = two_phase
    first = bench.init(two_phase=True)
    last = ProducerIdAndEpoch(first.producer_id, LAST_EPOCH)
    shard = bench.coordinator.runtime.shards()[0]
    shard.apply(transaction_record(TransactionMetadata("t", *last, TWO_PHASE_TIMEOUT_MS)))
    bench.add(last, A, version=version)
    bench.partitions.produce(A, last, "record")
    taken = bench.init(keep_prepared=True)
    assert taken.ongoing == last
    assert taken.producer.producer_id != last.producer_id
    assert taken.producer.producer_epoch == 0
    # The taker's epochs run out as well.
    kept = bench.state("t")._replace(next_producer_epoch=LAST_EPOCH)
    shard.apply(transaction_record(kept))
    ended = bench.end(kept.client, True, version)
    bench.settle()
    assert bench.partitions.outcomes == {(A, "record"): True}
    assert bench.partitions.epochs[A, last.producer_id] == (MAX_EPOCH if version else LAST_EPOCH)
    if version:
        assert ended.producer_id not in (last.producer_id, kept.next_producer_id)
        assert ended.producer_epoch == 0
    else:
        assert ended == kept.client
    assert bench.state("t").producer == ended
    assert bench.end(kept.client, True, version) == ended


def test_records_of_kept_transactions() -> None:
    kept = TransactionMetadata("t", 5, 3, TWO_PHASE_TIMEOUT_MS, ONGOING, frozenset({A}), 1, 2, client_version=2).kept(
        ProducerIdAndEpoch(5, 4), 1, 3
    )
    assert kept.next_timeout_ms == 1
    record = transaction_record(kept)
    assert metadata_of(record) == kept
    assert record.value_version == 1
    # Kafka reads such a record: it passes over what it does not know, and its own tags are far below.
    value = record.value
    assert isinstance(value, TransactionLogValue)
    value.next_transaction_timeout_ms = -1
    without = value.encode_versioned(1)
    value.next_transaction_timeout_ms = 1
    # One tagged field more at the end: its tag and its length as varints.
    assert value.encode_versioned(1)[-7:] == b"\x90\x4e\x04\x00\x00\x00\x01"
    assert len(value.encode_versioned(1)) == len(without) + 7
