"""A reply that is not there yet."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from kafkapy.coordinator.group.replies import writable
from kafkapy.coordinator.log_errors import translated, translated_failure
from kafkapy.coordinator.result import Later, without_too_large
from kafkapy.errors import ErrorCode, GroupIdNotFoundError, IllegalGenerationError, KafkaError, code_of, error_for


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


CODES = [each for each in ErrorCode if each is not ErrorCode.NONE]
TOO_LARGE = {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE}


@pytest.mark.parametrize(("change", "message"), [(without_too_large, "so it is"), (writable, None)])
def test_records_that_are_too_large_are_the_brokers_trouble(change: Any, message: str | None) -> None:
    """What is no error, and any other one, stays."""
    for code in CODES:
        error = error_for(code, "so it is")
        reply = change(Later.failure(error))
        if code in TOO_LARGE:
            assert code_of(reply.error) is ErrorCode.UNKNOWN_SERVER_ERROR
            assert message is None or str(reply.error) == message
        else:
            assert reply.error is error
    assert change(Later.of(3)).result() == 3
    defect = ValueError("a defect")
    assert change(Later.failure(defect)).error is defect


def test_errors_of_the_log_as_clients_of_a_coordinator_get_them() -> None:
    away = {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT,
    }  # fmt: skip
    moved = {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.KAFKA_STORAGE_ERROR}
    wanted = dict.fromkeys(away, ErrorCode.COORDINATOR_NOT_AVAILABLE) | dict.fromkeys(moved, ErrorCode.NOT_COORDINATOR)
    for code in CODES:
        error = error_for(code, "so it is")
        for found in (translated(error), translated_failure(error)):
            assert found.code is wanted.get(code, code)
            assert found.message == "so it is"
            assert (found is error) is (code not in wanted)
    defect: KafkaError = translated_failure(OSError(28, "full"))
    assert defect.code is ErrorCode.NOT_COORDINATOR
