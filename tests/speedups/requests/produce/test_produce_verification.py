"""The first batch of a transaction waits for the coordinator's word (KIP-890), and nothing that ends the transaction in
between is missed.
"""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy._speedups.testing.request_driver import RequestDriver
from kafkapy.errors import ErrorCode
from kafkapy.records.control import build_end_transaction_marker

OLD, ADDS = 11, 12


def batch(broker: Any, sequence: int = 0, *, producer_id: int = 7, epoch: int = 0, transactional: bool = True) -> bytes:
    data: bytes = broker.batch(
        b"v", producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=transactional
    )
    return data


def send(broker: Any, topics: dict[str, list[tuple[int, bytes | None]]], version: int = OLD, **fields: Any) -> Any:
    return broker.send(broker.produce_request(topics, version=version, transactional_id="tx", **fields), version)


def error(broker: Any, exchange: Any, version: int = OLD) -> ErrorCode:
    return ErrorCode(broker.only(broker.produce_reply(exchange, version)).error_code)


def mark(log: Any, *, epoch: int = 0, committed: bool = False) -> None:
    log.append_as_leader(
        build_end_transaction_marker(7, epoch, committed=committed, coordinator_epoch=0, timestamp_ms=1_700_000_000_000)
    )


def open_transaction(broker: Any, log: Any, version: int = OLD, sequence: int = 0, epoch: int = 0) -> None:
    exchange = send(broker, {log.topic: [(0, batch(broker, sequence, epoch=epoch))]}, version)
    assert exchange.asks_verification
    exchange.confirm_transaction(0)
    assert error(broker, exchange.resume(), version) is ErrorCode.NONE


@pytest.mark.parametrize("version", [3, 9, 11, 12, 13])
def test_only_the_first_batch_of_a_transaction_is_asked_about(broker: Any, version: int) -> None:
    (log,) = broker.topic("t")
    exchange = send(broker, {"t": [(0, batch(broker))]}, version)
    assert (exchange.kind, exchange.asks_verification, exchange.questions) == ("ask", True, [b"0"])
    assert (exchange.transactional_id, exchange.batch_to_verify(0)) == (b"tx", ("t", 0, 7, 0))
    assert log.log_end_offset == 0
    exchange.confirm_transaction(0)
    assert error(broker, exchange.resume(), version) is ErrorCode.NONE
    assert error(broker, send(broker, {"t": [(0, batch(broker, 1))]}, version), version) is ErrorCode.NONE
    mark(log)
    assert send(broker, {"t": [(0, batch(broker, 2))]}, version).asks_verification


def test_others_are_never_asked_about(broker: Any) -> None:
    (log,) = broker.topic("t")
    for version in (OLD, ADDS):
        assert error(broker, send(broker, {"t": [(0, broker.batch())]}, version), version) is ErrorCode.NONE
    assert error(broker, send(broker, {"t": [(0, batch(broker, transactional=False))]})) is ErrorCode.NONE
    assert log.log_end_offset == 3


def test_without_verification_old_versions_are_not_asked_about(broker: Any) -> None:
    (log,) = broker.topic("t")
    broker.plane.verify_transactions = False
    assert error(broker, send(broker, {"t": [(0, batch(broker))]})) is ErrorCode.NONE
    mark(log)
    assert send(broker, {"t": [(0, batch(broker, 1))]}, ADDS).asks_verification


@pytest.mark.parametrize("acks", [1, -1])
def test_a_refused_batch_leaves_nothing(broker: Any, acks: int) -> None:
    logs = broker.topic("t", 3)
    exchange = send(broker, {"t": [(number, batch(broker)) for number in range(3)]}, acks=acks)
    assert exchange.questions == [b"0", b"1", b"2"]
    exchange.confirm_transaction(1)
    exchange.refuse_records(0, ErrorCode.INVALID_TXN_STATE, "not in it")
    exchange.refuse_records(2, ErrorCode.NOT_ENOUGH_REPLICAS, "who knows")
    reply = broker.by_partition(broker.produce_reply(exchange.resume(), OLD))
    codes = [reply["t", number].error_code for number in range(3)]
    assert codes == [ErrorCode.INVALID_TXN_STATE, ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS]
    assert reply["t", 0].error_message == "not in it"
    assert [log.log_end_offset for log in logs] == [0, 1, 0]
    assert [log.last_stable_offset for log in logs] == [0, 0, 0]


def test_an_answer_that_says_nothing_is_no_yes(broker: Any) -> None:
    (log,) = broker.topic("t")
    exchange = send(broker, {"t": [(0, batch(broker))]})
    assert exchange.resume().asks_verification
    assert log.log_end_offset == 0


@pytest.mark.parametrize(
    ("version", "marker_epoch", "refusal"),
    [(OLD, 0, ErrorCode.INVALID_TXN_STATE), (ADDS, 1, ErrorCode.INVALID_PRODUCER_EPOCH)],
)
def test_an_abort_before_the_append_is_not_missed(
    broker: Any, version: int, marker_epoch: int, refusal: ErrorCode
) -> None:
    (log,) = broker.topic("t")
    exchange = send(broker, {"t": [(0, batch(broker))]}, version)
    exchange.confirm_transaction(0)
    # The word is on its way; meanwhile the coordinator has aborted, and its marker is here first.
    mark(log, epoch=marker_epoch)
    assert error(broker, exchange.resume(), version) is refusal
    assert (log.log_end_offset, log.last_stable_offset) == (1, 1)


def test_neither_is_one_that_a_new_question_follows(broker: Any) -> None:
    """The word on the transaction before does not count for the next one (ABA)."""
    (log,) = broker.topic("t")
    late = send(broker, {"t": [(0, batch(broker))]})
    late.confirm_transaction(0)
    mark(log)
    other = RequestDriver(broker.plane)
    request = broker.produce_request({"t": [(0, batch(broker))]}, version=OLD, transactional_id="tx")
    again = broker.send(request, OLD, driver=other)
    assert again.asks_verification
    assert late.resume().kind == "reply"
    assert log.log_end_offset == 1, "nothing but the marker"
    again.confirm_transaction(0)
    assert again.resume().kind == "reply"
    assert (log.log_end_offset, log.last_stable_offset) == (2, 1)


def test_a_marker_of_the_transaction_before_is_none_of_the_next(broker: Any) -> None:
    """With an epoch for each transaction, the marker that ends one has the epoch of the next, which waits already."""
    (log,) = broker.topic("t")
    open_transaction(broker, log, ADDS)
    exchange = send(broker, {"t": [(0, batch(broker, epoch=1))]}, ADDS)
    assert exchange.asks_verification
    exchange.confirm_transaction(0)
    mark(log, epoch=1, committed=True)
    assert error(broker, exchange.resume(), ADDS) is ErrorCode.NONE
    assert (log.log_end_offset, log.last_stable_offset) == (3, 2)
    mark(log, epoch=2, committed=True)
    assert log.last_stable_offset == 4


def test_old_epochs_are_refused_before_anybody_is_asked(broker: Any) -> None:
    (log,) = broker.topic("t")
    open_transaction(broker, log, epoch=3)
    mark(log, epoch=4)
    assert error(broker, send(broker, {"t": [(0, batch(broker, 1, epoch=3))]})) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_later_batch_does_not_overtake_one_that_could_not_be_verified(broker: Any) -> None:
    broker.topic("t")
    exchange = send(broker, {"t": [(0, batch(broker, 5))]})
    exchange.refuse_records(0, ErrorCode.NOT_ENOUGH_REPLICAS)
    exchange.resume()
    assert error(broker, send(broker, {"t": [(0, batch(broker, 6))]})) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(broker, {"t": [(0, batch(broker, 5))]}).asks_verification
    assert send(broker, {"t": [(0, batch(broker, 9, epoch=1))]}).asks_verification, "a new epoch begins anew"


def test_a_transaction_of_its_own_epoch_begins_with_sequence_0(broker: Any) -> None:
    broker.topic("t")
    assert error(broker, send(broker, {"t": [(0, batch(broker, 3))]}, ADDS), ADDS) is (
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    )
    assert send(broker, {"t": [(0, batch(broker, 3))]}, OLD).asks_verification


def test_a_request_has_one_producer(broker: Any) -> None:
    logs = broker.topic("t", 2)
    for other in (batch(broker, producer_id=8), batch(broker, epoch=1)):
        reply = broker.produce_reply(send(broker, {"t": [(0, batch(broker)), (1, other)]}), OLD)
        codes = {entry.error_code for entry in broker.by_partition(reply).values()}
        assert codes == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert [log.log_end_offset for log in logs] == [0, 0]


def test_records_are_looked_into_before_the_coordinator_is_asked(broker: Any) -> None:
    (packed,) = broker.topic("c", compression_type="zstd")
    (plain,) = broker.topic("p")
    data = broker.batch(
        b"v" * 100, codec=1, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )
    exchange = send(broker, {"p": [(0, batch(broker))], "c": [(0, data)]})
    assert (exchange.asks_validation, exchange.questions) == (True, [b"1"])
    exchange.replace_records(1, None)
    assert exchange.resume().asks_verification
    assert exchange.questions == [b"0", b"1"]
    for index in range(2):
        exchange.confirm_transaction(index)
    reply = broker.produce_reply(exchange.resume(), OLD)
    assert {entry.error_code for entry in broker.by_partition(reply).values()} == {ErrorCode.NONE}
    assert (plain.log_end_offset, packed.log_end_offset) == (1, 1)


def test_of_two_batches_for_one_partition_the_last_one_is_asked_about(broker: Any) -> None:
    (log,) = broker.topic("t")
    exchange = send(broker, {"t": [(0, batch(broker, 1)), (0, batch(broker))]})
    assert exchange.questions == [b"1"]
    exchange.confirm_transaction(1)
    exchange.resume()
    assert (exchange.kind, log.log_end_offset) == ("reply", 1)


def test_questions_that_nobody_came_back_to_are_forgotten(broker: Any) -> None:
    (log,) = broker.topic("t")
    exchange = send(broker, {"t": [(0, batch(broker))]})
    exchange.confirm_transaction(0)
    log.producer_id_expiration_ms = 0
    log.expire_producers(2**62)
    assert error(broker, exchange.resume()) is ErrorCode.INVALID_TXN_STATE
