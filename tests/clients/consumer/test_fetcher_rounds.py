"""The fetcher round by round: who is asked for what, what an answer leaves behind, and the states of a partition."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from clients.consumer.fetched import batch, chunk
from clients.consumer.test_fetcher_alone import BESIDE, NODE, T0, T1, WANTED, Bench, run

from kafkapy.clients.consumer import fetcher as module
from kafkapy.clients.consumer.fetch_session import FetchPlan, FetchSession, WantedPartition
from kafkapy.clients.consumer.fetcher import Flight
from kafkapy.clients.consumer.subscription import EARLIEST, NO_LEADER, FetchState, LeaderAndEpoch
from kafkapy.errors import KafkaConnectionError
from kafkapy.types import ZERO_UUID, TopicPartition

ID = UUID(int=5)
T2 = TopicPartition("u", 0)


class Rounds(Bench):
    """A fetcher whose requests are kept, and are not sent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch)
        self.asked: list[tuple[int, list[TopicPartition]]] = []
        self.aside: list[tuple[int, list[TopicPartition], int]] = []
        self.topic_ids: dict[str, UUID] = {}
        self.network.topic_id = self.topic_ids.get  # type: ignore[attr-defined]
        monkeypatch.setattr(self.fetcher, "_fetch", self._fetch)
        monkeypatch.setattr(self.fetcher, "_ask_beside", self._beside)

    async def _fetch(self, node_id: int, wanted: dict[TopicPartition, Any]) -> None:
        self.asked.append((node_id, list(wanted)))

    def _beside(self, node_id: int, wanted: dict[TopicPartition, Any], room: int, now: float) -> None:
        assert now == self.now_s
        self.aside.append((node_id, list(wanted), room))

    async def round(self, *, keep: bool = False) -> list[tuple[int, list[TopicPartition]]]:
        """What one round asks for; its requests come to their end unless `keep`."""
        self.asked.clear()
        self.aside.clear()
        self.fetcher._round()
        await asyncio.sleep(0)
        if not keep:
            self.fetcher._flights.clear()
        self.fetcher._tasks.clear()
        return list(self.asked)

    def states(self) -> list[Any]:
        return [self.subscription.state_of(partition) for partition in (T0, T1)]


def test_all_partitions_of_a_node_are_asked_for_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        bench = Rounds(monkeypatch)
        first, second = bench.states()
        assert await bench.round() == [(NODE, [T0, T1])]
        assert not bench.buffer.telling
        second.leader = LeaderAndEpoch(0, 4)
        assert await bench.round() == [(NODE, [T0]), (0, [T1])]
        second.leader = LeaderAndEpoch(-1, -1)
        assert await bench.round() == [(NODE, [T0])]
        assert bench.network.invalidated == 1
        second.leader = LeaderAndEpoch(NODE, 4)
        first.paused = True
        assert await bench.round() == [(NODE, [T1])]
        first.paused, first.failed = False, True
        assert await bench.round() == [(NODE, [T1])]
        first.failed = False
        first.prefer_replica(6, bench.now_s + 1)
        bench.network.known = SimpleNamespace(replicas=(1, 6), offline_replicas=())
        assert await bench.round() == [(6, [T0]), (NODE, [T1])]
        bench.fetcher._closed = True
        assert await bench.round() == []

    run(main)


def test_a_wake_is_one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        bench = Rounds(monkeypatch)
        for _ in range(3):
            bench.fetcher.wake()
        assert bench.fetcher._scheduled
        for _ in range(3):
            await asyncio.sleep(0)
        assert len(bench.asked) == 1
        assert not bench.fetcher._scheduled
        bench.fetcher._closed = True
        bench.fetcher.wake()
        assert not bench.fetcher._scheduled

    run(main)


def test_what_failed_waits_for_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        bench = Rounds(monkeypatch)
        woken: list[tuple[float, float]] = []
        monkeypatch.setattr(bench.fetcher, "_wake_at", lambda *given: woken.append(given))
        first, second = bench.states()
        first.retry_at, second.retry_at = bench.now_s + 2, bench.now_s + 1
        assert await bench.round() == []
        assert woken == [(bench.now_s + 1, bench.now_s)]
        second.retry_at = bench.now_s
        assert await bench.round() == [(NODE, [T1])]
        assert woken[-1] == (bench.now_s + 2, bench.now_s)
        first.retry_at = 0.0
        bench.fetcher._not_before[NODE] = bench.now_s + 3
        assert await bench.round() == []
        assert woken[-1] == (bench.now_s + 3, bench.now_s)
        bench.fetcher._not_before[NODE] = bench.now_s
        assert await bench.round() == [(NODE, [T0, T1])]
        assert woken[-1] == (module.NEVER, bench.now_s)

    run(main)


def test_a_timer_wakes_at_the_earliest_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        bench = Rounds(monkeypatch)
        loop = asyncio.get_running_loop()
        bench.fetcher._wake_at(1005.0, 1000.0)
        first = bench.fetcher._timer
        assert first is not None
        assert 4 < first.when() - loop.time() <= 5
        bench.fetcher._wake_at(999.0, 1000.0)
        second = bench.fetcher._timer
        assert second is not None
        assert first.cancelled()
        assert second.when() - loop.time() <= 0.001
        bench.fetcher._wake_at(module.NEVER, 1000.0)
        assert (second.cancelled(), bench.fetcher._timer) == (True, None)

    run(main)


def test_two_chunks_of_a_partition_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        bench = Rounds(monkeypatch)
        bench.network.topic_id = lambda topic: None  # type: ignore[attr-defined]
        first, second = bench.states()
        first.buffer.add(chunk(batch(10, 1), start=10))
        assert await bench.round() == [(NODE, [T0, T1])]
        assert not bench.buffer.telling
        first.fetch_when_drained = True
        assert await bench.round() == [(NODE, [T1])]
        assert bench.buffer.telling
        first.fetch_when_drained = False
        first.buffer.add(chunk(batch(11, 1), start=11))
        # The other partitions of that node wait until the user has read.
        assert await bench.round() == []
        assert bench.buffer.telling
        bench.fetcher.awaited = [T1]
        assert await bench.round() == [(NODE, [T1])]
        second.leader = LeaderAndEpoch(3, 4)
        bench.fetcher.awaited = ()
        assert await bench.round() == [(3, [T1])]
        assert bench.buffer.telling

    run(main)


@pytest.mark.parametrize(("more", "asks"), [(1, True), (0, False), (-1, False)])
def test_what_is_read_ahead_of_a_node_is_bounded(monkeypatch: pytest.MonkeyPatch, more: int, asks: bool) -> None:
    async def main() -> None:
        bench = Rounds(monkeypatch)
        first, _ = bench.states()
        first.buffer.add(chunk(batch(10, 1), start=10))
        most = first.buffer.bytes + more
        bench.fetcher._config = SimpleNamespace(max_bytes=most, max_partition_bytes=100)  # type: ignore[assignment]
        assert await bench.round() == ([(NODE, [T0, T1])] if asks else [])
        assert bench.buffer.telling is not asks
        bench.fetcher.awaited = [T1]
        assert await bench.round() == [(NODE, [T0, T1] if asks else [T1])]

    run(main)


def test_what_a_running_request_does_not_cover_is_asked_for_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        bench = Rounds(monkeypatch)
        first, second = bench.states()
        await bench.round(keep=True)
        flight = bench.fetcher._flights[NODE]
        assert (await bench.round(keep=True), bench.aside) == ([], [])
        assert (flight.covers(T0, 10), flight.covers(T0, 11), flight.covers(T2, 10)) == (True, False, False)
        second.seek(20, 3, LeaderAndEpoch(NODE, 4))
        assert (await bench.round(keep=True), bench.aside) == ([], [(NODE, [T1], 1000)])
        flight.beside[T1] = WANTED._replace(offset=20)
        assert (flight.covers(T1, 20), flight.covers(T1, 10), flight.covers(T1, 11)) == (True, True, False)
        assert (await bench.round(keep=True), bench.aside) == ([], [])
        second.seek(30, 3, LeaderAndEpoch(NODE, 4))
        first.buffer.add(chunk(batch(10, 1), start=10))
        assert (await bench.round(keep=True), bench.aside) == ([], [(NODE, [T1], 1000 - first.buffer.bytes)])
        assert bench.fetcher.waits(NODE)
        assert not bench.fetcher.waits(7)

    run(main)


def test_an_unchanged_request_is_the_same_object(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Rounds(monkeypatch)
    first, second = bench.states()
    wanted = bench.fetcher._wanted(first, {})
    assert wanted == WantedPartition(ZERO_UUID, 10, 4, 100)
    assert bench.fetcher._wanted(first, {}) is wanted
    known: dict[str, UUID] = {}
    bench.topic_ids["t"] = ID
    assert bench.fetcher._wanted(first, known) == WantedPartition(ID, 10, 4, 100)
    bench.topic_ids.clear()
    assert bench.fetcher._wanted(second, known) == WantedPartition(ID, 10, 4, 100)
    first.leader = LeaderAndEpoch(NODE, 5)
    assert bench.fetcher._wanted(first, known).leader_epoch == 5
    first.buffer.add(chunk(batch(10, 2), start=10))
    assert bench.fetcher._wanted(first, known).offset == 12


# --- requests -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [12, 13])
def test_a_request_groups_what_it_says_by_topic(monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    bench = Bench(monkeypatch)
    other = UUID(int=6)
    send = {T0: WantedPartition(ID, 10, 4, 100), T1: WantedPartition(ID, 11, -1, 90), T2: WANTED}
    plan = FetchPlan(7, 3, send, [(T1, ID), (T0, ID), (T2, other)], [(T0, other)], send, True)
    request = bench.fetcher._request(plan, version, 250, 900)
    assert (request.replica_id, request.max_wait_ms, request.min_bytes, request.max_bytes) == (-1, 250, 1, 900)
    assert (request.isolation_level, request.session_id, request.session_epoch, request.rack_id) == (0, 7, 3, "")
    assert [
        (
            topic.topic,
            topic.topic_id,
            [
                (each.partition, each.fetch_offset, each.current_leader_epoch, each.partition_max_bytes)
                for each in topic.partitions
            ],
        )
        for topic in request.topics
    ] == [("t", ID, [(0, 10, 4, 100), (1, 11, -1, 90)]), ("u", ZERO_UUID, [(0, 10, 4, 100)])]
    forgotten = [(each.topic, each.topic_id, each.partitions) for each in request.forgotten_topics_data]
    assert forgotten == [("t", ID, [1, 0]), ("u", other, [0]), *([("t", other, [0])] if version == 13 else [])]


@pytest.mark.parametrize(("node_version", "with_ids", "version"), [(18, True, 18), (18, False, 12), (7, False, 7)])
@pytest.mark.parametrize("ready", [True, False])
def test_a_request_is_sent_in_the_version_that_fits(
    monkeypatch: pytest.MonkeyPatch, node_version: int, with_ids: bool, version: int, ready: bool
) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch)
        network: Any = bench.network
        network.client_id = "me"
        network.unready = set() if ready else {NODE}
        said: list[Any] = []

        async def become_ready(node_id: int) -> None:
            said.append(("ready", node_id))

        async def negotiate(*given: int) -> int:
            said.append(("version", *given))
            return node_version

        async def submit(node: int, api_key: int, used: int, frame: Any, response: Any, timeout_ms: int) -> None:
            said.append(("submit", node, api_key, used, timeout_ms))
            bench.now_s += 3

        network.ready, network.version, network.submit = become_ready, negotiate, submit
        network.throttled = lambda *given: said.append(("throttled", *given))
        fetched: list[tuple[float, int]] = []
        bench.fetcher._metrics = SimpleNamespace(fetched=lambda *given: fetched.append(given))  # type: ignore[assignment]
        session = FetchSession(NODE)
        wanted = {T0: WantedPartition(ID if with_ids else ZERO_UUID, 10, 4, 100)}
        _, plan = await bench.fetcher._send(NODE, session, wanted, 250, 900)
        assert plan.with_topic_ids is with_ids
        assert said == [
            *([] if ready else [("ready", NODE)]),
            ("version", NODE, 1, 4, 18),
            ("submit", NODE, 1, version, 30_000),
            ("throttled", NODE, 1, version, 0),
        ]
        assert fetched == [(3.0, 0)]

    run(main)


def test_the_second_connection_forgets_what_has_moved_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        for outcome in ("answer", "error"):
            bench = Bench(monkeypatch)
            fetcher = bench.fetcher
            gone = TopicPartition("gone", 0)
            wanted = {T0: WANTED, T1: WANTED, gone: WANTED}
            flight = Flight({}, dict(wanted))
            fetcher._tasks[BESIDE] = asyncio.ensure_future(asyncio.sleep(0))
            sent: list[Any] = []

            async def send(*given: Any, sent: list[Any] = sent, outcome: str = outcome) -> Any:
                sent.append(given)
                if outcome == "error":
                    raise KafkaConnectionError("cut")
                return "response", "plan"

            taken: list[Any] = []
            monkeypatch.setattr(fetcher, "_send", send)
            monkeypatch.setattr(fetcher, "_take", lambda *given, taken=taken: taken.append(given))
            bench.subscription.state_of(T1).seek(11, 3, LeaderAndEpoch(NODE, 4))
            await fetcher._fetch_beside(BESIDE, flight, wanted, 70)
            ((place, session, asked, max_wait_ms, max_bytes),) = sent
            assert (place, asked, max_wait_ms, max_bytes) == (BESIDE, wanted, 0, 70)
            assert (session._enabled, fetcher._tasks, fetcher._scheduled) == (False, {}, True)
            if outcome == "answer":
                assert taken == [(BESIDE, session, "plan", "response")]
                assert set(flight.beside) == {T0}
                assert BESIDE not in fetcher._not_before
            else:
                assert (taken, set(flight.beside)) == ([], set(wanted))
                assert fetcher._not_before[BESIDE] == bench.now_s + 2

    run(main)


def test_the_end_closes_sessions_of_brokers_that_can_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch)
        fetcher, network = bench.fetcher, bench.network
        sent: list[tuple[int, int, int, int, int]] = []

        async def send(node_id: int, request: Any, *, timeout_ms: int) -> None:
            sent.append((node_id, request.session_id, request.session_epoch, request.max_wait_ms, timeout_ms))

        network.send = send  # type: ignore[attr-defined]
        network.in_flight = lambda node_id: node_id == 3  # type: ignore[attr-defined]
        network.unready = {2}
        for node_id in (NODE, 2, 3, 4):
            session = fetcher._sessions[node_id] = FetchSession(node_id)
            if node_id != 4:
                session._id = 50 + node_id
        running = fetcher._tasks[NODE] = asyncio.ensure_future(asyncio.Event().wait())  # type: ignore[assignment]
        fetcher._wake_at(1005.0, 1000.0)
        timer = fetcher._timer
        await fetcher.close()
        assert sent == [(NODE, 51, -1, 0, 30_000)]
        assert (fetcher._closed, running.cancelled()) == (True, True)
        assert timer is not None
        assert (timer.cancelled(), fetcher._timer) == (True, None)

    run(main)


# --- answers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [-1, 0, 7])
def test_an_answer_tells_of_the_log(monkeypatch: pytest.MonkeyPatch, known: int) -> None:
    bench = Bench(monkeypatch)
    state = bench.state
    received: list[int] = []
    bench.fetcher._metrics = SimpleNamespace(received=received.append)  # type: ignore[assignment]
    state.high_watermark, state.last_stable_offset, state.log_start_offset = 1, 2, 3
    empty = chunk(b"", high_watermark=known, last_stable_offset=known, log_start_offset=known)
    state.fetch_when_drained = True
    bench.fetcher._take_partition(T0, 10, empty, SimpleNamespace())  # type: ignore[arg-type]
    told = (state.high_watermark, state.last_stable_offset, state.log_start_offset)
    assert told == ((1, 2, 3) if known < 0 else (known,) * 3)
    assert (state.fetched_at_ms, state.fetch_when_drained, state.buffer.chunks) == (5, False, 0)
    assert (bench.order(), received, state.preferred_read_replica) == ([0, 1], [], -1)
    records = chunk(batch(10, 2), preferred_read_replica=known)
    bench.fetcher._take_partition(T0, 10, records, SimpleNamespace())  # type: ignore[arg-type]
    assert (state.buffer.chunks, state.buffer.end_offset, state.fetch_when_drained) == (1, 12, False)
    assert (bench.order(), received) == ([1, 0], [records.bytes])
    assert state.preferred_read_replica == known
    if known >= 0:
        assert state.expire_replica_at == bench.now_s + 300


@pytest.mark.parametrize(("base", "drained"), [(8, True), (9, False), (10, False)])
def test_records_that_do_not_reach_the_position_end_the_fetching(
    monkeypatch: pytest.MonkeyPatch, base: int, drained: bool
) -> None:
    bench = Bench(monkeypatch)
    bench.fetcher._take_partition(T0, 10, chunk(batch(base, 2)), SimpleNamespace())  # type: ignore[arg-type]
    assert bench.state.fetch_when_drained is drained


# --- the states of a partition ------------------------------------------------------------------------------------


def test_a_partition_begins_without_a_position(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    bench.subscription.assign_by_user([T2])
    state = bench.subscription.state_of(T2)
    assert (state.state, state.leader, state.reset, state.wanted) == (FetchState.INITIALIZING, NO_LEADER, None, None)
    assert (state.high_watermark, state.last_stable_offset, state.log_start_offset, state.fetched_at_ms) == (None,) * 4
    assert (state.retry_at, state.preferred_read_replica, state.expire_replica_at) == (0.0, -1, 0.0)
    assert (state.fetch_when_drained, state.failed, state.fetchable, state.paused) == (False,) * 4
    assert (state.pending_revocation, state.pending_assigned, state.subscribed) == (False, False, True)
    assert (state.has_valid_position, state.buffer.readable) == (False, False)


@pytest.mark.parametrize("way", ["paused", "pending_revocation", "pending_assigned", "subscribed"])
def test_what_keeps_a_partition_from_being_read(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    state = Bench(monkeypatch).state
    usual = way == "subscribed"
    assert (state.fetchable, state.buffer.readable, getattr(state, way)) == (True, True, usual)
    setattr(state, way, not usual)
    assert (state.fetchable, state.buffer.readable, getattr(state, way)) == (False, False, not usual)
    setattr(state, way, usual)
    assert (state.fetchable, state.buffer.readable) == (True, True)
    state.enter(FetchState.AWAIT_VALIDATION)
    assert (state.fetchable, state.has_valid_position) == (False, False)


@pytest.mark.parametrize(
    ("epoch", "leader_epoch", "state"),
    [
        (-1, 0, FetchState.FETCHING),
        (0, -1, FetchState.FETCHING),
        (0, 0, FetchState.AWAIT_VALIDATION),
        (3, 4, FetchState.AWAIT_VALIDATION),
    ],
)
def test_a_position_is_validated_if_both_know_epochs(
    monkeypatch: pytest.MonkeyPatch, epoch: int, leader_epoch: int, state: FetchState
) -> None:
    of = Bench(monkeypatch).state
    of.retry_at, of.failed, of.fetch_when_drained, of.reset = 5.0, True, True, EARLIEST
    of.seek_unvalidated(7, epoch, LeaderAndEpoch(2, leader_epoch))
    assert (of.state, of.buffer.position, of.leader) == (state, 7, LeaderAndEpoch(2, leader_epoch))
    assert (of.retry_at, of.failed, of.fetch_when_drained, of.reset) == (0.0, False, False, None)
    of.retry_at = 5.0
    of.complete_validation()
    assert of.state is FetchState.FETCHING
    assert of.retry_at == (0.0 if state is FetchState.AWAIT_VALIDATION else 5.0)
    of.seek_unvalidated(7, epoch, LeaderAndEpoch(2, -1))
    of.prefer_replica(5, 9.0)
    of.retry_at = 5.0
    assert of.leader_changed(LeaderAndEpoch(2, leader_epoch)) is (state is FetchState.AWAIT_VALIDATION)
    changed = leader_epoch != -1
    assert (of.preferred_read_replica, of.retry_at) == ((-1, 0.0) if changed else (5, 5.0))
    assert not of.leader_changed(LeaderAndEpoch(-1, 9))
    of.request_reset(EARLIEST)
    assert (of.state, of.leader, of.reset, of.buffer.position) == (FetchState.AWAIT_RESET, NO_LEADER, EARLIEST, -1)
    assert not of.leader_changed(LeaderAndEpoch(0, 9))
    assert of.leader == NO_LEADER
    of.complete_validation()
    assert of.state is FetchState.AWAIT_RESET


def test_node_zero_may_lead(monkeypatch: pytest.MonkeyPatch) -> None:
    state = Bench(monkeypatch).state
    assert state.leader_changed(LeaderAndEpoch(0, 0))
    assert state.leader == LeaderAndEpoch(0, 0)


def test_a_replica_is_preferred_until_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    state = Bench(monkeypatch).state
    for node in (0, 5):
        state.prefer_replica(node, 10.0)
        state.prefer_replica(node, 20.0)  # the first time counts
        assert (state.read_replica(9.9), state.read_replica(10.0), state.read_replica(5.0)) == (node, -1, -1)
    state.prefer_replica(5, 10.0)
    assert (state.clear_replica(), state.clear_replica()) == (5, -1)


@pytest.mark.parametrize(
    ("position", "high", "stable", "lag", "committed"),
    [
        (7, 10, 8, 3, 1),
        (7, 7, 7, 0, 0),
        (7, 6, 5, 0, 0),
        (0, 10, 8, 10, 8),
        (7, None, 8, None, 1),
        (7, 10, None, 3, None),
    ],
)
def test_the_lag_is_up_to_what_may_be_read(
    monkeypatch: pytest.MonkeyPatch,
    position: int,
    high: int | None,
    stable: int | None,
    lag: int | None,
    committed: int | None,
) -> None:
    state = Bench(monkeypatch).state
    state.seek(position)
    state.high_watermark, state.last_stable_offset = high, stable
    assert (state.lag(False), state.lag(True)) == (lag, committed)
    state.request_reset(EARLIEST)
    assert (state.lag(False), state.lag(True)) == (None, None)
