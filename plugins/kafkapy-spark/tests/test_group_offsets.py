"""offsetCommitGroup: where a query is, as another client reads it from the group."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Partition
from kafkapy_spark import group_offsets
from kafkapy_spark.group_offsets import GroupOffsets

from kafkapy import KafkaConsumer, TopicPartition


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def committed(broker: Any, group: str) -> Iterator[Callable[[str], dict[int, int]]]:
    """What confluent-kafka reads: committed(topic) -> {partition: offset}."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})

    def read(topic: str) -> dict[int, int]:
        found = consumer.committed([Partition(topic, number) for number in range(3)], timeout=30)
        return {each.partition: each.offset for each in found if each.offset >= 0}

    yield read
    consumer.close()


@pytest.fixture
def offsets(broker: Any, group: str) -> Iterator[GroupOffsets]:
    made = GroupOffsets({"bootstrap.servers": broker.bootstrap_servers}, group)
    yield made
    made.close()


def at(topic: str, offsets: Mapping[int, int]) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, partition): offset for partition, offset in offsets.items()}


def test_the_last_offer_is_committed(
    offsets: GroupOffsets, committed: Callable[[str], dict[int, int]], topic: Callable[..., str]
) -> None:
    name = topic(3)
    for number in range(100):
        offsets.offer(at(name, {0: number, 1: 7}))
    offsets.flush()
    assert committed(name) == {0: 99, 1: 7}
    offsets.offer(at(name, {0: 99, 1: 7, 2: 1}))
    offsets.flush()
    assert committed(name) == {0: 99, 1: 7, 2: 1}


def test_offsets_go_back_only_with_a_topic_that_is_made_again(
    offsets: GroupOffsets, committed: Callable[[str], dict[int, int]], topic: Callable[..., str]
) -> None:
    name, other = topic(2), topic()
    offsets.offer(at(name, {0: 10, 1: 10}) | at(other, {0: 10}))
    offsets.flush()
    offsets.offer(at(name, {0: 4, 1: 11}) | at(other, {0: 4}))
    offsets.flush()
    assert committed(name) == {0: 10, 1: 11}
    offsets.forget({name})
    offsets.offer(at(name, {0: 4, 1: 0}) | at(other, {0: 4}))
    offsets.flush()
    assert committed(name) == {0: 4, 1: 0} and committed(other) == {0: 10}


def test_one_commit_is_under_way_and_nobody_waits_for_it(
    offsets: GroupOffsets,
    committed: Callable[[str], dict[int, int]],
    topic: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Commits that take their time do not keep the offering thread, and only the newest of what waits goes next."""
    name = topic()
    commits: list[int] = []
    go_on = threading.Event()
    real = KafkaConsumer.commit

    def slow(self: KafkaConsumer, given: Mapping[TopicPartition, Any], timeout_ms: int) -> None:
        commits.append(given[TopicPartition(name, 0)].offset)
        assert go_on.wait(30)
        real(self, given, timeout_ms)

    monkeypatch.setattr(KafkaConsumer, "commit", slow)
    offsets.offer(at(name, {0: 1}))
    wait_for(lambda: commits == [1])
    for number in range(2, 50):
        offsets.offer(at(name, {0: number}))
    assert commits == [1]
    go_on.set()
    offsets.flush()
    assert commits == [1, 49] and committed(name) == {0: 49}


def test_what_fails_is_a_warning_once_and_is_tried_again(
    offsets: GroupOffsets,
    committed: Callable[[str], dict[int, int]],
    topic: Callable[..., str],
    broker: Any,
    group: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A group with members refuses offsets of one who is none."""
    monkeypatch.setattr(group_offsets, "RETRY_S", 0.2)
    name = topic()
    with (
        caplog.at_level(logging.INFO, "kafkapy.spark"),
        KafkaConsumer(name, bootstrap_servers=broker.bootstrap_servers, group_id=group) as member,
    ):
        wait_for(lambda: member.poll(100) is not None and member.assignment())
        offsets.offer(at(name, {0: 3}))
        offsets.flush()
        wait_for(lambda: "the query goes on" in caplog.text)
        time.sleep(1)
        assert committed(name) == {}
        assert caplog.text.count("Offsets cannot be committed to group") == 1
        member.close()
        wait_for(lambda: committed(name) == {0: 3})
        wait_for(lambda: f"Offsets are committed to group {group} again" in caplog.text)


def test_offsets_are_committed_again_before_they_expire(
    offsets: GroupOffsets,
    committed: Callable[[str], dict[int, int]],
    topic: Callable[..., str],
    broker: Any,
    group: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_offsets, "AGAIN_S", 0.2)
    name = topic()
    offsets.offer(at(name, {0: 3}))
    offsets.flush()
    with KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, group_id=group) as other:
        other.commit({TopicPartition(name, 0): 1})
    wait_for(lambda: committed(name) == {0: 3})


def test_without_a_cluster_nothing_fails(caplog: pytest.LogCaptureFixture) -> None:
    offsets = GroupOffsets({"bootstrap.servers": "127.0.0.1:1", "bootstrap.timeout.ms": "200"}, "g")
    offsets.offer(at("t", {0: 3}))
    wait_for(lambda: "Offsets cannot be committed to group g, and the query goes on" in caplog.text)
    offsets.close()


def test_what_a_streaming_read_tells_the_group(
    committed: Callable[[str], dict[int, int]],
    topic: Callable[..., str],
    send: Callable[..., None],
    broker: Any,
    group: str,
) -> None:
    """Starts and ends, in the order in which Spark calls; the end of a run with AvailableNow waits for the commit."""
    pytest.importorskip("pyspark")
    from kafkapy_spark.options import SourceOptions
    from kafkapy_spark.schema import SCHEMA
    from kafkapy_spark.stream_reader import KafkapyStreamReader

    name = topic()
    send(name, ["x"] * 3)
    options = SourceOptions.parse(
        {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "subscribe": name,
            "startingOffsets": "earliest",
            "idlePollMs": "0",
            "offsetCommitGroup": group,
        },
        streaming=True,
    )
    run = KafkapyStreamReader(options, SCHEMA)
    limit = run.getDefaultReadLimit()
    pinned = run.latestOffset(run.initialOffset(), limit)
    wait_for(lambda: committed(name) == {0: 0})
    end = run.latestOffset(pinned, limit)
    assert end == {name: {"0": 3}} and committed(name) == {0: 0}
    run.commit(end)
    wait_for(lambda: committed(name) == {0: 3})
    run.stop()
    send(name, ["x"] * 2)
    last = KafkapyStreamReader(options, SCHEMA)
    last.prepareForTriggerAvailableNow()
    assert last.latestOffset(end, limit) == {name: {"0": 5}}
    assert last.latestOffset({name: {"0": 5}}, limit) == {name: {"0": 5}}
    assert committed(name) == {0: 5}
    last.stop()


@pytest.mark.spark
def test_the_group_after_available_now(
    spark: Any,
    committed: Callable[[str], dict[int, int]],
    topic: Callable[..., str],
    send: Callable[..., None],
    broker: Any,
    group: str,
    tmp_path: Path,
) -> None:
    """Acceptance 22: the group is at the end; nothing is read back from it."""
    name = topic(3)
    send(name, ["x"] * 7, 0)
    send(name, ["x"] * 4, 2)

    def run() -> int:
        rows = []
        frame = (
            spark.readStream.format("kafkapy")
            .option("kafka.bootstrap.servers", broker.bootstrap_servers)
            .option("subscribe", name)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", 5)
            .option("offsetCommitGroup", group)
            .schema("value binary")
            .load()
        )
        writer = frame.writeStream.foreachBatch(lambda batch, _: rows.append(batch.count()))
        query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        return sum(rows)

    assert run() == 11
    assert committed(name) == {0: 7, 1: 0, 2: 4}
    with KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, group_id=group) as other:
        other.commit({TopicPartition(name, 0): 2})
    send(name, ["x"], 1)
    assert run() == 1
    assert committed(name) == {0: 7, 1: 1, 2: 4}


def wait_for(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "gave up waiting"
        time.sleep(0.02)
