"""What a fetch counts: once per reply, however often a parked one was read again."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy._speedups.requests.client_quotas import QuotaSensor
from kafkapy.errors import ErrorCode
from kafkapy.records.control import build_end_transaction_marker

WINDOW_MS = 100 * 3_600_000


def test_a_parked_fetch_counts_once(broker: Any) -> None:
    (log,) = broker.topic("t")
    size = len(broker.batch(b"here"))
    log.append_as_leader(broker.batch(b"here"))
    exchange = broker.fetch_exchange([("t", 0, 0)], max_wait_ms=10_000, min_bytes=2 * size)
    assert exchange.resume().kind == "parked"
    assert exchange.resume().kind == "parked"
    assert (log.counters()["fetch_requests"], log.counters()["bytes_out"]) == (0, 0)
    log.append_as_leader(broker.batch(b"here"))
    assert len(broker.only(broker.fetch_reply(exchange.resume(), 12)).records) == 2 * size
    counters = log.counters()
    assert (counters["fetch_requests"], counters["bytes_out"], counters["failed_fetch_requests"]) == (1, 2 * size, 0)


def test_a_refused_fetch_counts_as_failed(broker: Any) -> None:
    (log,) = broker.topic("t")
    assert broker.only(broker.fetch([("t", 0, 99)])).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    counters = log.counters()
    assert (counters["fetch_requests"], counters["bytes_out"], counters["failed_fetch_requests"]) == (1, 0, 1)


def quota_of(broker: Any) -> QuotaSensor:
    """A quota that nothing reaches, whose window is longer than the test."""
    quota = QuotaSensor(1e15, 2, WINDOW_MS)
    broker.driver.set_quotas(fetch=quota)
    return quota


def counted(quota: QuotaSensor, exchange: Any, flexible: bool) -> int:
    """The bytes that have been counted. Where lengths have a variable size, an estimate: the reply's, if it is close
    and not less."""
    found, size = round(quota.measure() * WINDOW_MS / 1000), len(exchange.reply)
    return size if flexible and size <= found <= size + 16 else found


@pytest.mark.parametrize("version", range(4, 19))
@pytest.mark.parametrize("size", [0, 100, 20_000])
def test_a_fetch_counts_the_bytes_of_its_reply_in_the_quota(broker: Any, version: int, size: int) -> None:
    topics = ["t", "other", "x" * 100]
    for name in topics:
        for log in broker.topic(name, 2):
            if size:
                log.append_as_leader(broker.batch(b"v" * size))
    quota = quota_of(broker)
    exchange = broker.fetch_exchange([(name, index, 0) for name in topics for index in range(2)], version=version)
    broker.fetch_reply(exchange, version)
    assert counted(quota, exchange, version >= 12) == len(exchange.reply)


@pytest.mark.parametrize("version", [4, 11, 12])
def test_aborted_transactions_count_in_the_quota(broker: Any, version: int) -> None:
    (log,) = broker.topic("t")
    for producer in range(20):
        records = broker.batch(producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True)
        log.append_as_leader(records)
        log.append_as_leader(
            build_end_transaction_marker(producer, 0, committed=False, coordinator_epoch=0, timestamp_ms=1)
        )
    quota = quota_of(broker)
    exchange = broker.fetch_exchange([("t", 0, 0)], version=version, isolation_level=1)
    assert len(broker.only(broker.fetch_reply(exchange, version)).aborted_transactions) == 20
    assert counted(quota, exchange, version >= 12) == len(exchange.reply)


def test_what_a_session_leaves_out_does_not_count_in_the_quota(broker: Any) -> None:
    first, _ = broker.topic("t", 2)
    whole = broker.fetch([("t", 0, 0), ("t", 1, 0)], version=7, session_epoch=0)
    first.append_as_leader(broker.batch(b"new"))
    quota = quota_of(broker)
    exchange = broker.fetch_exchange([], version=7, session_id=whole.session_id, session_epoch=1)
    assert broker.only(broker.fetch_reply(exchange, 7)).partition_index == 0
    assert counted(quota, exchange, False) == len(exchange.reply)
