"""AddOffsetsToTxn as a client sees it."""

from __future__ import annotations

from typing import Any

import pytest
from broker.handlers.transactions import Producer

from kafkapy.coordinator.partitioning import partition_of
from kafkapy.errors import ErrorCode


@pytest.mark.parametrize("version", range(5))
def test_the_groups_partition_becomes_part_of_the_transaction(client: Any, topic_name: str, version: int) -> None:
    producer = Producer(client, f"offsets-{topic_name}")
    assert producer.add_offsets("some-group", version) == ErrorCode.NONE
    [topic] = producer.describe().topics
    assert (topic.topic, topic.partitions) == ("__consumer_offsets", [partition_of("some-group", 50)])


@pytest.mark.parametrize(("version", "error"), [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)])
def test_a_fenced_producer_is_told_so_in_words_it_knows(
    client: Any, topic_name: str, version: int, error: ErrorCode
) -> None:
    old = Producer(client, f"offsets-{topic_name}")
    Producer(client, f"offsets-{topic_name}")
    assert old.add_offsets("some-group", version) == error
