"""Share consumers on kafkapy and on Apache Kafka 4.4, alone and beside Kafka's own: one worker accepts each record."""

from __future__ import annotations

import asyncio
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from interop.conftest import with_jars
from interop.share_groups import (
    LOCK_MS,
    RELEASE,
    configure,
    fill,
    java_worker,
    lag,
    lines_of,
    needs_java,
    read,
    share_broker,
    start_worker,
)
from system.cluster.processes import wait_until as wait_for
from waiting import wait_until

from kafkapy import AcknowledgeType, KafkaAdminClient, KafkaProducer, KafkaShareConsumer
from kafkapy.aio import AIOKafkaShareConsumer
from kafkapy.errors import (
    ErrorCode,
    GroupIdNotFoundError,
    KafkaError,
    NoError,
    NonEmptyGroupError,
)
from kafkapy.types import ListOffsetsTimestamp, TopicPartition

ACCEPT, RELEASE_IT, REJECT, RENEW = AcknowledgeType


def made(kafka: Any, queue: str, **keywords: Any) -> KafkaShareConsumer:
    wanted = {"bootstrap_servers": kafka.bootstrap, "group_id": queue, "fetch_max_wait_ms": 200}
    return KafkaShareConsumer(queue, **(wanted | keywords))


def start_of(admin: KafkaAdminClient, group: str) -> int:
    """The start offset of the group's only partition, -1 without one.

    Apache Kafka stores it with the next acknowledgements behind those that moved it; the lag is exact at once.
    """
    try:
        found = admin.list_share_group_offsets(group)[group]
    except GroupIdNotFoundError:
        return -1
    return max((each.start_offset for each in found.values()), default=-1)


def test_the_feature_is_on(admin: KafkaAdminClient) -> None:
    features = admin.describe_features()
    assert "share.version" in str(features)


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_every_record_in_every_codec(kafka: Any, admin: KafkaAdminClient, queue: str, codec: str | None) -> None:
    values = [(b"%d " % number) * (number % 40 + 1) for number in range(2000)]
    fill(kafka.bootstrap, queue, values, compression_type=codec, linger_ms=5)
    with made(kafka, queue) as consumer:
        records = read(consumer, 2000)
        assert [(each.offset, each.value, each.delivery_count) for each in records] == [
            (offset, value, 1) for offset, value in enumerate(values)
        ]
        assert set(consumer.commit_sync().values()) <= {None}
        assert lag(admin, queue) == 0


def test_an_iteration_accepts_each_record(kafka: Any, admin: KafkaAdminClient, queue: str) -> None:
    fill(kafka.bootstrap, queue, [b"%d" % n for n in range(500)])
    with made(kafka, queue, consumer_timeout_ms=5000) as consumer:
        for number, record in enumerate(consumer):
            assert record.value == b"%d" % number
            if number == 299:
                break
    wait_until(lambda: lag(admin, queue) == 201, "what was accepted")
    with made(kafka, queue, consumer_timeout_ms=5000) as consumer:
        first = next(iter(consumer))
        assert (first.offset, first.delivery_count) == (299, 2)


def test_several_workers_share_one_partition(kafka: Any, admin: KafkaAdminClient, queue: str) -> None:
    total = 4000
    seen: Counter[int] = Counter()
    lock = threading.Lock()
    done, several = threading.Event(), threading.Event()
    workers: set[int] = set()

    def work() -> None:
        with made(kafka, queue, max_poll_records=20, share_acquire_mode="record_limit") as consumer:
            while not done.is_set():
                records = consumer.poll_batch(timeout_ms=200)
                if records:
                    with lock:
                        workers.add(threading.get_ident())
                        if len(workers) > 1:
                            several.set()
                    # One alone may be done before the others have joined.
                    several.wait(20)
                outcomes = consumer.commit_sync()
                with lock:
                    assert set(outcomes.values()) <= {None}
                    seen.update(record.offset for record in records)
                    if len(seen) == total:
                        done.set()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    fill(kafka.bootstrap, queue, [b"%d" % n for n in range(total)])
    try:
        wait_until(lambda: done.is_set() or not any(each.is_alive() for each in threads), "all records")
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert sorted(seen) == list(range(total))
    assert set(seen.values()) == {1}
    assert len(workers) > 1
    wait_until(lambda: lag(admin, queue) == 0, "no lag")


def test_every_outcome(kafka: Any, admin: KafkaAdminClient, queue: str) -> None:
    fill(kafka.bootstrap, queue, [b"%d" % n for n in range(4)])
    with made(kafka, queue, share_acknowledgement_mode="explicit") as consumer:
        outcomes: list[Any] = []
        consumer.set_acknowledgement_commit_callback(lambda offsets, error: outcomes.append((offsets, error)))
        records = read(consumer, 4)
        for record, kind in zip(records, [ACCEPT, RELEASE_IT, REJECT, RELEASE_IT], strict=True):
            consumer.acknowledge(record, kind)
        assert set(consumer.commit_sync().values()) == {None}
        again = read(consumer, 2)
        assert [(each.offset, each.delivery_count) for each in again] == [(1, 2), (3, 2)]
        for record in again:
            consumer.acknowledge(record)
        assert set(consumer.commit_sync().values()) == {None}
        assert outcomes == [
            ({TopicPartition(queue, 0): [0, 1, 2, 3]}, None),
            ({TopicPartition(queue, 0): [1, 3]}, None),
        ]
    assert lag(admin, queue) == 0


def test_a_poison_record_is_put_aside(kafka: Any, admin: KafkaAdminClient, queue: str) -> None:
    configure(admin, queue, share_delivery_count_limit=3)
    fill(kafka.bootstrap, queue, [b"good", b"poison", b"good"])
    counts = []
    with made(kafka, queue, share_acknowledgement_mode="explicit") as consumer:

        def over() -> bool:
            for record in consumer.poll_batch(timeout_ms=200):
                poison = record.value == b"poison"
                if poison:
                    counts.append(record.delivery_count)
                consumer.acknowledge(record, RELEASE_IT if poison else ACCEPT)
            consumer.commit_sync()
            return lag(admin, queue) == 0

        wait_until(over, "the end of the queue")
    assert counts == [1, 2, 3]


def test_a_lock_that_ends(kafka: Any, admin: KafkaAdminClient, queue: str) -> None:
    configure(admin, queue, share_record_lock_duration_ms=LOCK_MS)
    fill(kafka.bootstrap, queue, [b"first", b"slow"])
    explicit: dict[str, Any] = {"share_acknowledgement_mode": "explicit"}
    with made(kafka, queue, **explicit) as slow, made(kafka, queue, **explicit) as other:
        records = read(slow, 2)
        assert slow.acquisition_lock_timeout_ms() == LOCK_MS
        again = read(other, 2)
        assert [(each.offset, each.delivery_count) for each in again] == [(0, 2), (1, 2)]
        # The first record stays open: below the start offset a broker takes any acknowledgement, without effect.
        other.acknowledge(again[1])
        assert set(other.commit_sync().values()) == {None}
        slow.acknowledge(records[1])
        [error] = slow.commit_sync().values()
        assert isinstance(error, KafkaError)
        assert error.code is ErrorCode.INVALID_RECORD_STATE


def test_renewals_hold_a_record_for_longer_than_its_lock(kafka: Any, admin: KafkaAdminClient, queue: str) -> None:
    configure(admin, queue, share_record_lock_duration_ms=LOCK_MS)
    fill(kafka.bootstrap, queue, [b"long"])
    with made(kafka, queue, share_acknowledgement_mode="explicit") as consumer, made(kafka, queue) as other:
        [record] = read(consumer)
        until = time.monotonic() + 2.5 * LOCK_MS / 1000
        renewals = 0
        while time.monotonic() < until:
            consumer.acknowledge(record, RENEW)
            [record] = read(consumer)
            renewals += 1
            assert record.delivery_count == 1
            assert other.poll_batch(timeout_ms=LOCK_MS / 4) == []
        assert renewals > 2
        consumer.acknowledge(record)
        assert set(consumer.commit_sync().values()) == {None}
        assert other.poll_batch(timeout_ms=300) == []
    assert lag(admin, queue) == 0


@pytest.mark.parametrize("limit", [1, 7])
def test_the_record_limit(kafka: Any, queue: str, limit: int) -> None:
    fill(kafka.bootstrap, queue, [b"%d" % n for n in range(50)])
    keywords: dict[str, Any] = {"share_acquire_mode": "record_limit", "max_poll_records": limit}
    with made(kafka, queue, **keywords) as first, made(kafka, queue, **keywords) as second:
        mine = read(first, limit)
        assert [each.offset for each in mine] == list(range(limit))
        # The others are there for the second worker, although they lie in the same batch.
        theirs = read(second, limit)
        assert [each.offset for each in theirs] == list(range(limit, 2 * limit))


def test_close_gives_unread_records_back_at_once(kafka: Any, admin: KafkaAdminClient, queue: str) -> None:
    fill(kafka.bootstrap, queue, [b"%d" % n for n in range(10)])
    consumer = made(kafka, queue, share_acknowledgement_mode="explicit")
    records = consumer.poll_batch(max_records=4)
    wait_until(lambda: records.extend(consumer.poll_batch(4, 300)) or records, "records")
    consumer.acknowledge(records[0])
    consumer.acknowledge(records[1], RELEASE_IT)
    consumer.close()
    group = admin.describe_share_groups([queue])[queue]
    assert (group["group_state"], group["members"], group["error"]) == ("Empty", [], None)
    with made(kafka, queue) as other:
        again = read(other, 9)
        assert [each.offset for each in again] == list(range(1, 10))
        assert {each.delivery_count for each in again} == {2}


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
    with made(kafka, queue) as consumer:
        records = read(consumer, 15)
        assert [each.value for each in records] == [b"%d-%d" % (n, each) for n in (0, 2, 4) for each in range(5)]
        consumer.commit_sync()
        # The markers and the aborted records count as done, too.
        wait_until(lambda: consumer.poll(200) == {} and lag(admin, queue) == 0, "the end of the queue")


def test_records_as_tables(kafka: Any, admin: KafkaAdminClient, queue: str) -> None:
    pytest.importorskip("pyarrow")
    fill(kafka.bootstrap, queue, [b"%d" % n for n in range(1000)])
    with made(kafka, queue, share_acknowledgement_mode="explicit") as consumer:
        offsets: list[int] = []

        def all_rows() -> bool:
            table = consumer.poll_arrow(300, max_records=300)
            offsets.extend(table["offset"].to_pylist())
            assert table["value"].to_pylist() == [b"%d" % offset for offset in table["offset"].to_pylist()]
            assert set(table["delivery_count"].to_pylist()) <= {1}
            consumer.acknowledge(table)
            return len(offsets) == 1000

        wait_until(all_rows, "all rows")
        assert set(consumer.commit_sync().values()) <= {None}
    assert offsets == list(range(1000))
    assert lag(admin, queue) == 0


def test_the_asyncio_client(kafka: Any, admin: KafkaAdminClient, queue: str) -> None:
    fill(kafka.bootstrap, queue, [b"%d" % n for n in range(200)])

    async def main() -> list[int]:
        seen: list[int] = []

        async def work() -> None:
            async with AIOKafkaShareConsumer(
                queue, bootstrap_servers=kafka.bootstrap, group_id=queue, share_acknowledgement_mode="explicit",
                max_poll_records=10, fetch_max_wait_ms=200,
            ) as consumer:  # fmt: skip
                while len(seen) < 200:
                    for records in (await consumer.getmany(timeout_ms=300)).values():
                        for record in records:
                            consumer.acknowledge(record)
                            seen.append(record.offset)
                    outcomes = await consumer.commit_sync()
                    assert set(outcomes.values()) <= {None}

        async with asyncio.timeout(120):
            await asyncio.gather(work(), work())
        return seen

    assert sorted(asyncio.run(main())) == list(range(200))
    assert lag(admin, queue) == 0


# --- beside Kafka's own client ----------------------------------------------------------------------------------------


@needs_java
def test_workers_of_both_clients_in_one_group(kafka: Any, admin: KafkaAdminClient, queue: str) -> None:
    total = 3000
    java = subprocess.Popen(java_worker(kafka.bootstrap, queue, queue), stdout=subprocess.PIPE, text=True)
    mine: list[tuple[int, int, int]] = []
    try:
        with made(kafka, queue, max_poll_records=50) as consumer:
            wait_until(
                lambda: consumer.poll(100) == {} and len(admin.describe_share_groups([queue])[queue]["members"]) == 2,
                "both members",
            )
            fill(kafka.bootstrap, queue, [b"%d" % n for n in range(total)], linger_ms=0, batch_size=2000)

            def over() -> bool:
                records = consumer.poll_batch(timeout_ms=200)
                if set(consumer.commit_sync().values()) <= {None}:
                    mine.extend((record.partition, record.offset, record.delivery_count or 0) for record in records)
                return java.poll() is not None and lag(admin, queue) == 0

            wait_until(over, "the end of the queue")
    finally:
        java.kill()
    assert java.stdout is not None
    theirs = lines_of(java.stdout.read())
    assert sorted(offset for _, offset, _ in mine + theirs) == list(range(total))
    assert mine and theirs


@needs_java
def test_what_kafkas_client_releases_comes_here_with_its_count(kafka: Any, admin: KafkaAdminClient, queue: str) -> None:
    fill(kafka.bootstrap, queue, [b"%d" % n for n in range(5)])
    with made(kafka, queue, share_acknowledgement_mode="explicit") as consumer:
        for record in read(consumer, 5):
            consumer.acknowledge(record, RELEASE_IT)
    said = subprocess.run(
        java_worker(kafka.bootstrap, queue, queue, idle_ms=8000),
        capture_output=True,
        text=True,
        check=True,
        timeout=180,
    )
    assert lines_of(said.stdout) == [(0, offset, 2) for offset in range(5)]


# --- kills ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["poll", "iterate"])
def test_workers_that_are_killed(kafka: Any, admin: KafkaAdminClient, queue: str, tmp_path: Path, way: str) -> None:
    """No record is lost; the records of a killed worker come again when the broker has noticed its end."""
    configure(admin, queue, share_record_lock_duration_ms=LOCK_MS, share_delivery_count_limit=10)
    total = 3000
    files = [tmp_path / f"worker-{n}" for n in range(8)]
    workers = {n: start_worker(kafka.bootstrap, queue, queue, files[n], way) for n in range(3)}
    try:
        fill(kafka.bootstrap, queue, [b"%d" % n for n in range(total)], linger_ms=0, batch_size=1000)
        for number in range(3, 8):
            done = sum(len(lines_of(each.read_text())) for each in files if each.exists())
            wait_until(
                lambda done=done: (  # type: ignore[misc]
                    sum(len(lines_of(each.read_text())) for each in files if each.exists()) > done
                    or lag(admin, queue) == 0
                ),
                "work",
            )
            victim = number - 3
            workers[victim].kill()
            workers[victim].wait()
            workers[number] = start_worker(kafka.bootstrap, queue, queue, files[number], way)
        wait_until(lambda: lag(admin, queue) == 0, "the end of the queue")
    finally:
        for worker in workers.values():
            worker.terminate()
        for worker in workers.values():
            worker.wait(60)
    found = Counter(offset for each in files if each.exists() for _, offset, _ in lines_of(each.read_text()))
    if way == "poll":
        # A worker that was killed behind its commit did not write the records down; another one never had them.
        assert set(found.values()) == {1}
        assert total - len(found) <= 5 * 20
    else:
        # A record is written down before it is accepted, so a kill makes it come again.
        assert sorted(found) == list(range(total))
        assert sum(found.values()) - total <= 5 * 1000


# --- leaders ----------------------------------------------------------------------------------------------------------


@needs_java
@pytest.mark.timeout(1800)
def test_a_leader_dies(tmp_path: Path) -> None:
    """Two brokers; the one with the records and the group is killed, and the other one goes on."""
    with_jars(RELEASE)
    replicated = {
        "share.coordinator.state.topic.replication.factor": "2",
        "offsets.topic.replication.factor": "2",
        "offsets.topic.num.partitions": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
    }
    first = share_broker("apache-kafka", tmp_path / "first", **replicated)
    second = share_broker("apache-kafka", tmp_path / "second", **replicated)
    second.cluster_id = first.cluster_id
    second.overrides |= {
        "process.roles": "broker",
        "node.id": "2",
        "controller.quorum.voters": f"1@127.0.0.1:{first.controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{second.port}",
    }
    with first, second, KafkaAdminClient(bootstrap_servers=first.bootstrap) as admin:
        wait_for(lambda: len(admin.describe_cluster()["brokers"]) == 2, "both brokers")
        admin.create_topics({"jobs": {"assignments": {0: [2, 1], 1: [1, 2]}}})
        configure(admin, "workers", share_auto_offset_reset="earliest", share_record_lock_duration_ms=LOCK_MS)
        total = 2000
        accepted: Counter[tuple[int, int]] = Counter()
        seen: set[tuple[int, int]] = set()
        bootstrap = f"{first.bootstrap},{second.bootstrap}"
        with KafkaShareConsumer(
            "jobs", bootstrap_servers=bootstrap, group_id="workers", max_poll_records=50, fetch_max_wait_ms=200
        ) as consumer:

            def step() -> None:
                try:
                    records = consumer.poll_batch(timeout_ms=200)
                    outcomes = consumer.commit_sync(timeout_ms=30_000)
                except KafkaError as error:
                    assert error.retriable, error
                    return
                seen.update((record.partition, record.offset) for record in records)
                for record in records:
                    if outcomes.get(TopicPartition("jobs", record.partition)) is None:
                        accepted[record.partition, record.offset] += 1

            fill(bootstrap, "jobs", [b"%d" % n for n in range(total)], 2, linger_ms=0, batch_size=1000)
            wait_for(lambda: step() or len(accepted) > 200, "the first records")  # type: ignore[func-returns-value]
            second.kill()
            wait_for(lambda: step() or len(seen) == total, "all records")  # type: ignore[func-returns-value]
            deadline = time.monotonic() + 30
            while len(accepted) < total and time.monotonic() < deadline:
                step()
        assert len(seen) == total
        # An acknowledgement may be lost with its leader after it was written: such a record does not come again.
        assert total - len(accepted) <= 100
        assert set(accepted.values()) == {1}


# --- administration ---------------------------------------------------------------------------------------------------


def test_offsets_of_share_groups(kafka: Any, admin: KafkaAdminClient, queue: str) -> None:
    place = TopicPartition(queue, 0)
    fill(kafka.bootstrap, queue, [b"%d" % n for n in range(20)])
    with made(kafka, queue) as consumer:
        read(consumer, 20)
        consumer.commit_sync()
        assert [each["group_id"] for each in admin.list_groups(types_filter=["share"]) if each["group_id"] == queue]
        described = admin.describe_share_groups([queue])[queue]
        [member] = described["members"]
        assert (described["group_state"], member["subscribed_topic_names"]) == ("Stable", [queue])
        with pytest.raises(NonEmptyGroupError):
            admin.alter_share_group_offsets(queue, {place: 0})
    found = admin.list_share_group_offsets({queue: [place]})[queue][place]
    assert found.lag == 0
    assert admin.list_share_group_offsets(queue)[queue].keys() == {place}
    assert admin.alter_share_group_offsets(queue, {place: 5}) == {place: NoError}
    assert start_of(admin, queue) == 5
    assert lag(admin, queue) == 15
    with made(kafka, queue) as consumer:
        assert [each.offset for each in read(consumer, 15)] == list(range(5, 20))
        consumer.commit_sync()
    assert admin.reset_share_group_offsets(queue, {place: ListOffsetsTimestamp.EARLIEST}) == {
        place: {"error": NoError, "offset": 0}
    }
    assert start_of(admin, queue) == 0
    assert admin.delete_share_group_offsets(queue, [queue]) == {queue: NoError}
    assert admin.list_share_group_offsets(queue)[queue] == {}
    assert admin.delete_groups([queue]) == {queue: "OK"}
    assert admin.list_share_group_offsets(queue)[queue] == {}
    with pytest.raises(ValueError, match="no group"):
        admin.list_share_group_offsets([])
    assert admin.alter_share_group_offsets(queue, {}) == {}
    assert admin.delete_share_group_offsets(queue, []) == {}
