"""Owners of network parts, without a network: what they refuse, what they count, and their ends."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from certificates import localhost

from kafkapy._speedups.base.event_queue import EventQueue
from kafkapy._speedups.base.tls import TlsContext
from kafkapy._speedups.network.acceptor import Acceptor
from kafkapy._speedups.network.connection import ConnectionRegistry
from kafkapy._speedups.network.connection_quotas import ConnectionQuotas
from kafkapy._speedups.network.memory_pool import MemoryPool
from kafkapy._speedups.network.processor import Processor
from kafkapy._speedups.network.request_channel import RequestChannel
from kafkapy._speedups.network.worker_pool import WorkerPool
from kafkapy._speedups.requests.data_plane import DataPlane
from kafkapy._speedups.requests.fetch_session import FetchSessionCache
from kafkapy._speedups.requests.partition_table import PartitionTable
from kafkapy._speedups.requests.request_header import ApiTable


def eventually(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it does not come true"
        time.sleep(0.002)


class Parts:
    """Everything that a Processor needs."""

    def __init__(self, limit: int = -1, queued: int = 500) -> None:
        self.events = EventQueue()
        self.plane = DataPlane(1, PartitionTable(), FetchSessionCache(10), self.events)
        self.quotas = ConnectionQuotas(2)
        self.registry = ConnectionRegistry(self.quotas, self.events)
        self.pool = MemoryPool(limit)
        apis = ApiTable({3: (0, 12, 9, False)})
        self.channel = RequestChannel(self.plane, self.registry, self.pool, apis, [("A", "B")] * 2, queued)
        self.workers = WorkerPool(1)


def test_a_pool_has_as_many_threads_as_it_is_told():
    for size in (0, -1):
        with pytest.raises(ValueError, match=f"a pool has at least one thread, not {size}"):
            WorkerPool(size)
    pool = WorkerPool(2)
    assert (pool.size, pool.counters()) == (2, {"threads": 0, "queued": 0, "done": 0, "busy_ns": 0})
    pool.resize(3)
    assert (pool.size, pool.counters()["threads"]) == (3, 0), "it was not started"
    pool.start()
    assert pool.counters()["threads"] == 3
    pool.resize(5)
    assert pool.counters()["threads"] == 5
    pool.resize(1)
    eventually(lambda: pool.counters()["threads"] == 1)
    with pytest.raises(ValueError, match="a pool has at least one thread, not 0"):
        pool.resize(0)
    assert pool.size == 1
    pool.resize(2)
    assert pool.counters()["threads"] == 2
    pool.stop()
    assert pool.counters() == {"threads": 0, "queued": 0, "done": 0, "busy_ns": 0}


def test_a_processor_runs_once_and_tells_nothing_before():
    parts = Parts()
    processor = Processor(parts.channel, parts.workers, 1 << 20, 600_000)
    counters = processor.counters()
    assert counters == {"connections": 0, "idle_ns": 0, "running_ns": 0, "delayed": {}, "times": {}}
    processor.begin_stop(-5)
    processor.run()
    assert processor.counters()["running_ns"] > 0
    with pytest.raises(RuntimeError, match="this processor has run already"):
        processor.run()


def test_an_acceptor_needs_a_processor_and_ends_when_told():
    parts = Parts()
    processor = Processor(parts.channel, parts.workers, 1 << 20, 600_000)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        with pytest.raises(ValueError, match="an acceptor needs a processor"):
            Acceptor(parts.registry, listening, [], 0)
        acceptor = Acceptor(parts.registry, listening, [processor], 0)
        with pytest.raises(ValueError, match="an acceptor needs a processor"):
            acceptor.set_processors([])
        acceptor.stop()
        runs = threading.Thread(target=acceptor.run)  # its thread gets no signals from then on
        runs.start()
        runs.join()
    assert parts.registry.counters()["created"] == 0


def test_an_empty_channel_gives_nothing():
    parts = Parts(queued=7)
    assert (len(parts.channel), parts.channel.drain()) == (0, [])
    assert parts.channel.counters() == {"queue_size": 0, "queue_capacity": 7, "requests": 0, "full": 0}
    assert parts.channel.connection_closed(5) is None
    assert Parts(queued=0).channel.counters()["queue_capacity"] == 1
    parts.channel.connection_data[5] = "data"
    assert parts.channel.connection_closed(5) == "data"
    assert parts.channel.connection_closed(5) is None


def test_a_listener_is_secured_once_and_with_something():
    registry = Parts().registry
    for index in (-1, 2):
        with pytest.raises(ValueError, match=f"{index} is no listener"):
            registry.secure_listener(index, sasl=True)
    with pytest.raises(ValueError, match="asks for nothing"):
        registry.secure_listener(0)
    assert registry.authentication_counters(0) is None
    with pytest.raises(ValueError, match="0 is no SASL listener"):
        registry.serve_scram(0, [], [])
    with pytest.raises(ValueError, match="listener 0 has no TLS"):
        registry.replace_tls(0, tls_context())
    registry.secure_listener(0, sasl=True)
    registry.secure_listener(1, ask_principal=True)
    for index in (0, 1):
        with pytest.raises(ValueError, match=f"listener {index} is secured already"):
            registry.secure_listener(index, sasl=True)
        assert set(registry.authentication_counters(index).values()) == {0}
        with pytest.raises(ValueError, match=f"listener {index} has no TLS"):
            registry.replace_tls(index, tls_context())
    with pytest.raises(ValueError, match="needs the TLS context of a server"):
        Parts().registry.secure_listener(0, tls_context(False))
    registry.serve_scram(0, [], ["PLAIN"])
    with pytest.raises(ValueError, match="1 is no SASL listener"):
        registry.serve_scram(1, [], [])
    assert registry.connections() == []
    assert set(registry.counters().values()) == {0}


def tls_context(server: bool = True) -> TlsContext:
    made = localhost()
    return TlsContext(server, made.key_der, made.chain)


def test_limits_of_connections_are_of_listeners_that_exist():
    quotas = ConnectionQuotas(3, 2)
    for index in (-1, 0, 1, 2):
        quotas.protect_listener(index)
    for index in (-2, 3):
        with pytest.raises(IndexError, match=f"no listener {index}"):
            quotas.protect_listener(index)
    for index in (0, 1, 2):
        quotas.set_listener_limits(index, 5)
        assert quotas.listener_count(index) == 0
    with pytest.raises(ValueError, match="no such listener: 3 of 3"):
        ConnectionQuotas(3, 3)
    with pytest.raises(ValueError, match="no such listener: -1 of 0"):
        ConnectionQuotas(0)
    ConnectionQuotas(1, 0)
    rate, listeners = quotas.creation_rates()
    assert (rate, listeners) == (0.0, [(0.0, 0, 0)] * 3)


def test_a_released_reservation_lets_the_next_in_at_the_limit():
    pool = MemoryPool(100)
    assert pool.try_reserve(100)
    assert (pool.free, pool.used, pool.refused) == (0, 100, 0)
    assert not pool.try_reserve(0)
    pool.release(0)
    assert not pool.try_reserve(1)
    assert pool.refused == 2
    pool.release(1)
    assert pool.try_reserve(50)
    assert (pool.used, pool.free, pool.recycled) == (149, 0, 0)
    assert MemoryPool(1).limit == 1
