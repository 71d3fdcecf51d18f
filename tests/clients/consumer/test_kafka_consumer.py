"""KafkaConsumer as its user sees it, on a broker of ours: reading, positions, commits, groups, threads, the end."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from kafkapy import KafkaConsumer
from kafkapy.clients.consumer.subscription import ConsumerRebalanceListener
from kafkapy.errors import (
    ConfigError,
    IllegalStateError,
    KafkaTimeoutError,
    NoBrokersAvailableError,
    RecordDeserializationError,
    WakeupError,
)
from kafkapy.testing import Broker
from kafkapy.types import OffsetAndMetadata, TopicPartition

WAIT_MS = 20_000


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(auto_create_topics_enable=False) as running:
        yield running


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> str:
    name = f"t{abs(hash(request.node.name))}"
    broker.create_topic(name, 2)
    return name


def produce(broker: Broker, topic: str, count: int, partition: int = 0, first: int = 0) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 1})
    for number in range(first, first + count):
        producer.produce(
            topic, b"v%d" % number, b"k%d" % number, partition, headers=[("n", b"%d" % number), ("e", None)]
        )
    assert producer.flush(20) == 0


@pytest.fixture
def consume(broker: Broker) -> Iterator[Callable[..., KafkaConsumer]]:
    made: list[KafkaConsumer] = []

    def make(*topics: str, **configs: Any) -> KafkaConsumer:
        defaults: dict[str, Any] = {
            "bootstrap_servers": broker.bootstrap_servers,
            "auto_offset_reset": "earliest",
            "fetch_max_wait_ms": 30,
        }
        consumer = KafkaConsumer(*topics, **(defaults | configs))
        made.append(consumer)
        return consumer

    yield make
    for consumer in made:
        consumer.close(timeout_ms=2000)


def take(consumer: KafkaConsumer, count: int) -> list[Any]:
    got: list[Any] = []
    deadline = time.monotonic() + WAIT_MS / 1000
    while len(got) < count and time.monotonic() < deadline:
        got += consumer.poll_batch(count - len(got), 500)
    return got


class TestReading:
    def test_every_field_of_a_record(self, broker: Broker, topic: str, consume: Callable[..., KafkaConsumer]) -> None:
        produce(broker, topic, 1)
        record = take(consume(topic), 1)[0]
        assert (record.topic, record.partition, record.offset, record.timestamp_type) == (topic, 0, 0, 0)
        assert (record.key, record.value, record.headers) == (b"k0", b"v0", [("n", b"0"), ("e", None)])
        assert (record.serialized_key_size, record.serialized_value_size) == (2, 2)
        assert abs(record.timestamp - time.time() * 1000) < 60_000

    def test_iteration_ends_after_consumer_timeout(
        self, broker: Broker, topic: str, consume: Callable[..., KafkaConsumer]
    ) -> None:
        produce(broker, topic, 100)
        consumer = consume(topic, consumer_timeout_ms=1000)
        assert [record.offset for record in consumer] == list(range(100))
        produce(broker, topic, 5, first=100)
        assert [record.value for record in consumer] == [b"v%d" % number for number in range(100, 105)]

    @pytest.mark.parametrize("timeout_ms", [-1, -5, float("inf")])
    def test_iteration_without_a_consumer_timeout_waits(
        self, broker: Broker, topic: str, consume: Callable[..., KafkaConsumer], timeout_ms: float
    ) -> None:
        consumer = consume(topic, consumer_timeout_ms=timeout_ms)
        threading.Timer(0.3, produce, (broker, topic, 1)).start()
        assert next(consumer).offset == 0

    def test_poll_is_by_partition_and_bounded(
        self, broker: Broker, topic: str, consume: Callable[..., KafkaConsumer]
    ) -> None:
        produce(broker, topic, 30, 0)
        produce(broker, topic, 30, 1)
        consumer = consume(topic, max_poll_records=20)
        seen: dict[TopicPartition, list[int]] = {}
        while sum(map(len, seen.values())) < 60:
            records = consumer.poll(WAIT_MS)
            assert 1 <= sum(map(len, records.values())) <= 20
            for partition, found in records.items():
                assert {(record.topic, record.partition) for record in found} == {tuple(partition)}
                seen.setdefault(partition, []).extend(record.offset for record in found)
        assert seen == {TopicPartition(topic, number): list(range(30)) for number in range(2)}
        assert consumer.poll(timeout_ms=0) == {}

    def test_poll_without_updating_offsets_returns_the_same_again(
        self, broker: Broker, topic: str, consume: Callable[..., KafkaConsumer]
    ) -> None:
        produce(broker, topic, 10)
        consumer = consume(topic)
        partition = TopicPartition(topic, 0)
        for _ in range(2):
            assert [r.offset for r in consumer.poll(WAIT_MS, 4, update_offsets=False)[partition]] == [0, 1, 2, 3]
            assert consumer.position(partition) == 0
        assert [r.offset for r in consumer.poll(WAIT_MS, 4)[partition]] == [0, 1, 2, 3]
        assert consumer.position(partition) == 4

    def test_arguments_are_checked(self, topic: str, consume: Callable[..., KafkaConsumer]) -> None:
        consumer = consume(topic)
        for arguments, error in (
            ({"timeout_ms": -1}, ValueError),
            ({"max_records": 0}, ValueError),
            ({"max_records": "5"}, TypeError),
        ):
            with pytest.raises(error):
                consumer.poll(**arguments)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="topics or pattern"):
            consumer.subscribe()
        with pytest.raises(TypeError):
            consumer.subscribe(topic)
        with pytest.raises(TypeError):
            consumer.subscribe([topic], listener=object())  # type: ignore[arg-type]
        with pytest.raises(IllegalStateError):
            consumer.assign([TopicPartition(topic, 0)])
        with pytest.raises(IllegalStateError):
            consumer.subscribe(pattern="x")
        with pytest.raises(TypeError):
            consumer.position("x")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="No current assignment"):
            consumer.seek(TopicPartition("nowhere", 0), 1)
        with pytest.raises(ValueError, match="at least 0"):
            consumer.seek(TopicPartition(topic, 0), -1)

    def test_deserializers_and_their_errors(
        self, broker: Broker, topic: str, consume: Callable[..., KafkaConsumer]
    ) -> None:
        produce(broker, topic, 2)

        class Upper:
            def __init__(self) -> None:
                self.closed = False

            def deserialize(self, topic: str, headers: Any, data: bytes) -> str:
                if data == b"v1":
                    raise RuntimeError("no")
                return f"{topic[:1]}{dict(headers)['n'].decode()}{data.decode().upper()}"

            def close(self) -> None:
                self.closed = True

        upper = Upper()
        consumer = consume(topic, key_deserializer=lambda data: data.decode(), value_deserializer=upper)
        first, second = take(consumer, 2)
        assert (first.key, first.value) == ("k0", "t0V0")
        with pytest.raises(RecordDeserializationError, match="offset 1"):
            _ = second.value
        consumer.close()
        assert upper.closed

    def test_interceptors_see_and_change(
        self, broker: Broker, topic: str, consume: Callable[..., KafkaConsumer]
    ) -> None:
        produce(broker, topic, 6)
        committed: list[Any] = []

        class Even:
            closed = False

            def on_consume(self, records: dict[TopicPartition, list[Any]]) -> dict[TopicPartition, list[Any]]:
                return {tp: [r for r in found if r.offset % 2 == 0] for tp, found in records.items()}

            def on_commit(self, offsets: Any) -> None:
                committed.append(offsets)

            def close(self) -> None:
                self.closed = True

        class Broken:
            def on_consume(self, records: Any) -> Any:
                raise RuntimeError("not my day")

        even = Even()
        consumer = consume(topic, group_id=f"g-{topic}", interceptor_classes=[Broken(), even])
        assert [record.offset for record in itertools.islice(consumer, 3)] == [0, 2, 4]
        assert consumer.poll_batch(timeout_ms=400) == []
        consumer.commit()
        assert committed[-1][TopicPartition(topic, 0)].offset == 6
        consumer.close()
        assert even.closed


class TestPositions:
    def test_seek_and_commit_by_hand(self, broker: Broker, topic: str, consume: Callable[..., KafkaConsumer]) -> None:
        produce(broker, topic, 10)
        partition = TopicPartition(topic, 0)
        consumer = consume(group_id=f"g-{topic}", enable_auto_commit=False)
        consumer.assign([partition])
        assert consumer.committed(partition) is None
        consumer.seek(partition, 7)
        assert [record.offset for record in take(consumer, 3)] == [7, 8, 9]
        consumer.seek(partition, OffsetAndMetadata(2, "", 0))
        assert [record.offset for record in take(consumer, 2)] == [2, 3]
        consumer.commit()
        assert consumer.committed(partition) == 4
        consumer.commit({partition: OffsetAndMetadata(6, "note", -1)})
        assert consumer.committed(partition, metadata=True) == OffsetAndMetadata(6, "note", -1)
        seen: list[Any] = []
        future = consumer.commit_async({partition: 8}, lambda offsets, error: seen.append((offsets, error)))
        deadline = time.monotonic() + 20
        while not future.is_done and time.monotonic() < deadline:
            consumer.poll(10)
        assert future.succeeded()
        assert seen == [({partition: OffsetAndMetadata(8)}, None)]
        consumer.close()
        again = consume(group_id=f"g-{topic}", enable_auto_commit=False)
        again.assign([partition])
        assert again.position(partition) == 8

    def test_what_a_subscription_was_giving_up_may_be_assigned_by_hand(
        self, broker: Broker, topic: str, consume: Callable[..., KafkaConsumer]
    ) -> None:
        produce(broker, topic, 2)
        consumer = consume(topic)
        assert len(take(consumer, 2)) == 2
        core = consumer._core
        # As when the topic is gone: its partitions are given up in the next poll.
        consumer._background.call(lambda: setattr(core, "_assigner", core._spawn(core._assign_all_now(set()))))
        consumer.unsubscribe()
        consumer.assign([TopicPartition(topic, 0)])
        assert [record.offset for record in take(consumer, 2)] == [0, 1]

    def test_without_a_group_there_is_no_committing(self, topic: str, consume: Callable[..., KafkaConsumer]) -> None:
        consumer = consume(topic)
        for call in (consumer.commit, consumer.commit_async, lambda: consumer.committed(TopicPartition(topic, 0))):
            with pytest.raises(IllegalStateError, match="group"):
                call()
        assert consumer.group_metadata().group_id == ""

    def test_lag_and_highwater(self, broker: Broker, topic: str, consume: Callable[..., KafkaConsumer]) -> None:
        produce(broker, topic, 10)
        partition = TopicPartition(topic, 0)
        before = time.monotonic()
        consumer = consume()
        after = time.monotonic()
        consumer.assign([partition])
        assert consumer.highwater(partition) is None
        assert len(take(consumer, 4)) == 4
        assert (consumer.highwater(partition), consumer.lag(partition), consumer.position(partition)) == (10, 6, 4)
        until = time.monotonic()
        metrics = consumer.metrics()["consumer-fetch-manager-metrics"]
        assert (metrics["records-consumed-total"], metrics["records-lag-max"]) == (4, 6)
        assert 4 / (time.monotonic() - before) <= metrics["records-consumed-rate"] <= 4 / (until - after)


class TestGroups:
    def test_a_group_goes_on_where_it_was(
        self, broker: Broker, topic: str, consume: Callable[..., KafkaConsumer]
    ) -> None:
        produce(broker, topic, 10, 0)
        produce(broker, topic, 10, 1)
        consumer = consume(topic, group_id=f"g-{topic}")
        assert len(take(consumer, 13)) == 13
        consumer.close()
        again = consume(topic, group_id=f"g-{topic}")
        assert len(take(again, 7)) == 7
        assert again.poll(400) == {}

    def test_close_without_autocommit_commits_nothing(
        self, broker: Broker, topic: str, consume: Callable[..., KafkaConsumer]
    ) -> None:
        produce(broker, topic, 5)
        consumer = consume(topic, group_id=f"g-{topic}")
        assert len(take(consumer, 5)) == 5
        consumer.close(autocommit=False)
        assert len(take(consume(topic, group_id=f"g-{topic}"), 5)) == 5

    def test_close_waits_for_commits_under_way(
        self, broker: Broker, topic: str, consume: Callable[..., KafkaConsumer]
    ) -> None:
        produce(broker, topic, 5)
        consumer = consume(topic, group_id=f"g-{topic}", enable_auto_commit=False)
        assert len(take(consumer, 5)) == 5
        told: list[Any] = []
        future = consumer.commit_async(callback=lambda offsets, error: told.append(error))
        consumer.close()
        assert future.succeeded()
        assert told == [None]
        assert consume(group_id=f"g-{topic}").committed(TopicPartition(topic, 0)) == 5

    def test_auto_commit_is_of_earlier_polls_only(
        self, broker: Broker, topic: str, consume: Callable[..., KafkaConsumer]
    ) -> None:
        produce(broker, topic, 10)
        partition = TopicPartition(topic, 0)
        consumer = consume(topic, group_id=f"g-{topic}", auto_commit_interval_ms=1)
        iterator = iter(consumer)
        for _ in range(5):
            next(iterator)
        time.sleep(1.1)  # the interval passes while the record at offset 4 is being processed
        assert next(iterator).offset == 5
        deadline = time.monotonic() + 20
        while consumer.committed(partition) is None and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(1.1)
        assert consumer.committed(partition) == 5
        assert next(iterator).offset == 6
        while consumer.committed(partition) != 6 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert consumer.committed(partition) == 6

    def test_the_listener_is_called_on_the_users_thread(
        self, broker: Broker, topic: str, consume: Callable[..., KafkaConsumer]
    ) -> None:
        produce(broker, topic, 4, 0)
        produce(broker, topic, 4, 1)
        told: list[Any] = []
        me = threading.get_ident()

        class Listener(ConsumerRebalanceListener):
            def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
                told.append(("assigned", assigned, threading.get_ident() == me))
                for partition in assigned:
                    consumer.seek(partition, 2)

            def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
                told.append(("revoked", revoked, threading.get_ident() == me))
                consumer.commit(dict.fromkeys(revoked, 3))

        consumer = consume(group_id=f"g-{topic}", enable_auto_commit=False)
        consumer.subscribe([topic], listener=Listener())
        assert sorted(record.offset for record in take(consumer, 4)) == [2, 2, 3, 3]
        both = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
        consumer.unsubscribe()
        assert told == [("assigned", both, True), ("revoked", both, True)]
        assert consumer.assignment() == set()
        consumer.assign(both)
        assert [consumer.committed(partition) for partition in both] == [3, 3]

    def test_a_listener_may_ask_for_the_positions_of_what_it_is_given(
        self, broker: Broker, topic: str, consume: Callable[..., KafkaConsumer]
    ) -> None:
        produce(broker, topic, 3)
        positions: dict[TopicPartition, int] = {}

        class Asking(ConsumerRebalanceListener):
            def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None: ...

            def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
                for partition in assigned:
                    positions[partition] = consumer.position(partition, timeout_ms=10_000)

        consumer = consume(group_id=f"g-{topic}")
        consumer.commit({TopicPartition(topic, 0): 2})
        consumer.subscribe([topic], listener=Asking())
        assert [record.offset for record in take(consumer, 1)] == [2]
        assert positions == {TopicPartition(topic, 0): 2, TopicPartition(topic, 1): 0}

    def test_what_a_listener_raises_is_raised_by_poll(
        self, broker: Broker, topic: str, consume: Callable[..., KafkaConsumer]
    ) -> None:
        produce(broker, topic, 1)

        class Listener(ConsumerRebalanceListener):
            def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
                raise RuntimeError("the listener's own")

            def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
                pass

        consumer = consume(group_id=f"g-{topic}")
        consumer.subscribe([topic], listener=Listener())
        with pytest.raises(RuntimeError, match="own"):
            take(consumer, 1)
        assert len(take(consumer, 1)) == 1

    def test_members_share_the_partitions(
        self, broker: Broker, topic: str, consume: Callable[..., KafkaConsumer]
    ) -> None:
        first = consume(topic, group_id=f"g-{topic}", heartbeat_interval_ms=100)
        first.poll(500)
        second = consume(topic, group_id=f"g-{topic}", heartbeat_interval_ms=100)
        deadline = time.monotonic() + 20
        while (len(first.assignment()), len(second.assignment())) != (1, 1) and time.monotonic() < deadline:
            first.poll(20)
            second.poll(20)
        assert first.assignment() | second.assignment() == {TopicPartition(topic, 0), TopicPartition(topic, 1)}
        second.close()
        while len(first.assignment()) != 2 and time.monotonic() < deadline:
            first.poll(20)
        assert len(first.assignment()) == 2

    def test_the_consumer_protocol_too(self, broker: Broker, topic: str, consume: Callable[..., KafkaConsumer]) -> None:
        produce(broker, topic, 10, 0)
        produce(broker, topic, 10, 1)
        consumer = consume(topic, group_id=f"g-{topic}", group_protocol="consumer")
        assert len(take(consumer, 15)) == 15
        consumer.close()
        again = consume(topic, group_id=f"g-{topic}", group_protocol="consumer")
        assert len(take(again, 5)) == 5
        assert again.poll(400) == {}


class TestThreadsAndSignals:
    def test_wakeup_ends_a_wait(self, topic: str, consume: Callable[..., KafkaConsumer]) -> None:
        consumer = consume(topic)
        threading.Timer(0.2, consumer.wakeup).start()
        with pytest.raises(WakeupError):
            consumer.poll(WAIT_MS)
        assert consumer.poll(10) == {}
        consumer.wakeup()
        with pytest.raises(WakeupError):
            next(iter(consumer))

    def test_a_wakeup_amid_the_entry_of_a_poll_is_not_lost(
        self, topic: str, consume: Callable[..., KafkaConsumer], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        consumer = consume(topic)
        consumer.poll(500)
        enter_poll = consumer._core.enter_poll

        def woken_first() -> None:
            monkeypatch.undo()
            consumer.wakeup()
            enter_poll()

        monkeypatch.setattr(consumer._core, "enter_poll", woken_first)
        consumer.fetch_buffer.attention = True
        with pytest.raises(WakeupError):
            consumer.poll(3000)

    def test_two_threads_at_a_time_are_an_error(self, topic: str, consume: Callable[..., KafkaConsumer]) -> None:
        consumer = consume(topic)
        thread = threading.Thread(target=lambda: consumer.poll(700))
        thread.start()
        deadline = time.monotonic() + 0.5
        errors = 0
        while time.monotonic() < deadline and not errors:
            time.sleep(0.05)
            for call in (lambda: consumer.poll(0), lambda: next(consumer), consumer.unsubscribe, consumer.close):
                try:
                    call()
                except IllegalStateError as error:
                    assert "several threads" in str(error)
                    errors += 1
        thread.join()
        assert errors == 4
        assert consumer.assignment() == {TopicPartition(topic, 0), TopicPartition(topic, 1)}

    def test_a_signal_ends_a_wait(self, topic: str, consume: Callable[..., KafkaConsumer]) -> None:
        consumer = consume(topic)
        consumer.poll(0)
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            consumer.poll(WAIT_MS)
        assert consumer.poll(10) == {}

    def test_a_forked_child_cannot_use_it_and_does_no_harm(
        self, broker: Broker, topic: str, consume: Callable[..., KafkaConsumer]
    ) -> None:
        produce(broker, topic, 100)
        consumer = consume(topic)
        assert len(take(consumer, 10)) == 10
        child = os.fork()
        if child == 0:
            code = 1
            try:
                for call in (
                    lambda: next(consumer),
                    lambda: consumer.poll(10),
                    consumer.assignment,
                    consumer.unsubscribe,
                ):
                    try:
                        call()
                    except IllegalStateError:
                        continue
                    os._exit(2)
                consumer.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert [record.offset for record in take(consumer, 90)] == list(range(10, 100))


class TestTheEnd:
    def test_a_closed_consumer(self, topic: str, consume: Callable[..., KafkaConsumer]) -> None:
        consumer = consume(topic)
        consumer.close()
        consumer.close()
        with pytest.raises(IllegalStateError, match="closed"):
            consumer.poll(0)
        with pytest.raises(IllegalStateError, match="closed"):
            consumer.assignment()
        assert list(consumer) == []

    def test_a_context_manager_closes(self, broker: Broker, topic: str) -> None:
        before = threading.active_count()
        with KafkaConsumer(topic, bootstrap_servers=broker.bootstrap_servers, group_id=f"g-{topic}") as consumer:
            consumer.poll(500)
        deadline = time.monotonic() + 10
        while threading.active_count() > before and time.monotonic() < deadline:
            time.sleep(0.01)
        assert threading.active_count() <= before
        with pytest.raises(IllegalStateError):
            consumer.poll(0)

    def test_nobody_there(self) -> None:
        with pytest.raises(NoBrokersAvailableError):
            KafkaConsumer(bootstrap_servers="127.0.0.1:1", bootstrap_timeout_ms=300)

    def test_configuration_errors_name_the_key(self) -> None:
        with pytest.raises(ConfigError, match="auto.offset.reset"):
            KafkaConsumer(auto_offset_reset="soon")
        with pytest.raises(ConfigError, match="group.id"):
            KafkaConsumer(groupid="g")

    def test_close_keeps_to_its_time_without_a_coordinator(self) -> None:
        with Broker() as broker:
            broker.create_topic("t")
            consumer = KafkaConsumer("t", group_id="g", bootstrap_servers=broker.bootstrap_servers)
            consumer.poll(1000)
        with pytest.raises(KafkaTimeoutError):
            consumer.commit({TopicPartition("t", 0): 1}, timeout_ms=300)
        started = time.monotonic()
        consumer.close(timeout_ms=500)
        assert time.monotonic() - started < 10
