"""How far queries are behind: the numbers, and where they are told."""

from __future__ import annotations

import json
import logging
import socket
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kafkapy_spark.query_lag import lags_of
from prometheus_client.parser import text_string_to_metric_families

from kafkapy.errors import IllegalArgumentError, KafkaError


def progress(*sources: dict[str, Any], batch: int = 4, run: str = "r1", name: str | None = "orders") -> dict[str, Any]:
    return {
        "id": "q1",
        "runId": run,
        "name": name,
        "timestamp": "2026-11-22T06:00:00.000Z",
        "batchId": batch,
        "sources": list(sources),
    }


BEHIND = {
    "endOffset": {"a": {"0": 10, "1": 20, "2": 30}, "b": {"0": 5}},
    "latestOffset": {"a": {"0": 10, "1": 25, "2": 31, "3": 9}, "b": {"0": 3}},
}


def numbers(lags: Any) -> list[tuple[Any, ...]]:
    return [
        (
            lag.source,
            lag.topic,
            lag.partitions,
            lag.min_offsets_behind_latest,
            lag.max_offsets_behind_latest,
            lag.avg_offsets_behind_latest,
            lag.offsets_behind_latest,
        )
        for lag in lags
    ]


def test_lags_by_source_and_topic() -> None:
    """A partition that the batch did not know does not count; an end that has gone back is no lag below 0."""
    other = {"endOffset": 17, "latestOffset": 18}
    text = {"endOffset": '{"a":{"0":1}}', "latestOffset": '{"a":{"0":3}}'}
    lags = lags_of(progress(BEHIND, other, text))
    assert numbers(lags) == [(0, "a", 3, 0, 5, 2.0, 6), (0, "b", 1, 0, 0, 0.0, 0), (2, "a", 1, 2, 2, 2.0, 2)]
    assert {(lag.query_id, lag.run_id, lag.query_name, lag.batch_id) for lag in lags} == {("q1", "r1", "orders", 4)}


@pytest.mark.parametrize("latest", [None, "null", "-", {}, {"a": 3}])
def test_batches_whose_ends_are_not_known(latest: Any) -> None:
    assert lags_of(progress(BEHIND | {"latestOffset": latest})) == []
    assert lags_of(progress({"endOffset": BEHIND["endOffset"]})) == []


class Event(SimpleNamespace):
    """As Spark's events look to a listener."""

    @classmethod
    def of(cls, found: dict[str, Any]) -> Event:
        return cls(progress=SimpleNamespace(json=json.dumps(found)))


@pytest.fixture
def listener() -> Iterator[Callable[..., Any]]:
    pytest.importorskip("pyspark")
    from kafkapy_spark.lag_listener import LagListener

    made = []

    def make(**arguments: Any) -> LagListener:
        made.append(LagListener(**arguments))
        return made[-1]

    yield make
    for each in made:
        each.close()


def samples(text: str) -> dict[tuple[str, str], float]:
    """{(metric, topic): value} of our metrics, in Prometheus' own reading."""
    return {
        (sample.name, sample.labels["topic"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("kafkapy_spark_")
    }


EXPECTED = {
    ("kafkapy_spark_min_offsets_behind_latest", "a"): 0.0,
    ("kafkapy_spark_max_offsets_behind_latest", "a"): 5.0,
    ("kafkapy_spark_avg_offsets_behind_latest", "a"): 2.0,
    ("kafkapy_spark_offsets_behind_latest", "a"): 6.0,
    ("kafkapy_spark_batch_id", "a"): 4.0,
}


def test_where_lags_are_told(
    listener: Callable[..., Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told = []
    lines, text = tmp_path / "lag.jsonl", tmp_path / "lag.prom"
    made = listener(json_file=lines, prometheus_address="127.0.0.1:0", prometheus_file=text, on_lag=told.append)

    def scrape() -> dict[tuple[str, str], float]:
        with urllib.request.urlopen(made.prometheus_url, timeout=10) as response:
            return samples(response.read().decode())

    with caplog.at_level(logging.INFO, "kafkapy.spark.lag"):
        made.onQueryProgress(Event.of(progress(BEHIND, batch=3)))
        made.onQueryProgress(Event.of(progress(BEHIND)))
        made.onQueryProgress(Event.of(progress({"endOffset": 1, "latestOffset": 2}, batch=5, run="other")))
    written = [json.loads(line) for line in lines.read_text().splitlines()]
    assert written == [lag.as_dict() for lag in told] == [json.loads(record.message) for record in caplog.records]
    assert [(each["batch_id"], each["topic"], each["offsets_behind_latest"]) for each in written] == [
        (3, "a", 6), (3, "b", 0), (4, "a", 6), (4, "b", 0)
    ]  # fmt: skip
    assert EXPECTED.items() <= scrape().items()
    assert samples(text.read_text()) == scrape()
    made.onQueryTerminated(SimpleNamespace(runId="r1"))
    assert scrape() == {} == samples(text.read_text())


def test_queries_go_on_when_a_lag_cannot_be_told(
    listener: Callable[..., Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(lag: Any) -> None:
        raise RuntimeError("the user's")

    text = tmp_path / "lag.prom"
    made = listener(json_file=tmp_path / "nowhere" / "lag.jsonl", prometheus_file=text, on_lag=fail)
    made.onQueryProgress(Event.of(progress(BEHIND)))
    assert "A query's lag cannot be told: FileNotFoundError" in caplog.text
    assert "A query's lag cannot be told: RuntimeError: the user's" in caplog.text
    assert EXPECTED.items() <= samples(text.read_text()).items()


def test_addresses(listener: Callable[..., Any]) -> None:
    with pytest.raises(IllegalArgumentError, match="prometheus_address must be host:port, and is '9108'"):
        listener(prometheus_address="9108")
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(KafkaError, match="prometheus_address: 127"):
        listener(prometheus_address=f"127.0.0.1:{taken.getsockname()[1]}")


@pytest.fixture
def catching_up(
    spark: Any,
    listener: Callable[..., Any],
    topic: Callable[..., str],
    send: Callable[..., None],
    broker: Any,
    tmp_path: Path,
) -> Callable[[str], tuple[str, Any, list[Any]]]:
    """catching_up(format) -> (topic, query, lags): 12 records in batches of 3 + 1."""

    def run(form: str) -> tuple[str, Any, list[Any]]:
        name = topic(2)
        send(name, ["x"] * 9, 0)
        send(name, ["x"] * 3, 1)
        told: list[Any] = []
        made = listener(on_lag=told.append)
        spark.streams.addListener(made)
        try:
            frame = (
                spark.readStream.format(form)
                .option("kafka.bootstrap.servers", broker.bootstrap_servers)
                .option("subscribe", name)
                .option("startingOffsets", "earliest")
                .option("maxOffsetsPerTrigger", 4)
                .load()
            )
            writer = frame.select("offset").writeStream.format("noop").queryName(form).trigger(availableNow=True)
            query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
            assert query.awaitTermination(120)
            deadline = time.monotonic() + 30
            while not (told and told[-1].offsets_behind_latest == 0):
                assert time.monotonic() < deadline
                time.sleep(0.05)
        finally:
            spark.streams.removeListener(made)
        return name, query, told

    return run


@pytest.mark.spark
def test_the_lag_of_a_real_query(catching_up: Callable[[str], tuple[str, Any, list[Any]]]) -> None:
    """Acceptance 23: batches of limited size catch up, and the lag with them."""
    name, query, told = catching_up("kafkapy")
    assert numbers(told) == [(0, name, 2, 2, 6, 4.0, 8), (0, name, 2, 1, 3, 2.0, 4), (0, name, 2, 0, 0, 0.0, 0)]
    assert [lag.batch_id for lag in told] == [1, 2, 3]
    assert {(lag.query_id, lag.query_name) for lag in told} == {(str(query.id), "kafkapy")}


@pytest.mark.spark
@pytest.mark.java
def test_the_numbers_are_those_of_sparks_own_source(
    spark: Any, catching_up: Callable[[str], tuple[str, Any, list[Any]]]
) -> None:
    """Which has them in its metrics, of all topics together; here it is one."""
    if "spark-sql-kafka" not in spark.conf.get("spark.jars", ""):
        pytest.skip("Spark's own Kafka connector runs with: make interop-spark")
    name, query, told = catching_up("kafka")
    metrics = {each.batchId: each.sources[0].metrics for each in query.recentProgress}
    assert [lag.offsets_behind_latest for lag in told] == [8, 4, 0]
    for lag in told:
        assert lag.topic == name
        theirs = metrics[lag.batch_id]
        assert float(theirs["minOffsetsBehindLatest"]) == lag.min_offsets_behind_latest
        assert float(theirs["maxOffsetsBehindLatest"]) == lag.max_offsets_behind_latest
        assert float(theirs["avgOffsetsBehindLatest"]) == lag.avg_offsets_behind_latest
