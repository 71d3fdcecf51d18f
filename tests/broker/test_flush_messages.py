"""flush.messages as a client sees it: what is acknowledged is on the disk, and no network thread waits for it."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from kafkapy.protocol.messages.produce import ProduceRequest
from kafkapy.records.batches import RecordBatchBuilder
from kafkapy.types import TopicPartition


def produce(client: Any, topic: str, acks: int) -> Any:
    builder = RecordBatchBuilder()
    builder.append(1_700_000_000_000, b"k", b"v")
    entry = ProduceRequest.Topic.Partition(index=0, records=builder.build())
    request = ProduceRequest(
        acks=acks, timeout_ms=10_000, topic_data=[ProduceRequest.Topic(name=topic, partition_data=[entry])]
    )
    return client(request, 9).responses[0].partition_responses[0]


@pytest.mark.parametrize("acks", (1, -1))
def test_an_acknowledged_batch_is_flushed(broker: Any, client: Any, topic_name: str, acks: int) -> None:
    client.create_topic(topic_name, flush_messages="2")
    log = broker.context.log_manager.get(TopicPartition(topic_name, 0))
    unflushed = []
    for offset in range(9):
        answer = produce(client, topic_name, acks)
        assert (answer.error_code, answer.base_offset) == (0, offset)
        unflushed.append(log.unflushed_messages)
    # Two never wait; which ones do is not said, as the flusher of all logs comes by every second and takes one along.
    assert set(unflushed) == {0, 1}


def test_producers_share_flushes(broker: Any, client: Any, connect: Any, topic_name: str) -> None:
    client.create_topic(topic_name, flush_messages="1")
    log = broker.context.log_manager.get(TopicPartition(topic_name, 0))
    offsets: list[int] = []

    def run(one: Any) -> None:
        for _ in range(40):
            offsets.append(produce(one, topic_name, 1).base_offset)

    threads = [threading.Thread(target=run, args=(connect(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(offsets) == list(range(160))
    assert log.unflushed_messages == 0
