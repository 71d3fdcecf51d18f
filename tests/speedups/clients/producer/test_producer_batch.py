"""A producer's batch: what it begins with, its states, its parts, and who hears of its result."""

from __future__ import annotations

import gc
import logging
import threading
from typing import Any

import pytest

from kafkapy._speedups.clients.producer.produce_frame import ProduceRequestFrame
from kafkapy._speedups.clients.producer.producer_batch import ProducerBatch, next_sequence
from kafkapy._speedups.clients.producer.record_accumulator import RecordAccumulator
from kafkapy.clients.network_client import request_header
from kafkapy.errors import IllegalStateError, KafkaError
from kafkapy.types import TopicPartition

NODE = 1
LATER = 10**15
NO_TIMESTAMP = -1


def made(batch_size: int = 1000, memory: int = 1 << 20) -> RecordAccumulator:
    accumulator = RecordAccumulator(memory, batch_size, 5, 1 << 20, [100])
    accumulator.topic("t").update([(NODE, 0)] * 4)
    return accumulator


def batch_of(accumulator: RecordAccumulator, values: list[bytes], timestamps: list[int] | None = None) -> ProducerBatch:
    """A drained batch of these records."""
    for index, value in enumerate(values):
        timestamp = 1000 if timestamps is None else timestamps[index]
        assert accumulator.append("t", 3, timestamp, None, value) is not None
    (batch,) = accumulator.drain(NODE, 1 << 20, LATER)
    assert batch.record_count == len(values)
    return batch


def test_a_batch_begins_without_a_producer_and_a_result() -> None:
    accumulator = made()
    accumulator.append("t", 3, 1000, None, b"v")
    (batch,) = accumulator.incomplete
    assert (batch.topic, batch.partition, batch.topic_partition) == ("t", 3, TopicPartition("t", 3))
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.has_sequence) == (-1, -1, -1, False)
    assert (batch.leader_changed_at, batch.leader_epoch, batch.attempts, batch.drained_ms) == (-1, -1, 0, 0)
    assert (batch.base_offset, batch.last_offset, batch.log_append_time) == (-1, -1, NO_TIMESTAMP)
    assert (batch.closed, batch.done, batch.full, batch.transactional, batch.sequence_reset) == (False,) * 5
    assert (batch.error, batch.record_errors, batch.parts, len(batch)) == (None, None, None, 1)
    assert batch.created_ms == batch.attempted_ms
    assert repr(batch) == "<ProducerBatch t-3: 1 records, sequence -1>"
    with pytest.raises(TypeError, match="made by a RecordAccumulator"):
        ProducerBatch()


@pytest.mark.parametrize("timestamps", [[5, 3, 4], [3, 5, 4], [0, 0, 0], [-1, -1, -1], [-1, 0, -1]])
def test_a_batch_knows_its_first_and_latest_time(timestamps: list[int]) -> None:
    batch = batch_of(made(), [b"a", b"b", b"c"], timestamps)
    assert (batch.base_timestamp, batch.max_timestamp) == (timestamps[0], max(timestamps))


@pytest.mark.parametrize(("first", "last"), [(-1, -1), (0, 2), (1, 3), (10, 12)])
def test_the_last_offset_goes_by_the_number_of_records(first: int, last: int) -> None:
    batch = batch_of(made(), [b"a", b"b", b"c"])
    assert batch.succeed(first, 77)
    assert (batch.base_offset, batch.last_offset, batch.log_append_time) == (first, last, 77)


@pytest.mark.parametrize(
    ("sequence", "increment", "expected"),
    [(0, 0, 0), (0, 1, 1), (2**31 - 1, 0, 2**31 - 1), (2**31 - 1, 1, 0), (2**31 - 2, 3, 1)],
)
def test_numbers_wrap_after_the_last(sequence: int, increment: int, expected: int) -> None:
    assert next_sequence(sequence, increment) == expected


def test_numbers_that_were_given_before_are_reset() -> None:
    batch = batch_of(made(), [b"a", b"b"])
    batch.set_producer(7, 3, 2**31 - 1, True)
    assert (batch.has_sequence, batch.base_sequence, batch.last_sequence) == (True, 2**31 - 1, 0)
    assert (batch.producer_id, batch.producer_epoch) == (7, 3)
    assert (batch.transactional, batch.sequence_reset) == (True, False)
    batch.set_producer(8, 4, 2**31, False)
    assert (batch.base_sequence, batch.transactional, batch.sequence_reset) == (0, False, True)
    batch.set_producer(8, 4, 5, False)
    assert batch.sequence_reset


def test_a_new_leader_is_noted_with_the_attempt() -> None:
    batch = batch_of(made(), [b"a"])
    for epoch, known, changed_at in ((-1, -1, -1), (0, 0, -1), (0, 0, -1), (1, 1, 0), (0, 1, 0), (-1, 1, 0)):
        batch.update_leader(epoch)
        assert (batch.leader_epoch, batch.leader_changed_at) == (known, changed_at)
    batch.reenqueued(123)
    assert (batch.attempts, batch.attempted_ms) == (1, 123)
    batch.update_leader(1)
    assert batch.leader_changed_at == 0
    batch.update_leader(2)
    assert (batch.leader_epoch, batch.leader_changed_at) == (2, 1)


# --- memory -------------------------------------------------------------------------------------------------------


def test_memory_is_given_back_once_nobody_needs_it() -> None:
    accumulator = made(1000, 3000)
    pool = accumulator.pool
    batch = batch_of(accumulator, [b"a"])
    frames = [ProduceRequestFrame(9, request_header(0, 9, "me"), [batch], -1, 1000) for _ in range(2)]
    assert pool.available == 2000
    del frames[1]
    gc.collect()
    # The batch has no result yet, so it may be sent again.
    assert pool.available == 2000
    assert frames[0].to_bytes()
    frames[0].release()
    assert pool.available == 2000
    frame = ProduceRequestFrame(9, request_header(0, 9, "me"), [batch], -1, 1000)
    accumulator.succeed(batch, 0, -1)
    assert pool.available == 2000
    frame.release()
    assert pool.available == 3000


def test_a_batch_that_nobody_has_gives_its_memory_back() -> None:
    accumulator = made(1000, 3000)
    pool = accumulator.pool
    accumulator.append("t", 0, 1000, None, b"v")
    assert pool.available == 2000
    del accumulator
    gc.collect()
    assert pool.available == 3000


# --- results ------------------------------------------------------------------------------------------------------


def test_a_batch_has_one_result() -> None:
    error, other = KafkaError("x"), KafkaError("y")
    batch = batch_of(made(), [b"a"])
    assert batch.fail(error, {0: other})
    assert (batch.done, batch.closed, batch.error, batch.record_errors) == (True, True, error, {0: other})
    assert not batch.fail(other)
    assert not batch.succeed(4, 5)
    assert (batch.error, batch.base_offset, batch.record_errors) == (error, -1, {0: other})
    batch = batch_of(made(), [b"a"])
    assert batch.succeed(4, 5)
    assert not batch.succeed(6, 7)
    assert not batch.fail(error)
    assert (batch.base_offset, batch.log_append_time, batch.error) == (4, 5, None)


def test_each_callback_is_called_once(caplog: pytest.LogCaptureFixture) -> None:
    batch = batch_of(made(), [b"a"])
    called: list[int] = []

    def fails() -> None:
        called.append(1)
        raise ValueError("no")

    batch.on_done(fails)
    batch.on_done(lambda: called.append(2))
    batch.run_callbacks() if batch.done else None
    assert called == []
    batch.succeed(0, -1)
    assert called == []
    batch.run_callbacks()
    batch.run_callbacks()
    assert called == [1, 2]
    assert [each.message for each in caplog.records if each.levelno == logging.ERROR] == [
        "A callback of a record for t-3 failed"
    ]
    batch.on_done(lambda: called.append(3))
    assert called == [1, 2, 3]


def test_a_waiting_thread_hears_of_the_result() -> None:
    accumulator = made()
    future = accumulator.append("t", 3, 1000, None, b"v")
    assert future is not None
    (batch,) = accumulator.incomplete
    got: list[Any] = []
    waiting = threading.Thread(target=lambda: got.append(future.get(60).offset))
    waiting.start()
    accumulator.drain(NODE, 1 << 20, LATER)
    accumulator.succeed(batch, 9, -1)
    waiting.join()
    assert got == [9]


# --- parts --------------------------------------------------------------------------------------------------------


def test_the_parts_of_a_batch_have_its_records_and_numbers() -> None:
    accumulator = made(4000)
    timestamps = [1000, 900, 1100, 1050]
    batch = batch_of(accumulator, [b"%d" % index * 500 for index in range(4)], timestamps)
    batch.set_producer(7, 3, 2**31 - 2, True)
    parts = batch.split(1200)
    assert [part.record_count for part in parts] == [2, 2]
    assert [(part.base_timestamp, part.max_timestamp) for part in parts] == [(1000, 1000), (1100, 1100)]
    assert [(part.base_sequence, part.producer_id, part.producer_epoch) for part in parts] == [
        (2**31 - 2, 7, 3),
        (0, 7, 3),
    ]
    assert all((part.closed, part.transactional, part.done) == (True, True, False) for part in parts)
    assert all(part.created_ms == batch.created_ms for part in parts)
    assert batch.parts == [(0, parts[0]), (2, parts[1])]
    assert (batch.done, batch.closed) == (True, True)
    with pytest.raises(IllegalStateError, match="is complete and cannot be split"):
        batch.split(1200)


def test_parts_without_numbers_get_none() -> None:
    batch = batch_of(made(4000), [bytes(500)] * 3)
    parts = batch.split(700)
    assert [part.record_count for part in parts] == [1, 1, 1]
    assert [part.has_sequence for part in parts] == [False] * 3


def test_a_full_buffer_does_not_hinder_a_split() -> None:
    accumulator = made(4000, 4000)
    batch = batch_of(accumulator, [bytes(500)] * 4)
    assert accumulator.pool.available == 0
    assert len(batch.split(1200)) == 2
    assert accumulator.pool.available == 4000 - 2 * 1200


@pytest.mark.parametrize("limit", [70, 600])
def test_a_record_that_is_larger_than_a_part_has_its_own(limit: int) -> None:
    accumulator = made(4000)
    sizes = [700, 10, 1500, 2, 900]
    batch = batch_of(accumulator, [bytes(size) for size in sizes])
    parts = batch.split(limit)
    assert sum(part.record_count for part in parts) == len(sizes)
    assert [part.record_count for part in parts] == [1] * 5
    for part, size in zip(parts, sizes, strict=True):
        assert part.max_record_size > size


def test_a_complete_batch_is_not_split() -> None:
    accumulator = made()
    batch = batch_of(accumulator, [b"a", b"b"])
    frame = ProduceRequestFrame(9, request_header(0, 9, "me"), [batch], -1, 1000)
    batch.fail(KafkaError("x"))
    # Its memory is there for the request.
    with pytest.raises(IllegalStateError, match="is complete and cannot be split"):
        batch.split(100)
    frame.release()
    with pytest.raises(IllegalStateError, match="is complete and cannot be split"):
        batch.split(100)


def test_callbacks_of_a_split_batch_wait_for_its_parts() -> None:
    accumulator = made(4000)
    batch = batch_of(accumulator, [bytes(500)] * 3)
    called: list[str] = []
    batch.on_done(lambda: called.append("before"))
    parts = batch.split(700)
    batch.run_callbacks()
    batch.on_done(lambda: called.append("after"))
    for part in parts:
        assert called == []
        part.succeed(0, -1)
        part.run_callbacks()
    assert called == ["before", "after"]
    batch.on_done(lambda: called.append("late"))
    assert called == ["before", "after", "late"]
