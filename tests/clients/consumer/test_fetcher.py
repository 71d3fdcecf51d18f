"""Fetching against brokers that do as they are told: leaders that change, replicas, sessions, old versions, and how
much is read ahead."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from clients.consumer.fetching import T0, WAIT_MS, read, until
from clients.consumer.scripted_cluster import KAFKA_2_1, Call, FetchedPart, FetchedTopic, ScriptedCluster

from kafkapy import KafkaConsumer
from kafkapy.errors import ErrorCode, LogTruncationError
from kafkapy.protocol.messages.fetch import FetchRequest, FetchResponse
from kafkapy.protocol.messages.list_offsets import ListOffsetsRequest
from kafkapy.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kafkapy.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kafkapy.types import OffsetAndMetadata, TopicPartition


def test_records_come_in_order_and_sessions_say_only_what_changed(consume: Callable[..., KafkaConsumer]) -> None:
    with ScriptedCluster() as cluster:
        topic = cluster.add_topic("t", 3)
        for log in topic.logs:
            log.append(5)
        consumer = consume(cluster, *(TopicPartition("t", number) for number in range(3)))
        got = read(consumer, 15)
        assert sorted(got) == [("t", number, offset) for number in range(3) for offset in range(5)]
        until(lambda: len(cluster.of(FetchRequest)) >= 3)
        first, second, third = (call.request for call in cluster.of(FetchRequest)[:3])
        assert (first.session_id, first.session_epoch) == (0, 0)
        assert sum(len(topic.partitions) for topic in first.topics) == 3
        assert (second.session_epoch, third.session_epoch) == (1, 2)
        assert second.session_id > 0
        assert sum(len(topic.partitions) for topic in third.topics) == 0
        topic[1].append(2)
        assert read(consumer, 2) == [("t", 1, 5), ("t", 1, 6)]
        assert cluster.of(FetchRequest)[0].version == 18
        assert cluster.of(FetchRequest)[0].request.topics[0].topic_id == topic.id


def test_brokers_of_2_1_are_asked_in_their_versions(consume: Callable[..., KafkaConsumer]) -> None:
    with ScriptedCluster(versions=KAFKA_2_1) as cluster:
        cluster.add_topic("t")[0].append(5)
        consumer = consume(cluster, T0, isolation_level="read_committed")
        assert read(consumer, 5) == [("t", 0, offset) for offset in range(5)]
        assert {call.version for call in cluster.of(FetchRequest)} == {10}
        assert {call.version for call in cluster.of(ListOffsetsRequest)} == {4}
        assert cluster.of(FetchRequest)[0].request.topics[0].topic == "t"
        # OffsetForLeaderEpoch of that age is for brokers: a new leader is not asked, and fetching goes on.
        cluster.topics["t"][0].elect(1)
        cluster.topics["t"][0].append(1)
        assert read(consumer, 1) == [("t", 0, 5)]
        assert cluster.of(OffsetForLeaderEpochRequest) == []


def test_what_is_configured_is_asked_for(consume: Callable[..., KafkaConsumer]) -> None:
    with ScriptedCluster() as cluster:
        cluster.add_topic("t")[0].append(1)
        consumer = consume(
            cluster,
            T0,
            fetch_min_bytes=7,
            fetch_max_wait_ms=70,
            fetch_max_bytes=7000,
            max_partition_fetch_bytes=700,
            isolation_level="read_committed",
            client_rack="r7",
            client_id="me",
        )
        assert read(consumer, 1) == [("t", 0, 0)]
        call = cluster.of(FetchRequest)[0]
        request = call.request
        assert (request.min_bytes, request.max_wait_ms, request.max_bytes) == (7, 70, 7000)
        assert (request.isolation_level, request.rack_id, call.client_id) == (1, "r7", "me")
        assert request.topics[0].partitions[0].partition_max_bytes == 700
        assert cluster.of(ListOffsetsRequest)[0].request.isolation_level == 1


def test_a_leader_that_moves_is_followed_and_asked_about_the_position(consume: Callable[..., KafkaConsumer]) -> None:
    with ScriptedCluster([1, 2]) as cluster:
        log = cluster.add_topic("t", leader=1)[0]
        log.append(5)
        consumer = consume(cluster, T0)
        assert len(read(consumer, 5)) == 5
        log.elect(2)
        log.append(5)
        assert read(consumer, 5) == [("t", 0, offset) for offset in range(5, 10)]
        asked = cluster.of(OffsetForLeaderEpochRequest)[0]
        part = asked.request.topics[0].partitions[0]
        assert (asked.node_id, part.current_leader_epoch, part.leader_epoch) == (2, 1, 0)


def test_the_old_leader_may_say_who_leads_now(consume: Callable[..., KafkaConsumer]) -> None:
    with ScriptedCluster([1, 2]) as cluster:
        log = cluster.add_topic("t", leader=1)[0]
        log.append(2)
        consumer = consume(cluster, T0)
        assert len(read(consumer, 2)) == 2

        async def as_before(call: Call) -> MetadataResponse:
            response = await cluster.metadata(call)
            for each in response.topics:
                each.partitions[0].leader_id, each.partitions[0].leader_epoch = 1, 0
            return response

        cluster.on(MetadataRequest, as_before)
        cluster.names_leaders = True
        log.elect(2)
        log.append(1)
        assert read(consumer, 1) == [("t", 0, 2)]


def test_a_truncated_log_moves_the_consumer_back(consume: Callable[..., KafkaConsumer]) -> None:
    with ScriptedCluster([1, 2]) as cluster:
        log = cluster.add_topic("t", leader=1)[0]
        log.append(5)
        log.append(5)
        consumer = consume(cluster, T0)
        assert len(read(consumer, 10)) == 10
        log.elect(2, truncate_to=5)
        log.append(3)
        assert read(consumer, 3) == [("t", 0, 5), ("t", 0, 6), ("t", 0, 7)]


def test_without_a_policy_truncation_is_an_error(consume: Callable[..., KafkaConsumer]) -> None:
    with ScriptedCluster([1, 2]) as cluster:
        log = cluster.add_topic("t", leader=1)[0]
        log.append(5)
        log.append(5)
        consumer = consume(cluster, T0, auto_offset_reset="none")
        consumer.seek(T0, 0)
        assert len(read(consumer, 10)) == 10
        log.elect(2, truncate_to=5)
        with pytest.raises(LogTruncationError, match="t-0 at offset 10") as raised:
            consumer.poll(WAIT_MS)
        assert raised.value.divergent_offsets == {T0: OffsetAndMetadata(5, "", 0)}
        consumer.seek(T0, raised.value.divergent_offsets[T0])
        log.append(1)
        assert read(consumer, 1) == [("t", 0, 5)]


def test_a_follower_in_our_rack_is_read_from_and_left_when_it_cannot_serve(
    consume: Callable[..., KafkaConsumer],
) -> None:
    with ScriptedCluster([1, 2]) as cluster:
        log = cluster.add_topic("t", leader=1)[0]
        log.append(5)
        follower_lags = False

        def prefer_two(call: Call) -> Any:
            if call.node_id == 1 and call.request.rack_id == "r" and not follower_lags:
                part = FetchedPart(partition_index=0, high_watermark=log.end, preferred_read_replica=2, records=b"")
                return FetchResponse(responses=[FetchedTopic(topic_id=cluster.topics["t"].id, partitions=[part])])
            if call.node_id == 2 and follower_lags:
                part = FetchedPart(
                    partition_index=0, high_watermark=-1, error_code=ErrorCode.OFFSET_OUT_OF_RANGE, records=b""
                )
                return FetchResponse(responses=[FetchedTopic(topic_id=cluster.topics["t"].id, partitions=[part])])
            return None

        cluster.on(FetchRequest, prefer_two)
        consumer = consume(
            cluster, T0, client_rack="r", auto_offset_reset="none", enable_incremental_fetch_sessions=False
        )
        consumer.seek(T0, 0)
        assert len(read(consumer, 5)) == 5
        assert [call.node_id for call in cluster.of(FetchRequest)][:2] == [1, 2]
        # The follower does not have the offset (yet): the leader is asked, and the position stays.
        follower_lags = True
        log.append(2)
        assert read(consumer, 2) == [("t", 0, 5), ("t", 0, 6)]
        assert cluster.of(FetchRequest)[-1].node_id == 1


def test_a_preferred_replica_that_is_offline_is_not_asked(consume: Callable[..., KafkaConsumer]) -> None:
    with ScriptedCluster([1, 2]) as cluster:
        log = cluster.add_topic("t", leader=1)[0]
        log.offline = [2]
        log.append(1)

        def prefer_two(call: Call) -> Any:
            if len(cluster.of(FetchRequest)) > 1:
                return None
            part = FetchedPart(partition_index=0, high_watermark=log.end, preferred_read_replica=2, records=b"")
            return FetchResponse(responses=[FetchedTopic(topic_id=cluster.topics["t"].id, partitions=[part])])

        cluster.on(FetchRequest, prefer_two)
        assert read(consume(cluster, T0, client_rack="r"), 1) == [("t", 0, 0)]
        assert {call.node_id for call in cluster.of(FetchRequest)} == {1}


def test_a_topic_made_anew_is_read_from_its_beginning(consume: Callable[..., KafkaConsumer]) -> None:
    with ScriptedCluster() as cluster:
        topic = cluster.add_topic("t")
        topic[0].append(5)
        consumer = consume(cluster, T0, metadata_max_age_ms=200)
        assert len(read(consumer, 5)) == 5
        del cluster.topics["t"]
        until(lambda: consumer.poll(10) == {} and len(cluster.of(MetadataRequest)) > 3)
        again = cluster.add_topic("t")
        assert again.id != topic.id
        again[0].append(2)
        assert read(consumer, 2) == [("t", 0, 0), ("t", 0, 1)]


def test_prefetch_stops_at_two_chunks_of_a_partition(consume: Callable[..., KafkaConsumer]) -> None:
    with ScriptedCluster() as cluster:
        topic = cluster.add_topic("t", 2)
        for _ in range(20):
            for log in topic.logs:
                log.append(10)
        consumer = consume(cluster, T0, TopicPartition("t", 1), max_partition_fetch_bytes=1)
        assert len(consumer.poll_batch(1, WAIT_MS)) == 1
        states = consumer._core.subscription.all_states
        deadline = time.monotonic() + 20
        while not all(state.buffer.chunks for state in states) and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.3)
        assert all(1 <= state.buffer.chunks <= 2 for state in states)
        fetches = len(cluster.of(FetchRequest))
        time.sleep(0.2)
        assert len(cluster.of(FetchRequest)) == fetches
        got = read(consumer, 399)
        for number in range(2):
            assert [offset for _, p, offset in got if p == number] in (list(range(200)), list(range(1, 200)))


def test_what_is_read_ahead_of_a_broker_is_bounded_by_fetch_max_bytes(consume: Callable[..., KafkaConsumer]) -> None:
    with ScriptedCluster() as cluster:
        topic = cluster.add_topic("t", 8)
        for _ in range(20):
            for log in topic.logs:
                log.append(100)
        size = len(topic[0].batches[0][2])
        cluster.on(FetchRequest, lambda call: None)
        consumer = consume(
            cluster,
            *(TopicPartition("t", number) for number in range(8)),
            max_partition_fetch_bytes=1,
            fetch_max_bytes=3 * size,
        )
        assert len(consumer.poll_batch(1, WAIT_MS)) == 1
        time.sleep(0.3)
        # The scripted broker knows no max_bytes: a response has a batch of each partition. No second one was asked for.
        assert consumer.fetch_buffer.bytes <= 9 * size
        assert len(read(consumer, 8 * 2000 - 1)) == 8 * 2000 - 1


def test_paused_partitions_are_not_asked_for_and_keep_what_they_have(consume: Callable[..., KafkaConsumer]) -> None:
    with ScriptedCluster() as cluster:
        topic = cluster.add_topic("t", 2)
        for log in topic.logs:
            log.append(3)
        one = TopicPartition("t", 1)
        consumer = consume(cluster, T0, one)
        assert consumer.poll_batch(1, WAIT_MS)
        consumer.pause(one)
        assert consumer.paused() == {one}
        time.sleep(0.2)
        before = {(r.partition, r.offset) for r in consumer.poll_batch(100, 300)}
        assert {partition for partition, _ in before} <= {0}
        topic[1].append(1)
        assert consumer.poll(300) == {}
        consumer.resume(one)
        got = read(consumer, 4 + 3 - 1 - len(before))
        assert [offset for _, number, offset in got if number == 1][-1] == 3
        assert consumer.position(one) == 4


def test_a_recreated_topic_id_mid_session_is_replaced(consume: Callable[..., KafkaConsumer]) -> None:
    with ScriptedCluster() as cluster:
        topic = cluster.add_topic("t", 1)
        other = cluster.add_topic("u", 1)
        topic[0].append(1)
        other[0].append(1)
        consumer = consume(cluster, T0, TopicPartition("u", 0), metadata_max_age_ms=100)
        assert len(read(consumer, 2)) == 2
        topic.id = uuid4()
        until(
            lambda: (
                consumer.poll(20) == {}
                and topic.id in {asked.topic_id for call in cluster.of(FetchRequest) for asked in call.request.topics}
            )
        )
        topic[0].append(1)
        other[0].append(1)
        assert sorted(read(consumer, 2)) == [("t", 0, 1), ("u", 0, 1)]
