"""AIOKafkaAdminClient against a broker, on asyncio's loop and on uvloop's."""

from __future__ import annotations

from typing import Any

import pytest
from interop.clients import ConfluentClient, Record

from kafkapy.aio import (
    AIOKafkaAdminClient,
    AIOKafkaConsumer,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetAndMetadata,
    RecordsToDelete,
    TopicPartition,
)
from kafkapy.errors import TopicAlreadyExistsError
from kafkapy.testing import Broker


def test_topics_are_administered(broker: Broker, topic: str, run: Any) -> None:
    name = f"{topic}-made"

    async def main() -> None:
        async with AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers, loop=None) as admin:
            await admin.create_topics([NewTopic(name, num_partitions=2, replication_factor=1)])
            with pytest.raises(TopicAlreadyExistsError):
                await admin.create_topics([NewTopic(name, num_partitions=2, replication_factor=1)])
            assert name in await admin.list_topics()
            await admin.create_partitions({name: NewPartitions(total_count=3)})
            (described,) = await admin.describe_topics([name])
            assert len(described["partitions"]) == 3
            cluster = await admin.describe_cluster()
            assert [each["broker_id"] for each in cluster["brokers"]] == [1]
            configs = await admin.describe_configs([ConfigResource("topic", name)])
            assert name in str(configs)
            ConfluentClient(broker.bootstrap_servers).produce(name, [Record(None, b"%d" % n) for n in range(9)])
            zero = TopicPartition(name, 0)
            deleted = await admin.delete_records({zero: RecordsToDelete(before_offset=4)})
            assert deleted[zero]["low_watermark"] == 4
            await admin.delete_topics([name])
            assert name not in await admin.list_topics()

    run(main)


def test_groups_are_administered(broker: Broker, topic: str, run: Any) -> None:
    group, zero = f"group-{topic}", TopicPartition(topic, 0)

    async def main() -> None:
        async with AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
            async with AIOKafkaConsumer(
                topic, bootstrap_servers=broker.bootstrap_servers, group_id=group, enable_auto_commit=False
            ) as reader:
                await reader.commit({zero: (3, "note")})
                assert (group, "consumer") in await admin.list_consumer_groups()
                described = await admin.describe_groups([group])
                assert len(described[group]["members"]) == 1
            assert await admin.list_consumer_group_offsets(group) == {zero: OffsetAndMetadata(3, "note", -1)}
            asked = await admin.list_consumer_group_offsets(group, partitions=[TopicPartition(topic, 1)])
            assert asked[TopicPartition(topic, 1)].offset == -1
            assert await admin.find_coordinator(group) == 1
            assert await admin.find_coordinator("some-id", 1) == 1

    run(main)
