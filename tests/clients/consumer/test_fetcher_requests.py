"""One request of the fetcher: what it covers, what is left when it ends, and whose its answer is."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from clients.consumer.test_fetcher_alone import NODE, T0, T1, WANTED, Bench, run

from kafkapy.clients.consumer.fetch_session import FetchSession, WantedPartition
from kafkapy.clients.consumer.fetcher import FULL_CHUNKS, MAX_VERSION, MIN_VERSION, Flight
from kafkapy.errors import ErrorCode, KafkaConnectionError, error_for
from kafkapy.types import ZERO_UUID

ID = UUID(int=9)


def at(offset: int) -> WantedPartition:
    return WantedPartition(ZERO_UUID, offset, 4, 100)


def test_the_limits_of_fetching() -> None:
    assert (FULL_CHUNKS, MIN_VERSION, MAX_VERSION) == (2, 4, 18)


@pytest.mark.parametrize(
    ("wanted", "beside", "covered"),
    [
        ({}, {}, False),
        ({T0: at(5)}, {}, True),
        ({T0: at(4)}, {}, False),
        ({T0: at(4)}, {T0: at(5)}, True),
        ({T0: at(4)}, {T0: at(6)}, False),
        ({}, {T0: at(5)}, True),
        ({T1: at(5)}, {T1: at(5)}, False),
        ({T0: at(5)}, {T0: at(6)}, True),
    ],
)
def test_a_flight_covers_the_offsets_that_are_asked_for(wanted: Any, beside: Any, covered: bool) -> None:
    assert Flight(wanted, beside).covers(T0, 5) is covered


@pytest.mark.parametrize(
    "error", [None, KafkaConnectionError("cut"), error_for(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)]
)
def test_a_request_that_ends_makes_room_for_the_next(monkeypatch: pytest.MonkeyPatch, error: Exception | None) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch)
        fetcher = bench.fetcher
        calls: list[Any] = []

        async def send(*given: Any) -> Any:
            calls.append(given)
            if error is not None:
                raise error
            return "response", "plan"

        monkeypatch.setattr(fetcher, "_send", send)
        monkeypatch.setattr(fetcher, "_take", lambda *given: calls.append(("take", *given)))
        monkeypatch.setattr(fetcher, "_failed", lambda *given: calls.append(("failed", *given)))
        monkeypatch.setattr(fetcher, "wake", lambda: calls.append("wake"))
        sessions = []
        for _ in range(2):
            fetcher._tasks[NODE] = fetcher._flights[NODE] = None  # type: ignore[assignment]
            assert fetcher.waits(NODE)
            assert not fetcher.waits(NODE + 1)
            await fetcher._fetch(NODE, {T0: WANTED})
            session = fetcher._sessions[NODE]
            sessions.append(session)
            ended = ("take", NODE, session, "plan", "response") if error is None else ("failed", NODE, session, error)
            assert calls == [(NODE, session, {T0: WANTED}, 500, 1000), ended, "wake"]
            assert not fetcher._tasks
            assert not fetcher.waits(NODE)
            calls.clear()
        assert sessions[0] is sessions[1]

    run(main)


def test_partitions_of_an_answer_are_known_by_name_or_id(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    taken: list[Any] = []
    completed: list[Any] = []
    monkeypatch.setattr(bench.fetcher, "_take_partition", lambda *given: taken.append(given))
    parts = [
        SimpleNamespace(topic_id=None, topic="t", partition=0),
        SimpleNamespace(topic_id=ID, topic=None, partition=1),
        SimpleNamespace(topic_id=UUID(int=1), topic=None, partition=2),
    ]
    plan: Any = SimpleNamespace(partitions={T0: at(7), T1: at(8)})
    for shown, usable, code in ((parts, True, 0), (parts[:2], True, 0), (parts[:2], False, 0), (parts, False, 70)):
        response: Any = SimpleNamespace(
            error_code=code, session_id=3, throttle_ms=0, partitions=lambda shown=shown: shown
        )
        session: Any = SimpleNamespace(
            names={ID: "t"}, completed=lambda *given, usable=usable: completed.append(given) or usable
        )
        bench.fetcher._take(NODE, session, plan, response)
        found = set() if code else {T0, T1}
        assert completed.pop() == (plan, code, 3, 0, found, len(shown) == 3 and not code)
        assert taken == ([(T0, 7, parts[0], response), (T1, 8, parts[1], response)] if usable else [])
        taken.clear()


def test_a_user_that_has_seen_the_errors_is_served_again(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    woken: list[int] = []
    monkeypatch.setattr(bench.fetcher, "wake", lambda: woken.append(1))
    for state in bench.subscription.all_states:
        state.failed = True
    bench.fetcher.resume()
    assert not any(state.failed for state in bench.subscription.all_states)
    assert woken == [1]


def test_the_end_cancels_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch)
        fetcher = bench.fetcher
        task = asyncio.ensure_future(asyncio.Event().wait())
        fetcher._tasks[NODE] = task  # type: ignore[assignment]
        loop = asyncio.get_running_loop()
        timer = fetcher._timer = loop.call_later(60, lambda: None)
        fetcher._sessions[NODE] = FetchSession(NODE)  # it was never begun at the broker
        await fetcher.close()
        assert task.cancelled()
        assert timer.cancelled()
        assert (fetcher._closed, fetcher._timer) == (True, None)
        fetcher.wake()
        assert not fetcher._scheduled

    run(main)


def test_a_partition_of_a_topic_that_has_an_id_is_asked_for_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    asked: list[str] = []
    bench.network.topic_id = lambda topic: asked.append(topic) or ID  # type: ignore[attr-defined]
    ids: dict[str, UUID] = {}
    states = [bench.subscription.state_of(each) for each in (T0, T1)]
    wanted = [bench.fetcher._wanted(state, ids) for state in states]
    assert wanted == [WantedPartition(ID, 10, 4, 100)] * 2
    assert (asked, ids) == (["t"], {"t": ID})
