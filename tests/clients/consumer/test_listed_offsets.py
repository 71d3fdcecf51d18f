"""Offsets that brokers list, for questions and for positions: ends, times, resets, seeks, errors."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from clients.consumer.fetching import T0, WAIT_MS, read
from clients.consumer.scripted_cluster import Call, ScriptedCluster

from kafkapy import KafkaConsumer
from kafkapy.errors import ErrorCode, KafkaTimeoutError, NoOffsetForPartitionError, TopicAuthorizationFailedError
from kafkapy.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kafkapy.types import TopicPartition


def test_beginning_end_and_times(consume: Callable[..., KafkaConsumer]) -> None:
    with ScriptedCluster([1, 2]) as cluster:
        topic = cluster.add_topic("t", 2)
        topic[1].leadership = (2, 0)
        topic[0].append(10)
        topic[1].append(3)
        topic[0].start = 2
        consumer = consume(cluster)
        one = TopicPartition("t", 1)
        assert consumer.beginning_offsets([T0, one]) == {T0: 2, one: 0}
        assert consumer.end_offsets([T0, one]) == {T0: 10, one: 3}
        found = consumer.offsets_for_times({T0: 1_700_000_000_005, one: 1_700_000_000_005})
        assert found[T0] == (5, 1_700_000_000_005, 0)
        assert found[one] is None
        with pytest.raises(ValueError, match="cannot be negative"):
            consumer.offsets_for_times({T0: -1})


def test_a_partition_that_is_nowhere_is_waited_for(consume: Callable[..., KafkaConsumer]) -> None:
    with ScriptedCluster() as cluster:
        consumer = consume(cluster)
        with pytest.raises(KafkaTimeoutError, match="t-0"):
            consumer.end_offsets([T0], timeout_ms=200)
        assert consumer.end_offsets([]) == {}


def test_a_leader_that_moves_meanwhile_is_found(consume: Callable[..., KafkaConsumer]) -> None:
    with ScriptedCluster([1, 2]) as cluster:
        log = cluster.add_topic("t", leader=1)[0]
        log.append(4)
        consumer = consume(cluster)
        assert consumer.end_offsets([T0]) == {T0: 4}
        assert consumer.partitions_for_topic("t") == {0}
        log.elect(2)
        assert consumer.end_offsets([T0]) == {T0: 4}


def test_without_a_policy_an_assignment_needs_a_seek(consume: Callable[..., KafkaConsumer]) -> None:
    with ScriptedCluster() as cluster:
        cluster.add_topic("t")[0].append(2)
        consumer = consume(cluster, T0, auto_offset_reset="none")
        with pytest.raises(NoOffsetForPartitionError, match="t-0"):
            consumer.poll(WAIT_MS)
        with pytest.raises(NoOffsetForPartitionError):
            consumer.position(T0)
        consumer.seek(T0, 1)
        assert consumer.position(T0) == 1
        assert read(consumer, 1) == [("t", 0, 1)]


def test_by_duration_begins_there_or_at_the_end(consume: Callable[..., KafkaConsumer]) -> None:
    with ScriptedCluster() as cluster:
        cluster.add_topic("t")[0].append(5)
        consumer = consume(cluster, T0, auto_offset_reset="by_duration:PT1H")
        assert consumer.position(T0) == 5  # no record is that young
        asked = cluster.of(ListOffsetsRequest)[0].request.topics[0].partitions[0].timestamp
        assert abs(asked - (time.time() - 3600) * 1000) < 60_000


def test_seeking_to_the_ends(consume: Callable[..., KafkaConsumer]) -> None:
    with ScriptedCluster() as cluster:
        log = cluster.add_topic("t")[0]
        log.append(5)
        log.start = 1
        consumer = consume(cluster, T0)
        consumer.seek_to_end()
        assert consumer.position(T0) == 5
        consumer.seek_to_beginning(T0)
        assert consumer.position(T0) == 1
        with pytest.raises(ValueError, match="u-0"):
            consumer.seek_to_end(TopicPartition("u", 0))


def test_errors_that_do_not_pass_are_told(consume: Callable[..., KafkaConsumer]) -> None:
    with ScriptedCluster() as cluster:
        cluster.add_topic("t")[0].append(5)

        def refuse(call: Call) -> Any:
            part = ListOffsetsResponse.Topic.Partition(
                partition_index=0, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
            )
            return ListOffsetsResponse(topics=[ListOffsetsResponse.Topic(name="t", partitions=[part])])

        cluster.on(ListOffsetsRequest, refuse)
        consumer = consume(cluster, T0)
        with pytest.raises(TopicAuthorizationFailedError, match="topics: t"):
            consumer.end_offsets([T0])
        for _ in range(2):
            with pytest.raises(TopicAuthorizationFailedError, match="topics: t"):
                consumer.poll(WAIT_MS)
        calls = len(cluster.of(ListOffsetsRequest))
        time.sleep(0.1)
        assert len(cluster.of(ListOffsetsRequest)) == calls, "nobody polls, so nothing is tried"
