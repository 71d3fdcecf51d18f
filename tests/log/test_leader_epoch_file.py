"""The leader-epoch-checkpoint of a log: written with what a recovery needs, and not for an epoch without a record."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kafkapy.log.epochs import LEADER_EPOCH_FILE


def test_an_election_alone_writes_nothing(logs: Any, batch: Any) -> None:
    file = logs.directory / LEADER_EPOCH_FILE
    log = logs.open()
    log.flush()
    assert not file.exists()
    log.append_as_leader(batch(1), api_version=9)
    assert not file.exists()
    log.flush()
    assert file.read_text() == "0\n1\n0 0\n"
    written = file.stat().st_ino
    for epoch in (3, 4, 5):
        log.become_leader(1, epoch, [1])
        log.flush()
    assert log.leader_epochs() == [(0, 0), (5, 1)]
    logs.stop(log)
    assert file.stat().st_ino == written
    log = logs.open(leader_epoch=6)
    assert log.leader_epochs() == [(0, 0), (6, 1)]
    log.append_as_leader(batch(1), api_version=9)
    assert file.stat().st_ino == written
    logs.stop(log)
    assert file.read_text() == "0\n2\n0 0\n6 1\n"


def test_epochs_that_come_to_an_end_are_written_at_once(logs: Any, batch: Any) -> None:
    """The log comes from a cluster whose epochs were ahead."""
    log = logs.open(leader_epoch=7)
    log.append_as_leader(batch(2), api_version=9)
    log.flush()
    log.become_leader(1, 2, [1])
    assert log.leader_epochs() == [(2, 2)]
    assert (logs.directory / LEADER_EPOCH_FILE).read_text() == "0\n1\n2 2\n"


def test_a_recovery_leaves_a_file_that_says_the_same_to_the_next_flush(logs: Any, batch: Any) -> None:
    file = logs.directory / LEADER_EPOCH_FILE
    log = logs.open(leader_epoch=3)
    log.append_as_leader(batch(2), api_version=9)
    log.flush()
    # What a broker leaves that was elected once more, and wrote no record.
    file.write_text("0\n2\n3 0\n4 2\n")
    written = file.stat().st_ino
    log = logs.open(clean=False, leader_epoch=None)
    assert logs.report.recovered_segments == 1
    assert log.leader_epochs() == [(3, 0)]
    assert (file.stat().st_ino, file.read_text()) == (written, "0\n2\n3 0\n4 2\n")
    # The crash may have come before the file was on disk.
    log.flush()
    assert file.read_text() == "0\n1\n3 0\n"
    log.become_leader(1, 5, [1])
    written = file.stat().st_ino
    log.flush()
    assert file.stat().st_ino == written


@pytest.mark.parametrize("content", [None, "0\n0\n", "0\n1\n2 0\n", "0\n2\n1 0\n3 1\n"])
def test_a_recovery_replaces_a_file_that_says_something_else(logs: Any, batch: Any, content: str | None) -> None:
    file = logs.directory / LEADER_EPOCH_FILE
    log = logs.open(leader_epoch=3)
    log.append_as_leader(batch(2), api_version=9)
    if content is not None:
        file.write_text(content)
    log = logs.open(clean=False, leader_epoch=None)
    assert log.leader_epochs() == [(3, 0)]
    assert file.read_text() == "0\n1\n3 0\n"


@pytest.mark.parametrize("seed", range(8))
def test_each_stop_and_each_crash_leave_the_epochs_that_have_records(logs: Any, batch: Any, seed: int) -> None:
    picker = random.Random(seed)
    epoch, recovery_point = 0, 0
    log = logs.open(leader_epoch=0, segment_bytes=400)
    for _ in range(120):
        match picker.choice(["lead", "append", "append", "flush", "follow", "stop", "crash"]):
            case "lead":
                epoch += picker.randrange(1, 3)
                log.become_leader(1, epoch, [1])
            case "append" if log.is_leader:
                log.append_as_leader(batch(picker.randrange(1, 4)), api_version=9)
            case "append":
                data = batch(2, base_offset=log.log_end_offset, leader_epoch=epoch)
                log.append_as_follower(data)
            case "flush":
                recovery_point = log.flush()
            case "follow":
                epoch += 1
                log.become_follower(2, epoch)
            case end:
                clean = end == "stop"
                known = [each for each in log.leader_epochs() if each[1] < log.log_end_offset]
                if clean:
                    logs.stop(log)
                    recovery_point = log.recovery_point
                log = logs.open(leader_epoch=None, clean=clean, recovery_point=recovery_point, segment_bytes=400)
                assert log.leader_epochs() == known
                epoch += 1
                log.become_leader(1, epoch, [1])
