"""What producers may do with their transactional ids, state by state, on a virtual clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from kafkapy import errors
from kafkapy.coordinator.result import TOO_LARGE
from kafkapy.coordinator.transaction.config import TransactionConfig
from kafkapy.coordinator.transaction.metadata import LAST_EPOCH, MAX_EPOCH, ProducerIdAndEpoch, TransactionMetadata
from kafkapy.coordinator.transaction.records import metadata_of, transaction_record
from kafkapy.coordinator.transaction.shard import TransactionShard
from kafkapy.coordinator.transaction.state import TransactionState
from kafkapy.errors import ErrorCode, error_for
from kafkapy.types import TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 3)
EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
PREPARE_COMMIT, PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
COMPLETE_COMMIT, COMPLETE_ABORT = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT


def at_epoch(bench: Any, epoch: int, name: str = "t") -> ProducerIdAndEpoch:
    """A producer whose id has come to an epoch; what took it there is left out."""
    first = bench.init(name)
    metadata = TransactionMetadata(name, first.producer_id, epoch, 60_000, last_update_ms=bench.clock.time_ms())
    bench.coordinator.runtime.shards()[0].apply(transaction_record(metadata))
    return ProducerIdAndEpoch(first.producer_id, epoch)


def unable(bench: Any, *partitions: TopicPartition) -> None:
    """Have partitions take no markers until `able`."""
    for partition in partitions:
        bench.partitions.away[partition] = error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def able(bench: Any) -> None:
    bench.partitions.away.clear()
    bench.advance(200)


# --- InitProducerId -------------------------------------------------------------------------------------------------


def test_the_first_epoch_is_0_and_each_producer_gets_the_next(bench: Any) -> None:
    first = bench.init()
    assert first.producer_epoch == 0
    assert bench.init() == ProducerIdAndEpoch(first.producer_id, 1)
    assert bench.init("other").producer_id != first.producer_id
    assert bench.state("t").state is EMPTY


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_timeouts_out_of_bounds_are_refused(bench: Any, timeout_ms: int) -> None:
    assert bench.init(timeout_ms=timeout_ms) is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert bench.init("") is ErrorCode.INVALID_REQUEST
    assert bench.init(timeout_ms=900_000).producer_epoch == 0


def test_a_producer_goes_on_after_an_error_with_the_next_epoch(bench: Any) -> None:
    first = bench.init()
    second = bench.init(expected=first)
    assert second == ProducerIdAndEpoch(first.producer_id, 1)
    # The answer was lost: the same again.
    assert bench.init(expected=first) == second
    assert bench.init(expected=second) == ProducerIdAndEpoch(first.producer_id, 2)
    assert bench.init(expected=first) is ErrorCode.PRODUCER_FENCED


def test_who_was_fenced_cannot_go_on(bench: Any) -> None:
    first = bench.init()
    second = bench.init()
    assert bench.init(expected=first) is ErrorCode.PRODUCER_FENCED
    assert bench.init(expected=ProducerIdAndEpoch(4711, 0)) is ErrorCode.PRODUCER_FENCED
    assert bench.init(expected=second).producer_epoch == 2


def test_an_unknown_id_is_made_for_a_producer_that_wants_to_go_on(bench: Any) -> None:
    producer = bench.init(expected=ProducerIdAndEpoch(5, 3))
    assert (producer.producer_id, producer.producer_epoch) == (1000, 0)


def test_a_new_producer_id_follows_the_last_epoch(bench: Any) -> None:
    last = at_epoch(bench, LAST_EPOCH)
    rotated = bench.init()
    assert rotated.producer_id != last.producer_id
    assert rotated.producer_epoch == 0
    assert bench.state("t").previous_producer_id == last.producer_id


def test_a_producer_that_goes_on_gets_its_new_producer_id_twice(bench: Any) -> None:
    last = at_epoch(bench, LAST_EPOCH)
    rotated = bench.init(expected=last)
    assert rotated.producer_epoch == 0
    assert bench.init(expected=last) == rotated
    other = bench.init()
    assert other == ProducerIdAndEpoch(rotated.producer_id, 1)
    assert bench.init(expected=last) is ErrorCode.PRODUCER_FENCED


def test_an_open_transaction_is_aborted_and_its_producer_fenced(bench: Any) -> None:
    old = bench.init()
    bench.add(old, A)
    unable(bench, A)
    assert bench.init() is ErrorCode.CONCURRENT_TRANSACTIONS
    assert bench.state("t").state is PREPARE_ABORT
    assert bench.init() is ErrorCode.CONCURRENT_TRANSACTIONS
    assert bench.add(old, B) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert bench.end(old) is ErrorCode.PRODUCER_FENCED
    able(bench)
    assert bench.state("t").state is COMPLETE_ABORT
    for version in (0, 2):
        for refused in (bench.add(old, B), bench.end(old, committed=False, version=version), bench.init(expected=old)):
            assert refused is ErrorCode.PRODUCER_FENCED
    assert bench.init() == ProducerIdAndEpoch(old.producer_id, 2)
    [(partition, marker)] = bench.partitions.markers
    assert (partition, marker.producer_epoch, marker.committed) == (A, 1, False)


def test_fencing_at_the_last_epoch_leaves_a_new_producer_id(bench: Any) -> None:
    last = at_epoch(bench, LAST_EPOCH)
    bench.add(last, A)
    assert bench.init() is ErrorCode.CONCURRENT_TRANSACTIONS
    assert bench.partitions.markers[0][1].producer_epoch == MAX_EPOCH
    new = bench.init()
    assert (new.producer_id != last.producer_id, new.producer_epoch) == (True, 0)


# --- AddPartitionsToTxn ---------------------------------------------------------------------------------------------


def test_the_first_partition_begins_the_transaction(bench: Any) -> None:
    producer = bench.init()
    bench.advance(1000)
    assert bench.add(producer, A) is None
    began = bench.clock.time_ms()
    bench.advance(1000)
    assert bench.add(producer, B) is None
    found = bench.state("t")
    assert (found.state, found.partitions, found.start_ms) == (ONGOING, {A, B}, began)
    written = bench.writer.appends
    assert bench.add(producer, A, B) is None
    assert bench.writer.appends == written


def test_partitions_are_added_by_the_current_producer_only(bench: Any) -> None:
    producer = bench.init()
    assert bench.add(ProducerIdAndEpoch(1, 0), A) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert bench.add(ProducerIdAndEpoch(producer.producer_id, 1), A) is ErrorCode.PRODUCER_FENCED
    assert bench.add(producer, A, name="unknown") is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert bench.add(producer, A, name="") is ErrorCode.INVALID_REQUEST
    assert bench.state("t").state is EMPTY


def test_nothing_is_added_while_a_transaction_ends(bench: Any) -> None:
    producer = bench.init()
    bench.add(producer, A)
    unable(bench, A)
    bench.end(producer)
    assert bench.add(producer, B) is ErrorCode.CONCURRENT_TRANSACTIONS
    able(bench)
    assert bench.add(producer, B) is None
    assert bench.state("t").partitions == {B}


def test_brokers_can_ask_whether_partitions_belong(bench: Any) -> None:
    producer = bench.init()
    bench.add(producer, A)

    def verify(producer: ProducerIdAndEpoch) -> Any:
        return bench.ask(bench.coordinator.verify_partitions("t", producer, [A, B]))

    assert verify(producer) == {A: ErrorCode.NONE, B: ErrorCode.TRANSACTION_ABORTABLE}
    assert verify(ProducerIdAndEpoch(producer.producer_id, 7)) is ErrorCode.PRODUCER_FENCED
    unable(bench, A)
    bench.end(producer)
    assert verify(producer) is ErrorCode.CONCURRENT_TRANSACTIONS


# --- EndTxn ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("committed", "state"), [(True, COMPLETE_COMMIT), (False, COMPLETE_ABORT)])
def test_every_partition_gets_the_outcome(bench: Any, committed: bool, state: TransactionState) -> None:
    producer = bench.init()
    bench.add(producer, A, B)
    assert bench.end(producer, committed) == producer
    assert {partition: marker.committed for partition, marker in bench.partitions.markers} == {
        A: committed,
        B: committed,
    }
    assert bench.state("t").state is state
    assert bench.state("t").partitions == frozenset()
    # The answer was lost: the same again, but not the contrary.
    assert bench.end(producer, committed) == producer
    assert bench.end(producer, not committed) is ErrorCode.INVALID_TXN_STATE
    assert bench.add(producer, A) is None


def test_an_end_that_is_being_done_is_to_be_asked_for_again(bench: Any) -> None:
    producer = bench.init()
    bench.add(producer, A, B)
    unable(bench, B)
    assert bench.end(producer) == producer
    assert bench.state("t").state is PREPARE_COMMIT
    assert bench.end(producer) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert bench.end(producer, committed=False) is ErrorCode.CONCURRENT_TRANSACTIONS
    able(bench)
    assert bench.end(producer, committed=False) is ErrorCode.INVALID_TXN_STATE
    assert bench.state("t").state is COMPLETE_COMMIT
    # Who had the marker does not get it again.
    assert [partition for partition, _ in bench.partitions.markers] == [A, B]


def test_what_cannot_be_ended(bench: Any) -> None:
    producer = bench.init()
    assert bench.end(producer) is ErrorCode.INVALID_TXN_STATE
    assert bench.end(producer, committed=False) is ErrorCode.INVALID_TXN_STATE
    assert bench.end(producer, name="unknown") is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert bench.end(producer, name="") is ErrorCode.INVALID_REQUEST
    assert bench.end(ProducerIdAndEpoch(1, 0)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    bench.add(producer, A)
    assert bench.end(ProducerIdAndEpoch(producer.producer_id, 1)) is ErrorCode.PRODUCER_FENCED
    assert bench.partitions.markers == []


# --- EndTxn of clients that know KIP-890 ----------------------------------------------------------------------------


def test_each_transaction_has_an_epoch_of_its_own(bench: Any) -> None:
    producer = bench.init()
    bench.add(producer, A)
    bumped = bench.end(producer, version=2)
    assert bumped == ProducerIdAndEpoch(producer.producer_id, 1)
    # The marker has the new epoch already, so that what is late is refused.
    assert bench.partitions.markers[0][1].producer_epoch == 1
    assert bench.end(producer, version=2) == bumped
    assert bench.end(producer, committed=False, version=2) is ErrorCode.INVALID_TXN_STATE
    assert bench.add(producer, A) is ErrorCode.PRODUCER_FENCED
    assert bench.add(bumped, A) is None
    assert bench.end(bumped, committed=False, version=2).producer_epoch == 2


def test_a_transaction_without_partitions_can_be_aborted_only(bench: Any) -> None:
    producer = bench.init()
    assert bench.end(producer, version=2) is ErrorCode.INVALID_TXN_STATE
    bumped = bench.end(producer, committed=False, version=2)
    assert bumped.producer_epoch == 1
    assert bench.state("t").state is COMPLETE_ABORT
    assert bench.end(bumped, version=2) is ErrorCode.INVALID_TXN_STATE
    assert bench.end(bumped, committed=False, version=2).producer_epoch == 2
    assert bench.partitions.markers == []


def test_the_last_epoch_is_followed_by_a_new_producer_id(bench: Any) -> None:
    last = at_epoch(bench, LAST_EPOCH)
    bench.add(last, A)
    new = bench.end(last, version=2)
    assert (new.producer_id != last.producer_id, new.producer_epoch) == (True, 0)
    marker = bench.partitions.markers[0][1]
    assert (marker.producer_id, marker.producer_epoch) == (last.producer_id, MAX_EPOCH)
    assert bench.end(last, version=2) == new
    assert bench.crash().end(last, version=2) == new
    assert bench.crash().add(new, A) is None


def test_a_retry_is_known_by_its_epoch(bench: Any) -> None:
    producer = bench.init()
    bench.add(producer, A)
    unable(bench, A)
    bumped = bench.end(producer, version=2)
    for early in (producer, bumped):
        assert bench.end(early, version=2) is ErrorCode.CONCURRENT_TRANSACTIONS
        assert bench.add(early, A) is ErrorCode.CONCURRENT_TRANSACTIONS
    later = bench.crash()
    assert later.end(producer, version=2) is ErrorCode.CONCURRENT_TRANSACTIONS
    able(later)
    assert later.end(producer, version=2) == bumped
    assert later.end(producer, committed=False, version=2) is ErrorCode.INVALID_TXN_STATE
    assert later.end(producer) is ErrorCode.PRODUCER_FENCED
    later.add(bumped, B, version=2)
    assert later.end(producer, version=2) is ErrorCode.PRODUCER_FENCED


def test_a_transaction_with_an_epoch_of_its_own_ends_with_the_next_one_whoever_asks(bench: Any) -> None:
    """A partition tells its marker from that of the transaction before by the epoch."""
    producer = bench.init()
    bench.add(producer, A, version=2)
    bench.add(producer, B)
    assert bench.end(producer) == ProducerIdAndEpoch(producer.producer_id, 1)
    assert {marker.producer_epoch for _, marker in bench.partitions.markers} == {1}


def test_a_known_partition_that_the_broker_adds_again_raises_the_epoch_of_the_end(bench: Any) -> None:
    producer = bench.init()
    bench.add(producer, A)
    written = len(bench.writer.batches)
    assert bench.add(producer, A) is None
    assert len(bench.writer.batches) == written
    assert bench.add(producer, A, version=2) is None
    bench.end(producer, committed=False)
    assert bench.partitions.markers[-1][1].producer_epoch == producer.producer_epoch + 1


def test_a_new_producer_id_is_waited_for_while_the_transaction_before_ends(bench: Any) -> None:
    last = at_epoch(bench, LAST_EPOCH)
    bench.add(last, A)
    unable(bench, A)
    new = bench.end(last, version=2)
    for early in (bench.add(new, B), bench.end(new, committed=False, version=2), bench.init(expected=new)):
        assert early is ErrorCode.CONCURRENT_TRANSACTIONS
    able(bench)
    assert bench.add(new, B) is None
    # Whose answer was lost long ago does not get the id of the transaction that is open now.
    assert bench.end(last, version=2) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


# --- time -----------------------------------------------------------------------------------------------------------


def test_a_transaction_that_is_open_for_too_long_is_aborted(bench: Any) -> None:
    producer = bench.init(timeout_ms=15_000)
    bench.add(producer, A)
    bench.advance(14_000)
    assert bench.state("t").state is ONGOING
    bench.advance(10_000)
    assert bench.state("t").state is COMPLETE_ABORT
    assert bench.partitions.markers[0][1].committed is False
    assert bench.end(producer) is ErrorCode.PRODUCER_FENCED
    assert bench.end(producer, version=2) is ErrorCode.INVALID_TXN_STATE
    # Who knows KIP-890 may abort, or ask for the next epoch, and go on.
    next_one = ProducerIdAndEpoch(producer.producer_id, 1)
    assert bench.end(producer, committed=False, version=2) == next_one
    assert bench.init(expected=producer) == next_one
    assert bench.init().producer_epoch == 2
    assert bench.init(expected=producer) is ErrorCode.PRODUCER_FENCED


def test_a_timeout_at_the_last_epoch_leaves_nobody_the_highest(bench: Any) -> None:
    last = at_epoch(bench, LAST_EPOCH)
    bench.add(last, A)
    bench.advance(80_000)
    assert bench.state("t").producer_epoch == MAX_EPOCH
    assert bench.end(last, committed=False, version=2) is ErrorCode.PRODUCER_FENCED
    assert bench.init(expected=last) is ErrorCode.PRODUCER_FENCED
    assert bench.init().producer_epoch == 0


def test_ids_that_are_not_used_are_forgotten(make_bench: Callable[..., Any]) -> None:
    bench = make_bench(config=TransactionConfig(expiration_ms=3_600_000, expiry_interval_ms=60_000))
    unused = bench.init("unused")
    ended = bench.init("ended")
    bench.add(ended, A, name="ended")
    bench.end(ended, name="ended")
    open_one = bench.init("open", timeout_ms=900_000)
    unable(bench, B)
    bench.add(open_one, B, name="open")
    bench.advance(3_000_000)
    assert set(bench.coordinator.runtime.shards()[0].transactions) == {"unused", "ended", "open"}
    bench.advance(700_000)
    assert set(bench.coordinator.runtime.shards()[0].transactions) == {"open"}
    crashed = bench.crash()
    assert set(crashed.coordinator.runtime.shards()[0].transactions) == {"open"}
    assert crashed.init("unused").producer_id != unused.producer_id


def test_each_id_is_looked_at_twice_at_most_when_ids_are_forgotten(
    make_bench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[int] = []
    expired = TransactionShard.expired

    def counted(shard: TransactionShard, ids: Iterable[str], now_ms: int) -> list[str]:
        names = list(ids)
        looked_at.append(len(names))
        return expired(shard, names, now_ms)

    bench = make_bench(config=TransactionConfig(expiration_ms=3_600_000, expiry_interval_ms=60_000))
    [shard] = bench.coordinator.runtime.shards().values()
    for number in range(5_000):
        metadata = TransactionMetadata(f"t{number}", number, 0, 60_000, last_update_ms=bench.clock.time_ms())
        shard.apply(transaction_record(metadata))
    bench.advance(3_600_000 - 60_001)
    monkeypatch.setattr(TransactionShard, "expired", counted)
    bench.advance(120_000)
    assert shard.transactions == {}
    assert max(looked_at) <= 500
    assert sum(looked_at) <= 4 * 5_000, "two rounds, of which one forgets"


def test_ids_that_cannot_be_forgotten_now_are_forgotten_later(
    make_bench: Any, caplog: pytest.LogCaptureFixture
) -> None:
    bench = make_bench(config=TransactionConfig(expiration_ms=3_600_000, expiry_interval_ms=60_000))
    bench.init("unused")
    bench.advance(3_000_000)
    bench.writer.failure = errors.KafkaStorageError()
    bench.advance(700_000)
    assert "that expired cannot be removed" in caplog.text
    bench.writer.failure = None
    bench.advance(700_000)
    assert bench.coordinator.runtime.shards()[0].transactions == {}


# --- replication, failures, restarts --------------------------------------------------------------------------------


def test_no_marker_is_written_before_the_outcome_is_committed(bench: Any) -> None:
    producer = bench.init()
    bench.add(producer, A)
    bench.writer.replicate = False
    ending = bench.begin(bench.coordinator.end_transaction("t", producer, True))
    bench.settle()
    assert bench.state("t").state is PREPARE_COMMIT
    assert (ending.done(), bench.partitions.markers) == (False, [])
    bench.writer.replicate = True
    bench.writer.commit()
    bench.settle()
    assert ending.result() == producer
    assert len(bench.partitions.markers) == 1


def test_an_outcome_that_is_committed_late_still_gets_its_markers(bench: Any) -> None:
    producer = bench.init()
    bench.add(producer, A)
    bench.writer.replicate = False
    ending = bench.begin(bench.coordinator.end_transaction("t", producer, True))
    bench.settle()
    bench.advance(31_000)
    assert isinstance(ending.exception(), errors.CoordinatorNotAvailableError)
    assert bench.partitions.markers == []
    bench.writer.replicate = True
    bench.writer.commit()
    bench.advance(200)
    assert len(bench.partitions.markers) == 1
    assert bench.state("t").state is COMPLETE_COMMIT


def test_an_end_that_is_committed_late_leaves_the_next_transaction_alone(bench: Any) -> None:
    producer = bench.init()
    bench.add(producer, A)
    unable(bench, A)
    bench.end(producer)
    assert bench.coordinator.completions.waiting_markers == 1
    bench.writer.replicate = False
    able(bench)
    assert bench.coordinator.completions.waiting_markers == 0
    while not bench.coordinator.completions.waiting_ends:
        bench.advance(10)
    bench.writer.replicate = True
    bench.writer.commit()
    bench.add(producer, B)
    unable(bench, B)
    assert bench.end(producer) == producer
    bench.advance(200)
    able(bench)
    assert bench.state("t").state is COMPLETE_COMMIT
    assert [partition for partition, _ in bench.partitions.markers] == [A, B]
    assert len(bench.coordinator.completions) == 0


@pytest.mark.parametrize("committed", [True, False])
def test_a_prepared_transaction_is_completed_after_a_crash(bench: Any, committed: bool) -> None:
    producer = bench.init()
    bench.add(producer, A, B)
    unable(bench, A)
    bench.end(producer, committed)
    crashed = bench.crash()
    assert crashed.state("t").state.is_prepared
    able(crashed)
    assert crashed.state("t").state is (COMPLETE_COMMIT if committed else COMPLETE_ABORT)
    assert {partition for partition, _ in bench.partitions.markers} == {A, B}
    assert {marker.committed for _, marker in bench.partitions.markers} == {committed}
    assert bench.partitions.markers[-1][1].coordinator_epoch == 2


def test_a_crash_before_the_outcome_is_written_leaves_the_transaction_open(bench: Any) -> None:
    producer = bench.init()
    bench.add(producer, A)
    bench.begin(bench.coordinator.end_transaction("t", producer, True))
    crashed = bench.crash()
    assert crashed.state("t").state is ONGOING
    assert bench.partitions.markers == []
    assert crashed.end(producer, committed=False) == producer


def test_a_refused_write_leaves_nothing_behind(bench: Any) -> None:
    producer = bench.init()
    bench.add(producer, A)
    bench.writer.failure = error_for(ErrorCode.KAFKA_STORAGE_ERROR)
    assert bench.end(producer) is ErrorCode.NOT_COORDINATOR
    assert bench.init() is ErrorCode.NOT_COORDINATOR
    bench.writer.failure = None
    bench.advance(1000)
    assert (bench.state("t").state, bench.state("t").producer) == (ONGOING, producer)
    assert bench.partitions.markers == []
    assert bench.end(producer) == producer


def test_the_end_of_a_replaced_coordinator_is_left_to_its_successor(bench: Any) -> None:
    producer = bench.init()
    bench.add(producer, A)
    bench.partitions.away[A] = error_for(ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    bench.end(producer)
    able(bench)
    bench.advance(10_000)
    assert bench.state("t").state is PREPARE_COMMIT
    assert len(bench.coordinator.completions) == 0
    assert bench.crash().state("t").state is COMPLETE_COMMIT


def test_who_does_not_coordinate_any_more_ends_nothing(bench: Any) -> None:
    producer = bench.init()
    bench.add(producer, A)
    unable(bench, A)
    bench.end(producer)
    assert len(bench.coordinator.completions) == 1
    bench.coordinator.on_leadership_change(TopicPartition("__transaction_state", 0), 9, False)
    assert len(bench.coordinator.completions) == 0
    able(bench)
    assert bench.partitions.markers == []
    assert bench.init() is ErrorCode.NOT_COORDINATOR


def test_a_deleted_partition_is_not_waited_for(bench: Any) -> None:
    producer = bench.init()
    bench.add(producer, A, B)
    unable(bench, A)
    bench.end(producer)
    bench.advance(1000)
    assert bench.state("t").state is PREPARE_COMMIT
    bench.gone.add(A)
    bench.advance(1000)
    assert bench.state("t").state is COMPLETE_COMMIT


@pytest.mark.parametrize("error", [ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION])
def test_a_partition_that_cannot_hold_markers_is_passed_over(bench: Any, error: ErrorCode) -> None:
    producer = bench.init()
    bench.add(producer, A, B)
    bench.partitions.away[A] = error_for(error)
    bench.end(producer)
    assert bench.state("t").state is COMPLETE_COMMIT


def test_all_state_is_in_the_log(bench: Any) -> None:
    for number in range(20):
        producer = bench.init(f"t{number}")
        if number % 4:
            bench.add(producer, A, TopicPartition("many", number), name=f"t{number}")
        if number % 4 == 2:
            bench.end(producer, number % 3 == 0, version=2 * (number % 5 == 0), name=f"t{number}")
    before = dict(bench.coordinator.runtime.shards()[0].transactions)
    assert bench.crash().coordinator.runtime.shards()[0].transactions == before


# --- what there is --------------------------------------------------------------------------------------------------


def test_transactions_are_listed_by_state_producer_and_age(bench: Any) -> None:
    one = bench.init("one")
    bench.add(one, A, name="one")
    bench.advance(5000)
    bench.init("two")

    def listed(**filters: Any) -> set[str]:
        asked: dict[str, Any] = {"producer_ids": (), "states": None} | filters
        return {each.transactional_id for each in bench.coordinator.list_transactions(**asked)}

    assert listed() == {"one", "two"}
    assert listed(states={ONGOING}) == {"one"}
    assert listed(states=set()) == set()
    assert listed(producer_ids=[one.producer_id]) == {"one"}
    assert listed(states={ONGOING}, duration_ms=4999) == {"one"}
    assert listed(states={ONGOING}, duration_ms=5002) == set()
    before = bench.coordinator.numbers()
    assert before[:2] == ({"Ongoing": 1, "Empty": 1}, 0)
    bench.advance(2000)
    assert bench.coordinator.numbers() == before._replace(longest_open_ms=before.longest_open_ms + 2000)
    bench.end(one, name="one")
    bench.settle()
    assert bench.coordinator.numbers() == ({"CompleteCommit": 1, "Empty": 1}, 0, 0)


def test_an_id_is_described(bench: Any) -> None:
    producer = bench.init()
    bench.add(producer, A)
    found = bench.ask(bench.coordinator.describe("t"))
    assert (found.producer, found.state, found.partitions, found.timeout_ms) == (producer, ONGOING, {A}, 60_000)
    assert bench.ask(bench.coordinator.describe("nobody")) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert bench.ask(bench.coordinator.describe("")) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("state", list(TransactionState))
def test_records_say_what_they_were_made_from(state: TransactionState) -> None:
    metadata = TransactionMetadata(
        "t", 7, 3, 1000, state, frozenset({A, B} if state is not EMPTY else ()), 5, 6, client_version=2
    )
    record = transaction_record(metadata)
    assert metadata_of(record) == metadata
    assert record.value_version == 1
    assert transaction_record(TransactionMetadata("t", 7, 3, 1000, state)).value_version == 0


def test_only_kafkas_transitions_are_possible() -> None:
    ongoing = TransactionMetadata("t", 7, 3, 1000).with_partitions([A], 1)
    with pytest.raises(ValueError, match="Empty cannot follow Ongoing"):
        ongoing.initialized(4, 1000, 2)
    prepared = ongoing.prepared(True, 0, 2)
    for forbidden in (
        lambda: prepared.prepared(False, 0, 3),
        lambda: prepared.with_partitions([B], 3),
        lambda: prepared.fenced(3),
        lambda: prepared.completed(3).completed(4),
        lambda: ongoing.completed(3),
    ):
        with pytest.raises(ValueError, match="cannot follow"):
            forbidden()


@pytest.mark.parametrize("code", TOO_LARGE)
def test_a_transaction_too_large_for_its_record_is_the_brokers_trouble(bench: Any, code: ErrorCode) -> None:
    """A producer would take MESSAGE_TOO_LARGE for its own records."""
    bench.init()
    bench.writer.failure = error_for(code)
    assert bench.init() is ErrorCode.UNKNOWN_SERVER_ERROR
