"""The future of commit_async(): what it says and whom it tells, before and after its result."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy.clients.consumer.offset_commit import OffsetCommitFuture
from kafkapy.errors import CommitFailedError, ErrorCode, error_for
from kafkapy.types import OffsetAndMetadata, TopicPartition

OFFSETS = {TopicPartition("t", 0): OffsetAndMetadata(5)}


@pytest.mark.parametrize(
    ("error", "retriable"),
    [
        (None, False),
        (error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE), True),
        (CommitFailedError("no longer a member"), False),
        (RuntimeError("x"), False),
    ],
)
def test_a_commit_ends_once_for_everybody(error: Exception | None, retriable: bool) -> None:
    future = OffsetCommitFuture()
    assert not (future.is_done or future.succeeded() or future.failed() or future.retriable())
    assert future.value is future.exception is None
    told: list[Any] = []
    for number in (1, 2):
        assert future.add_callback(lambda value, number=number: told.append(("ok", number, value))) is future
        assert future.add_errback(lambda raised, number=number: told.append(("error", number, raised))) is future
    assert told == []
    future.resolve(OFFSETS, error)
    assert (future.is_done, future.succeeded(), future.failed()) == (True, error is None, error is not None)
    assert (future.value, future.exception) == ((OFFSETS, None) if error is None else (None, error))
    assert future.retriable() is retriable
    kind, result = ("ok", OFFSETS) if error is None else ("error", error)
    assert told == [(kind, 1, result), (kind, 2, result)]
    told.clear()
    future.add_callback(lambda value: told.append(("ok", value)))
    future.add_errback(lambda raised: told.append(("error", raised)))
    assert told == [(kind, result)]
