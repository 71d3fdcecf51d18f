"""The reservation rules of the request memory pool."""

from __future__ import annotations

import threading

import pytest

from kafkapy._speedups.network.memory_pool import MemoryPool


def test_an_unlimited_pool_counts_but_never_refuses():
    pool = MemoryPool()
    assert (pool.limit, pool.free) == (-1, -1)
    assert pool.try_reserve(1 << 40)
    assert pool.used == 1 << 40
    pool.release(1 << 40)
    assert pool.used == 0 and pool.refused == 0


def test_a_reservation_succeeds_while_anything_is_free():
    pool = MemoryPool(1000)
    assert pool.try_reserve(999)
    assert pool.free == 1
    assert pool.try_reserve(5000)
    assert (pool.used, pool.free) == (5999, 0)
    assert not pool.try_reserve(1)
    assert pool.refused == 1
    pool.release(5000)
    assert pool.try_reserve(1)
    pool.release(1000)
    assert pool.used == 0


def test_a_limit_of_zero_or_less_is_no_limit():
    assert MemoryPool(0).limit == MemoryPool(-5).limit == -1


def test_negative_sizes_are_refused():
    pool = MemoryPool(10)
    with pytest.raises(ValueError):
        pool.try_reserve(-1)
    with pytest.raises(ValueError):
        pool.release(-1)


def test_threads_lose_no_reservation():
    pool = MemoryPool(10_000)

    def work():
        for size in range(2000):
            if pool.try_reserve(size):
                pool.release(size)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert pool.used == 0
