"""KafkaShareConsumer on a scripted cluster: damaged records, errors, arguments, tables and metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from clients.consumer.fetched import batch
from clients.share.share_cluster import ShareCluster, every, read
from waiting import wait_until

from kafkapy import AcknowledgeType, KafkaShareConsumer
from kafkapy.errors import (
    ConfigError,
    CorruptMessageError,
    ErrorCode,
    IllegalStateError,
    InvalidGroupIdError,
    KafkaError,
    UnsupportedVersionError,
    WakeupError,
)
from kafkapy.protocol.messages.share_fetch import ShareFetchRequest, ShareFetchResponse
from kafkapy.types import TopicPartition

Consume = Callable[..., KafkaShareConsumer]
JOBS = TopicPartition("jobs", 0)
ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType


# --- records that are missing or damaged ------------------------------------------------------------------------------


def test_offsets_without_a_record_are_gaps(cluster: ShareCluster, consume: Consume) -> None:
    log = cluster.topics["jobs"][0]
    log.append(2)
    # A batch of four offsets whose two records in the middle were compacted away is two batches here.
    log.batches.append((2, 6, batch(2, 1) + batch(5, 1)))
    consumer = consume()
    records = read(consumer, 4)
    assert [each.offset for each in records] == [0, 1, 2, 5]
    assert consumer.commit_sync() == {JOBS: None}
    assert cluster.state_of("jobs") == {
        0: "accepted", 1: "accepted", 2: "accepted", 3: "gap", 4: "gap", 5: "accepted",
    }  # fmt: skip


def test_a_chunk_of_gaps_only(cluster: ShareCluster, consume: Consume) -> None:
    log = cluster.topics["jobs"][0]
    log.batches.append((0, 3, b""))
    consumer = consume()
    wait_until(lambda: consumer.poll(20) == {} and every(cluster, "gap")(), "acknowledged gaps")
    log.append(1)
    assert [each.offset for each in read(consumer, 1)] == [3]


def test_a_damaged_batch_is_rejected_and_reading_goes_on(cluster: ShareCluster, consume: Consume) -> None:
    log = cluster.topics["jobs"][0]
    log.append(2)
    log.append(2)
    log.append(2)
    base, end, data = log.batches[1]
    log.batches[1] = (base, end, data[:-1] + bytes([data[-1] ^ 1]))
    consumer = consume()
    seen: list[int] = []
    errors: list[Exception] = []

    def all_seen() -> bool:
        try:
            seen.extend(each.offset for each in consumer.poll_batch(timeout_ms=50))
        except CorruptMessageError as error:
            errors.append(error)
        return len(seen) == 4

    wait_until(all_seen, "the records around the damaged batch")
    assert seen == [0, 1, 4, 5]
    assert len(errors) == 1
    consumer.commit_sync()
    assert cluster.state_of("jobs") == {
        0: "accepted", 1: "accepted", 2: "rejected", 3: "rejected", 4: "accepted", 5: "accepted",
    }  # fmt: skip


def test_a_record_that_cannot_be_deserialized_is_the_users(cluster: ShareCluster, consume: Consume) -> None:
    cluster.topics["jobs"][0].append(2)

    def deserialize(data: bytes) -> int:
        if data == b"0":
            raise ValueError("poison")
        return int(data)

    consumer = consume(share_acknowledgement_mode="explicit", value_deserializer=deserialize)
    for record in read(consumer, 2):
        try:
            assert record.value == 1
        except KafkaError:
            consumer.acknowledge(record, REJECT)
        else:
            consumer.acknowledge(record)
    consumer.commit_sync()
    assert cluster.state_of("jobs") == {0: "rejected", 1: "accepted"}


# --- errors -----------------------------------------------------------------------------------------------------------


def test_errors_of_a_partition_come_out_of_poll(cluster: ShareCluster, consume: Consume) -> None:
    cluster.topics["jobs"][0].append(1)
    refused = []

    def refuse(call: Any) -> ShareFetchResponse | None:
        if refused or call.request.share_session_epoch < 0:
            return None
        refused.append(call)
        cluster._session(call)
        Topic = ShareFetchResponse.TopicResponse
        leader = Topic.Partition.LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1)
        part = Topic.Partition(
            partition_index=0, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, current_leader=leader
        )
        return ShareFetchResponse(responses=[Topic(topic_id=cluster.topics["jobs"].id, partitions=[part])])

    cluster.on(ShareFetchRequest, refuse)
    consumer = consume()
    errors: list[KafkaError] = []

    def raised() -> bool:
        try:
            consumer.poll(20)
        except KafkaError as error:
            errors.append(error)
        return bool(errors)

    wait_until(raised, "the error")
    assert errors[0].code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_cluster_without_share_groups() -> None:
    with ShareCluster(share_versions=0) as cluster:
        cluster.add_topic("jobs")
        with KafkaShareConsumer("jobs", bootstrap_servers=cluster.bootstrap, group_id="workers") as consumer:

            def raised() -> bool:
                try:
                    consumer.poll(20)
                except UnsupportedVersionError as error:
                    return "Share groups are not available" in str(error)
                return False

            wait_until(raised, "the error")


def test_a_broker_of_4_1_knows_no_renewals(consume: Consume) -> None:
    with ShareCluster(share_versions=1) as cluster:
        cluster.add_topic("jobs")[0].append(1)
        with KafkaShareConsumer(
            "jobs", bootstrap_servers=cluster.bootstrap, group_id="workers", share_acknowledgement_mode="explicit"
        ) as consumer:
            [record] = read(consumer, 1)
            consumer.acknowledge(record, RENEW)
            assert isinstance(consumer.commit_sync()[JOBS], UnsupportedVersionError)


def test_wrong_configurations(cluster: ShareCluster) -> None:
    with pytest.raises(InvalidGroupIdError, match="group_id is not set"):
        KafkaShareConsumer("jobs", bootstrap_servers=cluster.bootstrap)
    for keywords in (
        {"auto_offset_reset": "earliest"},
        {"enable_auto_commit": False},
        {"share_acknowledgement_mode": "maybe"},
        {"share_acquire_mode": "all"},
        {"group_instance_id": "a"},
    ):
        with pytest.raises(ConfigError):
            KafkaShareConsumer("jobs", bootstrap_servers=cluster.bootstrap, group_id="workers", **keywords)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="sequence of names"):
        KafkaShareConsumer(7, bootstrap_servers=cluster.bootstrap, group_id="workers")  # type: ignore[arg-type]


def test_a_wakeup_ends_a_poll(cluster: ShareCluster, consume: Consume) -> None:
    consumer = consume()
    consumer.wakeup()
    with pytest.raises(WakeupError):
        consumer.poll(60_000)


def test_arguments_of_poll(consume: Consume) -> None:
    consumer = consume()
    with pytest.raises(ValueError, match="negative"):
        consumer.poll(-1)
    with pytest.raises(ValueError, match="positive"):
        consumer.poll(max_records=0)
    with pytest.raises(ValueError, match="empty"):
        consumer.subscribe([" "])


# --- tables and metrics -----------------------------------------------------------------------------------------------


def test_records_as_a_table(cluster: ShareCluster, consume: Consume) -> None:
    pytest.importorskip("pyarrow")
    log = cluster.topics["jobs"][0]
    log.append(3)
    log.batches.append((3, 6, batch(4, 1)))
    log.append(2)
    consumer = consume(share_acknowledgement_mode="explicit")
    tables: list[Any] = []

    def got() -> bool:
        table = consumer.poll_arrow(50)
        tables.append(table)
        return bool(table.num_rows)

    wait_until(got, "a table")
    table = tables[-1]
    assert table["offset"].to_pylist() == [0, 1, 2, 4, 6, 7]
    assert table["value"].to_pylist() == [b"0", b"1", b"2", b"4", b"6", b"7"]
    assert table["delivery_count"].to_pylist() == [1] * 6
    assert consumer.metrics()["consumer-share-fetch-manager-metrics"]["records-consumed-total"] == 6
    with pytest.raises(IllegalStateError, match="All records must be acknowledged"):
        consumer.poll_arrow()
    consumer.acknowledge(table.slice(0, 4))
    consumer.acknowledge(table.slice(4), RELEASE)
    assert consumer.commit_sync() == {JOBS: None}
    assert cluster.state_of("jobs") == {
        0: "accepted", 1: "accepted", 2: "accepted", 3: "gap", 4: "accepted", 5: "gap", 6: "available", 7: "available",
    }  # fmt: skip
    wait_until(got, "the released records")
    assert tables[-1]["delivery_count"].to_pylist() == [2, 2]
    consumer.acknowledge(tables[-1])


def test_parts_of_a_table(cluster: ShareCluster, consume: Consume) -> None:
    pytest.importorskip("pyarrow")
    cluster.topics["jobs"][0].append(5)
    consumer = consume()
    tables: list[Any] = []

    def all_rows() -> bool:
        table = consumer.poll_arrow(50, max_records=2, columns=["delivery_count", "value"])
        assert table.column_names == ["delivery_count", "value"]
        assert table.num_rows <= 2
        tables.append(table)
        return sum(each.num_rows for each in tables) == 5

    wait_until(all_rows, "all rows")
    assert [value for table in tables for value in table["value"].to_pylist()] == [b"%d" % n for n in range(5)]
    consumer.commit_sync()
    assert every(cluster, "accepted")()
    assert consumer.poll_arrow(columns=["delivery_count"]).num_rows == 0
    with pytest.raises(ValueError, match="occurs twice"):
        consumer.poll_arrow(columns=["delivery_count", "delivery_count"])
    with pytest.raises(ValueError, match="empty"):
        consumer.poll_arrow(columns=[])


def test_metrics(cluster: ShareCluster, consume: Consume) -> None:
    cluster.topics["jobs"][0].append(3)
    consumer = consume()
    read(consumer, 3)
    consumer.commit_sync()
    metrics = consumer.metrics()
    fetched = metrics["consumer-share-fetch-manager-metrics"]
    assert fetched["records-consumed-total"] == 3
    assert fetched["acknowledgements-send-total"] == 3
    assert fetched["acknowledgements-error-total"] == 0
    assert fetched["fetch-total"] >= 1
    assert metrics["consumer-share-coordinator-metrics"]["heartbeat-total"] >= 1
    assert metrics["consumer-share-metrics"]["last-poll-seconds-ago"] >= 0
