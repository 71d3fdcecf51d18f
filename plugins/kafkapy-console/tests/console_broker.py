"""Records and offsets as a client of the broker itself sees them, beside the console."""

from __future__ import annotations

from kafkapy import KafkaConsumer, TopicPartition, testing
from kafkapy.admin import KafkaAdminClient
from kafkapy.errors import KafkaError

Parts = tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]
"""Key, value and headers of a record."""


def all_of(broker: testing.Broker, topic: str, partition: int = 0) -> list[Parts]:
    """All records of a partition."""
    with KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        place = TopicPartition(topic, partition)
        consumer.assign([place])
        found: list[Parts] = []
        end = consumer.end_offsets([place])[place]
        while consumer.position(place) < end:
            for each in consumer.poll(timeout_ms=1000).get(place, ()):
                found.append((each.key, each.value, list(each.headers)))
        return found


def committed(broker: testing.Broker, group_id: str, topic: str) -> dict[int, int]:
    """The committed offsets of a group in a topic, by partition."""
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        offsets = admin.list_group_offsets([group_id])[group_id]
        return {each.partition: at.offset for each, at in offsets.items() if each.topic == topic}


def committed_or_none(broker: testing.Broker, group_id: str, topic: str) -> dict[int, int]:
    """The same; none of a group that does not exist."""
    try:
        return committed(broker, group_id, topic)
    except KafkaError:
        return {}


def read(broker: testing.Broker, group_id: str, topic: str, count: int, **keys: object) -> KafkaConsumer:
    """A member that has read and committed `count` records."""
    consumer = KafkaConsumer(
        topic, bootstrap_servers=broker.bootstrap_servers, group_id=group_id, auto_offset_reset="earliest",
        enable_auto_commit=False, **keys,
    )  # fmt: skip
    left = count
    while left > 0:
        for records in consumer.poll(timeout_ms=1000, max_records=left).values():
            left -= len(records)
    # All records may come from one partition before the position in another one is known, which is not committed then.
    for partition in consumer.assignment():
        consumer.position(partition)
    consumer.commit()
    return consumer
