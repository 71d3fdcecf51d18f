"""AddPartitionsToTxn as a client, or another broker, sees it."""

from __future__ import annotations

from typing import Any

import pytest
from broker.handlers.transactions import Producer

from kafkapy.errors import ErrorCode


@pytest.mark.parametrize("version", range(6))
def test_partitions_become_part_of_the_transaction(client: Any, topic_name: str, version: int) -> None:
    client.create_topic(topic_name, 3)
    producer = Producer(client, f"add-{topic_name}")
    assert producer.add((topic_name, [0, 2]), version=version) == {
        (topic_name, 0): ErrorCode.NONE,
        (topic_name, 2): ErrorCode.NONE,
    }
    described = producer.describe()
    assert described.transaction_state == "Ongoing"
    assert [(topic.topic, topic.partitions) for topic in described.topics] == [(topic_name, [0, 2])]


def test_one_unknown_partition_keeps_the_others_out(client: Any, topic_name: str) -> None:
    client.create_topic(topic_name)
    producer = Producer(client, f"add-{topic_name}")
    assert producer.add((topic_name, [0, 1]), ("nowhere", [0])) == {
        (topic_name, 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
        (topic_name, 1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("nowhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert producer.describe().transaction_state == "Empty"


@pytest.mark.parametrize(("version", "error"), [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)])
def test_a_fenced_producer_is_told_so_in_words_it_knows(
    client: Any, topic_name: str, version: int, error: ErrorCode
) -> None:
    client.create_topic(topic_name)
    old = Producer(client, f"add-{topic_name}")
    Producer(client, f"add-{topic_name}")
    assert old.add((topic_name, [0]), version=version) == {(topic_name, 0): error}


def test_another_broker_may_only_ask(client: Any, topic_name: str) -> None:
    client.create_topic(topic_name, 2)
    producer = Producer(client, f"verify-{topic_name}")
    producer.add((topic_name, [0]))
    assert producer.add((topic_name, [0, 1]), version=4, verify_only=True) == {
        (topic_name, 0): ErrorCode.NONE,
        (topic_name, 1): ErrorCode.TRANSACTION_ABORTABLE,
    }
    assert producer.describe().topics[0].partitions == [0]
