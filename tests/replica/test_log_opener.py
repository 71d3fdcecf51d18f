"""A partition's log is opened when descriptors come back, for a while; what does not open is its own outcome."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from kafkapy.errors import InconsistentTopicIdError, KafkaStorageError
from kafkapy.metadata.broker_requests import LeaderAndIsrPartition
from kafkapy.metadata.znodes import PartitionState
from kafkapy.replica import log_opener
from kafkapy.replica.log_opener import SHORTAGE_PAUSE_S, SHORTAGE_S, LogOpener
from kafkapy.replica.partition import Partition
from kafkapy.types import TopicPartition


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


T0 = TopicPartition("t", 0)
ID = UUID(int=9)


class Log:
    """A log that notes what it becomes."""

    def __init__(self, config: Any) -> None:
        self.config = config
        self.told: list[Any] = []

    def update_config(self, config: Any) -> None:
        self.told.append(("config", config))

    def use_replication(self, replication: Any) -> None:
        self.told.append(("replication", replication))

    def become_leader(self, *arguments: Any, **named: Any) -> None:
        self.told.append(("leader", arguments, named))

    def become_follower(self, *arguments: Any, **named: Any) -> None:
        self.told.append(("follower", arguments, named))


class Logs:
    """A log manager with one log at most."""

    def __init__(self, log: Log | None = None, *errors: Exception) -> None:
        self.log, self.errors = log, list(errors)
        self.offline_dirs: list[str] = []
        self.asked: list[tuple[Any, ...]] = []

    def get(self, topic_partition: TopicPartition) -> Log | None:
        return self.log

    def get_or_create(self, *how: Any) -> Log:
        self.asked.append(how)
        if self.errors:
            raise self.errors.pop(0)
        return self.log or Log(how[2])

    def set_aside(self, topic_partition: TopicPartition) -> None:
        self.asked.append(("aside", topic_partition))


def take_up(logs: Any, *, leader: int = 1, is_new: bool = False, known: Any = None) -> Any:
    """Broker 1 gets the partition; its log."""
    state = PartitionState(leader, 5, (1, 2), 4, False, 7)
    partition = Partition(T0, ID, 1)
    partition.log = known
    replication: Any = "replication"
    of_topic: Any = {"t": "config"}.__getitem__
    made = LogOpener(1, logs, of_topic, replication)
    return made._take_up(partition, LeaderAndIsrPartition(state, (1, 2, 3), is_new=is_new))


def test_a_log_leads_or_follows_as_the_controller_wants() -> None:
    for leader, told in (
        (1, ("leader", (1, 5, (1, 2), (1, 2, 3)), {"partition_epoch": 7})),
        (2, ("follower", (2, 5), {"partition_epoch": 7})),
        (-1, ("follower", (-1, 5), {"partition_epoch": 7})),
    ):
        logs = Logs()
        log = take_up(logs, leader=leader)
        assert log.told == [("replication", "replication"), told]
        assert logs.asked == [(T0, ID, "config")]
        known = Log("config")
        assert take_up(logs, leader=leader, known=known) is known
        assert known.told == [told]


@pytest.mark.parametrize(("config", "told"), [("config", []), ("old", [("config", "config")])])
def test_a_log_that_was_loaded_gets_the_topics_settings(config: str, told: list[Any]) -> None:
    logs = Logs(Log(config))
    logs.offline_dirs = ["/one"]
    assert take_up(logs).told[:-2] == told


@pytest.mark.parametrize(
    ("is_new", "offline", "refused"), [(False, True, True), (True, True, False), (False, False, False)]
)
def test_a_log_that_may_be_on_a_failed_directory_is_not_made(is_new: bool, offline: bool, refused: bool) -> None:
    logs = Logs()
    logs.offline_dirs = ["/one"] if offline else []
    if refused:
        with pytest.raises(KafkaStorageError, match="The log of t-0 may be on a log directory that is offline"):
            take_up(logs, is_new=is_new)
        assert logs.asked == []
    else:
        assert take_up(logs, is_new=is_new).config == "config"


def test_the_log_of_an_earlier_topic_is_set_aside_for_a_new_one_only() -> None:
    other = InconsistentTopicIdError("another topic")
    logs = Logs(None, other)
    with pytest.raises(InconsistentTopicIdError):
        take_up(logs)
    assert len(logs.asked) == 1
    logs = Logs(None, other)
    take_up(logs, is_new=True)
    assert logs.asked == [(T0, ID, "config"), ("aside", T0), (T0, ID, "config")]
