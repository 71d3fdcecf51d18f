"""Turns of large requests, and the garbage collector that rests meanwhile."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from kafkapy.broker import large_messages
from kafkapy.broker.large_messages import LargeMessages
from kafkapy.garbage import MANY_SURVIVORS

WAIT_S = 60


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """The garbage collector works at the beginning and at the end."""
    gc.collect()
    gc.enable()
    yield
    gc.unfreeze()
    gc.enable()


def run(test: Callable[[LargeMessages], Coroutine[Any, Any, None]]) -> None:
    async def body() -> None:
        large = LargeMessages()
        try:
            await asyncio.wait_for(test(large), WAIT_S)
        finally:
            large.close()

    asyncio.run(body())


def test_the_collector_rests_for_a_turn() -> None:
    async def test(large: LargeMessages) -> None:
        turn = await large.turn()
        assert not gc.isenabled()
        turn.end()
        assert gc.isenabled()
        turn.end()
        again = await large.turn()
        assert not gc.isenabled(), "the second end has ended nothing"
        again.end()

    run(test)


def test_a_long_request_lets_others_begin_and_the_collector_goes_on_resting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_messages, "LONGEST_TURN_S", 0.0)

    async def test(large: LargeMessages) -> None:
        first = await large.turn()
        second = await large.turn()
        assert not gc.isenabled()
        second.end()
        assert not gc.isenabled(), "the first request still has its objects"
        first.end()
        assert gc.isenabled()

    run(test)


def test_a_request_that_waits_for_long_does_not_keep_the_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_messages, "LONGEST_REST_S", 0.0)

    async def test(large: LargeMessages) -> None:
        turn = await large.turn()
        while not gc.isenabled():
            await asyncio.sleep(0)
        next_turn = await large.turn()
        turn.end()
        assert not gc.isenabled(), "the late end of the first has ended nothing"
        next_turn.end()

    run(test)


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()

    async def test(large: LargeMessages) -> None:
        (await large.turn()).end()
        assert not gc.isenabled()

    run(test)


@pytest.mark.parametrize(("count", "frozen"), [(MANY_SURVIVORS + 10_000, True), (100, False)])
def test_many_objects_that_stay_are_never_looked_through(count: int, frozen: bool) -> None:
    kept: list[list[int]] = []

    async def test(large: LargeMessages) -> None:
        gc.collect()
        before = gc.get_freeze_count()
        turn = await large.turn()
        kept.extend([] for _ in range(count))
        turn.end()
        assert (gc.get_freeze_count() - before >= count) == frozen

    run(test)


def test_objects_that_are_gone_again_are_no_survivors() -> None:
    async def test(large: LargeMessages) -> None:
        gc.collect()
        before = gc.get_freeze_count()
        turn = await large.turn()
        made: list[list[int]] = [[] for _ in range(2 * MANY_SURVIVORS)]
        made.clear()
        turn.end()
        assert gc.get_freeze_count() == before

    run(test)


def test_after_the_end_of_the_thread_a_call_is_cancelled_and_things_are_let_go_of() -> None:
    async def test(large: LargeMessages) -> None:
        turn = await large.turn()
        large.close()
        with pytest.raises(asyncio.CancelledError):
            await large.run(len, "")
        large.discard([[]], turn)
        assert gc.isenabled()

    run(test)
