"""AIOKafkaProducer against a broker, on asyncio's loop and on uvloop's."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from interop.clients import ConfluentClient, Record

from kafkapy.clients.aio.consumer import AIOKafkaConsumer
from kafkapy.clients.aio.errors import IllegalOperation, ProducerClosed
from kafkapy.clients.aio.producer import AIOKafkaProducer
from kafkapy.clients.producer.transactional_requests import TransactionalRequests
from kafkapy.errors import (
    ConfigError,
    IllegalStateError,
    InvalidTopicError,
    KafkaTimeoutError,
    NoBrokersAvailableError,
    ProducerFencedError,
    RecordTooLargeError,
)
from kafkapy.serializer import JsonSerializer
from kafkapy.testing import Broker
from kafkapy.types import TopicPartition


def producer(broker: Broker, **keywords: Any) -> AIOKafkaProducer:
    return AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, **keywords)


def read(broker: Broker, topic: str, count: int, partition: int = 0) -> list[Record]:
    got = ConfluentClient(broker.bootstrap_servers).consume(topic, count, partition=partition)
    return [each.record for each in got]


def test_what_is_sent_is_there(broker: Broker, topic: str, run: Any) -> None:
    before = set(threading.enumerate())

    async def main() -> None:
        async with producer(broker) as sender:
            metadata = await sender.send_and_wait(
                topic, b"v", key=b"k", partition=1, timestamp_ms=1234, headers=[("h", b"x")]
            )
            assert (metadata.topic, metadata.partition, metadata.offset, metadata.timestamp) == (topic, 1, 0, 1234)
            assert metadata.topic_partition == TopicPartition(topic, 1)
            futures = [await sender.send(topic, b"%d" % n, partition=0) for n in range(100)]
            assert all(isinstance(each, asyncio.Future) for each in futures)
            assert [each.offset for each in await asyncio.gather(*futures)] == list(range(100))
            await sender.send(topic, None, key=b"tombstone", partition=1)
            await sender.flush()
            assert await sender.partitions_for(topic) == {0, 1}
            assert not [each for each in set(threading.enumerate()) - before if each.name.startswith("kafkapy")]

    run(main)
    assert [each.value for each in read(broker, topic, 100)] == [b"%d" % n for n in range(100)]
    first, second = ConfluentClient(broker.bootstrap_servers).consume(topic, 2, partition=1)
    assert first.record.timestamp == 1234
    assert (second.record.key, second.record.value) == (b"tombstone", None)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_batches_are_compressed(broker: Broker, topic: str, run: Any, codec: str) -> None:
    async def main() -> None:
        async with producer(broker, compression_type=codec, acks="all", max_batch_size=100_000) as sender:
            for n in range(50):
                await sender.send(topic, b"%d" % n * 100, partition=0)

    run(main)
    assert [each.value for each in read(broker, topic, 50)] == [b"%d" % n * 100 for n in range(50)]


def test_serializers_and_partitioners_are_called(broker: Broker, topic: str, run: Any) -> None:
    seen: list[tuple[bytes, list[int], list[int]]] = []

    def partitioner(key: bytes, partitions: list[int], available: list[int]) -> int:
        seen.append((key, list(partitions), list(available)))
        return partitions[1]

    async def main() -> None:
        async with producer(
            broker, key_serializer=str.encode, value_serializer=JsonSerializer(), partitioner=partitioner
        ) as sender:
            metadata = await sender.send_and_wait(topic, {"a": [1, None]}, key="k")
            assert metadata.partition == 1

    run(main)
    assert seen == [(b"k", [0, 1], [0, 1])]
    assert [(each.key, each.value) for each in read(broker, topic, 1, 1)] == [(b"k", b'{"a": [1, null]}')]


def test_a_batch_is_filled_by_hand(broker: Broker, topic: str, run: Any) -> None:
    async def main() -> None:
        async with producer(broker, max_batch_size=1000, value_serializer=str.encode) as sender:
            await sender.send_and_wait(topic, "before", partition=0)
            batch = sender.create_batch()
            count = 0
            while (appended := batch.append(key=None, value=f"value {count}", timestamp=5000 + count)) is not None:
                assert (appended.offset, appended.timestamp) == (count, 5000 + count)
                count += 1
            assert batch.record_count() == count > 10
            assert 900 < batch.size() <= 1000
            future = await sender.send_batch(batch, topic, partition=0)
            assert (await future).offset == 1
            closed = sender.create_batch()
            closed.append(key=None, value="last", timestamp=None, headers=[("h", b"v")])
            closed.close()
            assert closed.append(key=None, value="too late", timestamp=None) is None
            assert (await (await sender.send_batch(closed, topic, partition=1))).offset == 0
            for wrong in (closed, sender.create_batch()):
                with pytest.raises(ValueError, match="batch"):
                    await sender.send_batch(wrong, topic, partition=0)
            large = sender.create_batch()
            assert large.append(key=None, value="x" * 5000, timestamp=None) is not None
            assert (await (await sender.send_batch(large, topic, partition=1))).offset == 1
        got = read(broker, topic, count + 1)
        assert [each.value for each in got[1:]] == [b"value %d" % n for n in range(count)]
        assert [each.timestamp for each in got[1:]] == list(range(5000, 5000 + count))

    run(main)


def test_transactions_commit_and_abort(broker: Broker, topic: str, run: Any) -> None:
    zero = TopicPartition(topic, 0)

    async def main() -> None:
        group = f"group-{topic}"
        async with (
            producer(broker, transactional_id=f"id-{topic}") as sender,
            AIOKafkaConsumer(
                bootstrap_servers=broker.bootstrap_servers, group_id=group, auto_offset_reset="earliest",
                isolation_level="read_committed", enable_auto_commit=False, fetch_max_wait_ms=50,
            ) as reader,
        ):  # fmt: skip
            reader.assign([zero])
            async with sender.transaction():
                await sender.send(topic, b"kept", partition=0)
                await sender.send_offsets_to_transaction({zero: 5}, group)
            with pytest.raises(KeyError):
                async with sender.transaction():
                    await sender.send_and_wait(topic, b"dropped", partition=0)
                    await sender.send_offsets_to_transaction({zero: (9, "")}, reader.group_metadata())
                    raise KeyError
            await sender.begin_transaction()
            future = await sender.send(topic, b"kept too", partition=0)
            await sender.commit_transaction()
            assert future.result().offset == 4
            await sender.begin_transaction()
            await sender.abort_transaction()
            await reader.seek_to_beginning(zero)  # its group has committed an offset
            assert [(await reader.getone()).value for _ in range(2)] == [b"kept", b"kept too"]
            assert await reader.committed(zero) == 5
            assert reader.last_stable_offset(zero) == 6
            with pytest.raises(IllegalStateError):
                await sender.send(topic, b"outside")

    run(main)


def test_a_transaction_that_is_cancelled_amid_its_offsets_is_aborted(
    broker: Broker, topic: str, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = TopicPartition(topic, 0)

    async def main() -> None:
        asked = asyncio.Event()
        send_offsets = TransactionalRequests.send_offsets

        async def slowly(*arguments: Any) -> None:
            asked.set()
            await asyncio.sleep(0.2)
            await send_offsets(*arguments)

        async def work() -> None:
            async with sender.transaction():
                await sender.send_and_wait(topic, b"dropped", partition=0)
                await sender.send_offsets_to_transaction({place: 5}, f"group-{topic}")

        async with producer(broker, transactional_id=f"id-{topic}") as sender:
            with monkeypatch.context() as patch:
                patch.setattr(TransactionalRequests, "send_offsets", slowly)
                task = asyncio.create_task(work())
                await asked.wait()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            async with sender.transaction():
                await sender.send(topic, b"kept", partition=0)
        async with AIOKafkaConsumer(
            bootstrap_servers=broker.bootstrap_servers, group_id=f"group-{topic}", auto_offset_reset="earliest",
            isolation_level="read_committed", enable_auto_commit=False, fetch_max_wait_ms=50,
        ) as reader:  # fmt: skip
            reader.assign([place])
            assert await reader.committed(place) is None
            assert (await reader.getone()).value == b"kept"

    run(main)


def test_an_older_producer_of_the_same_id_is_fenced(broker: Broker, topic: str, run: Any) -> None:
    async def main() -> None:
        keywords = {"transactional_id": f"id-{topic}"}
        async with producer(broker, **keywords) as older:
            await older.begin_transaction()
            await older.send_and_wait(topic, b"older", partition=0)
            async with producer(broker, **keywords) as newer:
                async with newer.transaction():
                    await newer.send(topic, b"newer", partition=0)
                with pytest.raises(ProducerFencedError):
                    await older.commit_transaction()
                assert older.fenced

    run(main)


def test_errors_are_raised_where_they_belong(broker: Broker, topic: str, run: Any) -> None:
    async def main() -> None:
        sender = producer(broker, max_block_ms=1000, max_request_size=10_000)
        with pytest.raises(ProducerClosed, match="not started"):
            await sender.send(topic, b"early")
        async with sender:
            with pytest.raises(InvalidTopicError):
                await sender.send("no name of a topic", b"v")
            with pytest.raises(KafkaTimeoutError):
                await sender.send(topic, b"v", partition=7)
            with pytest.raises(RecordTooLargeError):
                await sender.send(topic, bytes(20_000))
            with pytest.raises(TypeError):
                await sender.send(topic, "text without a serializer")
            for call in (sender.begin_transaction(), sender.send_offsets_to_transaction({}, "g")):
                with pytest.raises(IllegalOperation):
                    await call
        with pytest.raises(ProducerClosed):
            await sender.send(topic, b"late")
        with pytest.raises(ProducerClosed):
            await sender.start()
        await sender.stop()
        with pytest.raises(NoBrokersAvailableError):
            await AIOKafkaProducer(bootstrap_servers="127.0.0.1:1", bootstrap_timeout_ms=200).start()
        with pytest.raises(ConfigError, match="acks"):
            AIOKafkaProducer(acks=7)

    run(main)


def test_a_full_buffer_holds_the_sender_and_not_the_loop(broker: Broker, topic: str, run: Any) -> None:
    async def main() -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticking = asyncio.create_task(tick())
        async with producer(broker, buffer_memory=64_000, linger_ms=5) as sender:
            futures = [await sender.send(topic, bytes(1000), partition=0) for _ in range(1000)]
            assert ticks > 10
            assert [each.offset for each in await asyncio.gather(*futures)] == list(range(1000))
        ticking.cancel()

    run(main)


def test_interceptors_see_records_and_results(broker: Broker, topic: str, run: Any) -> None:
    class Audit:
        def __init__(self) -> None:
            self.results: list[Any] = []

        def on_send(self, record: Any) -> Any:
            return record._replace(value=record.value + b"!")

        def on_acknowledgement(self, metadata: Any, error: Any) -> None:
            self.results.append((metadata.offset if metadata else None, type(error)))

    audit = Audit()

    async def main() -> None:
        async with producer(broker, interceptor_classes=[audit]) as sender:
            await sender.send_and_wait(topic, b"v", partition=0)
            with pytest.raises(TypeError):
                await sender.send(topic, b"v", partition="zero")  # type: ignore[arg-type]

    run(main)
    assert audit.results == [(0, type(None)), (None, TypeError)]
    assert [each.value for each in read(broker, topic, 1)] == [b"v!"]


def test_aiokafkas_own_keywords_are_accepted(broker: Broker, topic: str, run: Any) -> None:
    async def main() -> None:
        sender = AIOKafkaProducer(
            loop=asyncio.get_running_loop(),
            bootstrap_servers=[broker.bootstrap_servers],
            client_id="me",
            metadata_max_age_ms=300000,
            request_timeout_ms=40000,
            api_version=None,
            acks=1,
            enable_idempotence=False,
            compression_type=None,
            max_batch_size=16384,
            max_request_size=1048576,
            linger_ms=0,
            retry_backoff_ms=100,
            security_protocol="PLAINTEXT",
            connections_max_idle_ms=540000,
            transaction_timeout_ms=60000,
        )
        await sender.start()
        assert (await sender.send_and_wait(topic, b"v", partition=0)).offset == 0
        await sender.stop()

    run(main)
