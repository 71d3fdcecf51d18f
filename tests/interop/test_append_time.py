"""Topics with LogAppendTime take batches that have to wait: for the transaction coordinator, or for a new segment."""

from __future__ import annotations

from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

TIMEOUT_S = 60.0
APPEND_TIME = (confluent_kafka.TIMESTAMP_LOG_APPEND_TIME,)


@pytest.mark.parametrize("codec", ["none", "lz4"])
@pytest.mark.parametrize("transactional", [False, True])
def test_batches_that_waited_are_stamped_and_taken(broker: Any, topic: str, codec: str, transactional: bool) -> None:
    keys: dict[str, Any] = {"bootstrap.servers": broker.bootstrap, "compression.type": codec, "linger.ms": 0}
    admin = AdminClient(keys)
    config = {"message.timestamp.type": "LogAppendTime", "segment.bytes": "1048576"}
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(TIMEOUT_S)
    producer = confluent_kafka.Producer(keys | ({"transactional.id": topic} if transactional else {}))
    failures: list[Any] = []
    if transactional:
        producer.init_transactions(TIMEOUT_S)
    for round_ in range(4):
        if transactional:
            producer.begin_transaction()
        for number in range(20):
            value = bytes((number * at * 7 + at * at) % 251 for at in range(40_000))
            producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error) if error else None)
            producer.poll(0)
        assert producer.flush(TIMEOUT_S) == 0
        assert not failures, (round_, failures[:2])
        if transactional:
            producer.commit_transaction(TIMEOUT_S)
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": topic, "isolation.level": "read_committed"}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    seen: list[Any] = []
    while len(seen) < 80:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None and message.error() is None, message
        seen.append(message.timestamp()[0])
    consumer.close()
    assert set(seen) == {*APPEND_TIME}
