"""What a KafkaConsumer makes of its arguments, and what it says about those that cannot be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from clients.consumer.fetching import T0, read, until
from clients.consumer.scripted_cluster import ScriptedCluster

from kafkapy import KafkaConsumer
from kafkapy.clients.consumer.consumer import _offsets, _partition, _partitions
from kafkapy.errors import IllegalStateError
from kafkapy.types import OffsetAndMetadata, TopicPartition

T1 = TopicPartition("t", 1)


def test_a_pair_is_a_partition() -> None:
    found = _partition(("t", 0))  # type: ignore[arg-type]
    assert type(found) is TopicPartition
    assert found == T0
    assert _partition(T0) is T0
    assert _partitions([T1, ("t", 0), T1]) == [T1, T0]  # type: ignore[list-item]
    for wrong in ("ab", ["t", 0], ("t", 0, 1), ("t",), None):
        with pytest.raises(TypeError, match="partition must be a TopicPartition"):
            _partition(wrong)  # type: ignore[arg-type]


def test_a_number_is_an_offset_without_metadata() -> None:
    assert _offsets(None) is None
    assert _offsets({}) == {}
    given: Any = {T0: 0, ("t", 1): OffsetAndMetadata(6, "note", 2)}
    assert _offsets(given) == {T0: OffsetAndMetadata(0), T1: OffsetAndMetadata(6, "note", 2)}
    with pytest.raises(ValueError, match=r"The offset of .* is negative: -1"):
        _offsets({T0: -1})


def test_arguments_of_positions(consume: Callable[..., KafkaConsumer]) -> None:
    with ScriptedCluster() as cluster:
        cluster.add_topic("t", 2)[0].append(5)
        consumer = consume(cluster)
        for call in (consumer.seek_to_beginning, consumer.seek_to_end):
            with pytest.raises(ValueError, match="No partitions are currently assigned"):
                call()
        consumer.assign([T0, T1, T0])
        for wrong in (True, -1, "5", 1.5):
            with pytest.raises(ValueError, match="offset must be an int of at least 0"):
                consumer.seek(T0, wrong)  # type: ignore[arg-type]
        for call in (consumer.highwater, consumer.lag, lambda each: consumer.pause(each)):
            with pytest.raises(IllegalStateError, match="No current assignment for partition"):
                call(TopicPartition("u", 0))
        with pytest.raises(ValueError, match="The target time for partition .* is -1: it cannot be negative"):
            consumer.offsets_for_times({T0: -1})
        for wrong, error in (({"timeout_ms": -1}, ValueError), ({"max_records": 0}, ValueError)):
            with pytest.raises(error):
                consumer.poll_batch(**wrong)
        with pytest.raises(IllegalStateError, match="mutually exclusive"):
            consumer.subscribe(["t"], pattern="t")
        consumer.pause(T0)
        with pytest.raises(IllegalStateError):
            consumer.resume(T0, TopicPartition("u", 0))
        assert consumer.paused() == {T0}  # all or none
        consumer.assign([])
        assert consumer.assignment() == set()


def test_a_consumer_that_is_closed_says_so(consume: Callable[..., KafkaConsumer]) -> None:
    with ScriptedCluster() as cluster:
        cluster.add_topic("t")[0].append(5)
        consumer = consume(cluster, T0)
        assert len(read(consumer, 2)) == 2
        assert consumer.bootstrap_connected()
        consumer.close()
        consumer.close()
        assert not consumer.bootstrap_connected()
        for call in (
            consumer.poll,
            consumer.poll_batch,
            consumer.assignment,
            consumer.subscription,
            consumer.paused,
            consumer.metrics,
            consumer.group_metadata,
            consumer.topics,
            consumer.unsubscribe,
            consumer.commit,
            lambda: consumer.position(T0),
            lambda: consumer.seek(T0, 1),
        ):
            with pytest.raises(IllegalStateError, match="This consumer has already been closed"):
                call()
        with pytest.raises(StopIteration):
            next(consumer)


def test_deserializers_with_a_close_are_closed(consume: Callable[..., KafkaConsumer]) -> None:
    closed: list[str] = []

    class Deserializer:
        def __init__(self, name: str) -> None:
            self.name = name

        def deserialize(self, topic: str, headers: Any, data: bytes) -> bytes:
            return data

        def close(self) -> None:
            closed.append(self.name)

    with ScriptedCluster() as cluster:
        consumer = consume(cluster, key_deserializer=Deserializer("key"), value_deserializer=Deserializer("value"))
        consumer.close()
        consumer.close()
        assert closed == ["key", "value"]


def test_the_core_knows_whether_the_user_waits(consume: Callable[..., KafkaConsumer]) -> None:
    """Such a member counts as polling."""
    with ScriptedCluster() as cluster:
        log = cluster.add_topic("t")[0]
        consumer = consume(cluster, T0)
        seen: list[bool] = []
        wait = consumer._bell.wait

        def watched(seconds: float) -> None:
            seen.append(consumer._core.user_waits)
            wait(seconds)

        consumer._bell.wait = watched  # type: ignore[method-assign]
        while not seen:
            assert consumer.poll(50) == {}
        assert all(seen)
        assert not consumer._core.user_waits
        log.append(1)
        until(lambda: consumer.fetch_buffer.bytes)
        seen.clear()
        assert len(consumer.poll_batch(1)) == 1
        assert seen == []
        polls = consumer.metrics()["consumer-metrics"]
        assert polls["last-poll-seconds-ago"] >= 0
