"""The producer's memory: which sizes are allowed, and which buffers are kept for the next batch."""

from __future__ import annotations

import pytest

from kafkapy._speedups.clients.producer.buffer_pool import BufferPool
from kafkapy._speedups.clients.producer.producer_batch import ProducerBatch
from kafkapy._speedups.clients.producer.record_accumulator import RecordAccumulator

NODE = 1
LATER = 10**15
SIZE = 1000
"""Bytes of a batch."""


def made(memory: int) -> RecordAccumulator:
    accumulator = RecordAccumulator(memory, SIZE, 5, 1 << 20, [100])
    accumulator.topic("t").update([(NODE, 0)] * 4)
    return accumulator


def lend(accumulator: RecordAccumulator, partition: int, size: int = 10) -> ProducerBatch:
    """A batch with one record of `size` bytes."""
    assert accumulator.append("t", partition, 1000, None, bytes(size)) is not None
    return accumulator.queue("t", partition).batches[-1]


def give_back(accumulator: RecordAccumulator, batch: ProducerBatch) -> tuple[int, int]:
    """(bytes that are available, bytes that are kept) after the end of the batch."""
    queue = accumulator.queue("t", batch.partition)
    accumulator.drain(NODE, 1 << 20, LATER)
    accumulator.succeed(batch, 0, -1)
    assert not queue.batches
    return accumulator.pool.available, accumulator.pool.kept_bytes


def test_sizes_are_positive() -> None:
    pool = BufferPool(1, 1)
    assert (pool.total, pool.available, pool.buffer_size, pool.waiting, pool.kept_bytes) == (1, 1, 1, 0, 0)
    for total, size in ((0, 1), (1, 0), (-1, 1), (1, -1)):
        with pytest.raises(ValueError, match="cannot be"):
            BufferPool(total, size)


@pytest.mark.parametrize("memory", [SIZE, SIZE + 1, 2 * SIZE - 1])
def test_a_pool_of_one_batch_keeps_it(memory: int) -> None:
    accumulator = made(memory)
    batch = lend(accumulator, 0)
    assert (accumulator.pool.available, accumulator.pool.kept_bytes) == (memory - SIZE, 0)
    assert accumulator.append("t", 1, 1000, None, b"v") is None
    assert give_back(accumulator, batch) == (memory, SIZE)
    again = lend(accumulator, 0)
    assert (accumulator.pool.available, accumulator.pool.kept_bytes) == (memory - SIZE, 0)
    assert give_back(accumulator, again) == (memory, SIZE)


def test_kept_buffers_fit_into_what_is_available() -> None:
    accumulator = made(3 * SIZE)
    batches = [lend(accumulator, partition) for partition in range(3)]
    accumulator.drain(NODE, 1 << 20, LATER)
    kept = []
    for batch in batches:
        accumulator.succeed(batch, 0, -1)
        kept.append((accumulator.pool.available, accumulator.pool.kept_bytes))
    assert kept == [(1000, 1000), (2000, 2000), (3000, 3000)]
    # A large buffer is not made of kept ones.
    large = lend(accumulator, 0, 2 * SIZE)
    assert (accumulator.pool.available < SIZE, accumulator.pool.kept_bytes) == (True, 3 * SIZE)
    assert give_back(accumulator, large) == (3 * SIZE, 3 * SIZE)


def test_a_buffer_that_does_not_fit_beside_the_kept_ones_is_freed() -> None:
    accumulator = made(4 * SIZE)
    batches = [lend(accumulator, partition) for partition in range(3)]
    accumulator.drain(NODE, 1 << 20, LATER)
    for batch in batches:
        accumulator.succeed(batch, 0, -1)
    assert (accumulator.pool.available, accumulator.pool.kept_bytes) == (4 * SIZE, 3 * SIZE)
    large = lend(accumulator, 0, 2 * SIZE)
    small = lend(accumulator, 1)
    lent = 4 * SIZE - accumulator.pool.available
    assert accumulator.pool.kept_bytes == 2 * SIZE
    accumulator.drain(NODE, 1 << 20, LATER)
    accumulator.succeed(small, 0, -1)
    assert (accumulator.pool.available, accumulator.pool.kept_bytes) == (5 * SIZE - lent, 2 * SIZE)
    accumulator.succeed(large, 0, -1)
    assert (accumulator.pool.available, accumulator.pool.kept_bytes) == (4 * SIZE, 2 * SIZE)


def test_buffers_of_another_size_are_not_kept() -> None:
    accumulator = made(5 * SIZE)
    large = lend(accumulator, 0, SIZE)
    assert give_back(accumulator, large) == (5 * SIZE, 0)
    assert give_back(accumulator, lend(accumulator, 0)) == (5 * SIZE, SIZE)
    # One of another size is not made of a kept one.
    large = lend(accumulator, 0, SIZE)
    assert accumulator.pool.kept_bytes == SIZE
    assert give_back(accumulator, large) == (5 * SIZE, SIZE)
    accumulator.pool.waiting = 3
    accumulator.set_batch_size(SIZE)
    assert (accumulator.pool.kept_bytes, accumulator.pool.buffer_size) == (0, SIZE)
    accumulator.set_batch_size(2 * SIZE)
    assert (accumulator.pool.waiting, accumulator.pool.buffer_size) == (3, 2 * SIZE)
