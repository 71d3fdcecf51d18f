"""What aiokafka's README, documentation and examples show, written as they show it.

Each test runs with kafkapy.aio and (make soak) with aiokafka itself, and nothing but the module's name differs.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

from kafkapy.testing import Broker

Main = Callable[[], Awaitable[None]]


@pytest.fixture(params=["kafkapy.aio", pytest.param("aiokafka", marks=pytest.mark.soak)])
def aiokafka(request: pytest.FixtureRequest) -> ModuleType:
    """The one import that changes."""
    return import_module(request.param)


@pytest.fixture
def bootstrap(broker: Broker) -> str:
    return broker.bootstrap_servers


_numbers = itertools.count(1)


@pytest.fixture
def topic(broker: Broker) -> Iterator[str]:
    name = f"example{next(_numbers)}"
    broker.create_topic(name, 2)
    yield name
    broker.delete_topic(name)


def run(main: Main) -> None:
    async def limited() -> None:
        async with asyncio.timeout(60):
            await main()

    asyncio.run(limited())


async def fill(aiokafka: ModuleType, bootstrap: str, topic: str, count: int, partition: int = 0) -> None:
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    for n in range(count):
        await producer.send(topic, b"%d" % n, key=b"k%d" % (n % 3), partition=partition)
    await producer.stop()


def test_one_message_is_sent_and_consumed(aiokafka: ModuleType, bootstrap: str, topic: str) -> None:
    async def send_one() -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap)
        await producer.start()
        try:
            await producer.send_and_wait(topic, b"Super message")
        finally:
            await producer.stop()

    async def consume() -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            topic,
            f"{topic}-other",
            bootstrap_servers=bootstrap,
            group_id=f"{topic}-group",
            auto_offset_reset="earliest",
        )
        await consumer.start()
        try:
            async for msg in consumer:
                assert (msg.topic, msg.offset, msg.key, msg.value) == (topic, 0, None, b"Super message")
                assert abs(msg.timestamp - time.time() * 1000) < 60_000
                break
        finally:
            await consumer.stop()

    async def main() -> None:
        await send_one()
        await consume()

    run(main)


def test_a_future_is_awaited_later(aiokafka: ModuleType, bootstrap: str, topic: str) -> None:
    async def main() -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True)
        await producer.start()
        try:
            fut = await producer.send(topic, b"Super message", partition=1)
            msg = await fut
            assert (msg.topic, msg.partition, msg.offset) == (topic, 1, 0)
            assert abs(msg.timestamp - time.time() * 1000) < 60_000
            futures = [await producer.send(topic, b"x", partition=1) for _ in range(10)]
            done, pending = await asyncio.wait(futures, timeout=30)
            assert (len(done), pending) == (10, set())
        finally:
            await producer.stop()

    run(main)


def test_position_and_commit_are_two_things(aiokafka: ModuleType, bootstrap: str, topic: str) -> None:
    async def main() -> None:
        await fill(aiokafka, bootstrap, topic, 5)
        consumer = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=f"{topic}-group",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        await consumer.start()
        msg = await consumer.getone()
        tp = aiokafka.TopicPartition(msg.topic, msg.partition)
        position = await consumer.position(tp)
        assert position == msg.offset + 1
        assert await consumer.committed(tp) is None
        await consumer.commit()
        assert await consumer.committed(tp) == 1
        # Records are read again after a seek.
        consumer.seek(tp, msg.offset)
        msg2 = await consumer.getone()
        assert msg2 == msg
        await consumer.stop()

    run(main)


def test_batches_are_committed_by_hand(aiokafka: ModuleType, bootstrap: str, topic: str) -> None:
    async def main() -> None:
        await fill(aiokafka, bootstrap, topic, 250)
        keywords = {
            "bootstrap_servers": bootstrap,
            "group_id": f"{topic}-group",
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
        }
        consumer = aiokafka.AIOKafkaConsumer(topic, **keywords)
        await consumer.start()
        batch: list[Any] = []
        committed = 0
        async for msg in consumer:
            batch.append(msg)
            if len(batch) == 100:
                await consumer.commit()
                committed += len(batch)
                batch = []
            if committed == 200:
                break
        await consumer.stop()
        consumer = aiokafka.AIOKafkaConsumer(topic, **keywords)
        await consumer.start()
        result = await consumer.getmany(timeout_ms=10 * 1000)
        for tp, messages in result.items():
            assert [message.offset for message in messages] == list(range(200, 250))
            await consumer.commit({tp: messages[-1].offset + 1})
            assert await consumer.committed(tp) == 250
        assert len(result) == 1
        await consumer.stop()

    run(main)


def test_a_pattern_subscribes_after_the_start(aiokafka: ModuleType, bootstrap: str, broker: Broker) -> None:
    prefix = f"MyGreatTopic{next(_numbers)}-"
    broker.create_topic(f"{prefix}1")

    async def main() -> None:
        await fill(aiokafka, bootstrap, f"{prefix}1", 1)
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap, metadata_max_age_ms=30000, auto_offset_reset="earliest"
        )
        await consumer.start()
        consumer.subscribe(pattern=f"^{prefix}.*$")
        async for msg in consumer:
            assert (msg.topic, msg.partition, msg.value) == (f"{prefix}1", 0, b"0")
            break
        await consumer.stop()

    run(main)


def test_partitions_that_lag_are_read_first(aiokafka: ModuleType, bootstrap: str, topic: str) -> None:
    async def main() -> None:
        await fill(aiokafka, bootstrap, topic, 30, 0)
        await fill(aiokafka, bootstrap, topic, 3, 1)
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=50
        )
        await consumer.start()
        consumer.assign([aiokafka.TopicPartition(topic, n) for n in range(2)])
        partitions: list[Any] = []
        got: Counter[int] = Counter()
        for _ in range(50):
            msgs = await consumer.getmany(*partitions, timeout_ms=200, max_records=5)
            for tp, messages in msgs.items():
                got[tp.partition] += len(messages)
            partitions = []
            for partition in consumer.assignment():
                highwater = consumer.highwater(partition)
                if highwater is None:
                    continue
                position_lag = highwater - await consumer.position(partition)
                time_lag = time.time() * 1000 - consumer.last_poll_timestamp(partition)
                assert time_lag < 60_000
                if position_lag > 10:
                    partitions.append(partition)
            if got == {0: 30, 1: 3}:
                break
        assert got == {0: 30, 1: 3}
        await consumer.stop()

    run(main)


def test_only_committed_transactions_are_read(aiokafka: ModuleType, bootstrap: str, topic: str) -> None:
    async def main() -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"{topic}-id")
        await producer.start()
        try:
            async with producer.transaction():
                await producer.send_and_wait(topic, b"Super transactional message", partition=0)
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction():
                    await producer.send_and_wait(topic, b"never seen", partition=0)
                    raise ZeroDivisionError
        finally:
            await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
        )
        await consumer.start()
        async for msg in consumer:
            assert msg.value == b"Super transactional message"
            tp = aiokafka.TopicPartition(msg.topic, msg.partition)
            lso = consumer.last_stable_offset(tp)
            end_offsets = await consumer.end_offsets([tp])
            assert end_offsets[tp] == lso == 4
            break
        await consumer.seek_to_end(tp)
        assert await consumer.position(tp) == 4
        await consumer.stop()

    run(main)


def test_messages_are_consumed_processed_and_produced_in_transactions(
    aiokafka: ModuleType, bootstrap: str, topic: str, broker: Broker
) -> None:
    out = f"{topic}-out"
    broker.create_topic(out)
    group = f"{topic}-group"

    async def transactional_process() -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            enable_auto_commit=False,
            group_id=group,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        )
        await consumer.start()
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"{topic}-id")
        await producer.start()
        try:
            done = 0
            while done < 20:
                msg_batch = await consumer.getmany(timeout_ms=10 * 1000, max_records=7)
                async with producer.transaction():
                    commit_offsets = {}
                    for tp, msgs in msg_batch.items():
                        counts = Counter(msg.key for msg in msgs)
                        await producer.send(out, json.dumps({k.decode(): n for k, n in counts.items()}).encode())
                        commit_offsets[tp] = msgs[-1].offset + 1
                        done += len(msgs)
                    await producer.send_offsets_to_transaction(commit_offsets, group)
            assert await consumer.committed(aiokafka.TopicPartition(topic, 0)) == 20
        finally:
            await consumer.stop()
            await producer.stop()

    async def main() -> None:
        await fill(aiokafka, bootstrap, topic, 20)
        await transactional_process()
        consumer = aiokafka.AIOKafkaConsumer(
            out, bootstrap_servers=bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
        )
        await consumer.start()
        counts: Counter[str] = Counter()
        while sum(counts.values()) < 20:
            counts.update(json.loads((await consumer.getone()).value))
        assert counts == {"k0": 7, "k1": 7, "k2": 6}
        await consumer.stop()

    run(main)


def test_a_batch_is_filled_and_sent(aiokafka: ModuleType, bootstrap: str, topic: str) -> None:
    async def main() -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap)
        await producer.start()
        batch = producer.create_batch()
        sent = 0
        i = 0
        while i < 1000:
            msg = f"Test message {i}".encode()
            metadata = batch.append(key=None, value=msg, timestamp=None)
            if metadata is None:
                partitions = await producer.partitions_for(topic)
                assert partitions == {0, 1}
                await producer.send_batch(batch, topic, partition=1)
                sent += batch.record_count()
                batch = producer.create_batch()
                continue
            i += 1
        fut = await producer.send_batch(batch, topic, partition=1)
        record = await fut
        assert record.offset == sent
        await producer.stop()

    run(main)


def test_values_are_serialized_and_compressed(aiokafka: ModuleType, bootstrap: str, topic: str) -> None:
    def serializer(value: Any) -> bytes:
        return json.dumps(value).encode()

    def deserializer(serialized: bytes) -> Any:
        return json.loads(serialized)

    async def main() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, value_serializer=serializer, compression_type="gzip"
        )
        await producer.start()
        data = {"a": 123.4, "b": "some string"}
        await producer.send(topic, data)
        data = [1, 2, 3]  # type: ignore[assignment]
        await producer.send(topic, data)
        await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, value_deserializer=deserializer, auto_offset_reset="earliest"
        )
        await consumer.start()
        got = [(await consumer.getone()).value for _ in range(2)]
        assert {"a": 123.4, "b": "some string"} in got
        assert [1, 2, 3] in got
        await consumer.stop()

    run(main)


def test_a_partitioner_of_ones_own(aiokafka: ModuleType, bootstrap: str, topic: str) -> None:
    class ShardedPartitioner:
        def __call__(self, key_bytes: bytes, all_partitions: list[int], available_partitions: list[int]) -> int:
            return all_partitions[len(key_bytes) % len(all_partitions)]

    async def main() -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, partitioner=ShardedPartitioner())
        await producer.start()
        chosen = [(await producer.send_and_wait(topic, b"v", key=b"k" * n)).partition for n in (1, 2, 3)]
        assert chosen == [1, 0, 1]
        await producer.stop()

    run(main)


def test_state_and_offsets_are_kept_outside_of_kafka(aiokafka: ModuleType, bootstrap: str, topic: str) -> None:
    class State:
        def __init__(self) -> None:
            self.counts: dict[Any, Counter[bytes]] = {}
            self.offsets: dict[Any, int] = {}

    state = State()
    told: list[str] = []

    class RebalanceListener(aiokafka.ConsumerRebalanceListener):  # type: ignore[name-defined, misc]
        def __init__(self, consumer: Any) -> None:
            self.consumer = consumer

        async def on_partitions_revoked(self, revoked: Any) -> None:
            told.append("revoked")

        async def on_partitions_assigned(self, assigned: Any) -> None:
            told.append("assigned")
            for tp in assigned:
                last_offset = state.offsets.get(tp, -1)
                if last_offset < 0:
                    await self.consumer.seek_to_beginning(tp)
                else:
                    self.consumer.seek(tp, last_offset + 1)

    async def consume(count: int) -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap, group_id=f"{topic}-group", enable_auto_commit=False, auto_offset_reset="none"
        )
        await consumer.start()
        consumer.subscribe(topics=[topic], listener=RebalanceListener(consumer))
        try:
            got = 0
            while got < count:
                msg_set = await consumer.getmany(timeout_ms=1000, max_records=count - got)
                for tp, msgs in msg_set.items():
                    state.counts.setdefault(tp, Counter()).update(msg.key for msg in msgs)
                    state.offsets[tp] = msgs[-1].offset
                    got += len(msgs)
        finally:
            await consumer.stop()

    async def main() -> None:
        await fill(aiokafka, bootstrap, topic, 30)
        await consume(12)
        await consume(18)
        tp = aiokafka.TopicPartition(topic, 0)
        assert state.offsets[tp] == 29
        assert state.counts[tp] == {b"k0": 10, b"k1": 10, b"k2": 10}
        assert told.count("assigned") == 2

    run(main)


def test_consumers_are_subscribed_before_the_start_and_stopped_while_they_wait(
    aiokafka: ModuleType, bootstrap: str, topic: str
) -> None:
    async def main() -> None:
        await fill(aiokafka, bootstrap, topic, 8, 0)
        await fill(aiokafka, bootstrap, topic, 8, 1)
        stopping = asyncio.Event()
        seen: set[tuple[int, int]] = set()

        async def run_consumer(consumer: Any) -> None:
            consumer.subscribe([topic])
            await consumer.start()
            while not stopping.is_set():
                message = await consumer.getone()
                seen.add((message.partition, message.offset))
                if len(seen) == 16:
                    stopping.set()

        consumers = [
            aiokafka.AIOKafkaConsumer(
                bootstrap_servers=bootstrap,
                enable_auto_commit=False,
                group_id=f"{topic}-group",
                auto_offset_reset="earliest",
                heartbeat_interval_ms=100,
            )
            for _ in range(2)
        ]
        tasks = [asyncio.create_task(run_consumer(consumer)) for consumer in consumers]
        await stopping.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*[consumer.stop() for consumer in consumers])
        assert seen == {(partition, offset) for partition in range(2) for offset in range(8)}

    run(main)
