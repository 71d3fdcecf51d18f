"""The sender's states between two passes: timers, waiters, errors without a response, sequences of expired batches."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import pytest
from clients.producer.fake_network import PartitionResponse as Answered
from clients.producer.fake_network import TopicResponse
from clients.producer.test_sender import Bench, running

from kafkapy.clients.producer import sender as module
from kafkapy.clients.producer.sender import PartitionResponse, monotonic_ms
from kafkapy.clients.producer.transaction_manager import State
from kafkapy.errors import (
    ErrorCode,
    InvalidRecordError,
    KafkaError,
    RetriableError,
    TransactionAbortedError,
    UnsupportedVersionError,
    error_class,
    error_for,
)
from kafkapy.protocol.messages.produce import ProduceResponse

OUT_OF_ORDER = error_for(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)


def failed_passes(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.message for each in caplog.records if each.levelno >= logging.ERROR]


def test_the_clock_of_batches_counts_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic_ns", lambda: 10**15 + 999_999)
    assert monotonic_ms() == 10**9


def test_what_is_not_in_a_response_is_unknown() -> None:
    assert tuple(PartitionResponse(ErrorCode.NONE)) == (ErrorCode.NONE, None, -1, -1, -1, ())


# --- timers and waiters -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("next_ms", "expiry_ms", "wait", "timer_set"),
    [
        (None, None, None, False),
        (10, None, 10, True),
        (11, None, 11, False),
        (None, 10, 10, True),
        (500, 9, 9, True),
        (9, 500, 9, True),
        (500, 400, 400, False),
        (0, None, 0, True),
    ],
)
@running
async def test_appending_threads_need_not_wake_a_timer_within_the_linger_time(
    next_ms: int | None, expiry_ms: int | None, wait: int | None, timer_set: bool
) -> None:
    bench = Bench(linger_ms=10)
    await bench.settle()
    sender, accumulator = bench.sender, bench.accumulator
    asked: list[float] = []

    class Loop:
        def call_later(self, delay: float, callback: Any) -> Any:
            asked.append(delay)
            return asyncio.get_running_loop().call_later(3600, callback)

    sender._loop = Loop()  # type: ignore[assignment]
    sender._set_timer(next_ms, expiry_ms)
    assert asked == ([] if wait is None else [wait / 1000])
    assert (accumulator.timer_set, accumulator.saturated) == (timer_set, False)
    before = sender._timer
    # With all leaders at their limit, the next response is soon enough.
    sender._in_flight = {1: sender._max_in_flight}
    sender._set_timer(next_ms, expiry_ms)
    assert (accumulator.timer_set, accumulator.saturated) == (True, True)
    assert before is None or before.cancelled()
    sender._leaders = {1, 2}
    sender._set_timer(next_ms, expiry_ms)
    assert not accumulator.saturated
    sender._leaders = set()
    sender._set_timer(next_ms, expiry_ms)
    assert (accumulator.timer_set, accumulator.saturated) == (timer_set, False)
    last = sender._timer
    sender.stop()
    assert last is None or last.cancelled()


@running
async def test_a_timer_that_has_rung_is_replaced_when_its_pass_fails(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(linger_ms=60_000, delivery_timeout_ms=120_000)
    bench.send(b"v")
    await bench.settle()
    old = bench.sender._timer
    assert old is not None
    bench.network.is_ready = None  # type: ignore[assignment]
    bench.accumulator.flushes = 1
    bench.sender._on_timer()
    assert failed_passes(caplog) == ["A pass of the sender failed"]
    assert bench.sender._timer is not None
    assert bench.sender._timer is not old
    bench.sender.stop()
    assert bench.sender._timer.cancelled()
    old.cancel()


@running
async def test_all_is_complete_with_the_last_result() -> None:
    bench = Bench(enable_idempotence=False)
    first, second = bench.send(), bench.send()
    await bench.settle()
    requests = bench.take()
    bench.sender._scheduled = False
    waiting = asyncio.ensure_future(bench.sender.all_complete())
    await asyncio.sleep(0)
    assert bench.sender._scheduled  # what waits for its linger time goes at once
    await bench.settle()
    for request in requests:
        assert not waiting.done()
        request.reply(base_offset=0)
        await bench.settle()
    for request in bench.take():
        request.reply(base_offset=0)
    await waiting
    assert (first.is_done, second.is_done) == (True, True)
    await bench.sender.all_complete()
    bench.sender.stop()


@running
async def test_nobody_waits_for_a_producer_with_an_error() -> None:
    bench = Bench()
    bench.send()
    await bench.settle()
    waiting = asyncio.ensure_future(bench.sender.all_complete())
    await bench.settle()
    assert not waiting.done()
    assert bench.manager is not None
    bench.manager.fatal(KafkaError("x"))
    bench.sender.schedule()
    await waiting
    bench.sender.stop()


# --- before a pass ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", list(State))
@running
async def test_an_error_or_an_abort_fails_what_was_not_sent(state: State) -> None:
    for error in (KafkaError("x"), None):
        bench = Bench(linger_ms=60_000, delivery_timeout_ms=120_000, transactional_id="id")
        manager = bench.manager
        assert manager is not None
        manager.v2 = True
        manager.begin()
        manager.add_partition(bench.accumulator.queue("t", 0))
        future = bench.send(b"v")
        manager.state, manager.last_error = state, error
        fatal = state is State.FATAL_ERROR
        assert bench.sender._advance_transactions(manager) is not fatal
        assert future.is_done is (state in (State.ABORTABLE_ERROR, State.ABORTING, State.FATAL_ERROR))
        if not future.is_done:
            continue
        if error is not None:
            assert future.exception is error
        elif fatal:
            assert "the producer has a fatal error" in str(future.exception)
        else:
            assert isinstance(future.exception, TransactionAbortedError)
        bench.sender.stop()


@running
async def test_a_node_is_slow_until_it_takes_its_batches() -> None:
    bench = Bench(partitioner_availability_timeout_ms=100, enable_idempotence=False)
    bench.sender._slow_since = {1: 0, 2: 0}
    bench.send()
    await bench.settle()
    assert bench.sender._slow_since == {2: 0}
    told: list[Any] = []

    class Accumulator:
        def update_loads(self, excluded: Any) -> None:
            told.append(excluded)

    bench.sender.stop()
    bench.sender._accumulator = Accumulator()  # type: ignore[assignment]
    bench.sender._note_slow(3, 101, drained=False)
    bench.sender._note_slow(2, 101, drained=True)
    assert told == [{2}, set()]


@running
async def test_a_node_that_was_not_ready_is_connected_again() -> None:
    bench = Bench()
    attempts: list[int] = []

    async def connect(node: int) -> None:
        attempts.append(node)
        if len(attempts) == 1:
            raise error_for(ErrorCode.NETWORK_EXCEPTION)
        bench.network.unready.clear()

    bench.network.ready = connect  # type: ignore[method-assign]
    bench.network.unready = {1}
    bench.send()
    while not bench.network.submitted:
        await bench.settle()
    assert attempts == [1, 1]
    bench.sender.stop()


@running
async def test_versions_are_negotiated_between_the_first_with_batches_and_the_last() -> None:
    bench = Bench(newest=99)
    asked: list[tuple[int, ...]] = []
    bench.network.negotiated = lambda *told: (asked.append(told), 12)[1]  # type: ignore[method-assign]
    bench.sender._version(1, {"t": module.ZERO_UUID})
    bench.sender._version(4, {})
    assert asked == [(1, 0, 3, 12), (4, 0, 3, 13)]
    bench.sender.stop()


@pytest.mark.parametrize("idempotent", [True, False])
@running
async def test_a_broker_that_is_too_old_gets_no_batch(idempotent: bool) -> None:
    error = UnsupportedVersionError("old")
    bench = Bench(3, enable_idempotence=idempotent)
    bench.network.unready.add(1)
    bench.sender._refuse_all(1, error)
    assert bench.manager is None or bench.manager.state is State.FATAL_ERROR
    bench.sender.stop()
    bench = Bench(3, enable_idempotence=idempotent)
    bench.sender._refuse_all(1, error_for(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    assert bench.manager is None or bench.manager.state is State.READY
    futures = [bench.send(partition=partition) for partition in range(3)]
    refused = error_for(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    bench.sender._refuse_all(1, refused)
    assert [future.exception for future in futures] == [refused] * 3
    bench.sender.stop()


# --- responses ----------------------------------------------------------------------------------------------------


@running
async def test_requests_and_throttle_times_are_counted() -> None:
    bench = Bench(enable_idempotence=False, batch_size=1000)
    for value in (b"a", b"b", b"c"):
        bench.send(value)
    await bench.settle()
    (request,) = bench.take()
    part = Answered(index=0, error_code=0, base_offset=7)
    response = ProduceResponse(responses=[TopicResponse(name="t", partition_responses=[part])], throttle_time_ms=70)
    request.answer(response)
    await bench.settle()
    values = bench.sender._metrics.snapshot()
    assert (values["record-send-total"], values["batch-total"]) == (3, 1)
    assert values["produce-throttle-time-max"] == 70
    assert bench.network.throttles == [(1, 70)]
    bench.sender.stop()


@running
async def test_without_a_response_offsets_and_times_stay_unknown() -> None:
    bench = Bench(enable_idempotence=False, acks=0)
    future = bench.send()
    await bench.settle()
    (request,) = bench.take()
    request.future.set_result(None)
    await bench.settle()
    assert (future.get(0).offset, future.get(0).timestamp) == (-1, 1000)
    bench.sender.stop()


@pytest.mark.parametrize(
    ("error", "again", "stale"),
    [
        (RetriableError("x"), True, True),
        (KafkaError("x"), False, False),
        (error_for(ErrorCode.NETWORK_EXCEPTION), True, True),
        (error_for(ErrorCode.NOT_ENOUGH_REPLICAS), True, False),
        (error_for(ErrorCode.INVALID_RECORD), False, False),
    ],
)
@running
async def test_an_error_without_a_code_is_one_of_the_network_if_a_retry_may_help(
    error: KafkaError, again: bool, stale: bool
) -> None:
    bench = Bench(enable_idempotence=False, retry_backoff_ms=60_000, retry_backoff_max_ms=60_000)
    future = bench.send()
    await bench.settle()
    bench.take()[0].future.set_exception(error)
    await bench.settle()
    assert future.is_done is not again
    assert bench.network.cluster.invalidated == int(stale)
    if not again:
        assert type(future.exception) is error_class(error.code)
        assert "x" in str(future.exception) or error.code is ErrorCode.INVALID_RECORD
    bench.sender.stop()


@running
async def test_an_unreadable_response_throttles_nobody() -> None:
    bench = Bench(enable_idempotence=False)

    class Frame:
        version = 12

        def body(self) -> bytes:
            return b"\xff"

    future = bench.send()
    await bench.settle()
    (request,) = bench.take()
    assert bench.sender._answered(request.request, Frame()) == 0  # type: ignore[arg-type]
    assert (bench.network.throttles, bench.network.cluster.invalidated) == ([], 0)
    assert request.request.batches[0].attempts == int(ErrorCode.CORRUPT_MESSAGE.retriable)
    assert future.is_done is not ErrorCode.CORRUPT_MESSAGE.retriable
    bench.sender.stop()


@running
async def test_what_nobody_asked_for_is_skipped_and_what_is_missing_is_sent_again() -> None:
    bench = Bench(2, enable_idempotence=False)
    first, second = bench.send(), bench.send(partition=1)
    await bench.settle()
    (request,) = bench.take()
    parts = [Answered(index=7, error_code=6, base_offset=-1), Answered(index=0, error_code=0, base_offset=3)]
    request.answer(ProduceResponse(responses=[TopicResponse(name="t", partition_responses=parts)]))
    await bench.settle()
    assert (first.get(0).offset, second.is_done) == (3, False)
    assert bench.network.cluster.invalidated == 1
    bench.sender.stop()


@pytest.mark.parametrize("code", [ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP])
@pytest.mark.parametrize("wrong", [(1,), (0, 2)])
@running
async def test_the_error_of_a_single_record_has_the_code_of_its_batch(code: ErrorCode, wrong: tuple[int, ...]) -> None:
    bench = Bench(enable_idempotence=False, batch_size=1000)
    futures = [bench.send(value) for value in (b"a", b"b", b"c")]
    (batch,) = bench.accumulator.drain(1, 1 << 20, bench.clock())
    errors = tuple((index, "its text" if index == 2 else None) for index in wrong)
    bench.sender._refused(batch, PartitionResponse(code, "the batch's text", record_errors=errors))
    kind = error_class(code) if len(wrong) == 1 else InvalidRecordError
    for index, future in enumerate(futures):
        if index in wrong:
            assert type(future.exception) is kind
            assert ("its text" if index == 2 else "the batch's text") in str(future.exception)
        else:
            assert "other records of its batch are invalid" in str(future.exception)
    assert bench.sender._metrics.snapshot()["record-error-total"] == 3
    bench.sender.stop()


@running
async def test_a_batch_has_one_result() -> None:
    bench = Bench()
    bench.send()
    (batch,) = bench.accumulator.drain(1, 1 << 20, bench.clock())
    manager = bench.manager
    assert manager is not None
    bench.sender._fail(batch, OUT_OF_ORDER, adjust=False)
    assert manager.epoch_bump_required
    manager.epoch_bump_required = False
    bench.sender._fail(batch, OUT_OF_ORDER, adjust=False)
    assert not manager.epoch_bump_required
    bench.sender.stop()
    plain = Bench(enable_idempotence=False)
    future = plain.send()
    (batch,) = plain.accumulator.drain(1, 1 << 20, plain.clock())
    plain.sender._fail(batch, OUT_OF_ORDER, adjust=False)
    assert future.exception is OUT_OF_ORDER
    plain.sender.stop()


# --- expiry -------------------------------------------------------------------------------------------------------


@running
async def test_batches_expire_at_their_time_and_not_before() -> None:
    bench = Bench(2, enable_idempotence=False, linger_ms=1000, delivery_timeout_ms=32_000, request_timeout_ms=30_000)
    sender = bench.sender
    await bench.settle()
    assert sender._expire(50) is None
    assert sender._expires_ms is None
    first, second = bench.send(b"v"), bench.send(b"v", partition=1)
    one, two = sorted(bench.accumulator.incomplete, key=lambda batch: batch.age)
    one.created_ms, two.created_ms = 1000, 1600
    assert sender._expire(1000) == 31_000  # nothing that is younger can have waited longer
    assert sender._expires_ms == 32_000
    assert (sender._expire(31_999), sender._expires_ms) == (1, 32_000)
    assert (sender._expire(32_000), sender._expires_ms) == (1000, 33_000)
    assert (sender._expire(32_999), sender._expires_ms) == (1, 33_000)
    sender._scheduled = False
    assert not first.is_done
    assert (sender._expire(33_000), sender._expires_ms) == (600, 33_600)
    assert (first.is_done, second.is_done, sender._scheduled) == (True, False, True)
    assert "1 records for t-0 were not sent within 32000 ms" in str(first.exception)
    sender._expires_ms = 33_599
    sender._scheduled = False
    assert (sender._expire(33_599), sender._expires_ms, sender._scheduled) == (1, 33_600, False)
    assert (sender._expire(33_600), sender._expires_ms) == (None, None)
    assert second.is_done
    sender.stop()


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER])
@running
async def test_a_late_answer_says_nothing_of_the_batch_behind(code: ErrorCode) -> None:
    bench = Bench(enable_idempotence=False, max_in_flight_requests_per_connection=1)
    late = bench.send()
    await bench.settle()
    (first,) = bench.take()
    bench.now = 10**7
    bench.sender._expires_ms = 0
    bench.sender.schedule()
    await bench.settle()
    assert late.is_done
    bench.now = 0
    bench.accumulator.topic("t").update([(2, 1)])
    bench.send()
    bench.sender.leaders_changed({2})
    await bench.settle()
    (second,) = bench.take()
    queue = bench.accumulator.queue("t", 0)
    assert (second.node, queue.muted) == (2, True)
    first.reply(error_code=int(code), base_offset=-1)
    await bench.settle()
    assert (queue.muted, queue.sent) == (True, second.request.batches)
    second.reply(base_offset=0)
    await bench.settle()
    assert not queue.muted
    bench.sender.stop()


@pytest.mark.parametrize(
    ("drained", "sequence", "unresolved"), [(True, True, 1), (False, True, -1), (True, False, -1), (False, False, -1)]
)
@running
async def test_only_a_batch_that_was_sent_leaves_its_sequence_open(
    drained: bool, sequence: bool, unresolved: int
) -> None:
    bench = Bench(linger_ms=1000)
    await bench.settle()
    bench.sender.stop()
    future = bench.send(b"v")
    (batch,) = bench.accumulator.incomplete
    if sequence:
        batch.set_producer(7, 0, 0, False)
    batch.drained_ms = int(drained)
    bench.sender._expires_ms = 0
    bench.sender._expire(batch.created_ms + 10**7)
    assert future.is_done
    assert bench.accumulator.queue("t", 0).unresolved_sequence == unresolved
