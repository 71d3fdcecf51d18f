"""librdkafka's share consumer (a preview in 2.16) on kafkapy and on Apache Kafka 4.4, alone and beside ours."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import AcknowledgeType, ShareConsumer
from interop.share_groups import LOCK_MS, configure, fill, lag, read
from waiting import wait_until

from kafkapy import KafkaAdminClient, KafkaProducer, KafkaShareConsumer
from kafkapy.errors import ErrorCode

ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT


def made(kafka: Any, queue: str, *topics: str, **keywords: Any) -> ShareConsumer:
    """A share consumer that reads the queue, or these topics."""
    config = {
        "bootstrap.servers": kafka.bootstrap,
        "group.id": queue,
        "share.acknowledgement.mode": "explicit",
        "log_level": 3,
    }
    consumer = ShareConsumer(config | {name.replace("_", "."): value for name, value in keywords.items()})
    consumer.subscribe(list(topics) or [queue])
    return consumer


def polled(consumer: ShareConsumer, timeout_s: float = 0.3) -> list[confluent_kafka.Message]:
    """The records of one poll."""
    messages = list(consumer.poll(timeout_s))
    assert [each.error() for each in messages if each.error() is not None] == []
    return messages


def some(consumer: ShareConsumer, count: int = 1) -> list[confluent_kafka.Message]:
    """The records of polls, until there are so many."""
    found: list[confluent_kafka.Message] = []

    def got() -> bool:
        found.extend(polled(consumer))
        return len(found) >= count

    wait_until(got, f"{count} records")
    return found


def seen(messages: list[confluent_kafka.Message]) -> list[tuple[int, int | None]]:
    return [(each.offset(), each.delivery_count()) for each in messages]


def commit(consumer: ShareConsumer) -> set[Any]:
    """The outcomes of a commit that waits."""
    return set(consumer.commit_sync(60.0).values())


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_every_record_in_every_codec(kafka: Any, admin: KafkaAdminClient, queue: str, codec: str | None) -> None:
    values = [(b"%d " % number) * (number % 40 + 1) for number in range(2000)]
    fill(kafka.bootstrap, queue, values, compression_type=codec, linger_ms=5)
    with made(kafka, queue, share_acknowledgement_mode="implicit") as consumer:
        messages = some(consumer, 2000)
        assert [(each.offset(), each.value(), each.delivery_count()) for each in messages] == [
            (offset, value, 1) for offset, value in enumerate(values)
        ]
        assert commit(consumer) <= {None}
        assert lag(admin, queue) == 0


def test_every_outcome(kafka: Any, admin: KafkaAdminClient, queue: str) -> None:
    fill(kafka.bootstrap, queue, [b"%d" % n for n in range(4)])
    with made(kafka, queue) as consumer:
        outcomes: list[Any] = []
        consumer.set_acknowledgement_commit_callback(
            lambda offsets, error: outcomes.append((list(offsets.values()), error))
        )
        messages = some(consumer, 4)
        for message, kind in zip(messages, [ACCEPT, RELEASE, REJECT, RELEASE], strict=True):
            consumer.acknowledge(message, kind)
        assert commit(consumer) == {None}
        again = some(consumer, 2)
        assert seen(again) == [(1, 2), (3, 2)]
        for message in again:
            consumer.acknowledge_offset(queue, 0, message.offset())
        assert commit(consumer) == {None}
        assert outcomes == [([{0, 1, 2, 3}], None), ([{1, 3}], None)]
    assert lag(admin, queue) == 0


def test_the_next_poll_accepts_in_implicit_mode(kafka: Any, admin: KafkaAdminClient, queue: str) -> None:
    fill(kafka.bootstrap, queue, [b"%d" % n for n in range(20)])
    with made(kafka, queue, share_acknowledgement_mode="implicit") as consumer:
        assert [each.offset() for each in some(consumer, 20)] == list(range(20))
        wait_until(lambda: polled(consumer) == [] and lag(admin, queue) == 0, "what the polls accepted")


def test_deliveries_are_counted_up_to_the_limit(kafka: Any, admin: KafkaAdminClient, queue: str) -> None:
    configure(admin, queue, share_delivery_count_limit=3)
    fill(kafka.bootstrap, queue, [b"good", b"poison", b"good"])
    counts = []
    with made(kafka, queue) as consumer:

        def over() -> bool:
            for message in polled(consumer):
                poison = message.value() == b"poison"
                if poison:
                    counts.append(message.delivery_count())
                consumer.acknowledge(message, RELEASE if poison else ACCEPT)
            assert commit(consumer) <= {None}
            return lag(admin, queue) == 0

        wait_until(over, "the end of the queue")
    assert counts == [1, 2, 3]


def test_a_lock_that_ends(kafka: Any, admin: KafkaAdminClient, queue: str) -> None:
    configure(admin, queue, share_record_lock_duration_ms=LOCK_MS)
    fill(kafka.bootstrap, queue, [b"first", b"slow"])
    with made(kafka, queue) as slow, made(kafka, queue) as other:
        messages = some(slow, 2)
        again = some(other, 2)
        assert seen(again) == [(0, 2), (1, 2)]
        # The first record stays open: below the start offset a broker takes any acknowledgement, without effect.
        other.acknowledge(again[1])
        assert commit(other) == {None}
        for message in messages:
            slow.acknowledge(message)
        [error] = commit(slow)
        assert error.args[0].code() == ErrorCode.INVALID_RECORD_STATE
        other.acknowledge(again[0], RELEASE)


def test_close_gives_records_back_at_once(kafka: Any, admin: KafkaAdminClient, queue: str) -> None:
    fill(kafka.bootstrap, queue, [b"%d" % n for n in range(10)])
    consumer = made(kafka, queue)
    messages = some(consumer, 10)
    consumer.acknowledge(messages[0])
    consumer.acknowledge(messages[1], RELEASE)
    consumer.close()
    group = admin.describe_share_groups([queue])[queue]
    assert (group["group_state"], group["members"], group["error"]) == ("Empty", [], None)
    with made(kafka, queue, share_acknowledgement_mode="implicit") as other:
        assert seen(some(other, 9)) == [(offset, 2) for offset in range(1, 10)]


def test_another_subscription_in_place_of_the_first(kafka: Any, admin: KafkaAdminClient, queue: str) -> None:
    other_topic = f"{queue[:200]}-2"
    admin.create_topics({other_topic: {"num_partitions": 2, "replication_factor": 1}})
    fill(kafka.bootstrap, queue, [b"%d" % n for n in range(5)])
    fill(kafka.bootstrap, other_topic, [b"%d" % n for n in range(6)], 2)
    with made(kafka, queue, share_acknowledgement_mode="implicit") as consumer:
        assert [each.offset() for each in some(consumer, 5)] == list(range(5))
        consumer.subscribe([other_topic])
        assert consumer.subscription() == [other_topic]
        places = {(each.topic(), each.partition(), each.offset()) for each in some(consumer, 6)}
        assert places == {(other_topic, number % 2, number // 2) for number in range(6)}
        assert commit(consumer) <= {None}
        assert lag(admin, queue) == 0
        consumer.unsubscribe()
        assert consumer.subscription() == []
        fill(kafka.bootstrap, queue, [b"5"])
        consumer.subscribe([queue])
        assert seen(some(consumer)) == [(5, 1)]
        assert commit(consumer) == {None}


def test_records_of_a_consumer_that_unsubscribes_come_back(kafka: Any, admin: KafkaAdminClient, queue: str) -> None:
    """When their locks end: it leaves the group, and closes its share session no sooner than itself."""
    fill(kafka.bootstrap, queue, [b"%d" % n for n in range(5)])
    configure(admin, queue, share_record_lock_duration_ms=LOCK_MS)
    with made(kafka, queue) as consumer:
        some(consumer, 5)
        consumer.unsubscribe()
        assert consumer.subscription() == []
        # The other one has all the time that it needs.
        configure(admin, queue, share_record_lock_duration_ms=30_000)
        with made(kafka, queue, share_acknowledgement_mode="implicit") as other:
            assert seen(some(other, 5)) == [(offset, 2) for offset in range(5)]
            assert commit(other) == {None}
        assert lag(admin, queue) == 0


def test_transactions_that_were_aborted_are_not_delivered(kafka: Any, admin: KafkaAdminClient, queue: str) -> None:
    configure(admin, queue, share_isolation_level="read_committed")
    with KafkaProducer(bootstrap_servers=kafka.bootstrap, transactional_id=queue) as producer:
        producer.init_transactions()
        for number in range(6):
            producer.begin_transaction()
            for each in range(5):
                producer.send(queue, b"%d-%d" % (number, each))
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    with made(kafka, queue, share_acknowledgement_mode="implicit") as consumer:
        messages = some(consumer, 15)
        assert [each.value() for each in messages] == [b"%d-%d" % (n, each) for n in (0, 2, 4) for each in range(5)]
        # The markers and the aborted records count as done, too.
        wait_until(lambda: polled(consumer) == [] and lag(admin, queue) == 0, "the end of the queue")


def test_workers_of_both_clients_share_one_partition(kafka: Any, admin: KafkaAdminClient, queue: str) -> None:
    accepted: dict[str, Counter[int]] = {"theirs": Counter(), "ours": Counter()}
    over = threading.Event()

    def theirs() -> None:
        with made(kafka, queue, max_poll_records=20) as consumer:
            while not over.is_set():
                messages = polled(consumer)
                for message in messages:
                    consumer.acknowledge(message)
                assert commit(consumer) <= {None}
                accepted["theirs"].update(each.offset() for each in messages)

    def ours() -> None:
        with KafkaShareConsumer(
            queue, bootstrap_servers=kafka.bootstrap, group_id=queue, max_poll_records=20, fetch_max_wait_ms=200
        ) as consumer:
            while not over.is_set():
                records = consumer.poll_batch(timeout_ms=300)
                assert set(consumer.commit_sync().values()) <= {None}
                accepted["ours"].update(each.offset for each in records)

    total = 0
    with ThreadPoolExecutor(4) as threads:
        running = [threads.submit(work) for work in (theirs, ours, theirs, ours)]

        def both() -> bool:
            nonlocal total
            total += fill(kafka.bootstrap, queue, [b"%d" % n for n in range(500)], linger_ms=0, batch_size=1000)
            return any(each.done() for each in running) or all(map(len, accepted.values()))

        try:
            wait_until(both, "records for both clients")
            wait_until(lambda: any(each.done() for each in running) or lag(admin, queue) == 0, "the end of the queue")
        finally:
            over.set()
    for each in running:
        each.result()
    assert sorted((accepted["theirs"] + accepted["ours"]).elements()) == list(range(total))


def test_what_one_client_releases_comes_to_the_other_with_its_count(
    kafka: Any, admin: KafkaAdminClient, queue: str
) -> None:
    fill(kafka.bootstrap, queue, [b"%d" % n for n in range(5)])
    with KafkaShareConsumer(
        queue, bootstrap_servers=kafka.bootstrap, group_id=queue, share_acknowledgement_mode="explicit"
    ) as ours:
        for record in read(ours, 5):
            ours.acknowledge(record, "release")
    with made(kafka, queue) as theirs:
        messages = some(theirs, 5)
        assert seen(messages) == [(offset, 2) for offset in range(5)]
        for message in messages:
            theirs.acknowledge(message, RELEASE)
    with KafkaShareConsumer(queue, bootstrap_servers=kafka.bootstrap, group_id=queue) as ours:
        assert [(each.offset, each.delivery_count) for each in read(ours, 5)] == [(offset, 3) for offset in range(5)]
        assert set(ours.commit_sync().values()) == {None}
    assert lag(admin, queue) == 0
