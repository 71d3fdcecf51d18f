"""AIOKafkaConsumer against a broker, on asyncio's loop and on uvloop's."""

from __future__ import annotations

import asyncio
import threading
import time
import warnings
from typing import Any

import pytest
from interop.clients import ConfluentClient, Record

from kafkapy.aio.structs import OffsetAndTimestamp
from kafkapy.clients.aio.consumer import AIOKafkaConsumer
from kafkapy.clients.aio.errors import ConsumerStoppedError, IllegalOperation
from kafkapy.clients.consumer.subscription import ConsumerRebalanceListener
from kafkapy.errors import ConfigError, IllegalStateError, NoBrokersAvailableError, NoOffsetForPartitionError
from kafkapy.testing import Broker
from kafkapy.types import OffsetAndMetadata, TopicPartition


def fill(broker: Broker, topic: str, count: int, partition: int = 0, begin: int = 0) -> list[Record]:
    records = [Record(b"%d" % n, b"value %d" % n, (("h", b"%d" % n),), 1_000 + n) for n in range(begin, begin + count)]
    ConfluentClient(broker.bootstrap_servers).produce(topic, records, partition=partition)
    return records


def consumer(broker: Broker, *topics: str, **keywords: Any) -> AIOKafkaConsumer:
    settings: dict[str, Any] = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 100} | keywords
    return AIOKafkaConsumer(*topics, bootstrap_servers=broker.bootstrap_servers, **settings)


def offsets(records: list[Any]) -> list[tuple[int, int]]:
    return [(record.partition, record.offset) for record in records]


def test_records_come_one_by_one_many_at_a_time_and_by_iteration(broker: Broker, topic: str, run: Any) -> None:
    sent = fill(broker, topic, 300)

    before = set(threading.enumerate())

    async def main() -> None:
        async with consumer(broker, topic, max_poll_records=50) as reader:
            assert reader.assignment() == {TopicPartition(topic, 0), TopicPartition(topic, 1)}
            assert reader.subscription() == frozenset({topic})
            got = [await reader.getone() for _ in range(20)]
            many = await reader.getmany(timeout_ms=10_000)
            assert {partition: len(records) for partition, records in many.items()} == {TopicPartition(topic, 0): 50}
            got += many[TopicPartition(topic, 0)]
            few = await reader.getmany(timeout_ms=10_000, max_records=3)
            got += few[TopicPartition(topic, 0)]
            assert len(got) == 73
            async for record in reader:
                got.append(record)
                if len(got) == 300:
                    break
            assert await reader.getmany() == {}
            assert await reader.getmany(timeout_ms=50) == {}
            # The loop is the user's: no thread of Python's beside it (the broker here has some).
            assert not [each for each in set(threading.enumerate()) - before if each.name.startswith("kafkapy")]
        assert offsets(got) == [(0, n) for n in range(300)]
        assert [Record(r.key, r.value, tuple(r.headers), r.timestamp) for r in got] == sent

    run(main)


def test_deserializers_are_applied(broker: Broker, topic: str, run: Any) -> None:
    fill(broker, topic, 3)

    async def main() -> None:
        async with consumer(broker, topic, key_deserializer=int, value_deserializer=bytes.decode) as reader:
            assert [(record.key, record.value) async for record in limited(reader, 3)] == [
                (n, f"value {n}") for n in range(3)
            ]

    run(main)


async def limited(reader: AIOKafkaConsumer, count: int) -> Any:
    for _ in range(count):
        yield await reader.getone()


def test_only_the_partitions_asked_for_are_read(broker: Broker, topic: str, run: Any) -> None:
    fill(broker, topic, 10, 0)
    fill(broker, topic, 10, 1)
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)

    async def main() -> None:
        async with consumer(broker) as reader:
            reader.assign([zero, one])
            assert offsets([await reader.getone(one) for _ in range(4)]) == [(1, n) for n in range(4)]
            got = await reader.getmany(one, timeout_ms=10_000)
            assert offsets(got[one]) == [(1, n) for n in range(4, 10)]
            assert zero not in got
            assert await reader.getmany(one, timeout_ms=50) == {}
            rest = await reader.getmany(timeout_ms=10_000)
            assert offsets(rest[zero]) == [(0, n) for n in range(10)]
            fill(broker, topic, 1, 0, begin=10)
            assert (await reader.getone(zero, one)).offset == 10

    run(main)


def test_a_pause_holds_records_back(broker: Broker, topic: str, run: Any) -> None:
    fill(broker, topic, 10, 0)
    fill(broker, topic, 10, 1)
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)

    async def main() -> None:
        async with consumer(broker) as reader:
            reader.assign([zero, one])
            reader.pause(zero)
            assert reader.paused() == {zero}
            assert offsets([await reader.getone() for _ in range(10)]) == [(1, n) for n in range(10)]
            assert await reader.getmany(timeout_ms=100) == {}
            reader.resume(zero)
            assert reader.paused() == set()
            assert offsets([await reader.getone() for _ in range(10)]) == [(0, n) for n in range(10)]
            with pytest.raises(IllegalStateError):
                reader.pause(TopicPartition("other", 0))

    run(main)


def test_positions_move_as_they_are_told(broker: Broker, topic: str, run: Any) -> None:
    fill(broker, topic, 20)
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)

    async def main() -> None:
        async with consumer(broker) as reader:
            reader.assign([zero, one])
            assert await reader.position(zero) == 0
            assert reader.highwater(one) in (None, 0)
            first = await reader.getone()
            assert await reader.position(zero) == 1
            assert (reader.highwater(zero), reader.last_stable_offset(zero)) == (20, -1)
            assert abs(time.time() * 1000 - (reader.last_poll_timestamp(zero) or 0)) < 60_000
            reader.seek(zero, 0)
            again = await reader.getone()
            assert (again.offset, again.value) == (first.offset, first.value)
            reader.seek(zero, 15)
            assert (await reader.getone()).offset == 15
            assert await reader.seek_to_beginning(zero)
            assert await reader.position(zero) == 0
            assert await reader.seek_to_end()
            assert (await reader.position(zero), await reader.position(one)) == (20, 0)
            assert await reader.beginning_offsets([zero, one]) == {zero: 0, one: 0}
            assert await reader.end_offsets([zero, one]) == {zero: 20, one: 0}
            found = await reader.offsets_for_times({zero: 1_007, one: 1_007})
            assert found == {zero: OffsetAndTimestamp(7, 1_007), one: None}
            with pytest.raises(ValueError, match="negative"):
                await reader.offsets_for_times({zero: -1})
            with pytest.raises(ValueError, match="at least 0"):
                reader.seek(zero, -1)
            for stranger in (lambda: reader.seek(TopicPartition("other", 0), 1), lambda: reader.highwater(("x", 1))):
                with pytest.raises(IllegalStateError):
                    stranger()
            with pytest.raises(TypeError):
                reader.highwater("text")  # type: ignore[arg-type]

    run(main)


def test_offsets_are_committed_in_every_form(broker: Broker, topic: str, run: Any) -> None:
    fill(broker, topic, 20)
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    group = f"group-{topic}"

    async def main() -> None:
        async with consumer(broker, group_id=group, enable_auto_commit=False) as reader:
            reader.assign([zero, one])
            assert await reader.committed(zero) is None
            await reader.getone()
            await reader.commit()
            assert await reader.committed(zero) == 1
            await reader.commit({zero: 5})
            await reader.commit({one: (3, "with words")})
            assert (await reader.committed(zero), await reader.committed(one)) == (5, 3)
            await reader.commit({zero: OffsetAndMetadata(6, "", 0)})
            assert await reader.seek_to_committed(zero) == {zero: 6}
            assert (await reader.getone(zero)).offset == 6
            with pytest.raises(TypeError, match="metadata"):
                await reader.commit({zero: (1, 2)})  # type: ignore[dict-item]
            for wrong in ({zero: "5"}, {zero: -1}):
                with pytest.raises(ValueError, match="offset"):
                    await reader.commit(wrong)  # type: ignore[arg-type]
            with pytest.raises(IllegalStateError):
                await reader.commit({TopicPartition("other", 0): 1})
        async with consumer(broker) as alone:
            for call in (alone.commit(), alone.committed(zero)):
                with pytest.raises(IllegalOperation):
                    await call

    run(main)


def test_a_group_shares_partitions_and_tells_its_listeners(broker: Broker, topic: str, run: Any) -> None:
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    told: list[tuple[str, str, frozenset[TopicPartition]]] = []

    class Listener(ConsumerRebalanceListener):
        def __init__(self, name: str) -> None:
            self.name = name

        async def on_partitions_revoked(self, revoked: Any) -> None:  # type: ignore[override]
            await asyncio.sleep(0.01)
            told.append((self.name, "revoked", frozenset(revoked)))

        def on_partitions_assigned(self, assigned: Any) -> None:
            told.append((self.name, "assigned", frozenset(assigned)))

    async def main() -> None:
        told.clear()
        keywords: dict[str, Any] = {"group_id": f"group-{topic}", "heartbeat_interval_ms": 100}
        first, second = consumer(broker, **keywords), consumer(broker, **keywords)
        first.subscribe([topic], listener=Listener("first"))
        second.subscribe([topic], listener=Listener("second"))
        await first.start()
        assert first.assignment() == {zero, one}
        await second.start()
        while len(first.assignment()) != 1:
            await asyncio.sleep(0.01)
        assert first.assignment() | second.assignment() == {zero, one}
        fill(broker, topic, 10, 0)
        fill(broker, topic, 10, 1)
        for reader in (first, second):
            (own,) = reader.assignment()
            assert offsets([await reader.getone() for _ in range(10)]) == [(own.partition, n) for n in range(10)]
        await second.stop()
        while first.assignment() != {zero, one}:
            await asyncio.sleep(0.01)
        assert first.group_metadata().group_id == keywords["group_id"]
        # What the second has read was committed when it stopped.
        assert await first.getmany(timeout_ms=200) == {}
        await first.stop()
        assert told[:2] == [("first", "revoked", frozenset()), ("first", "assigned", frozenset({zero, one}))]
        assert ("first", "revoked", frozenset({zero, one})) in told
        assert told[-1] == ("first", "revoked", frozenset({zero, one}))

    run(main)


def test_offsets_are_committed_by_themselves_while_nobody_reads(broker: Broker, topic: str, run: Any) -> None:
    fill(broker, topic, 10)
    zero = TopicPartition(topic, 0)

    async def main() -> None:
        async with consumer(broker, topic, group_id=f"group-{topic}", auto_commit_interval_ms=50) as reader:
            for _ in range(7):
                await reader.getone()
            while await reader.committed(zero) != 7:
                await asyncio.sleep(0.02)

    run(main)


def test_a_pattern_finds_topics_that_come_later(broker: Broker, topic: str, run: Any) -> None:
    later = f"{topic}-later"

    async def main() -> None:
        async with consumer(broker, metadata_max_age_ms=100) as reader:
            reader.subscribe(pattern=f"^{topic}.*")
            while not reader.assignment():
                await asyncio.sleep(0.01)
            broker.create_topic(later)
            fill(broker, later, 3)
            assert [(await reader.getone()).topic for _ in range(3)] == [later] * 3
            assert reader.subscription() == frozenset({topic, later})
            assert {topic, later} <= await reader.topics()
            assert reader.partitions_for_topic(later) == {0}
            assert reader.partitions_for_topic("no-such-topic") is None

    try:
        run(main)
    finally:
        broker.delete_topic(later)


def test_a_subscription_is_left_and_taken_up_again(broker: Broker, topic: str, run: Any) -> None:
    fill(broker, topic, 3)

    async def main() -> None:
        async with consumer(broker, topic, group_id=f"group-{topic}", enable_auto_commit=False) as reader:
            assert (await reader.getone()).offset == 0
            reader.unsubscribe()
            reader.subscribe([topic])
            assert (await reader.getone()).offset == 0
            reader.unsubscribe()
            while reader.assignment():
                await asyncio.sleep(0.01)
            assert await reader.getmany(timeout_ms=50) == {}

    run(main)


def test_arguments_are_checked(broker: Broker, topic: str) -> None:
    reader = consumer(broker)
    with pytest.raises(TypeError, match="either"):
        reader.subscribe()
    with pytest.raises(TypeError, match="either"):
        reader.subscribe([topic], pattern="x")
    with pytest.raises(TypeError):
        reader.subscribe(topic)
    with pytest.raises(TypeError):
        reader.subscribe([topic], listener=object())  # type: ignore[arg-type]
    reader.subscribe([topic])
    with pytest.raises(IllegalStateError):
        reader.assign([TopicPartition(topic, 0)])
    with pytest.raises(ConfigError, match="group"):
        AIOKafkaConsumer(grup_id="x")


def test_aiokafkas_own_keywords_are_accepted(broker: Broker, run: Any) -> None:
    async def main() -> None:
        reader = AIOKafkaConsumer(
            loop=asyncio.get_running_loop(),
            bootstrap_servers=[broker.bootstrap_servers],
            client_id="me",
            consumer_timeout_ms=200,
            rebalance_timeout_ms=5000,
            max_poll_records=None,
            api_version="auto",
            security_protocol="PLAINTEXT",
            ssl_context=None,
            sasl_mechanism="PLAIN",
        )
        await reader.start()
        await reader.stop()

    run(main)


def test_errors_come_to_who_reads(broker: Broker, topic: str, run: Any) -> None:
    fill(broker, topic, 1)

    async def main() -> None:
        async with consumer(broker, auto_offset_reset="none") as reader:
            reader.assign([TopicPartition(topic, 0)])
            with pytest.raises(NoOffsetForPartitionError):
                await reader.getone()
            reader.seek(TopicPartition(topic, 0), 0)
            assert (await reader.getone()).offset == 0
        nobody = AIOKafkaConsumer(bootstrap_servers="127.0.0.1:1", bootstrap_timeout_ms=200)
        with pytest.raises(NoBrokersAvailableError):
            await nobody.start()

    run(main)


def test_a_stop_ends_every_wait(broker: Broker, topic: str, run: Any) -> None:
    async def main() -> None:
        reader = consumer(broker, topic)
        for call in (reader.getone(), reader.getmany()):
            with pytest.raises(ConsumerStoppedError, match="not started"):
                await call
        await reader.start()
        await reader.start()

        async def iterate() -> list[Any]:
            return [record async for record in reader]

        waits = [asyncio.create_task(each) for each in (reader.getone(), reader.getmany(timeout_ms=50_000), iterate())]
        await asyncio.sleep(0.05)
        await reader.stop()
        await reader.stop()
        results = await asyncio.gather(*waits, return_exceptions=True)
        assert [type(each) for each in results] == [ConsumerStoppedError, dict, list]
        with pytest.raises(ConsumerStoppedError):
            await reader.start()

    run(main)


def test_a_forgotten_stop_is_warned_of(broker: Broker, topic: str) -> None:
    async def main() -> None:
        reader = consumer(broker, topic)
        await reader.start()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            reader.__del__()
        assert [each.category for each in caught] == [ResourceWarning]
        await reader.stop()

    asyncio.run(main())


def test_a_stop_closes_everything_though_leaving_has_failed(broker: Broker, topic: str, run: Any) -> None:
    async def main() -> None:
        reader = consumer(broker)
        await reader.start()

        async def fail(*_: Any) -> None:
            raise KeyError("leaving")

        reader._core.unsubscribe = fail  # type: ignore[method-assign]
        reader.unsubscribe()
        with pytest.raises(KeyError):
            await reader.stop()
        assert reader._core.network.closed

    run(main)


def test_records_that_an_interceptor_keeps_for_itself_hold_up_no_others(broker: Broker, topic: str, run: Any) -> None:
    class EveryHundredth:
        def on_consume(self, records: dict[TopicPartition, list[Any]]) -> dict[TopicPartition, list[Any]]:
            kept = {place: [each for each in of if each.offset % 100 == 99] for place, of in records.items()}
            return {place: of for place, of in kept.items() if of}

    fill(broker, topic, 200)

    async def main() -> None:
        async with consumer(
            broker, interceptor_classes=[EveryHundredth()], group_id=None, max_poll_records=10, fetch_max_wait_ms=30_000
        ) as reader:
            reader.assign([TopicPartition(topic, 0)])
            async with asyncio.timeout(10):
                assert (await reader.getone()).offset == 99
                got = await reader.getmany(timeout_ms=5_000)
            assert [record.offset for records in got.values() for record in records] == [199]

    run(main)


def test_two_tasks_may_read(broker: Broker, topic: str, run: Any) -> None:
    async def main() -> None:
        async with consumer(broker, topic) as reader:
            tasks = [asyncio.create_task(reader.getone()) for _ in range(4)]
            await asyncio.sleep(0.05)
            await asyncio.to_thread(fill, broker, topic, 4)
            assert sorted(offsets(await asyncio.gather(*tasks))) == [(0, n) for n in range(4)]

    run(main)


def test_partitions_assigned_by_hand_wait_for_their_positions(broker: Broker, topic: str, run: Any) -> None:
    fill(broker, topic, 10)
    zero = TopicPartition(topic, 0)

    async def main() -> None:
        async with consumer(broker, auto_offset_reset="none") as reader:
            reader.assign([zero])
            found = (await reader.offsets_for_times({zero: 1_004}))[zero]
            await asyncio.sleep(0.1)
            assert found is not None
            reader.seek(zero, found.offset)
            assert (await reader.getone()).offset == 4

    run(main)


def test_a_group_of_the_consumer_protocol_is_shared(broker: Broker, topic: str, run: Any) -> None:
    fill(broker, topic, 10, 0)
    fill(broker, topic, 10, 1)

    async def main() -> None:
        keywords = {"group_id": f"group-{topic}", "group_protocol": "consumer"}
        async with consumer(broker, topic, **keywords) as first:
            assert len(first.assignment()) == 2
            assert [(await first.getone()).value for _ in range(5)]
            async with consumer(broker, topic, **keywords) as second:
                while [len(each.assignment()) for each in (first, second)] != [1, 1]:
                    await asyncio.sleep(0.01)
                assert first.assignment() | second.assignment() == {TopicPartition(topic, n) for n in range(2)}
            while len(first.assignment()) != 2:
                await asyncio.sleep(0.01)

    run(main)


@pytest.mark.parametrize("by", ["one", "many"])
def test_records_of_one_partition_come_while_others_have_some_that_nobody_reads(
    broker: Broker, topic: str, run: Any, by: str
) -> None:
    """Chunks of partition 1 fill the buffer, and partition 0 gets records only while a task waits for them."""
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    for begin in range(0, 600, 100):
        fill(broker, topic, 100, partition=1, begin=begin)

    async def main() -> None:
        async with consumer(broker, topic, max_partition_fetch_bytes=2000, fetch_max_bytes=6000) as reader:
            assert (await reader.getone(second)).offset == 0
            # Whatever may be fetched ahead of partition 1 is there now.
            while reader._core.subscription.state_of(second).buffer.chunks < 2:
                await asyncio.sleep(0.01)

            async def read(count: int) -> list[tuple[int, int]]:
                if by == "one":
                    return offsets([await reader.getone(first) for _ in range(count)])
                got: list[tuple[int, int]] = []
                while len(got) < count:
                    taken = await reader.getmany(first, timeout_ms=30_000)
                    assert taken, "the whole time-out was waited for"
                    got += offsets(taken[first])
                return got

            for begin in (0, 20, 40):
                reading = asyncio.create_task(read(20))
                await asyncio.sleep(0.2)
                assert not reading.done()
                await asyncio.to_thread(fill, broker, topic, 20, 0, begin)
                assert await reading == [(0, begin + at) for at in range(20)]
            assert (await reader.getone(second)).offset == 1, "nothing of the other partition is lost"
            several = [asyncio.create_task(reader.getone(first)) for _ in range(3)]
            await asyncio.sleep(0.05)
            await asyncio.to_thread(fill, broker, topic, 3, 0, 60)
            assert sorted(offsets(await asyncio.gather(*several))) == [(0, 60), (0, 61), (0, 62)]
            assert not reader._buffer.tells_all

    run(main)
