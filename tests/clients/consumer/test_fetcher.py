"""Fetching against brokers that do as they are told: leaders that change, replicas, sessions, errors, old versions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from clients.consumer.scripted_cluster import (
    KAFKA_2_1,
    Call,
    Disconnect,
    FetchedPart,
    FetchedTopic,
    ScriptedCluster,
    offsets_of,
)

from kafkapy import KafkaConsumer
from kafkapy.errors import (
    CorruptMessageError,
    ErrorCode,
    KafkaError,
    KafkaTimeoutError,
    LogTruncationError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
)
from kafkapy.protocol.messages.fetch import FetchRequest, FetchResponse
from kafkapy.protocol.messages.list_offsets import ListOffsetsRequest
from kafkapy.protocol.messages.metadata import MetadataRequest
from kafkapy.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kafkapy.types import OffsetAndMetadata, TopicPartition

T0 = TopicPartition("t", 0)
WAIT_MS = 20_000


@pytest.fixture
def consume() -> Iterator[Callable[..., KafkaConsumer]]:
    """Makes consumers that are closed at the end."""
    made: list[KafkaConsumer] = []

    def make(cluster: ScriptedCluster, *partitions: TopicPartition, **configs: Any) -> KafkaConsumer:
        defaults: dict[str, Any] = {
            "bootstrap_servers": cluster.bootstrap,
            "auto_offset_reset": "earliest",
            "fetch_max_wait_ms": 100,
            "retry_backoff_ms": 10,
            "reconnect_backoff_ms": 10,
        }
        consumer = KafkaConsumer(**(defaults | configs))
        made.append(consumer)
        if partitions:
            consumer.assign(partitions)
        return consumer

    yield make
    for consumer in made:
        consumer.close(timeout_ms=1000)


def read(consumer: KafkaConsumer, count: int) -> list[tuple[str, int, int]]:
    """(topic, partition, offset) of so many records."""
    got: list[tuple[str, int, int]] = []
    deadline = time.monotonic() + WAIT_MS / 1000
    while len(got) < count and time.monotonic() < deadline:
        got += [(r.topic, r.partition, r.offset) for r in consumer.poll_batch(count - len(got), 200)]
    return got


def until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + WAIT_MS / 1000
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)
    return found


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
        cluster.names_leaders = True
        metadata_before = len(cluster.of(MetadataRequest))
        log.elect(2)
        log.append(1)
        assert read(consumer, 1) == [("t", 0, 2)]
        assert len(cluster.of(MetadataRequest)) == metadata_before


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


class TestOutOfRange:
    def test_it_resets_by_the_policy(self, consume: Callable[..., KafkaConsumer]) -> None:
        with ScriptedCluster() as cluster:
            log = cluster.add_topic("t")[0]
            log.append(5)
            consumer = consume(cluster, T0)
            consumer.seek(T0, 400)
            assert read(consumer, 5) == [("t", 0, offset) for offset in range(5)]

    def test_without_a_policy_it_is_an_error_until_seek(self, consume: Callable[..., KafkaConsumer]) -> None:
        with ScriptedCluster() as cluster:
            log = cluster.add_topic("t")[0]
            log.append(5)
            consumer = consume(cluster, T0, auto_offset_reset="none")
            consumer.seek(T0, 400)
            for _ in range(2):
                with pytest.raises(OffsetOutOfRangeError, match="400 is out of range for partition t-0"):
                    consumer.poll(WAIT_MS)
            consumer.seek(T0, 4)
            assert read(consumer, 1) == [("t", 0, 4)]

    def test_what_is_buffered_comes_before_the_error(self, consume: Callable[..., KafkaConsumer]) -> None:
        with ScriptedCluster() as cluster:
            log = cluster.add_topic("t")[0]
            log.append(5)
            consumer = consume(cluster, T0, auto_offset_reset="none")
            consumer.seek(T0, 0)
            assert len(consumer.poll_batch(1, WAIT_MS)) == 1
            until(lambda: len(cluster.of(FetchRequest)) >= 2)
            log.start = 8  # records were deleted, beyond what was fetched
            log.batches.clear()
            until(lambda: consumer._core.subscription.all_states[0].fetch_when_drained)
            assert offsets_of(consumer.poll(100)) == {T0: [1, 2, 3, 4]}
            with pytest.raises(OffsetOutOfRangeError):
                consumer.poll(WAIT_MS)


class TestErrors:
    def one(self, cluster: ScriptedCluster, code: ErrorCode, times: int) -> Callable[[Call], Any]:
        left = times

        def hook(call: Call) -> Any:
            nonlocal left
            if left == 0 or not call.request.topics:
                return None
            left -= 1
            part = FetchedPart(partition_index=0, high_watermark=-1, error_code=code, records=b"")
            return FetchResponse(responses=[FetchedTopic(topic_id=cluster.topics["t"].id, partitions=[part])])

        return hook

    @pytest.mark.parametrize(
        "code",
        [
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.REPLICA_NOT_AVAILABLE,
            ErrorCode.KAFKA_STORAGE_ERROR,
            ErrorCode.FENCED_LEADER_EPOCH,
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            ErrorCode.OFFSET_NOT_AVAILABLE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_ID,
            ErrorCode.INCONSISTENT_TOPIC_ID,
            ErrorCode.UNKNOWN_SERVER_ERROR,
        ],
    )
    def test_these_pass(self, consume: Callable[..., KafkaConsumer], code: ErrorCode) -> None:
        with ScriptedCluster() as cluster:
            cluster.add_topic("t")[0].append(2)
            cluster.on(FetchRequest, self.one(cluster, code, 2))
            consumer = consume(cluster, T0, enable_incremental_fetch_sessions=False)
            assert read(consumer, 2) == [("t", 0, 0), ("t", 0, 1)]

    @pytest.mark.parametrize(
        ("code", "error"),
        [
            (ErrorCode.TOPIC_AUTHORIZATION_FAILED, TopicAuthorizationFailedError),
            (ErrorCode.CORRUPT_MESSAGE, CorruptMessageError),
            (ErrorCode.INVALID_REQUEST, KafkaError),
        ],
    )
    def test_these_are_raised_and_the_next_poll_tries_again(
        self, consume: Callable[..., KafkaConsumer], code: ErrorCode, error: type[KafkaError]
    ) -> None:
        with ScriptedCluster() as cluster:
            cluster.add_topic("t")[0].append(2)
            cluster.on(FetchRequest, self.one(cluster, code, 1))
            consumer = consume(cluster, T0, enable_incremental_fetch_sessions=False)
            with pytest.raises(error):
                consumer.poll(WAIT_MS)
            assert read(consumer, 2) == [("t", 0, 0), ("t", 0, 1)]

    @pytest.mark.parametrize(
        "code",
        [
            ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
            ErrorCode.INVALID_FETCH_SESSION_EPOCH,
            ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ],
    )
    def test_a_session_that_ends_is_begun_anew(self, consume: Callable[..., KafkaConsumer], code: ErrorCode) -> None:
        with ScriptedCluster() as cluster:
            log = cluster.add_topic("t")[0]
            log.append(1)
            consumer = consume(cluster, T0)
            assert len(read(consumer, 1)) == 1
            until(lambda: len(cluster.of(FetchRequest)) >= 2)
            errors = [code]
            cluster.on(FetchRequest, lambda call: FetchResponse(error_code=errors.pop()) if errors else None)
            log.append(1)
            assert read(consumer, 1) == [("t", 0, 1)]

    def test_a_lost_connection_loses_nothing(self, consume: Callable[..., KafkaConsumer]) -> None:
        with ScriptedCluster() as cluster:
            log = cluster.add_topic("t")[0]
            consumer = consume(cluster, T0)
            got = []
            for turn in range(5):
                log.append(3)
                got += read(consumer, 2)
                cluster.disconnect(1)
                got += read(consumer, 1)
                assert len(got) == 3 * turn + 3
            assert got == [("t", 0, offset) for offset in range(15)]

    def test_a_broker_that_hangs_up_on_fetches_is_tried_again(self, consume: Callable[..., KafkaConsumer]) -> None:
        with ScriptedCluster() as cluster:
            cluster.add_topic("t")[0].append(1)
            hang_ups = [1, 1, 1]

            def hang_up(call: Call) -> None:
                if hang_ups:
                    hang_ups.pop()
                    raise Disconnect

            cluster.on(FetchRequest, hang_up)
            assert read(consume(cluster, T0), 1) == [("t", 0, 0)]

    def test_a_throttled_response_holds_the_next_request_back(self, consume: Callable[..., KafkaConsumer]) -> None:
        with ScriptedCluster() as cluster:
            log = cluster.add_topic("t")[0]
            log.append(1)
            at: list[float] = []

            async def throttled(call: Call) -> FetchResponse:
                response = await cluster.fetch(call)
                at.append(time.monotonic())
                response.throttle_time_ms = 300 if len(at) == 1 else 0
                return response

            cluster.on(FetchRequest, throttled)
            consumer = consume(cluster, T0, fetch_max_wait_ms=0)
            assert len(read(consumer, 1)) == 1
            until(lambda: len(at) >= 2)
            assert at[1] - at[0] >= 0.29


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


class TestOffsets:
    def test_beginning_end_and_times(self, consume: Callable[..., KafkaConsumer]) -> None:
        with ScriptedCluster([1, 2]) as cluster:
            topic = cluster.add_topic("t", 2)
            topic[1].leadership = (2, 0)
            topic[0].append(10)
            topic[1].append(3)
            topic[0].start = 2
            consumer = consume(cluster)
            one = TopicPartition("t", 1)
            assert consumer.beginning_offsets([T0, one]) == {T0: 2, one: 0}
            assert consumer.end_offsets([T0, one]) == {T0: 10, one: 3}
            found = consumer.offsets_for_times({T0: 1_700_000_000_005, one: 1_700_000_000_005})
            assert found[T0] == (5, 1_700_000_000_005, 0)
            assert found[one] is None
            with pytest.raises(ValueError, match="cannot be negative"):
                consumer.offsets_for_times({T0: -1})

    def test_a_partition_that_is_nowhere_is_waited_for(self, consume: Callable[..., KafkaConsumer]) -> None:
        with ScriptedCluster() as cluster:
            consumer = consume(cluster)
            with pytest.raises(KafkaTimeoutError, match="t-0"):
                consumer.end_offsets([T0], timeout_ms=200)
            assert consumer.end_offsets([]) == {}

    def test_a_leader_that_moves_meanwhile_is_found(self, consume: Callable[..., KafkaConsumer]) -> None:
        with ScriptedCluster([1, 2]) as cluster:
            log = cluster.add_topic("t", leader=1)[0]
            log.append(4)
            consumer = consume(cluster)
            assert consumer.end_offsets([T0]) == {T0: 4}
            assert consumer.partitions_for_topic("t") == {0}
            log.elect(2)
            assert consumer.end_offsets([T0]) == {T0: 4}

    def test_without_a_policy_an_assignment_needs_a_seek(self, consume: Callable[..., KafkaConsumer]) -> None:
        with ScriptedCluster() as cluster:
            cluster.add_topic("t")[0].append(2)
            consumer = consume(cluster, T0, auto_offset_reset="none")
            with pytest.raises(NoOffsetForPartitionError, match="t-0"):
                consumer.poll(WAIT_MS)
            with pytest.raises(NoOffsetForPartitionError):
                consumer.position(T0)
            consumer.seek(T0, 1)
            assert consumer.position(T0) == 1
            assert read(consumer, 1) == [("t", 0, 1)]

    def test_by_duration_begins_there_or_at_the_end(self, consume: Callable[..., KafkaConsumer]) -> None:
        with ScriptedCluster() as cluster:
            cluster.add_topic("t")[0].append(5)
            consumer = consume(cluster, T0, auto_offset_reset="by_duration:PT1H")
            assert consumer.position(T0) == 5  # no record is that young
            asked = cluster.of(ListOffsetsRequest)[0].request.topics[0].partitions[0].timestamp
            assert abs(asked - (time.time() - 3600) * 1000) < 60_000

    def test_seeking_to_the_ends(self, consume: Callable[..., KafkaConsumer]) -> None:
        with ScriptedCluster() as cluster:
            log = cluster.add_topic("t")[0]
            log.append(5)
            log.start = 1
            consumer = consume(cluster, T0)
            consumer.seek_to_end()
            assert consumer.position(T0) == 5
            consumer.seek_to_beginning(T0)
            assert consumer.position(T0) == 1
            with pytest.raises(ValueError, match="u-0"):
                consumer.seek_to_end(TopicPartition("u", 0))

    def test_errors_that_do_not_pass_are_told(self, consume: Callable[..., KafkaConsumer]) -> None:
        with ScriptedCluster() as cluster:
            cluster.add_topic("t")[0].append(5)

            def refuse(call: Call) -> Any:
                from kafkapy.protocol.messages.list_offsets import ListOffsetsResponse

                part = ListOffsetsResponse.Topic.Partition(
                    partition_index=0, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
                )
                return ListOffsetsResponse(topics=[ListOffsetsResponse.Topic(name="t", partitions=[part])])

            cluster.on(ListOffsetsRequest, refuse)
            consumer = consume(cluster, T0)
            with pytest.raises(TopicAuthorizationFailedError, match="topics: t"):
                consumer.end_offsets([T0])
            for _ in range(2):
                with pytest.raises(TopicAuthorizationFailedError, match="topics: t"):
                    consumer.poll(WAIT_MS)
            calls = len(cluster.of(ListOffsetsRequest))
            time.sleep(0.1)
            assert len(cluster.of(ListOffsetsRequest)) == calls, "nobody polls, so nothing is tried"


class TestTopics:
    def test_all_partitions_of_a_subscription_without_a_group(self, consume: Callable[..., KafkaConsumer]) -> None:
        with ScriptedCluster() as cluster:
            topic = cluster.add_topic("t", 2)
            for log in topic.logs:
                log.append(2)
            consumer = consume(cluster, metadata_max_age_ms=200)
            consumer.subscribe(["t"])
            assert len(read(consumer, 4)) == 4
            assert consumer.assignment() == {T0, TopicPartition("t", 1)}
            assert consumer.subscription() == {"t"}
            topic.logs.append(type(topic[0])((1, 0), replicas=[1]))
            topic[2].append(1)
            assert read(consumer, 1) == [("t", 2, 0)]

    def test_a_pattern_follows_the_topics(self, consume: Callable[..., KafkaConsumer]) -> None:
        with ScriptedCluster() as cluster:
            cluster.add_topic("orders-a")[0].append(1)
            cluster.add_topic("other")[0].append(1)
            consumer = consume(cluster, metadata_max_age_ms=200)
            consumer.subscribe(pattern="orders")
            assert read(consumer, 1) == [("orders-a", 0, 0)]
            cluster.add_topic("orders-b")[0].append(1)
            assert read(consumer, 1) == [("orders-b", 0, 0)]
            assert consumer.subscription() == {"orders-a", "orders-b"}
            consumer.unsubscribe()
            assert consumer.subscription() is None
            assert consumer.assignment() == set()

    @pytest.mark.parametrize("allowed", [True, False])
    def test_topics_are_created_where_both_sides_allow_it(
        self, consume: Callable[..., KafkaConsumer], allowed: bool
    ) -> None:
        with ScriptedCluster() as cluster:
            cluster.auto_create = True
            consumer = consume(cluster, allow_auto_create_topics=allowed)
            consumer.subscribe(["new"])
            consumer.poll(300)
            assert ("new" in cluster.topics) is allowed

    def test_a_topic_that_may_not_be_seen_is_told(self, consume: Callable[..., KafkaConsumer]) -> None:
        with ScriptedCluster() as cluster:
            cluster.add_topic("secret").error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            consumer = consume(cluster)
            consumer.subscribe(["secret"])
            with pytest.raises(TopicAuthorizationFailedError, match="secret"):
                consumer.poll(WAIT_MS)

    def test_questions_about_topics(self, consume: Callable[..., KafkaConsumer]) -> None:
        with ScriptedCluster() as cluster:
            cluster.add_topic("a", 3)
            cluster.add_topic("b")
            consumer = consume(cluster, allow_auto_create_topics=False)
            assert consumer.topics() == {"a", "b"}
            assert consumer.partitions_for_topic("a") == {0, 1, 2}
            assert consumer.partitions_for_topic("nowhere") == set()


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
