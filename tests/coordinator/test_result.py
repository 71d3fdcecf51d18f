"""A reply that is not there yet."""

from __future__ import annotations

import asyncio
import gc

import pytest

from kafkapy.coordinator.result import Later
from kafkapy.errors import GroupIdNotFoundError, IllegalGenerationError


def test_what_is_made_of_a_reply_comes_with_it() -> None:
    first: Later[int] = Later()
    made = first.map(lambda done: f"{done.result()} records")
    assert not made.done
    first.set(3)
    assert made.result() == "3 records"
    assert Later.of(4).map(lambda done: done.result() + 1).result() == 5, "one that is there already"


def test_an_error_is_handed_on_or_made_another_one_or_a_reply() -> None:
    failed: Later[int] = Later.failure(IllegalGenerationError())

    def other(done: Later[int]) -> int:
        raise GroupIdNotFoundError from done.error

    with pytest.raises(IllegalGenerationError):
        failed.map(lambda done: done.result()).result()
    with pytest.raises(GroupIdNotFoundError):
        failed.map(other).result()
    assert failed.map(lambda done: type(done.error)).result() is IllegalGenerationError


def test_what_hears_of_a_reply_does_not_turn_it_into_an_error() -> None:
    first: Later[int] = Later()
    made = first.map(lambda done: done.result())

    def break_(done: Later[int]) -> None:
        raise ValueError(done.result())

    made.then(break_)
    with pytest.raises(ValueError, match="3"):
        first.set(3)
    assert made.result() == 3


def test_an_error_that_was_waited_for_leaves_no_garbage() -> None:
    """What only the collector finds is found by a collection that everybody waits for."""

    async def fail() -> None:
        try:
            await Later.failure(IllegalGenerationError()).wait()
        except IllegalGenerationError:
            pass

    async def fail_often() -> int:
        await fail()
        gc.collect()
        gc.disable()
        try:
            for _ in range(100):
                await fail()
            return gc.collect()
        finally:
            gc.enable()

    assert asyncio.run(fail_often()) < 100
