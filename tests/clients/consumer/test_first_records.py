"""From the constructor to the first records: only requests that are needed, no back-off where nothing has failed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from clients.consumer.fetching import T0, WAIT_MS, read, until
from clients.consumer.scripted_cluster import ScriptedCluster

from kafkapy import KafkaConsumer
from kafkapy.protocol.messages.api_versions import ApiVersionsRequest
from kafkapy.protocol.messages.fetch import FetchRequest
from kafkapy.protocol.messages.list_offsets import ListOffsetsRequest
from kafkapy.protocol.messages.metadata import MetadataRequest
from kafkapy.types import TopicPartition

LONG = {"retry_backoff_ms": 10 * WAIT_MS, "retry_backoff_max_ms": 10 * WAIT_MS}
"""Who backs off sees nothing within the test."""


def asked(cluster: ScriptedCluster) -> list[type]:
    """The kinds of requests up to the first Fetch."""
    kinds = [type(call.request) for call in cluster.calls]
    return kinds[: kinds.index(FetchRequest) + 1]


def test_a_partition_is_reset_as_soon_as_its_leader_is_known(consume: Callable[..., KafkaConsumer]) -> None:
    with ScriptedCluster() as cluster:
        cluster.add_topic("t")[0].append(5)
        consumer = consume(cluster, T0, **LONG)
        assert len(read(consumer, 5)) == 5
        assert asked(cluster) == [
            ApiVersionsRequest,
            MetadataRequest,
            MetadataRequest,
            ListOffsetsRequest,
            FetchRequest,
        ]


def test_the_first_metadata_is_of_the_topics_subscribed_to(consume: Callable[..., KafkaConsumer]) -> None:
    with ScriptedCluster() as cluster:
        cluster.add_topic("t", 2)[0].append(5)
        consumer = KafkaConsumer("t", bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", **LONG)
        try:
            assert len(read(consumer, 5)) == 5
            assert consumer.assignment() == {T0, TopicPartition("t", 1)}
            assert asked(cluster) == [ApiVersionsRequest, MetadataRequest, ListOffsetsRequest, FetchRequest]
        finally:
            consumer.close(timeout_ms=1000)


def test_a_leader_that_comes_later_is_asked_when_metadata_names_it(consume: Callable[..., KafkaConsumer]) -> None:
    with ScriptedCluster() as cluster:
        log = cluster.add_topic("t")[0]
        log.append(5)
        log.leadership = (-1, 0)
        consumer = consume(cluster, T0)
        assert consumer.poll(100) == {}
        until(lambda: len(cluster.of(MetadataRequest)) > 3)
        assert cluster.of(ListOffsetsRequest) == []
        log.elect(1)
        assert len(read(consumer, 5)) == 5


def test_topics_of_a_constructor_are_names() -> None:
    with pytest.raises(TypeError, match="sequence of names"):
        KafkaConsumer(7, bootstrap_servers="127.0.0.1:1")  # type: ignore[arg-type]
