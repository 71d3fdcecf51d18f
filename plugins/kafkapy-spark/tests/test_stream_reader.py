"""Which offsets a streaming read names to Spark, without Spark around it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark")

from kafkapy_spark.data_loss import DataLossError
from kafkapy_spark.options import SourceOptions
from kafkapy_spark.schema import SCHEMA
from kafkapy_spark.stream_reader import NO_LIMIT, KafkapyStreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from kafkapy import KafkaAdminClient

ALL = ReadMaxRows(NO_LIMIT)


@pytest.fixture
def reader(broker: Any) -> Iterator[Callable[..., KafkapyStreamReader]]:
    """A run of a query: reader(topic, **options). The second one of a test is as after a restart."""
    made = []

    def make(topic: str, **options: object) -> KafkapyStreamReader:
        given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic, "idlePollMs": "0"}
        given |= {name.replace("__", "."): str(value) for name, value in options.items()}
        made.append(KafkapyStreamReader(SourceOptions.parse(given, streaming=True), SCHEMA))
        return made[-1]

    yield make
    for each in made:
        each.stop()


def planned(reader: KafkapyStreamReader, start: Any, end: Any) -> list[tuple[int, int, int]]:
    """(partition, start, end) of all that a batch reads."""
    tasks = reader.partitions(start, end)
    return sorted((each.partition.partition, each.start, each.end) for task in tasks for each in task.task)


def test_a_new_query_pins_its_start(
    reader: Callable[..., Any], topic: Callable[..., str], send: Callable[..., None]
) -> None:
    """Acceptance 17: records that come between Spark's two questions for the start are not skipped."""
    name = topic()
    send(name, ["x"] * 3)
    run = reader(name)
    start = run.initialOffset()
    assert start == {name: {"0": 3}}
    send(name, ["x"] * 2)
    assert run.latestOffset(start, ALL) == start
    assert run.initialOffset() == start
    assert planned(run, start, start) == []
    assert run.latestOffset(start, ALL) == {name: {"0": 5}}
    assert planned(run, start, {name: {"0": 5}}) == [(0, 3, 5)]


@pytest.mark.parametrize("starting", ["latest", "earliest"])
def test_a_first_batch_that_failed_is_planned_again(
    starting: str, reader: Callable[..., Any], topic: Callable[..., str], send: Callable[..., None]
) -> None:
    name = topic()
    send(name, ["x"] * 3)
    run = reader(name, startingOffsets=starting)
    pinned = run.latestOffset(run.initialOffset(), ALL)
    send(name, ["x"] * 2)
    again = reader(name, startingOffsets=starting)
    again.prepareForTriggerAvailableNow()
    assert planned(again, again.initialOffset(), pinned) == []
    assert again.latestOffset(pinned, ALL) == {name: {"0": 5}}
    assert planned(again, pinned, {name: {"0": 5}}) == [(0, pinned[name]["0"], 5)]


def test_a_start_need_not_be_pinned(
    reader: Callable[..., Any], topic: Callable[..., str], send: Callable[..., None]
) -> None:
    name = topic()
    send(name, ["x"])
    run = reader(name, startingOffsets="earliest", pinStart="false")
    assert run.latestOffset(run.initialOffset(), ALL) == {name: {"0": 1}}
    once = reader(name, startingOffsets="earliest", maxOffsetsPerTrigger=1)
    send(name, ["x"] * 4)
    assert once.latestOffset(once.initialOffset(), ReadAllAvailable()) == {name: {"0": 5}}


def test_limits(reader: Callable[..., Any], topic: Callable[..., str], send: Callable[..., None]) -> None:
    """Acceptance 19."""
    name = topic(2)
    send(name, ["x"] * 30, 0)
    send(name, ["x"] * 10, 1)
    run = reader(name, startingOffsets="earliest", maxOffsetsPerTrigger=20)
    limit = run.getDefaultReadLimit()
    assert limit == ReadMaxRows(20)
    start = run.latestOffset(run.initialOffset(), limit)
    middle = run.latestOffset(start, limit)
    assert middle == {name: {"0": 15, "1": 5}}
    assert run.latestOffset(middle, limit) == {name: {"0": 30, "1": 10}} == run.reportLatestOffset()
    # A partition that the start does not know counts from its first offset.
    assert run.latestOffset({name: {"0": 20}}, limit) == {name: {"0": 30, "1": 10}}
    assert run.latestOffset({name: {"0": 0}}, limit) == middle
    assert reader(name).getDefaultReadLimit() == ALL


def test_least_offsets(reader: Callable[..., Any], topic: Callable[..., str], send: Callable[..., None]) -> None:
    """Acceptance 19."""
    name = topic()
    run = reader(name, startingOffsets="earliest", minOffsetsPerTrigger=5, maxTriggerDelay="400ms")
    start = run.latestOffset(run.initialOffset(), ALL)
    assert run.latestOffset(start, ALL) == start  # the delay is over before the first batch: it is triggered, empty
    send(name, ["x"] * 3)
    time.sleep(0.1)
    assert run.latestOffset(start, ALL) == start
    send(name, ["x"] * 2)
    deadline = time.monotonic() + 20
    while (middle := run.latestOffset(start, ALL)) == start:
        assert time.monotonic() < deadline
    assert middle == {name: {"0": 5}}
    send(name, ["x"])
    while (end := run.latestOffset(middle, ALL)) == middle:
        assert time.monotonic() < deadline
    assert end == {name: {"0": 6}}


def test_available_now_ends_where_the_topic_ended(
    reader: Callable[..., Any], topic: Callable[..., str], send: Callable[..., None], broker: Any
) -> None:
    """Acceptance 18: records and partitions that come while it runs are for the next run."""
    name = topic()
    send(name, ["x"] * 3)
    run = reader(name, startingOffsets="earliest", minOffsetsPerTrigger=100)
    run.prepareForTriggerAvailableNow()
    start = run.latestOffset(run.initialOffset(), ALL)
    end = run.latestOffset(start, ALL)
    assert end == {name: {"0": 3}}
    send(name, ["x"])
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_partitions({name: 2})
    assert run.latestOffset(end, ALL) == end
    with pytest.raises(RuntimeError, match="are not those that were there at first"):
        run.partitions(end, {name: {"0": 3, "1": 0}})
    later = reader(name)
    later.prepareForTriggerAvailableNow()
    last = later.latestOffset(end, ALL)
    assert last == {name: {"0": 4, "1": 0}}
    assert planned(later, end, last) == [(0, 3, 4)]


def test_new_partitions_are_seen(
    reader: Callable[..., Any], topic: Callable[..., str], send: Callable[..., None], broker: Any
) -> None:
    name = topic()
    run = reader(name, startingOffsets="earliest")
    start = run.latestOffset(run.initialOffset(), ALL)
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_partitions({name: 2})
    send(name, ["x"], 1)
    deadline = time.monotonic() + 20
    while (end := run.latestOffset(start, ALL)) == start:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert end == {name: {"0": 0, "1": 1}}
    assert planned(run, start, end) == [(1, 0, 1)]


@pytest.mark.parametrize("fail", [True, False])
def test_data_loss(fail: bool, reader: Callable[..., Any], topic: Callable[..., str], broker: Any) -> None:
    name = topic()
    run = reader(name, failOnDataLoss=fail)
    for start, end, message in (
        ({name: {"0": 10}}, {name: {"0": 4}}, "offset was changed from 10 to 4, some data may have been missed"),
        ({name: {"0": 0}, "gone": {"0": 1}}, {name: {"0": 0}}, "gone-0 are gone. Some data may have been missed"),
        ({name: {"0": 0}}, {name: {"0": 0, "7": 9}}, "Cannot find earliest offsets of .*-7"),
    ):
        if fail:
            with pytest.raises(DataLossError, match=message):
                run.partitions(start, end)
        else:
            assert run.partitions(start, end) == []


@pytest.mark.parametrize("fail", [True, False])
def test_a_start_behind_the_end_is_data_loss(
    fail: bool, reader: Callable[..., Any], topic: Callable[..., str], send: Callable[..., None]
) -> None:
    """Acceptance 5: it is not waited for until the partition is that long."""
    name = topic()
    send(name, ["x"] * 5)
    run = reader(
        name, failOnDataLoss=fail, startingOffsets=json.dumps({name: {"0": 20}}), fetchOffset__retryIntervalMs=1
    )
    start = run.latestOffset(run.initialOffset(), ALL)
    end = run.latestOffset(start, ALL)
    assert (start, end) == ({name: {"0": 20}}, {name: {"0": 5}})
    if fail:
        with pytest.raises(DataLossError, match="offset was changed from 20 to 5, some data may have been missed"):
            run.partitions(start, end)
    else:
        assert run.partitions(start, end) == []


@pytest.mark.parametrize("fail", [True, False])
def test_a_topic_made_again_under_a_query(
    fail: bool, reader: Callable[..., Any], topic: Callable[..., str], send: Callable[..., None], broker: Any
) -> None:
    """Acceptance 10: also when the new one has as many records."""
    name = topic()
    send(name, ["x"] * 2)
    run = reader(name, failOnDataLoss=fail, startingOffsets="earliest")
    start = run.latestOffset(run.initialOffset(), ALL)
    end = run.latestOffset(start, ALL)
    broker.delete_topic(name)
    broker.create_topic(name, 1)
    send(name, ["y"] * 5)
    deadline = time.monotonic() + 20
    if fail:
        with pytest.raises(DataLossError, match=f"deleted and created again: {name}"):
            while time.monotonic() < deadline:
                run.latestOffset(end, ALL)
    else:
        while run.latestOffset(end, ALL) != {name: {"0": 5}}:
            assert time.monotonic() < deadline


def test_an_idle_query_asks_seldom(
    reader: Callable[..., Any], topic: Callable[..., str], send: Callable[..., None]
) -> None:
    """Acceptance 20: fewer than 15 requests a second while nothing is new, and new records are seen all the same."""
    name = topic(4)
    run = reader(name, idlePollMs=200)
    start = run.initialOffset()

    def requests() -> float:
        return float(run._offsets._client.metrics()["consumer-metrics"]["request-total"])

    assert run.latestOffset(start, ALL) == start
    before = requests()
    began = time.monotonic()
    polls = 0
    while time.monotonic() - began < 1.5:
        assert run.latestOffset(start, ALL) == start
        polls += 1
    assert polls >= 2 and requests() > before
    assert (requests() - before) / (time.monotonic() - began) < 15
    send(name, ["x"], 3)
    deadline = time.monotonic() + 20
    while run.latestOffset(start, ALL)[name]["3"] != 1:
        assert time.monotonic() < deadline
