"""Asking the coordinator whether partitions are in a transaction, on a virtual clock."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy.coordinator.transaction.metadata import ProducerIdAndEpoch
from kafkapy.coordinator.transaction.verification import Operation, TransactionVerification, produce_error
from kafkapy.errors import ErrorCode, error_for
from kafkapy.types import TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 3)


def make(bench: Any) -> TransactionVerification:
    return TransactionVerification(bench.coordinator, bench.clock, enabled=True, backoff_ms=20, backoff_max_ms=100)


@pytest.mark.parametrize(
    ("operation", "error"),
    [
        (Operation.DEFAULT_ERROR, ErrorCode.INVALID_TXN_STATE),
        (Operation.GENERIC_ERROR, ErrorCode.TRANSACTION_ABORTABLE),
    ],
)
def test_who_adds_no_partition_is_told_so_in_words_it_knows(bench: Any, operation: Operation, error: ErrorCode) -> None:
    verification = make(bench)
    producer = bench.init()
    bench.add(producer, A)
    assert bench.ask(verification.ask("t", producer, [A, B], operation)) == {B: error}
    assert bench.ask(verification.ask("t", producer, [A], operation)) == {}
    zombie = ProducerIdAndEpoch(producer.producer_id, producer.producer_epoch - 1)
    assert bench.ask(verification.ask("t", zombie, [A], operation)) == {A: ErrorCode.INVALID_PRODUCER_EPOCH}
    assert bench.ask(verification.ask("u", producer, [A], operation)) == {A: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert verification.failures == 3
    assert sum(verification.times.buckets) == 4


def test_partitions_are_added_for_those_who_leave_it_to_the_broker(bench: Any) -> None:
    verification = make(bench)
    producer = bench.init()
    assert bench.ask(verification.ask("t", producer, [A, B], Operation.ADD_PARTITION)) == {}
    assert bench.state("t").partitions == {A, B}
    assert bench.crash().state("t").partitions == {A, B}, "the word is given when it is certain"


def test_nothing_is_said_before_it_is_certain(bench: Any) -> None:
    """A partition that is added but not written yet may be lost with the broker."""
    producer = bench.init()
    verification = make(bench)
    bench.begin(bench.coordinator.add_partitions("t", producer, [A]))
    answer = verification.ask("t", producer, [A], Operation.GENERIC_ERROR)
    assert not answer.done
    bench.settle()
    assert answer.result() == {}


def test_the_end_of_the_transaction_before_is_waited_for(bench: Any) -> None:
    verification = make(bench)
    producer = bench.init()
    bench.add(producer, A, version=2)
    bench.partitions.away[A] = error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    producer = bench.end(producer, version=2)
    for operation, patient in ((Operation.GENERIC_ERROR, True), (Operation.ADD_PARTITION, False)):
        refused = bench.ask(verification.ask("t", producer, [B], operation, patient=patient))
        assert refused in ({B: ErrorCode.CONCURRENT_TRANSACTIONS}, {B: ErrorCode.TRANSACTION_ABORTABLE})
    patient = verification.ask("t", producer, [B], Operation.ADD_PARTITION, patient=True)
    bench.advance(60)
    assert not patient.done
    bench.advance(100)
    assert patient.result() == {B: ErrorCode.CONCURRENT_TRANSACTIONS}, "not for ever"
    patient = verification.ask("t", producer, [B], Operation.ADD_PARTITION, patient=True)
    bench.partitions.away.clear()
    bench.advance(100)
    bench.advance(20)
    assert patient.result() == {}


def test_who_waits_when_the_broker_stops_gets_the_last_answer(bench: Any) -> None:
    verification = make(bench)
    producer = bench.init()
    bench.add(producer, A, version=2)
    bench.partitions.away[A] = error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    producer = bench.end(producer, version=2)
    answer = verification.ask("t", producer, [B], Operation.ADD_PARTITION, patient=True)
    bench.settle()
    verification.close()
    assert answer.result() == {B: ErrorCode.CONCURRENT_TRANSACTIONS}


@pytest.mark.parametrize(
    ("error", "operation", "shown"),
    [
        (ErrorCode.NOT_COORDINATOR, Operation.ADD_PARTITION, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, Operation.DEFAULT_ERROR, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, Operation.GENERIC_ERROR, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, Operation.GENERIC_ERROR, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, Operation.ADD_PARTITION, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.INVALID_TXN_STATE, Operation.DEFAULT_ERROR, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, Operation.GENERIC_ERROR, ErrorCode.TRANSACTION_ABORTABLE),
    ],
)
def test_a_produce_is_refused_in_words_that_its_client_tries_again_after(
    error: ErrorCode, operation: Operation, shown: ErrorCode
) -> None:
    assert produce_error(error, operation)[0] is shown


def test_versions_tell_what_a_client_knows() -> None:
    assert [Operation.of_produce(version).name for version in (3, 10, 11, 12)] == [
        "DEFAULT_ERROR", "DEFAULT_ERROR", "GENERIC_ERROR", "ADD_PARTITION",
    ]  # fmt: skip
    assert [Operation.of_txn_offset_commit(version).name for version in (0, 3, 4, 5)] == [
        "DEFAULT_ERROR", "DEFAULT_ERROR", "GENERIC_ERROR", "ADD_PARTITION",
    ]  # fmt: skip
