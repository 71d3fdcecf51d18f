"""A partition's log is opened when descriptors come back, for a while; what does not open is its own outcome."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy.errors import KafkaStorageError
from kafkapy.replica import log_opener
from kafkapy.replica.log_opener import SHORTAGE_PAUSE_S, SHORTAGE_S, LogOpener


class Clock:
    """Time that only a pause takes."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.pauses: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(log_opener, "time", made)
    return made


def opener(failures: list[BaseException]) -> LogOpener:
    """One whose logs open when the failures have been raised."""
    manager: Any = None
    made = LogOpener(1, manager, manager, manager)

    def take_up(partition: Any, each: Any) -> Any:
        if failures:
            raise failures.pop(0)
        return partition

    made._take_up = take_up  # type: ignore[method-assign]
    return made


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN])
def test_a_shortage_is_waited_for_with_pauses(clock: Clock, number: int) -> None:
    failures: list[BaseException] = [OSError(number, "short") for _ in range(3)]
    one: Any = "one"
    assert opener(failures).open_batch([(one, one)]) == [one]
    assert clock.pauses == [SHORTAGE_PAUSE_S] * 3


def test_a_shortage_that_does_not_end_is_an_error(clock: Clock) -> None:
    failures: list[BaseException] = [OSError(errno.EMFILE, "short") for _ in range(10_000)]
    one: Any = "one"
    (outcome,) = opener(failures).open_batch([(one, one)])
    assert isinstance(outcome, OSError) and outcome.errno == errno.EMFILE
    assert set(clock.pauses) == {SHORTAGE_PAUSE_S}
    assert abs(len(clock.pauses) - SHORTAGE_S / SHORTAGE_PAUSE_S) <= 1


def test_other_errors_are_not_waited_for_and_spoil_no_other_partition(clock: Clock) -> None:
    failures: list[BaseException] = [OSError(errno.EIO, "broken"), KafkaStorageError("offline"), ValueError("odd")]
    wanted = [*failures, "four"]
    batch: Any = [(name, name) for name in ("one", "two", "three", "four")]
    assert opener(failures).open_batch(batch) == wanted
    assert clock.pauses == []


def test_each_log_is_deleted_or_says_why_not() -> None:
    broken, refused = OSError(errno.EIO, "broken"), KafkaStorageError("offline")
    failures: list[BaseException | None] = [broken, None, refused]
    deleted: list[str] = []

    def delete(topic_partition: str) -> None:
        deleted.append(topic_partition)
        if (error := failures.pop(0)) is not None:
            raise error

    manager: Any = SimpleNamespace(delete=delete)
    names: Any = ["one", "two", "three"]
    assert LogOpener(1, manager, manager, manager).delete_batch(names) == [broken, None, refused]
    assert deleted == names
