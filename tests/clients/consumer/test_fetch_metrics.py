"""A consumer's metrics of fetches and polls: which number goes under which of Kafka's names."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy.clients.consumer import metrics as module
from kafkapy.clients.consumer.metrics import GROUP, FetchMetrics, PollMetrics
from kafkapy.clients.metrics import WINDOW_S
from kafkapy.types import TopicPartition


class Bench:
    """The metrics of a consumer that reads `states`; a test sets the clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        self.buffer = SimpleNamespace(records=0, bytes=0)
        self.states: list[Any] = []
        subscription: Any = SimpleNamespace(all_states=self.states)
        self.metrics: Any = FetchMetrics(self.buffer, subscription, True)  # type: ignore[arg-type]

    def add(self, topic: str, lag: int | None, position: int, start: int | None, replica: int | None = None) -> None:
        def lag_of(read_committed: bool) -> int | None:
            assert read_committed
            return lag

        self.states.append(
            SimpleNamespace(
                topic_partition=TopicPartition(topic, 3),
                buffer=SimpleNamespace(position=position),
                log_start_offset=start,
                preferred_read_replica=replica,
                lag=lag_of,
            )
        )


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


def test_nothing_was_fetched(bench: Bench) -> None:
    (values,) = bench.metrics.read().values()
    unknown = {name for name, value in values.items() if value is not None and math.isnan(value)}
    assert unknown == {f"fetch-{what}-{of}" for what in ("latency", "throttle-time", "size") for of in ("avg", "max")}
    assert values["records-lag-max"] is None
    assert not any(value for name, value in values.items() if name not in unknown)


def test_responses_and_records_are_counted(bench: Bench) -> None:
    metrics = bench.metrics
    metrics.fetched(0.25, 0)
    metrics.fetched(0.75, 30)
    for size in (100, 300, 800):
        metrics.received(size)
    bench.buffer.records, bench.buffer.bytes = 50, 77
    bench.now_s += 10
    values = metrics.read()[GROUP]
    assert values == {
        "fetch-total": 2,
        "fetch-rate": 2 / WINDOW_S,
        "fetch-latency-avg": 500,
        "fetch-latency-max": 750,
        "fetch-throttle-time-avg": 15,
        "fetch-throttle-time-max": 30,
        "fetch-size-avg": 400,
        "fetch-size-max": 800,
        "bytes-consumed-total": 1200,
        "bytes-consumed-rate": 1200 / WINDOW_S,
        "records-consumed-total": 50,
        "records-consumed-rate": 5,
        "records-per-request-avg": 25,
        "records-lag-max": None,
        "buffered-bytes": 77,
    }


def test_each_partition_has_its_lag_and_its_lead(bench: Bench) -> None:
    bench.add("a.b", 7, 12, 10, 2)
    bench.add("c", 9, 5, None)
    bench.add("d", None, -1, 10)
    bench.add("e", 0, 0, 0)
    values = bench.metrics.read()
    assert values.pop(GROUP)["records-lag-max"] == 9
    assert values == {
        f"{GROUP}.{topic}-3": {"records-lag": lag, "records-lead": lead, "preferred-read-replica": replica}
        for topic, lag, lead, replica in (
            ("a_b", 7, 2, 2),
            ("c", 9, None, None),
            ("d", None, None, None),
            ("e", 0, 0, None),
        )
    }


def test_there_was_no_poll() -> None:
    values = PollMetrics().read()
    assert values.pop("last-poll-seconds-ago") == -1
    assert values.keys() == {"time-between-poll-avg", "time-between-poll-max", "poll-idle-ratio-avg"}
    assert all(math.isnan(value) for value in values.values())


def test_polls_are_apart_and_idle(bench: Bench) -> None:
    metrics = PollMetrics()
    metrics.begin()
    bench.now_s += 3
    metrics.end()
    bench.now_s += 1.5
    assert metrics.read() == {
        "last-poll-seconds-ago": 4,
        "time-between-poll-avg": 0,
        "time-between-poll-max": 0,
        "poll-idle-ratio-avg": 1,
    }
    bench.now_s += 4.5
    metrics.begin()
    bench.now_s += 2
    metrics.end()
    assert metrics.read() == {
        "last-poll-seconds-ago": 2,
        "time-between-poll-avg": 4500,
        "time-between-poll-max": 9000,
        "poll-idle-ratio-avg": (1 + 0.25) / 2,
    }
    metrics = PollMetrics()
    metrics.begin()
    metrics.end()
    assert metrics.read()["poll-idle-ratio-avg"] == 1
