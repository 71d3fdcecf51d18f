"""EndTxn as a client sees it."""

from __future__ import annotations

from typing import Any

import pytest
from broker.handlers.transactions import Producer, read_committed

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.delete_topics import DeleteTopicsRequest


@pytest.mark.parametrize("version", range(6))
def test_committed_records_are_seen_and_aborted_ones_are_not(client: Any, topic_name: str, version: int) -> None:
    client.create_topic(topic_name)
    producer = Producer(client, f"end-{topic_name}")
    for committed, value in ((True, b"seen"), (False, b"not seen")):
        producer.add((topic_name, [0]))
        producer.produce(topic_name, value)
        before = read_committed(client, topic_name)[1]
        response = producer.end(committed, version)
        assert response.error_code == ErrorCode.NONE
        producer.wait_for("CompleteCommit" if committed else "CompleteAbort")
        assert read_committed(client, topic_name) == ([b"seen"], before + 2)
        if version >= 5:
            assert (response.producer_id, response.producer_epoch) == (producer.producer_id, producer.epoch + 1)
            producer.epoch, producer.sequence = response.producer_epoch, 0


def test_the_end_can_be_asked_for_again_but_not_changed(client: Any, topic_name: str) -> None:
    client.create_topic(topic_name)
    producer = Producer(client, f"end-{topic_name}")
    producer.add((topic_name, [0]))
    assert producer.end().error_code == ErrorCode.NONE
    producer.wait_for("CompleteCommit")
    assert producer.end().error_code == ErrorCode.NONE
    assert producer.end(committed=False).error_code == ErrorCode.INVALID_TXN_STATE


def test_a_topic_that_was_deleted_meanwhile_does_not_keep_a_transaction_from_ending(
    client: Any, topic_name: str
) -> None:
    client.create_topic(topic_name)
    client.create_topic(f"{topic_name}-kept")
    producer = Producer(client, f"end-{topic_name}")
    producer.add((topic_name, [0]), (f"{topic_name}-kept", [0]))
    producer.produce(f"{topic_name}-kept", b"seen")
    deleted = client(DeleteTopicsRequest(topic_names=[topic_name], timeout_ms=30_000), 5).responses[0]
    assert deleted.error_code == ErrorCode.NONE
    assert producer.end().error_code == ErrorCode.NONE
    producer.wait_for("CompleteCommit")
    assert read_committed(client, f"{topic_name}-kept")[0] == [b"seen"]


def test_what_cannot_be_ended(client: Any, topic_name: str) -> None:
    producer = Producer(client, f"end-{topic_name}")
    assert producer.end().error_code == ErrorCode.INVALID_TXN_STATE
    producer.producer_id += 1
    assert producer.end().error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize(("version", "error"), [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)])
def test_a_fenced_producer_is_told_so_in_words_it_knows(
    client: Any, topic_name: str, version: int, error: ErrorCode
) -> None:
    old = Producer(client, f"end-{topic_name}")
    Producer(client, f"end-{topic_name}")
    assert old.end(version=version).error_code == error
