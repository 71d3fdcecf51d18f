"""What programs for aiokafka get from calls, listeners and records is what aiokafka gives them."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from kafkapy.aio import (
    AIOKafkaAdminClient,
    AIOKafkaClient,
    AIOKafkaConsumer,
    AIOKafkaProducer,
    ConsumerStoppedError,
    TopicPartition,
)
from kafkapy.aio.abc import ConsumerRebalanceListener
from kafkapy.aio.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafkapy.aio.errors import IllegalOperation, KafkaConnectionError
from kafkapy.aio.partitioner import DefaultPartitioner
from kafkapy.protocol.messages.metadata import MetadataRequest
from kafkapy.testing import Broker


def test_a_record_that_is_not_acknowledged_gives_none(broker: Broker, topic: str, run: Any) -> None:
    async def main() -> None:
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, acks=0) as producer:
            assert await producer.send_and_wait(topic, b"one", partition=0) is None
            assert await (await producer.send(topic, b"two", partition=0)) is None
            batch = producer.create_batch()
            batch.append(key=None, value=b"three", timestamp=None)
            assert await (await producer.send_batch(batch, topic, partition=0)) is None
        partition = TopicPartition(topic, 0)
        async with AIOKafkaConsumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as reader:
            reader.assign([partition])
            assert [(await reader.getone()).value for _ in range(3)] == [b"one", b"two", b"three"]

    run(main)


def test_headers_are_a_tuple(broker: Broker, topic: str, run: Any) -> None:
    async def main() -> None:
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            await producer.send_and_wait(topic, b"with", headers=[("a", b"1"), ("b", b"")], partition=0)
            await producer.send_and_wait(topic, b"without", partition=0)
        servers = broker.bootstrap_servers
        async with AIOKafkaConsumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest") as reader:
            first, second = await reader.getone(), await reader.getone()
            assert first.headers == (("a", b"1"), ("b", b""))
            assert second.headers == ()
            assert first._replace(value=b"other").headers == first.headers

    run(main)


def test_a_getmany_that_waits_gets_nothing_when_the_consumer_stops(broker: Broker, topic: str, run: Any) -> None:
    async def main() -> None:
        reader = AIOKafkaConsumer(topic, bootstrap_servers=broker.bootstrap_servers)
        await reader.start()
        many = asyncio.ensure_future(reader.getmany(timeout_ms=60_000))
        one = asyncio.ensure_future(reader.getone())
        while reader._waiting < 2:
            await asyncio.sleep(0)
        await reader.stop()
        assert await many == {}
        with pytest.raises(ConsumerStoppedError):
            await one
        with pytest.raises(ConsumerStoppedError):
            await reader.getmany(timeout_ms=1)

    run(main)


def test_what_is_done_outside_of_a_transaction_is_an_illegal_operation(broker: Broker, topic: str, run: Any) -> None:
    async def main() -> None:
        servers = broker.bootstrap_servers
        async with AIOKafkaProducer(bootstrap_servers=servers, transactional_id=f"outside-{topic}") as producer:
            offsets = {TopicPartition(topic, 0): 1}
            with pytest.raises(IllegalOperation, match="begin_transaction"):
                await producer.send(topic, b"v")
            batch = producer.create_batch()
            batch.append(key=None, value=b"v", timestamp=None)
            with pytest.raises(IllegalOperation):
                await producer.send_batch(batch, topic, partition=0)
            with pytest.raises(IllegalOperation):
                await producer.send_offsets_to_transaction({}, None)
            with pytest.raises(IllegalOperation):
                await producer.send_offsets_to_transaction(offsets, "some-group")
            with pytest.raises(IllegalOperation):
                await producer.commit_transaction()
            with pytest.raises(IllegalOperation):
                await producer.abort_transaction()
            async with producer.transaction():
                await producer.send_and_wait(topic, b"inside")
                await (await producer.send_batch(batch, topic, partition=0))  # the refused one is as good as new
                for wrong, group in ((offsets, None), (offsets, ""), ({}, "some-group")):
                    with pytest.raises(ValueError, match="group|offsets"):
                        await producer.send_offsets_to_transaction(wrong, group)
                with pytest.raises(IllegalOperation):
                    await producer.begin_transaction()

    run(main)


def test_arguments_of_subscribe_and_commit_are_refused_as_in_aiokafka(broker: Broker, topic: str, run: Any) -> None:
    partition = TopicPartition(topic, 0)

    async def main() -> None:
        servers = broker.bootstrap_servers
        async with AIOKafkaConsumer(topic, bootstrap_servers=servers, group_id=f"arguments-{topic}") as reader:
            wrong: Any
            for wrong in ({"topics": [topic], "pattern": "x"}, {}, {"topics": topic}):
                with pytest.raises(TypeError):
                    reader.subscribe(**wrong)
            with pytest.raises(ValueError, match="regular expression"):
                reader.subscribe(pattern="^(x(")
            for wrong in ({}, "something", {partition: (1, "m", 100)}, {partition: -1}):
                with pytest.raises(ValueError, match="offset"):
                    await reader.commit(wrong)
            for wrong in ({topic: 1}, {partition: (1, 1000)}, {partition: (1, b"m")}):
                with pytest.raises(TypeError):
                    await reader.commit(wrong)

    run(main)


def test_a_place_in_time_is_an_offset_and_a_timestamp(broker: Broker, topic: str, run: Any) -> None:
    async def main() -> None:
        servers = broker.bootstrap_servers
        async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
            await producer.send_and_wait(topic, b"v", partition=0, timestamp_ms=1000)
        async with AIOKafkaConsumer(topic, bootstrap_servers=servers) as reader:
            found = await reader.offsets_for_times({TopicPartition(topic, 0): 500})
            offset, timestamp = found[TopicPartition(topic, 0)]  # type: ignore[misc]
            assert (offset, timestamp) == (0, 1000)

    run(main)


@pytest.mark.parametrize("kind", [AIOKafkaConsumer, AIOKafkaProducer, AIOKafkaAdminClient, AIOKafkaClient])
def test_keywords_that_aiokafka_has_deprecated_are_warned_of(kind: Any) -> None:
    async def main() -> None:
        for keywords in ({"loop": asyncio.get_running_loop()}, {"api_version": "auto"}):
            with pytest.warns(DeprecationWarning, match="has no effect"):
                kind(**keywords)

    asyncio.run(main())


def test_a_client_that_is_forgotten_is_warned_of(broker: Broker, run: Any) -> None:
    async def main() -> None:
        reader = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap_servers)
        await reader.start()
        core = reader._core
        with pytest.warns(ResourceWarning, match="Unclosed AIOKafkaConsumer"):
            del reader
            gc.collect()
        await core.close(False, 1000)

    run(main)


class Listener(ConsumerRebalanceListener):
    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.told.append(("revoked", revoked))

    async def on_partitions_assigned(self, assigned: Any) -> None:  # type: ignore[override]
        self.told.append(("assigned", assigned))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_listener_hears_of_the_first_join_that_nothing_is_revoked(
    broker: Broker, topic: str, run: Any, protocol: str
) -> None:
    listener = Listener()

    async def main() -> None:
        reader = AIOKafkaConsumer(
            bootstrap_servers=broker.bootstrap_servers, group_id=f"{protocol}-{topic}", group_protocol=protocol
        )
        reader.subscribe([topic], listener=listener)
        async with reader:
            while len(listener.told) < 2:
                await reader.getmany(timeout_ms=50)

    run(main)
    assert listener.told[:2] == [
        ("revoked", set()),
        ("assigned", {TopicPartition(topic, 0), TopicPartition(topic, 1)}),
    ]


def test_assignors_and_partitioners_are_named_as_in_aiokafka(broker: Broker, topic: str, run: Any) -> None:
    async def main() -> None:
        servers = broker.bootstrap_servers
        async with AIOKafkaProducer(bootstrap_servers=servers, partitioner=DefaultPartitioner()) as producer:
            sent = [await producer.send_and_wait(topic, b"v", key=b"key %d" % number) for number in range(10)]
        assert {each.partition for each in sent} == {0, 1}
        reader = AIOKafkaConsumer(
            topic,
            bootstrap_servers=servers,
            group_id=f"assignors-{topic}",
            partition_assignment_strategy=(RoundRobinPartitionAssignor,),
        )
        async with reader:
            assert reader.assignment() == {TopicPartition(topic, 0), TopicPartition(topic, 1)}

    run(main)


def test_a_client_knows_the_cluster_and_sends_requests(broker: Broker, topic: str, run: Any) -> None:
    async def main() -> None:
        client = AIOKafkaClient(bootstrap_servers=broker.bootstrap_servers)
        await client.bootstrap()
        try:
            assert [each.nodeId for each in client.cluster.brokers()] == [1]
            assert topic not in client.cluster.topics()
            assert await client.add_topic(topic)
            assert client.cluster.partitions_for_topic(topic) == {0, 1}
            assert await client.set_topics([])
            assert topic in client.cluster.topics()
            assert topic in (await client.fetch_all_metadata()).topics()
            assert await client.force_metadata_update()
            assert await client.ready(1)
            assert not await client.ready(77)
            assert client.get_random_node() == 1
            assert await client.coordinator_lookup(0, "some-group") == 1
            assert [each.node_id for each in (await client.send(1, MetadataRequest(topics=[]))).brokers] == [1]
        finally:
            await client.close()
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            assert await producer.client.add_topic(topic)
            assert topic in producer.client.cluster.topics()

    run(main)


def test_a_cluster_that_cannot_be_reached_is_a_connection_error(run: Any) -> None:
    async def main() -> None:
        for keywords in ({}, {"api_version": (2, 5)}):  # which means nothing here, as in aiokafka
            producer = AIOKafkaProducer(bootstrap_servers="127.0.0.1:1", bootstrap_timeout_ms=50, **keywords)
            with pytest.raises(KafkaConnectionError):
                await producer.start()

    run(main)
