"""Offsets by time and positions, without a network: what is asked of whom, and what comes of each answer."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from waiting import run

from kafkapy._speedups.clients.consumer.record_iterator import FetchBuffer
from kafkapy.clients.consumer import offsets as module
from kafkapy.clients.consumer.offsets import Offsets
from kafkapy.clients.consumer.subscription import (
    EARLIEST,
    LATEST,
    NO_RESET,
    FetchState,
    LeaderAndEpoch,
    OffsetReset,
    SubscriptionState,
)
from kafkapy.errors import (
    ErrorCode,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    LogTruncationError,
    NodeNotReadyError,
    TopicAuthorizationFailedError,
    UnsupportedVersionError,
    error_for,
)
from kafkapy.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kafkapy.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from kafkapy.types import IsolationLevel, ListOffsetsTimestamp, OffsetAndMetadata, TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
BESIDE = 1000


class Network:
    """Answers as a test says; the metadata has the leaders of `leaders`."""

    def __init__(self) -> None:
        self.leaders = {T0: LeaderAndEpoch(1, 4), T1: LeaderAndEpoch(2, 5)}
        self.version = 1
        self.topics = {"t": None}
        self.invalidated = self.refreshed = 0
        self.refresh_error: KafkaError | None = None
        self.sent: list[tuple[int, Any, int]] = []
        self.answers: dict[int, list[Any]] = {}
        self.cluster = self

    def leader_for(self, partition: TopicPartition) -> int | None:
        node_id = self.leaders[partition].node_id
        return None if node_id < 0 else node_id

    def leader_epoch_for(self, partition: TopicPartition) -> int:
        return self.leaders[partition].epoch

    def invalidate(self) -> None:
        self.invalidated += 1

    async def refresh(self) -> None:
        self.refreshed += 1
        if self.refresh_error is not None:
            raise self.refresh_error

    def beside(self, node_id: int) -> int:
        return BESIDE + node_id

    async def send(self, node_id: int, request: Any, *, min_version: int) -> Any:
        self.sent.append((node_id, request, min_version))
        answer = self.answers[node_id].pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class Bench:
    """Positions of two partitions; a test sets the clock of back-offs."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        reset: OffsetReset = EARLIEST,
        *,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        waits: bool = False,
    ) -> None:
        self.now_s = 1000.0
        clock = SimpleNamespace(monotonic=lambda: self.now_s, time=lambda: 1_700_000.5)
        monkeypatch.setattr(module, "time", clock)
        self.network = Network()
        self.subscription = SubscriptionState(reset, FetchBuffer(lambda: None, lambda: None).partition)
        self.subscription.assign_by_user([T0, T1])
        self.errors: list[Exception] = []
        self.positions = 0
        self.offsets = Offsets(
            self.network,  # type: ignore[arg-type]
            self.subscription,
            isolation,
            retry_backoff_ms=2000,
            request_timeout_ms=30_000,
            waits=lambda node_id: waits,
            on_error=self.errors.append,
            on_positions=self._changed,
        )

    def _changed(self) -> None:
        self.positions += 1

    def state(self, partition: TopicPartition = T0) -> Any:
        return self.subscription.state_of(partition)

    async def settle(self) -> None:
        """What was started has ended."""
        while self.offsets._tasks:
            await asyncio.wait(set(self.offsets._tasks))
            await asyncio.sleep(0)


def listed(
    partition: TopicPartition, offset: int = -1, code: ErrorCode = ErrorCode.NONE, *, timestamp: int = -1
) -> ListOffsetsResponse:
    topic = ListOffsetsResponse.Topic
    part = topic.Partition(
        partition_index=partition.partition, error_code=code, offset=offset, timestamp=timestamp, leader_epoch=4
    )
    return ListOffsetsResponse(topics=[topic(name=partition.topic, partitions=[part])])


def epoch_end(epoch: int, end: int, code: ErrorCode = ErrorCode.NONE) -> OffsetForLeaderEpochResponse:
    topic = OffsetForLeaderEpochResponse.Topic
    part = topic.Partition(partition=0, error_code=code, leader_epoch=epoch, end_offset=end)
    return OffsetForLeaderEpochResponse(topics=[topic(topic="t", partitions=[part])])


# --- questions ----------------------------------------------------------------------------------------------------


def test_each_leader_is_asked_about_its_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch, isolation=IsolationLevel.READ_COMMITTED)
        bench.network.answers = {1: [listed(T0, 7, timestamp=70)], 2: [listed(T1, 8)]}
        found = await bench.offsets.list_offsets({T0: 77, T1: -1}, 10_000)
        assert found == {T0: (7, 70, 4), T1: (8, -1, 4)}
        topic = ListOffsetsRequest.Topic
        assert bench.network.sent == [
            (
                node_id,
                ListOffsetsRequest(
                    replica_id=-1,
                    isolation_level=1,
                    timeout_ms=30_000,
                    topics=[
                        topic(
                            name="t",
                            partitions=[
                                topic.Partition(partition_index=number, current_leader_epoch=epoch, timestamp=at)
                            ],
                        )
                    ],
                ),
                2,
            )
            for node_id, number, epoch, at in ((1, 0, 4, 77), (2, 1, 5, -1))
        ]
        assert (bench.network.refreshed, bench.network.invalidated) == (0, 0)

    run(main)


@pytest.mark.parametrize("isolation", IsolationLevel)
@pytest.mark.parametrize(
    ("at", "version"),
    [
        (1234, 1),
        (ListOffsetsTimestamp.LATEST, 1),
        (ListOffsetsTimestamp.EARLIEST, 1),
        (ListOffsetsTimestamp.MAX_TIMESTAMP, 7),
        (ListOffsetsTimestamp.EARLIEST_LOCAL, 8),
        (ListOffsetsTimestamp.LATEST_TIERED, 9),
        (ListOffsetsTimestamp.EARLIEST_PENDING_UPLOAD, 11),
    ],
)
def test_a_question_needs_a_version_that_has_it(
    monkeypatch: pytest.MonkeyPatch, isolation: IsolationLevel, at: int, version: int
) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch, isolation=isolation)
        bench.network.answers = {1: [listed(T0, 7)]}
        await bench.offsets.list_offsets({T0: int(at)}, 10_000)
        assert bench.network.sent[0][2] == max(version, 2 if isolation is IsolationLevel.READ_COMMITTED else 1)

    run(main)


@pytest.mark.parametrize(
    ("code", "level"),
    [
        *((code, logging.DEBUG) for code in sorted(module.RETRIED)),
        (ErrorCode.INVALID_REQUEST, logging.WARNING),
        (ErrorCode.UNKNOWN_SERVER_ERROR, logging.WARNING),
    ],
)
def test_an_answer_with_an_error_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, code: ErrorCode, level: int
) -> None:
    async def main() -> None:
        caplog.set_level(logging.DEBUG, module.logger.name)
        bench = Bench(monkeypatch)
        bench.network.answers = {1: [listed(T0, code=code)]}
        found, retry = await bench.offsets._list_once({T0: -1})
        assert (found, retry, bench.network.invalidated) == ({}, {T0}, 1)
        (said,) = caplog.records
        assert said.levelno == level
        assert said.message == f"ListOffsets of {T0} failed with {code.name} and will be retried"

    run(main)


def test_what_is_passed_over_and_what_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch)
        network = bench.network
        network.answers = {1: [KafkaConnectionError("cut"), listed(T0, code=ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)]}
        assert await bench.offsets._list_once({T0: -1}) == ({}, {T0})
        assert network.invalidated == 1
        assert await bench.offsets._list_once({T0: -1}) == ({T0: (-1, -1, -1)}, set())
        assert network.invalidated == 1
        network.leaders[T1] = LeaderAndEpoch(-1, -1)
        network.answers = {1: [listed(T0, 3)]}
        assert await bench.offsets._list_once({T0: -1, T1: -1}) == ({T0: (3, -1, 4)}, {T1})
        assert network.invalidated == 2

    run(main)


@pytest.mark.parametrize("error", [UnsupportedVersionError("old"), error_for(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)])
def test_a_question_that_no_retry_answers_is_an_error(monkeypatch: pytest.MonkeyPatch, error: KafkaError) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch)
        bench.network.answers = {1: [error, listed(T0, code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)]}
        with pytest.raises(type(error)):
            await bench.offsets.list_offsets({T0: -1}, 10_000)
        with pytest.raises(TopicAuthorizationFailedError, match="Not authorized to access topics: t"):
            await bench.offsets.list_offsets({T0: -1}, 10_000)
        bench.network.topics = {}
        bench.network.refresh_error = error
        with pytest.raises(type(error)):
            await bench.offsets.list_offsets({T0: -1}, 10_000)
        assert bench.network.refreshed == 1
        bench.network.refresh_error = KafkaConnectionError("cut")
        bench.network.answers = {1: [listed(T0, 3)]}
        assert await bench.offsets.list_offsets({T0: -1}, 10_000) == {T0: (3, -1, 4)}

    run(main)


@pytest.mark.parametrize("error", [None, KafkaConnectionError("cut"), NodeNotReadyError("not yet")])
def test_behind_a_request_that_waits_a_second_connection_is_tried(
    monkeypatch: pytest.MonkeyPatch, error: KafkaError | None
) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch, waits=True)
        bench.network.answers = {BESIDE + 1: [error or listed(T0, 3)], 1: [listed(T0, 4)]}
        found = await bench.offsets.list_offsets({T0: -1}, 10_000)
        assert found[T0].offset == (3 if error is None else 4)
        ways = [(node_id, version) for node_id, _, version in bench.network.sent]
        assert ways == [(BESIDE + 1, 1)] + [(1, 1)] * (error is not None)

    run(main)


def test_a_broker_may_be_number_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch)
        network = bench.network
        network.leaders = {T0: LeaderAndEpoch(0, 0), T1: LeaderAndEpoch(-1, 7)}
        assert [bench.offsets.leader_of(each) for each in (T0, T1)] == [(0, 0), (-1, 7)]
        network.answers = {0: [listed(T0, 0, timestamp=0)] * 2}
        assert await bench.offsets._list_once({T0: 0, T1: 5}) == ({T0: (0, 0, 4)}, {T1})
        bench.state().request_reset(EARLIEST)
        bench.state(T1).request_reset(EARLIEST)
        network.sent.clear()
        bench.offsets.wake()
        await bench.settle()
        assert [node_id for node_id, _, _ in network.sent] == [0]  # only about the one that has a leader
        assert (bench.state().state, bench.state().buffer.position) == (FetchState.FETCHING, 0)
        assert (bench.state(T1).state, bench.state(T1).retry_at) == (FetchState.AWAIT_RESET, 1030)

    run(main)


def test_one_request_has_all_partitions_of_a_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch)
        network, other = bench.network, TopicPartition("u", 3)
        network.leaders = dict.fromkeys((T0, T1, other), LeaderAndEpoch(1, 4))
        network.answers = {1: [ListOffsetsResponse()]}
        assert await bench.offsets._list_once({T0: 5, T1: -1, other: -5}) == ({}, set())
        ((_, request, version),) = network.sent
        asked = [
            (topic.name, each.partition_index, each.timestamp) for topic in request.topics for each in topic.partitions
        ]
        assert asked == [("t", 0, 5), ("t", 1, -1), ("u", 3, -5)]
        assert version == 9

    run(main)


def test_only_what_is_not_known_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch)
        network = bench.network
        pauses: list[float] = []
        pause = asyncio.sleep

        async def sleep(seconds: float) -> None:
            pauses.append(seconds)
            await pause(0)

        monkeypatch.setattr(asyncio, "sleep", sleep)
        network.answers = {1: [listed(T0, 7)], 2: [listed(T1, code=ErrorCode.NOT_LEADER_OR_FOLLOWER), listed(T1, 8)]}
        found = await bench.offsets.list_offsets({T0: -1, T1: -1}, 60_000)
        assert {partition: each.offset for partition, each in found.items()} == {T0: 7, T1: 8}
        assert [node_id for node_id, _, _ in network.sent] == [1, 2, 2]
        assert (network.refreshed, pauses) == (1, [2.0])
        network.topics = {}
        network.answers = {1: [listed(T0, 7)]}
        assert await bench.offsets.list_offsets({T0: -1}, 60_000) == {T0: (7, -1, 4)}
        assert network.refreshed == 2  # of a topic that is not known
        assert await bench.offsets.list_offsets({}, 60_000) == {}

    run(main)


def test_a_question_ends_at_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch)
        bench.network.leaders = dict.fromkeys((T1, T0), LeaderAndEpoch(-1, -1))
        with pytest.raises(KafkaTimeoutError, match="No offsets for t-0, t-1 within 1 ms"):
            await bench.offsets.list_offsets({T1: -1, T0: -1}, 1)
        assert bench.network.sent == []

    run(main)


# --- resets and validation ----------------------------------------------------------------------------------------


def test_a_reset_sets_the_position_that_the_leader_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch)
        bench.state().request_reset(LATEST)
        bench.state(T1).request_reset(EARLIEST)
        bench.network.answers = {1: [listed(T0, 9)], 2: [listed(T1, 2)]}
        bench.offsets.wake()
        assert bench.state().retry_at == bench.state(T1).retry_at == 1030  # not asked twice meanwhile
        bench.offsets.wake()
        await bench.settle()
        asked = [request.topics[0].partitions[0].timestamp for _, request, _ in bench.network.sent]
        assert asked == [-1, -2]
        for partition, offset in ((T0, 9), (T1, 2)):
            state = bench.state(partition)
            assert (state.state, state.buffer.position) == (FetchState.FETCHING, offset)
            assert state.leader == bench.network.leaders[partition]
        assert (bench.positions, bench.errors, bench.network.invalidated) == (1, [], 0)
        assert bench.offsets._timer is None

    run(main)


def test_a_reset_by_duration_takes_the_end_where_no_record_is_that_young(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch)
        bench.state().request_reset(OffsetReset.of("by_duration:PT1M"))
        bench.network.answers = {1: [listed(T0, -1), listed(T0, 9)]}
        bench.offsets.wake()
        await bench.settle()
        asked = [request.topics[0].partitions[0].timestamp for _, request, _ in bench.network.sent]
        assert asked == [1_700_000_500 - 60_000, -1]
        assert bench.state().buffer.position == 9

    run(main)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (listed(T0, code=ErrorCode.NOT_LEADER_OR_FOLLOWER), None),
        (KafkaConnectionError("cut"), None),
        (listed(T0, code=ErrorCode.TOPIC_AUTHORIZATION_FAILED), TopicAuthorizationFailedError),
        (UnsupportedVersionError("old"), UnsupportedVersionError),
    ],
)
def test_a_reset_that_fails_is_made_again(
    monkeypatch: pytest.MonkeyPatch, answer: Any, error: type[Exception] | None
) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch)
        bench.state().request_reset(LATEST)
        bench.network.answers = {1: [answer, listed(T0, 9)]}
        bench.offsets.wake()
        await bench.settle()
        assert [type(each) for each in bench.errors] == ([error] if error else [])
        assert (bench.state().state, bench.state().retry_at) == (FetchState.AWAIT_RESET, 1002)
        assert bench.network.invalidated
        bench.now_s += 2
        bench.offsets.wake()
        # After an error that the user has not seen there is no other attempt.
        assert len(bench.offsets._tasks) == (0 if error else 1)
        bench.offsets.resume()
        await bench.settle()
        assert bench.state().buffer.position == 9
        assert len(bench.network.sent) == 2

    run(main)


def test_a_reset_without_a_leader_waits_for_the_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch)
        leader = bench.network.leaders[T0]
        bench.network.leaders[T0] = LeaderAndEpoch(-1, -1)
        bench.network.topics = {}
        bench.state().request_reset(LATEST)
        bench.offsets.wake()
        assert (len(bench.offsets._tasks), bench.network.invalidated) == (0, 0)  # the topic comes with the metadata
        bench.network.topics = {"t": None}
        bench.network.version += 1
        bench.offsets.wake()
        assert (len(bench.offsets._tasks), bench.network.invalidated) == (0, 1)
        bench.network.leaders[T0] = leader
        bench.network.version += 1
        bench.network.answers = {1: [listed(T0, 9)]}
        bench.offsets.wake()
        # It is asked about; newer metadata does not ask again.
        bench.network.version += 1
        bench.offsets.wake()
        assert len(bench.offsets._tasks) == 1
        await bench.settle()
        assert bench.state().buffer.position == 9
        assert bench.network.invalidated == 1

    run(main)


def test_nothing_is_asked_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch)
        bench.state().request_reset(LATEST)
        bench.network.answers = {1: [listed(T0, 9)]}
        bench.offsets.wake()
        (task,) = bench.offsets._tasks
        timer = bench.offsets._timer
        assert timer is not None
        bench.offsets.close()
        await asyncio.wait({task})
        await asyncio.sleep(0)
        assert task.cancelled()
        assert timer.cancelled()
        bench.now_s += 100
        bench.offsets.wake()
        bench.offsets.resume()
        assert (bench.offsets._tasks, bench.positions, bench.errors) == (set(), 0, [])

    run(main)


def validating(bench: Bench) -> Any:
    """The first partition at offset 10 of epoch 3, of which another leader knows nothing yet."""
    state = bench.state()
    state.seek_unvalidated(10, 3, LeaderAndEpoch(7, 3))
    bench.offsets.wake()
    assert state.leader == (1, 4)
    assert (state.state, state.retry_at) == (FetchState.AWAIT_VALIDATION, 1030)
    return state


@pytest.mark.parametrize(
    "answer", [epoch_end(3, 10), UnsupportedVersionError("old")], ids=["it has the position", "it cannot be asked"]
)
def test_a_position_is_validated_by_the_leader(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch)
        bench.network.answers = {1: [answer]}
        state = validating(bench)
        await bench.settle()
        topic = OffsetForLeaderEpochRequest.Topic
        asked = topic.Partition(partition=0, current_leader_epoch=4, leader_epoch=3)
        request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic(topic="t", partitions=[asked])])
        assert bench.network.sent == [(1, request, 3)]
        assert (state.state, state.buffer.position, state.retry_at) == (FetchState.FETCHING, 10, 0)
        assert (bench.positions, bench.errors, bench.network.invalidated) == (1, [], 0)

    run(main)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (epoch_end(-1, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER), None),
        (OffsetForLeaderEpochResponse(), None),
        (KafkaConnectionError("cut"), None),
        (error_for(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), KafkaError),
        (epoch_end(-1, -1, ErrorCode.TOPIC_AUTHORIZATION_FAILED), TopicAuthorizationFailedError),
    ],
)
def test_a_validation_that_fails_is_made_again(
    monkeypatch: pytest.MonkeyPatch, answer: Any, error: type[Exception] | None
) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch)
        bench.network.answers = {1: [answer, epoch_end(3, 10)]}
        state = validating(bench)
        await bench.settle()
        assert (state.state, state.retry_at) == (FetchState.AWAIT_VALIDATION, 1002)
        assert bench.network.invalidated == 1
        assert len(bench.errors) == (error is not None)
        assert all(isinstance(each, error or KafkaError) for each in bench.errors)
        if error is TopicAuthorizationFailedError:
            assert "Not authorized to access topics: t" in str(bench.errors[0])
        bench.now_s += 2
        bench.offsets.resume()
        await bench.settle()
        assert state.state is FetchState.FETCHING

    run(main)


@pytest.mark.parametrize("known", [True, False])
def test_a_truncated_log_is_told_without_a_policy(monkeypatch: pytest.MonkeyPatch, known: bool) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch, NO_RESET)
        bench.network.answers = {1: [epoch_end(2, 6) if known else epoch_end(-1, -1)]}
        validating(bench)
        await bench.settle()
        (error,) = bench.errors
        assert isinstance(error, LogTruncationError)
        assert f"Truncated partitions detected: {T0} at offset 10" in str(error)
        assert error.divergent_offsets == ({T0: OffsetAndMetadata(6, "", 2)} if known else {})

    run(main)


def test_a_reset_by_duration_whose_end_is_not_known_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch)
        bench.state().request_reset(OffsetReset.of("by_duration:PT1M"))
        bench.network.answers = {1: [listed(T0, -1), listed(T0, code=ErrorCode.NOT_LEADER_OR_FOLLOWER)]}
        bench.offsets.wake()
        await bench.settle()
        assert len(bench.network.sent) == 2
        state = bench.state()
        assert (state.state, state.buffer.position, state.retry_at) == (FetchState.AWAIT_RESET, -1, 1002)
        assert bench.errors == []

    run(main)


@pytest.mark.parametrize(("due_s", "delay_s"), [(3.0, 3.0), (0.001, 0.001), (0.0, 0.001), (-5.0, 0.001)])
def test_the_next_attempt_is_made_in_time(monkeypatch: pytest.MonkeyPatch, due_s: float, delay_s: float) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch)
        timers: list[tuple[float, Any]] = []
        cancelled: list[int] = []

        def call_later(delay: float, call: Any) -> Any:
            timers.append((delay, call))
            return SimpleNamespace(cancel=lambda: cancelled.append(1))

        monkeypatch.setattr(asyncio.get_running_loop(), "call_later", call_later)
        first, second = bench.state(), bench.state(T1)
        reset, validation, fetching = FetchState.AWAIT_RESET, FetchState.AWAIT_VALIDATION, FetchState.FETCHING
        for entered, other, later_s in (
            (reset, validation, 1.0),
            (validation, reset, 1.0),
            (validation, fetching, -1.0),
        ):
            first.enter(entered)
            second.enter(other)
            first.retry_at, second.retry_at = due_s, due_s + later_s
            bench.offsets._arm(0.0)
            assert timers.pop() == (delay_s, bench.offsets.wake)
        assert len(cancelled) == 2
        first.enter(FetchState.INITIALIZING)
        bench.offsets._arm(0.0)
        assert (timers, len(cancelled), bench.offsets._timer) == ([], 3, None)

    run(main)


def test_leaders_are_compared_once_for_each_change_of_the_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch)
        state = bench.state()
        state.seek(5, -1, LeaderAndEpoch(1, 4))
        bench.offsets.wake()
        bench.network.leaders[T0] = LeaderAndEpoch(3, 9)
        bench.offsets.wake()
        assert state.leader == (1, 4)
        bench.network.version += 1
        bench.offsets.wake()
        assert state.leader == (3, 9)

    run(main)


def test_each_position_of_a_leader_has_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch, NO_RESET)
        bench.network.leaders[T1] = bench.network.leaders[T0]
        topic = OffsetForLeaderEpochResponse.Topic
        parts = [topic.Partition(partition=number, leader_epoch=3, end_offset=10) for number in (0, 7)]
        bench.network.answers = {1: [OffsetForLeaderEpochResponse(topics=[topic(topic="t", partitions=parts)])]}
        for partition in (T0, T1):
            bench.state(partition).seek_unvalidated(10, 3, LeaderAndEpoch(7, 3))
        bench.offsets.wake()
        bench.offsets.wake()  # they are asked about
        await bench.settle()
        ((_, request, _),) = bench.network.sent
        assert [each.partition for each in request.topics[0].partitions] == [0, 1]
        assert (bench.state().state, bench.state().retry_at) == (FetchState.FETCHING, 0)
        assert (bench.state(T1).state, bench.state(T1).retry_at) == (FetchState.AWAIT_VALIDATION, 1002)
        assert (bench.errors, bench.network.invalidated) == ([], 1)

    run(main)
