"""DescribeTransactions as a client sees it."""

from __future__ import annotations

import time
from typing import Any

from broker.handlers.transactions import Producer

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.describe_transactions import DescribeTransactionsRequest


def test_a_transaction_is_described(client: Any, topic_name: str) -> None:
    client.create_topic(topic_name, 3)
    producer = Producer(client, f"described-{topic_name}", timeout_ms=12_345)
    empty = producer.describe()
    assert (empty.transaction_state, empty.transaction_start_time_ms, empty.topics) == ("Empty", -1, [])
    before = time.time() * 1000
    producer.add((topic_name, [2, 0]))
    found = producer.describe()
    assert (found.error_code, found.transaction_state) == (ErrorCode.NONE, "Ongoing")
    assert (found.producer_id, found.producer_epoch) == (producer.producer_id, producer.epoch)
    assert found.transaction_timeout_ms == 12_345
    assert before - 1000 <= found.transaction_start_time_ms <= time.time() * 1000 + 1000
    assert [(topic.topic, topic.partitions) for topic in found.topics] == [(topic_name, [0, 2])]


def test_unknown_and_empty_ids_have_an_error(client: Any) -> None:
    client.coordinate_transactions("nobody")
    states = client(DescribeTransactionsRequest(transactional_ids=["nobody", ""]), 0).transaction_states
    assert [(each.transactional_id, each.error_code) for each in states] == [
        ("nobody", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
        ("", ErrorCode.INVALID_REQUEST),
    ]
