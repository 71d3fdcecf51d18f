"""Fetches that fail: offsets out of range, errors of partitions and sessions, connections that are lost, throttling."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from clients.consumer.fetching import T0, WAIT_MS, read, until
from clients.consumer.scripted_cluster import (
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
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
)
from kafkapy.protocol.messages.fetch import FetchRequest, FetchResponse
from kafkapy.protocol.messages.metadata import MetadataRequest


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
            asked = len(cluster.of(MetadataRequest))
            errors = [code]
            cluster.on(FetchRequest, lambda call: FetchResponse(error_code=errors.pop()) if errors else None)
            log.append(1)
            assert read(consumer, 1) == [("t", 0, 1)]
            if code is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR:
                until(lambda: len(cluster.of(MetadataRequest)) > asked)

    @pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.KAFKA_STORAGE_ERROR])
    def test_a_broker_with_an_error_of_its_own_is_asked_again_after_the_back_off(
        self, consume: Callable[..., KafkaConsumer], code: ErrorCode
    ) -> None:
        with ScriptedCluster() as cluster:
            cluster.add_topic("t")[0].append(1)
            at: list[float] = []

            def refuse(call: Call) -> FetchResponse | None:
                at.append(time.monotonic())
                return FetchResponse(error_code=code) if len(at) == 1 else None

            cluster.on(FetchRequest, refuse)
            consumer = consume(cluster, T0, retry_backoff_ms=300)
            assert read(consumer, 1) == [("t", 0, 0)]
            assert at[1] - at[0] >= 0.29

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
