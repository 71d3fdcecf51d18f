"""What a start finds in its log directories, what it does with that, and what it tells the operator."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkapy.config.broker import BrokerConfig
from kafkapy.config.topic import LogConfig
from kafkapy.log.dir_scan import deleted_name, future_name, future_of, parse_directory_name, swapped_name
from kafkapy.log.log_dir import LogDirError
from kafkapy.log.log_manager import LogManager
from kafkapy.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def manage(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Callable[..., LogManager]:
    """A manager of two directories; what was told before is forgotten."""

    def make(**keys: str) -> LogManager:
        names = {"broker.id": "1", "log.dirs": f"{tmp_path / 'one'},{tmp_path / 'two'}"}
        manager = LogManager(
            BrokerConfig(names), topic_config=lambda topic: LogConfig.create(overrides={"retention.ms": "-1", **keys})
        )
        caplog.clear()
        manager.acquire()
        manager.load()
        return manager

    caplog.set_level("INFO", "kafka")
    return make


def lead(manager: LogManager, tp: TopicPartition, data: bytes | None = None) -> Any:
    log = manager.get_or_create(tp)
    log.become_leader(1, 0, [1])
    if data is not None:
        log.append_as_leader(data, api_version=9)
    return log


def told(caplog: pytest.LogCaptureFixture, *levels: str) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelname in levels]


def names(path: Path) -> list[str]:
    return sorted(each.name for each in path.iterdir() if each.is_dir())


def test_a_log_that_is_made_and_deleted_is_told(manage: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    manager = manage()
    assert told(caplog, "INFO")[-1].startswith("The log manager loaded 0 logs (0 segments recovered) in ")
    lead(manager, T0)
    assert told(caplog, "INFO")[-1] == f"The log of partition t-0 was created in {tmp_path / 'one'}"
    manager.delete(T0)
    pattern = rf"Log t-0\.[0-9a-f]{{32}}-delete was deleted in {tmp_path / 'one'}"
    assert re.fullmatch(pattern, told(caplog, "INFO")[-1])
    manager.shutdown()
    assert told(caplog, "INFO")[-1] == "The log manager stopped"
    assert told(caplog, "WARNING", "ERROR") == []


@pytest.mark.parametrize("clean", [True, False])
def test_a_stop_that_was_not_clean_is_told_and_its_logs_are_recovered(
    manage: Any, batch: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, clean: bool
) -> None:
    manager = manage()
    for tp in (T0, T1):
        lead(manager, tp, batch())
    manager.shutdown()
    if not clean:
        (tmp_path / "two" / ".kafka_cleanshutdown").unlink()
    manager = manage()
    warned = [] if clean else [f"Log directory {tmp_path / 'two'} was not closed cleanly: its logs are recovered"]
    assert told(caplog, "WARNING", "ERROR") == warned
    # The recovery points say that all of it is on the disk, whatever came then.
    last = told(caplog, "INFO")[-1]
    assert re.fullmatch(r"The log manager loaded 2 logs \([01] segments recovered\) in \d+ ms", last)
    assert manager.table.not_closed == (set() if clean else {T1})
    manager.shutdown()


def test_directories_that_are_no_logs_are_left_alone(
    manage: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = tmp_path / "one"
    stray = f"t-7.{'0' * 32}-stray"
    left = sorted(["back-up", "__cluster_metadata-0", stray, f"nothing.{'0' * 32}-future"])
    for name in left:
        (one / name).mkdir(parents=True)
    manager = manage()
    assert manager.logs() == {} and manager.futures.all() == {}
    assert sorted(told(caplog, "WARNING", "ERROR")) == [
        f"Directory {name} in {one} is not a partition; the broker ignores it"
        for name in ("back-up", f"nothing.{'0' * 32}-future")
    ]
    info = told(caplog, "INFO")
    assert (
        f"Directory __cluster_metadata-0 in {one} belongs to a KRaft controller; the broker ignores it" in info
        and f"Stray log {stray} in {one} was set aside by an earlier start" in info
    )
    manager.shutdown()
    assert names(one) == left


def test_an_unused_log_goes_only_where_another_directory_has_the_partition(
    manage: Any, batch: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    manager = manage()
    lead(manager, T0, batch())
    lead(manager, T1)
    assert (manager.dir_of(T0), manager.dir_of(T1)) == (one, two)
    manager.shutdown()
    (two / "t-0").mkdir()
    (two / "t-0" / f"{0:020d}.log").touch()
    manager = manage()
    assert told(caplog, "WARNING") == [f"Log t-0 in {two} is an empty duplicate; the broker deletes it"]
    assert (names(one), names(two)) == (["t-0"], ["t-1"])
    assert [manager.get(tp).log_end_offset for tp in (T0, T1)] == [1, 0]
    # Two that are both unused: one of them stays.
    manager.shutdown()
    (one / "t-1").mkdir()
    (one / "t-1" / f"{0:020d}.log").touch()
    manager = manage()
    assert told(caplog, "WARNING") == [f"Log t-1 in {one} is an empty duplicate; the broker deletes it"]
    assert (names(one), names(two)) == (["t-0"], ["t-1"])
    manager.shutdown()


def test_an_empty_log_that_does_not_begin_at_zero_is_a_used_one(manage: Any, batch: Any, tmp_path: Path) -> None:
    manager = manage()
    lead(manager, T0, batch())
    manager.shutdown()
    (tmp_path / "two" / "t-0").mkdir()
    (tmp_path / "two" / "t-0" / f"{5:020d}.log").touch()
    manager = LogManager(BrokerConfig({"broker.id": "1", "log.dirs": f"{tmp_path / 'one'},{tmp_path / 'two'}"}))
    manager.acquire()
    with pytest.raises(LogDirError) as raised:
        manager.load()
    assert str(raised.value) == (
        f"Partition t-0 has a log in {tmp_path / 'one'} and another one in {tmp_path / 'two'}: remove one of them, "
        "that in the directory which has failed lately."
    )
    manager.shutdown()


def test_a_move_that_was_decided_is_finished_and_told(
    manage: Any, batch: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The old log is renamed; the new one has its future name still. Another move has only begun."""
    one, two = tmp_path / "one", tmp_path / "two"
    manager = manage()
    lead(manager, T0, batch())
    lead(manager, T1, batch())
    manager.shutdown()
    done, begun = future_name(T0), future_name(T1)
    (one / "t-0").rename(two / done)
    (one / swapped_name(done)).mkdir()
    manager = manage()
    assert f"The move of t-0 to {two}, interrupted by the last stop, is complete" in told(caplog, "INFO")
    assert (manager.dir_of(T0), manager.get(T0).log_end_offset) == (two, 1)
    assert (names(one), names(two)) == ([], ["t-0", "t-1"])
    manager.shutdown()
    (one / begun).mkdir()
    (one / begun / f"{0:020d}.log").touch()
    manager = manage()
    assert not any("interrupted" in each for each in told(caplog, "INFO"))
    assert (list(manager.futures.all()), names(one), manager.dir_of(T1)) == ([T1], [begun], two)
    manager.shutdown()


def test_deleted_logs_are_kept_while_a_directory_is_away(
    manage: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    deleted = [deleted_name(T0), deleted_name(T1)]
    for each in deleted:
        (one / each).mkdir(parents=True)
    two.mkdir()
    (two / ".lock").mkdir()  # it cannot be opened as a file
    manager = manage()
    assert [each.path for each in manager.offline_dirs] == [two]
    assert told(caplog, "WARNING") == ["2 deleted logs are kept until all log directories are online"]
    assert told(caplog, "ERROR") == [f"Log directory {two} cannot be used: Is a directory"]
    manager.shutdown()
    assert names(one) == sorted(deleted)
    (two / ".lock").rmdir()
    manager = manage()
    assert names(one) == []
    manager.shutdown()


def test_names_tell_what_a_directory_is() -> None:
    long = TopicPartition("t" * 249, 1000)
    for make, suffix in ((future_name, "-future"), (deleted_name, "-delete")):
        name = make(T0)
        stem, dot, unique = name.removesuffix(suffix).partition(".")
        assert (stem, dot, name[-7:]) == ("t-0", ".", suffix)
        assert uuid.UUID(hex=unique) and make(T0) != name
        assert parse_directory_name(name) is None
        assert future_of(name) == (T0 if suffix == "-future" else None)
    assert len(deleted_name(long)) == 255
    assert swapped_name(f"t-0.{'0' * 32}-future") == f"t-0.{'0' * 32}-delete"
    for name in ("t-0", "t-0-future", ".abc-future", "t.abc-future"):
        assert future_of(name) is None
    assert parse_directory_name(f"t-{2**31 - 1}") == ("t", 2**31 - 1)
    for name in (f"t-{2**31}", "t-\u0663", "t--", "-7", "t-0x1"):
        assert parse_directory_name(name) is None
