"""What can be asked of a consumer while a request of it waits at the broker, for longer than a test waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from clients.consumer.fetching import T0, WAIT_MS, read, until
from clients.consumer.scripted_cluster import KAFKA_2_1, Call, Disconnect, ScriptedCluster

from kafkapy import KafkaConsumer
from kafkapy.protocol.messages.fetch import FetchRequest
from kafkapy.protocol.messages.list_offsets import ListOffsetsRequest
from kafkapy.types import TopicPartition

T1 = TopicPartition("t", 1)
HELD_MS = 10 * WAIT_MS


@pytest.fixture(params=[{}, KAFKA_2_1], ids=["newest", "2.1"])
def cluster(request: pytest.FixtureRequest) -> Iterator[ScriptedCluster]:
    """One broker, with a topic of two partitions: five records are in the first, none in the other."""
    with ScriptedCluster(versions=request.param) as made:
        made.add_topic("t", 2)[0].append(5)
        yield made


def held(cluster: ScriptedCluster) -> Call:
    """The request that waits at the broker."""
    return until(lambda: [call for call in cluster.of(FetchRequest) if not call.answered])[0]


def offsets(records: list[tuple[str, int, int]], partition: int = 0) -> list[int]:
    return [offset for _, number, offset in records if number == partition]


def test_a_seek_does_not_wait_for_the_request_that_waits(
    cluster: ScriptedCluster, consume: Callable[..., KafkaConsumer]
) -> None:
    consumer = consume(cluster, T0, T1, fetch_max_wait_ms=HELD_MS)
    assert len(read(consumer, 5)) == 5
    waiting = held(cluster)
    for offset in (0, 3, 3, 1):
        asked = len(cluster.of(FetchRequest))
        consumer.seek(T0, offset)
        assert offsets(read(consumer, 5 - offset)) == list(range(offset, 5))
        # What comes next is what the request that waits is about.
        assert consumer.poll(50) == {}
        assert len(cluster.of(FetchRequest)) == asked + 1
    assert held(cluster) is waiting
    cluster.topics["t"][0].append(2)
    cluster.topics["t"][1].append(1)
    assert sorted(read(consumer, 3)) == [("t", 0, 5), ("t", 0, 6), ("t", 1, 0)]
    assert waiting.answered


def test_a_seek_while_records_are_left_does_not_wait(
    cluster: ScriptedCluster, consume: Callable[..., KafkaConsumer]
) -> None:
    consumer = consume(cluster, T0, fetch_max_wait_ms=HELD_MS)
    for _ in range(3):
        assert offsets(read(consumer, 2)) == [0, 1]
        waiting = held(cluster)
        consumer.seek(T0, 0)
    assert held(cluster) is waiting


def test_what_is_read_beside_counts_as_read_ahead(
    cluster: ScriptedCluster, consume: Callable[..., KafkaConsumer]
) -> None:
    cluster.topics["t"][1].append(5)
    consumer = consume(cluster, T0, T1, fetch_max_wait_ms=HELD_MS, fetch_max_bytes=10_000)
    assert len(read(consumer, 9)) == 9
    held(cluster)
    left = consumer.fetch_buffer.bytes
    assert left > 0
    (read_through,) = [partition for partition in (T0, T1) if consumer.position(partition) == 5]
    consumer.seek(read_through, 0)
    assert len(read(consumer, 6)) == 6
    beside = [call.request for call in cluster.of(FetchRequest) if call.request.session_epoch == -1]
    assert [request.max_bytes for request in beside] == [10_000 - left]


def test_offsets_are_listed_meanwhile(cluster: ScriptedCluster, consume: Callable[..., KafkaConsumer]) -> None:
    consumer = consume(cluster, T0, fetch_max_wait_ms=HELD_MS)
    assert len(read(consumer, 5)) == 5
    waiting = held(cluster)
    asked = len(cluster.of(ListOffsetsRequest))
    assert consumer.end_offsets([T0, T1]) == {T0: 5, T1: 0}
    consumer.seek_to_beginning(T0)
    assert consumer.position(T0) == 0
    assert len(read(consumer, 5)) == 5
    assert len(cluster.of(ListOffsetsRequest)) == asked + 2
    assert held(cluster) is waiting


def test_partitions_that_are_resumed_or_assigned_do_not_wait(
    cluster: ScriptedCluster, consume: Callable[..., KafkaConsumer]
) -> None:
    consumer = consume(cluster, T1, fetch_max_wait_ms=HELD_MS)
    assert consumer.poll(50) == {}
    waiting = held(cluster)
    consumer.assign([T0, T1])
    consumer.pause(T0)
    consumer.seek(T0, 2)
    assert consumer.poll(50) == {}
    consumer.resume(T0)
    assert offsets(read(consumer, 3)) == [2, 3, 4]
    assert held(cluster) is waiting


def test_what_has_nothing_is_asked_for_once_and_then_with_everything_else(
    cluster: ScriptedCluster, consume: Callable[..., KafkaConsumer]
) -> None:
    consumer = consume(cluster, T0, fetch_max_wait_ms=HELD_MS)
    assert len(read(consumer, 5)) == 5
    held(cluster)
    consumer.assign([T0, T1])
    consumer.seek(T1, 0)
    until(lambda: cluster.of(FetchRequest)[-1].request.session_epoch == -1)
    asked = len(cluster.of(FetchRequest))
    deadline = time.monotonic() + 0.2
    while time.monotonic() < deadline:
        assert consumer.poll(10) == {}
    assert len(cluster.of(FetchRequest)) == asked
    cluster.topics["t"][0].append(1)
    assert read(consumer, 1) == [("t", 0, 5)]
    cluster.topics["t"][1].append(1)
    assert read(consumer, 1) == [("t", 1, 0)]


def test_where_no_second_connection_is_to_be_had_a_seek_waits(
    cluster: ScriptedCluster, consume: Callable[..., KafkaConsumer]
) -> None:
    def refuse(call: Call) -> None:
        if call.request.session_epoch == -1:
            raise Disconnect

    cluster.on(FetchRequest, refuse)
    consumer = consume(cluster, T0, fetch_max_wait_ms=100)
    assert len(read(consumer, 5)) == 5
    for _ in range(3):
        held(cluster)
        consumer.seek(T0, 0)
        assert len(read(consumer, 5)) == 5
    assert any(call.request.session_epoch == -1 for call in cluster.of(FetchRequest))
