"""Futures over batches: waiting from other threads, callbacks, awaiting, bulk results, splits."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
import weakref
from typing import Any

import pytest

from kafkapy._speedups.clients.producer.producer_batch import ProducerBatch
from kafkapy._speedups.clients.producer.record_accumulator import RecordAccumulator
from kafkapy._speedups.clients.producer.record_future import FutureRecordMetadata, bulk_future, failed_future
from kafkapy._speedups.clients.producer.record_spans import RecordSpans
from kafkapy.errors import KafkaError, KafkaTimeoutError, NotEnoughReplicasError
from kafkapy.types import RecordMetadata, TopicPartition


def batch_of(count: int) -> tuple[RecordAccumulator, ProducerBatch, list[FutureRecordMetadata]]:
    accumulator = RecordAccumulator(1 << 20, 100_000, 0, 1 << 20, [100])
    accumulator.topic("t").update([(1, 0)])
    futures = []
    for i in range(count):
        future = accumulator.append("t", 0, 1000 + i, b"key", b"value", [("h", b"12345")] if i else None)
        assert future is not None
        futures.append(future)
    (batch,) = accumulator.drain(1, 1 << 20, 10**15)
    return accumulator, batch, futures


def test_a_result_has_everything() -> None:
    accumulator, batch, (first, second) = batch_of(2)
    assert (first.is_done, first.done(), first.succeeded(), first.failed()) == (False, False, False, False)
    assert (first.value, first.exception) == (None, None)
    assert "pending" in repr(first)
    accumulator.succeed(batch, 500, -1)
    place = TopicPartition("t", 0)
    assert first.get() == RecordMetadata("t", 0, place, 500, 1000, None, 3, 5, -1)
    assert second.get(0) == second.value == RecordMetadata("t", 0, place, 501, 1001, None, 3, 5, 6)
    assert (first.is_done, first.succeeded(), first.failed(), first.retriable()) == (True, True, False, False)
    assert "succeeded" in repr(first)


def test_the_brokers_time_wins_and_an_unknown_offset_stays_unknown() -> None:
    accumulator, batch, futures = batch_of(2)
    accumulator.succeed(batch, -1, 9999)
    assert [(future.get().offset, future.get().timestamp) for future in futures] == [(-1, 9999)] * 2


def test_records_of_a_failed_batch_may_have_errors_of_their_own() -> None:
    accumulator, batch, futures = batch_of(3)
    accumulator.fail(batch, NotEnoughReplicasError("all"), {1: KafkaError("this one")})
    assert [str(future.exception) for future in futures] == ["all", "this one", "all"]
    assert [future.retriable() for future in futures] == [True, False, True]
    for future, text in zip(futures, ["all", "this one", "all"], strict=True):
        with pytest.raises(KafkaError, match=text):
            future.get()
        assert future.failed()


def test_waiting_times_out_and_waits_again() -> None:
    accumulator, batch, (future,) = batch_of(1)
    with pytest.raises(KafkaTimeoutError, match=r"0\.01 s"):
        future.get(0.01)
    with pytest.raises(KafkaTimeoutError):
        future.get(0)
    accumulator.succeed(batch, 1, -1)
    assert future.get(0).offset == 1


def test_many_threads_wait_for_one_batch_and_its_parts() -> None:
    accumulator, batch, futures = batch_of(60)
    results: list[Any] = [None] * 60

    def wait(index: int) -> None:
        results[index] = futures[index].get(20).offset

    threads = [threading.Thread(target=wait, args=(index,)) for index in range(60)]
    for thread in threads:
        thread.start()
    time.sleep(0.02)
    accumulator.split(batch)
    offset = 0
    while parts := accumulator.drain(1, 1 << 20, 10**15):
        for part in parts:
            accumulator.succeed(part, offset, -1)
            offset += part.record_count
    for thread in threads:
        thread.join(20)
    assert results == list(range(60))


def test_no_wake_is_lost_when_results_come_while_threads_begin_to_wait() -> None:
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(60):
            accumulator, batch, futures = batch_of(4)
            called: list[int] = []

            def wait(index: int, futures: Any = futures, called: Any = called) -> None:
                futures[index].add_callback(lambda metadata: called.append(metadata.offset))
                assert futures[index].get(10).offset == index

            threads = [threading.Thread(target=wait, args=(index,)) for index in range(4)]
            for thread in threads:
                thread.start()
            accumulator.succeed(batch, 0, -1)
            for thread in threads:
                thread.join(10)
                assert not thread.is_alive()
            assert sorted(called) == [0, 1, 2, 3]  # each once
    finally:
        sys.setswitchinterval(switch)


def test_callbacks_run_in_order_once_and_one_that_fails_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    accumulator, batch, (one, two) = batch_of(2)
    called: list[Any] = []
    assert one.add_callback(lambda prefix, metadata: called.append((prefix, metadata.offset)), "a") is one
    one.add_callback(lambda metadata: 1 / 0)
    one.add_errback(lambda error: called.append(error))
    two.add_both(lambda result, tag: called.append((tag, result.offset)), tag="b")
    accumulator.succeed(batch, 7, -1)
    two.add_callback(lambda metadata: called.append(("late", metadata.offset)))
    assert called == [("a", 7), ("b", 8), ("late", 8)]
    assert "callback of a record for t-0 failed" in caplog.text
    accumulator, batch, (one,) = batch_of(1)
    one.add_both(called.append)
    error = KafkaError("x")
    accumulator.fail(batch, error)
    one.add_errback(called.append)
    one.add_callback(called.append)
    assert called[3:] == [error, error]


def test_a_future_can_be_awaited_on_another_loop() -> None:
    accumulator, batch, (future,) = batch_of(1)

    async def wait() -> int:
        return (await future).offset

    threading.Timer(0.02, accumulator.succeed, (batch, 3, -1)).start()
    assert asyncio.run(wait()) == 3
    assert asyncio.run(wait()) == 3


def test_a_failed_future_is_done_from_the_start() -> None:
    future = failed_future("t", 3, KafkaError("no"))
    assert (future.failed(), future.topic_partition) == (True, TopicPartition("t", 3))
    with pytest.raises(KafkaError, match="no"):
        future.get()


def spans(*each: tuple[Any, int, int]) -> RecordSpans:
    """Of (batch, index of the first record, count)."""
    out = RecordSpans()
    for batch, first, count in each:
        out.append(batch, first, count)
    return out


def test_one_future_for_many_records() -> None:
    accumulator, batch, _ = batch_of(10)
    other_accumulator, other, _ = batch_of(5)
    bulk = bulk_future(spans((batch, 2, 8), (other, 0, 5), (batch, 0, 2)))
    assert (len(bulk), bulk.done(), bulk.succeeded(), bulk.failed(), bulk.exception) == (15, False, False, False, None)
    told: list[Any] = []
    bulk.add_done_callback_threadless(told.append)
    with pytest.raises(KafkaTimeoutError):
        bulk.wait(0.01)
    accumulator.split(batch)
    offset = 100
    while parts := accumulator.drain(1, 1 << 20, 10**15):
        for part in parts:
            accumulator.succeed(part, offset, -1)
            offset += part.record_count
    assert not bulk.is_done
    assert told == []
    other_accumulator.succeed(other, 7, -1)
    assert told == [bulk]
    place = TopicPartition("t", 0)
    stretches = bulk.get(1)
    assert sum(count for _, _, count in stretches) == 15
    flat = [first + i for _, first, count in stretches for i in range(count)]
    assert flat == [*range(102, 110), *range(7, 12), 100, 101]
    assert {each for each, _, _ in stretches} == {place}
    assert asyncio.run(_value(bulk)) == stretches
    assert bulk_future(RecordSpans()).get(0) == []


async def _value(future: Any) -> Any:
    return await future


def test_a_bulk_future_raises_its_first_error() -> None:
    accumulator, batch, _ = batch_of(4)
    bulk = bulk_future(spans((batch, 0, 4)))
    accumulator.fail(batch, KafkaError("all"), {2: KafkaError("third")})
    assert bulk.failed()
    with pytest.raises(KafkaError, match="all"):
        bulk.get()


def test_an_error_that_was_raised_holds_nobody_who_asked() -> None:
    class Held:
        pass

    cause = OSError("the cause")
    failure = NotEnoughReplicasError("too few")
    failure.__cause__ = cause

    def ask() -> weakref.ref[Held]:
        held = Held()
        accumulator, batch, (future,) = batch_of(1)
        accumulator.fail(batch, failure)
        for _ in range(2):
            with pytest.raises(NotEnoughReplicasError, match="^too few$") as caught:
                future.get()
            assert caught.value.__cause__ is cause
        assert future.exception is failure
        return weakref.ref(held)

    references = [ask() for _ in range(3)]
    gc.collect()
    assert [reference() for reference in references] == [None] * 3
    assert failure.__traceback__ is None


def test_an_error_that_cannot_be_copied_is_raised_itself() -> None:
    class Own(KafkaError):
        def __init__(self, one: str, two: str) -> None:
            super().__init__(one + two)

    accumulator, batch, (future,) = batch_of(1)
    failure = Own("a", "b")
    accumulator.fail(batch, failure)
    with pytest.raises(Own, match="^ab$") as caught:
        future.get()
    assert caught.value is failure
