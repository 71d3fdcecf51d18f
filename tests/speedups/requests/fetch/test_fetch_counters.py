"""What a fetch counts: once per reply, however often a parked one was read again."""

from __future__ import annotations

from typing import Any

from kafkapy.errors import ErrorCode


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
