"""What a fetcher makes of the error of a partition or of a request, without a network."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from clients.consumer.fetched import batch, chunk
from waiting import run

from kafkapy._speedups.clients.consumer.record_iterator import FetchBuffer
from kafkapy.clients.cluster import BrokerNode
from kafkapy.clients.consumer import fetcher as module
from kafkapy.clients.consumer.fetch_session import FetchSession, WantedPartition
from kafkapy.clients.consumer.fetcher import STALE, FetchConfig, Fetcher, Flight
from kafkapy.clients.consumer.subscription import (
    EARLIEST,
    NO_RESET,
    FetchState,
    LeaderAndEpoch,
    OffsetReset,
    SubscriptionState,
)
from kafkapy.errors import (
    CorruptMessageError,
    ErrorCode,
    KafkaConnectionError,
    KafkaError,
    NodeNotReadyError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
    error_for,
)
from kafkapy.types import ZERO_UUID, IsolationLevel, TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
NODE, BESIDE = 1, 1001
WANTED = WantedPartition(ZERO_UUID, 10, 4, 100)


class Network:
    """The metadata and the connections: keeps what it is told."""

    def __init__(self) -> None:
        self.cluster = self
        self.invalidated = 0
        self.moves = True
        self.told: list[Any] = []
        self.unready: set[int] = set()
        self.known: Any = None

    def invalidate(self) -> None:
        self.invalidated += 1

    def update_leader(self, *told: Any) -> bool:
        self.told.append(told)
        return self.moves

    def partition(self, partition: TopicPartition) -> Any:
        return self.known

    def beside(self, node_id: int) -> int:
        return BESIDE

    def is_ready(self, node_id: int) -> bool:
        return node_id not in self.unready


class Bench:
    """A fetcher of two partitions at offset 10; a test sets the clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, reset: OffsetReset = EARLIEST) -> None:
        self.now_s = 1000.0
        clock = SimpleNamespace(monotonic=lambda: self.now_s, time_ns=lambda: 5_000_000)
        monkeypatch.setattr(module, "time", clock)
        self.network = Network()
        self.buffer = FetchBuffer(lambda: None, lambda: None)
        self.subscription = SubscriptionState(reset, self.buffer.partition)
        self.subscription.assign_by_user([T0, T1])
        for partition in (T0, T1):
            self.subscription.state_of(partition).seek(10, 3, LeaderAndEpoch(NODE, 4))
        self.state: Any = self.subscription.state_of(T0)
        self.errors: list[Exception] = []
        self.resets = 0
        config = FetchConfig(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=1000,
            max_partition_bytes=100,
            isolation=IsolationLevel.READ_UNCOMMITTED,
            check_crcs=True,
            rack="",
            sessions=True,
            request_timeout_ms=30_000,
            retry_backoff_s=2.0,
            metadata_max_age_s=300.0,
            tuple_headers=False,
            key_deserializer=None,
            value_deserializer=None,
        )
        metrics: Any = SimpleNamespace(received=lambda size: None)
        network: Any = self.network
        self.fetcher = Fetcher(
            network,
            self.subscription,
            self.buffer,
            config,
            metrics,
            on_error=self.errors.append,
            on_reset=self._reset,
        )

    def _reset(self) -> None:
        self.resets += 1

    def take(self, code: ErrorCode, *, leader: tuple[int, int] | None = None) -> None:
        """The broker answers with this code for the first partition, and perhaps says who leads."""
        answer: Any = SimpleNamespace(error_code=int(code), current_leader=leader)
        response: Any = SimpleNamespace(node_endpoints=[(8, "h", 98, None), (9, "h", 99, "r")])
        self.fetcher._take_partition(T0, 10, answer, response)

    def order(self) -> list[int]:
        return [state.topic_partition.partition for state in self.subscription.all_states]


@pytest.mark.parametrize("code", sorted(STALE))
def test_an_error_that_newer_metadata_mends(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, code: ErrorCode
) -> None:
    caplog.set_level(logging.DEBUG, module.logger.name)
    bench = Bench(monkeypatch)
    bench.state.prefer_replica(5, 1e9)
    bench.take(code)
    assert (bench.state.retry_at, bench.network.invalidated, bench.state.preferred_read_replica) == (1002, 1, -1)
    assert (bench.errors, bench.resets, bench.state.failed, bench.order()) == ([], 0, False, [1, 0])
    (said,) = caplog.records
    assert (said.levelno, said.message) == (
        logging.DEBUG,
        f"Fetch of {T0} at offset 10 failed: {code.name}",
    )


@pytest.mark.parametrize("moves", [True, False])
@pytest.mark.parametrize("leader", [8, 9, 10])
def test_a_broker_may_say_who_leads_now(monkeypatch: pytest.MonkeyPatch, leader: int, moves: bool) -> None:
    bench = Bench(monkeypatch)
    bench.network.moves = moves
    bench.take(ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=(leader, 5))
    node = {8: BrokerNode(8, "h", 98, None), 9: BrokerNode(9, "h", 99, "r")}.get(leader)
    assert bench.network.told == [(T0, leader, 5, node)]
    assert (bench.state.retry_at, bench.network.invalidated) == ((0, 0) if moves else (1002, 1))


@pytest.mark.parametrize(
    ("code", "level"),
    [(ErrorCode.UNKNOWN_LEADER_EPOCH, logging.DEBUG), (ErrorCode.UNKNOWN_SERVER_ERROR, logging.WARNING)],
)
def test_an_error_that_passes_by_itself(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, code: ErrorCode, level: int
) -> None:
    caplog.set_level(logging.DEBUG, module.logger.name)
    bench = Bench(monkeypatch)
    bench.take(code)
    assert (bench.state.retry_at, bench.network.invalidated, bench.errors) == (1002, 0, [])
    (said,) = caplog.records
    assert (said.levelno, said.message) == (level, f"Fetch of {T0} at offset 10 failed: {code.name}")


@pytest.mark.parametrize(
    ("code", "error", "text"),
    [
        (ErrorCode.OFFSET_OUT_OF_RANGE, OffsetOutOfRangeError, "Fetch position 10 is out of range for partition t-0"),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, TopicAuthorizationFailedError, "Not authorized to access topics: t"),
        (
            ErrorCode.CORRUPT_MESSAGE,
            CorruptMessageError,
            "Corrupt message when fetching offset 10 of partition t-0",
        ),
        (
            ErrorCode.INVALID_REQUEST,
            type(error_for(ErrorCode.INVALID_REQUEST)),
            f"Fetch of t-0 at offset 10 failed: {ErrorCode.INVALID_REQUEST.message}",
        ),
    ],
)
def test_an_error_for_the_user_waits_for_the_records_before_it(
    monkeypatch: pytest.MonkeyPatch, code: ErrorCode, error: type[KafkaError], text: str
) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch, NO_RESET)
        bench.take(code)
        (raised,) = bench.errors
        assert type(raised) is error
        assert text in str(raised).replace(repr(T0), "t-0").replace(str(T0), "t-0")
        assert (bench.state.failed, bench.state.fetch_when_drained, bench.state.retry_at) == (True, False, 0)
        assert (bench.network.invalidated, bench.resets) == (0, 0)
        bench.fetcher.resume()
        assert not bench.state.failed
        bench = Bench(monkeypatch, NO_RESET)
        bench.state.buffer.seek(8, 3)
        bench.state.buffer.add(chunk(batch(8, 2, 3), start=8))
        bench.take(code)
        assert (bench.errors, bench.state.failed, bench.state.fetch_when_drained) == ([], False, True)

    run(main)


def test_out_of_range_begins_where_the_policy_says(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    bench.state.prefer_replica(5, 1e9)
    bench.take(ErrorCode.OFFSET_OUT_OF_RANGE)  # the follower's log may be another: the leader is asked
    assert (bench.state.state, bench.state.preferred_read_replica, bench.resets) == (FetchState.FETCHING, -1, 0)
    bench.take(ErrorCode.OFFSET_OUT_OF_RANGE)
    assert (bench.state.state, bench.state.reset, bench.resets, bench.errors) == (
        FetchState.AWAIT_RESET,
        EARLIEST,
        1,
        [],
    )


def test_an_answer_about_another_position_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    bench.state.seek(11)
    bench.take(ErrorCode.INVALID_REQUEST)
    bench.state.seek(10)
    bench.state.enter(FetchState.AWAIT_VALIDATION)
    bench.take(ErrorCode.INVALID_REQUEST)
    bench.subscription.assign_by_user([T1])
    bench.take(ErrorCode.INVALID_REQUEST)
    assert bench.errors == []


@pytest.mark.parametrize(
    ("error", "level"),
    [
        (KafkaConnectionError("cut"), logging.INFO),
        (NodeNotReadyError("not yet"), logging.DEBUG),
        (error_for(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), None),
    ],
)
def test_a_request_that_fails_is_held_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: KafkaError, level: int | None
) -> None:
    caplog.set_level(logging.DEBUG, module.logger.name)
    bench = Bench(monkeypatch)
    session = FetchSession(NODE)
    session.build({T0: WANTED})
    bench.state.prefer_replica(5, 1e9)
    other: Any = bench.subscription.state_of(T1)
    other.prefer_replica(5, 1e9)
    bench.fetcher._failed(NODE, session, error)
    assert bench.fetcher._not_before == {NODE: 1002}
    assert (bench.state.preferred_read_replica, other.preferred_read_replica) == (-1, 5)
    assert bench.errors == ([error] if level is None else [])
    assert bench.network.invalidated == (0 if level is None else 1)
    said = [(each.levelno, each.message) for each in caplog.records]
    assert said == ([] if level is None else [(level, f"Fetch from node {NODE} failed: {error}")])


@pytest.mark.parametrize(
    ("code", "throttle_ms", "not_before", "invalidated"),
    [
        (ErrorCode.UNKNOWN_SERVER_ERROR, 0, 1002, 0),
        (ErrorCode.KAFKA_STORAGE_ERROR, 0, 1002, 0),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 0, None, 1),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0, None, 0),
        (ErrorCode.UNKNOWN_SERVER_ERROR, 500, 1000.5, 0),
        (ErrorCode.NONE, 500, 1000.5, 0),
        (ErrorCode.NONE, 0, None, 0),
    ],
)
def test_an_answer_may_hold_the_next_request_back(
    monkeypatch: pytest.MonkeyPatch, code: ErrorCode, throttle_ms: int, not_before: float | None, invalidated: int
) -> None:
    bench = Bench(monkeypatch)
    session = FetchSession(NODE)
    plan = session.build({})
    response: Any = SimpleNamespace(error_code=int(code), session_id=3, throttle_ms=throttle_ms, partitions=list)
    bench.fetcher._take(NODE, session, plan, response)
    assert bench.fetcher._not_before.get(NODE) == not_before
    assert bench.network.invalidated == invalidated


@pytest.mark.parametrize(
    ("room", "unready", "busy", "held_s", "asks"),
    [
        (1, (), False, 0, True),
        (1000, (), False, 0, True),
        (0, (), False, 0, False),
        (-5, (), False, 0, False),
        (1000, (NODE,), False, 0, False),
        (1000, (BESIDE,), False, 0, True),  # it is connected on demand
        (1000, (), True, 0, False),
        (1000, (), False, 0.5, False),
        (1000, (), False, -0.5, True),
    ],
)
def test_a_second_connection_is_used_for_what_may_still_be_buffered(
    monkeypatch: pytest.MonkeyPatch, room: int, unready: tuple[int, ...], busy: bool, held_s: float, asks: bool
) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch)
        fetcher = bench.fetcher
        asked: list[Any] = []

        async def fetch(*what: Any) -> None:
            asked.append(what)

        monkeypatch.setattr(fetcher, "_fetch_beside", fetch)
        bench.network.unready = set(unready)
        fetcher._not_before[BESIDE] = bench.now_s + held_s
        flight = fetcher._flights[NODE] = Flight({}, {})
        if busy:
            fetcher._tasks[BESIDE] = asyncio.ensure_future(asyncio.sleep(0))
        fetcher._ask_beside(NODE, {T0: WANTED}, room, bench.now_s)
        await asyncio.wait({*fetcher._tasks.values(), asyncio.ensure_future(asyncio.sleep(0))})
        assert asked == ([(BESIDE, flight, {T0: WANTED}, room)] if asks else [])
        assert flight.beside == ({T0: WANTED} if asks else {})

    run(main)


@pytest.mark.parametrize(
    ("replicas", "offline", "expires", "node", "kept"),
    [
        ((1, 5), (), 2000, 5, True),
        ((1, 5), (5,), 2000, NODE, False),
        ((1, 6), (), 2000, NODE, False),
        (None, (), 2000, NODE, False),
        ((1, 5), (), 1000, NODE, None),
    ],
)
def test_a_follower_is_fetched_from_while_it_can_be(
    monkeypatch: pytest.MonkeyPatch,
    replicas: tuple[int, ...] | None,
    offline: tuple[int, ...],
    expires: float,
    node: int,
    kept: bool | None,
) -> None:
    bench = Bench(monkeypatch)
    bench.state.prefer_replica(5, expires)
    if replicas is not None:
        bench.network.known = SimpleNamespace(replicas=replicas, offline_replicas=offline)
    assert bench.fetcher._node_for(bench.state, bench.now_s) == node
    assert bench.state.preferred_read_replica == (5 if kept else -1)
    assert bench.network.invalidated == (1 if kept is False else 0)
