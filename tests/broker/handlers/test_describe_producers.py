"""DescribeProducers as a client sees it."""

from __future__ import annotations

from typing import Any

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.describe_producers import DescribeProducersRequest


def ask(client: Any, topic: str, partition: int = 0) -> Any:
    asked = DescribeProducersRequest.Topic(name=topic, partition_indexes=[partition])
    return client(DescribeProducersRequest(topics=[asked]), 0).topics[0].partitions[0]


def test_idempotent_producers_are_listed(client: Any, topic_name: str) -> None:
    client.create_topic(topic_name)
    assert ask(client, topic_name).active_producers == []
    client.produce(topic_name, [(77, b"a"), (78, b"b")], producer_id=4242, producer_epoch=3, base_sequence=0)
    (producer,) = ask(client, topic_name).active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (4242, 3, 1)
    assert producer.current_txn_start_offset == -1


def test_what_is_not_here_has_its_error(client: Any, topic_name: str) -> None:
    client.create_topic(topic_name)
    assert ask(client, "bad name").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert ask(client, "no-such-topic").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ask(client, topic_name, 9).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
