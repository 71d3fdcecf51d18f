"""The offset checkpoint files: what they say, what makes one unusable, and what of them is on the disk when."""

from __future__ import annotations

import errno
import gc
import logging
import os
from pathlib import Path

import pytest

from kafkapy.log import checkpoints
from kafkapy.log.checkpoints import (
    CheckpointError,
    read_checkpoint,
    sync_directory,
    sync_file,
    write_atomically,
    write_checkpoint,
)
from kafkapy.log.epochs import format_leader_epochs, parse_leader_epochs
from kafkapy.log.log_dir import LogDir
from kafkapy.types import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


class Synced:
    """Notes the files and directories that are synced."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.paths: list[Path] = []
        sync = os.fsync

        def noted(fd: int) -> None:
            self.paths.append(Path(f"/proc/self/fd/{fd}").readlink())
            sync(fd)

        monkeypatch.setattr(checkpoints.os, "fsync", noted)


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> Synced:
    return Synced(monkeypatch)


def descriptors() -> int:
    gc.collect()  # what earlier tests left is gone now, and not later
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_checkpoint_is_written_in_order_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert read_checkpoint(path) == {}
    offsets = {B0: 3, A1: 1 << 40, A0: 0}
    write_checkpoint(path, offsets)
    assert path.read_text() == f"0\n3\na 0 0\na 1 {1 << 40}\nb 0 3\n"
    assert read_checkpoint(path) == offsets
    write_checkpoint(path, {})
    assert (path.read_text(), read_checkpoint(path)) == ("0\n0\n", {})
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\xff", "is not text"),
        (b"1\n0\n", "has version 1, known is 0"),
        (b"0\n2\na 0 7\n", "should hold 2 entries and holds 1"),
        (b"0\n1\na 0 7\nb 0 7\n", "should hold 1 entries and holds 2"),
        (b"0\n2\na 0 7\na 0 8\n", "should hold 2 entries and holds 1"),
        (b"0\n", "is malformed"),
        (b"x\n0\n", "is malformed"),
        (b"0\n1\na 0\n", "is malformed"),
        (b"0\n1\na 0 7 8\n", "is malformed"),
        (b"0\n1\na x 7\n", "is malformed"),
    ],
)
def test_a_malformed_checkpoint_says_what_is_wrong_with_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes, reason: str
) -> None:
    path = tmp_path / "log-start-offset-checkpoint"
    path.write_bytes(content)
    with pytest.raises(CheckpointError) as raised:
        read_checkpoint(path)
    assert (raised.value.errno, raised.value.strerror, raised.value.filename) == (errno.EIO, reason, str(path))
    write_checkpoint(tmp_path / "recovery-point-offset-checkpoint", {A0: 5})
    write_checkpoint(tmp_path / "replication-offset-checkpoint", {A0: 4})
    # The others count all the same.
    assert LogDir(tmp_path).read_offsets() == ({A0: 5}, {}, {A0: 4})
    assert caplog.record_tuples == [
        ("kafka.log.LogManager", logging.WARNING, f"Checkpoint {path} is ignored: {reason}")
    ]


def test_what_is_written_is_on_the_disk_with_its_name(tmp_path: Path, synced: Synced) -> None:
    path = tmp_path / "file"
    before = descriptors()
    write_atomically(path, b"one")
    assert synced.paths == [tmp_path / "file.tmp", tmp_path]
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"one", 0o644 & ~umask())
    synced.paths.clear()
    write_atomically(path, b"two", sync=False)
    write_checkpoint(path, {}, sync=False)
    assert (path.read_bytes(), synced.paths) == (b"0\n0\n", [])
    sync_file(path)
    sync_directory(tmp_path)
    assert synced.paths == [path, tmp_path]
    sync_file(tmp_path / "none")
    with pytest.raises(FileNotFoundError):
        sync_directory(tmp_path / "none")
    assert len(synced.paths) == 2
    assert descriptors() <= before


def test_what_is_read_or_synced_stays_as_it_is_and_is_not_made(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_checkpoint(path, {A0: 5})
    before = path.read_bytes()
    sync_file(path)
    assert read_checkpoint(path) == {A0: 5}
    sync_directory(tmp_path)
    assert path.read_bytes() == before
    assert read_checkpoint(tmp_path / "none") == {}
    sync_file(tmp_path / "none")
    with pytest.raises(NotADirectoryError):
        sync_directory(path)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_a_temporary_file_that_a_crash_left_is_no_part_of_the_next(tmp_path: Path) -> None:
    (tmp_path / "file.tmp").write_bytes(b"left over " * 100)
    write_atomically(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def umask() -> int:
    known = os.umask(0o022)
    os.umask(known)
    return known


def test_a_write_in_pieces_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(checkpoints.os, "write", lambda fd, data: write(fd, bytes(data[:3])))
    write_atomically(tmp_path / "file", b"0123456789")
    monkeypatch.setattr(checkpoints, "READ_SIZE", 4)
    assert checkpoints._read(tmp_path / "file") == b"0123456789"


def test_a_deleted_partition_is_taken_out_of_the_files_that_name_it(tmp_path: Path) -> None:
    log_dir = LogDir(tmp_path)
    points, starts = tmp_path / "recovery-point-offset-checkpoint", tmp_path / "log-start-offset-checkpoint"
    write_checkpoint(points, {A0: 5, B0: 6})
    log_dir.read_offsets()
    log_dir.write_log_starts({A0: 1, A1: 2})
    for path in (points, starts):
        path.with_suffix(".before").write_bytes(path.read_bytes())
    log_dir.forget(B0)
    assert (read_checkpoint(points), read_checkpoint(starts)) == ({A0: 5}, {A0: 1, A1: 2})
    starts.unlink()
    log_dir.forget(B0)
    assert not starts.exists(), "it did not name the partition"
    log_dir.forget(A0)
    assert (read_checkpoint(points), read_checkpoint(starts)) == ({}, {A1: 2})


@pytest.mark.parametrize(
    "content",
    [b"", b"0", b"1\n0\n", b"x\n0\n", b"0\n1\n", b"0\n2\n1 0\n", b"0\n1\n1 0\n2 5\n", b"0\n2\n1 0\n1 5\n",
     b"0\n2\n2 0\n1 5\n", b"0\n2\n1 5\n2 4\n", b"0\n1\n1 -1\n", b"0\n1\n-1 0\n", b"0\n1\n1\n", b"0\n1\n1 0 0\n"],
)  # fmt: skip
def test_a_leader_epoch_file_that_does_not_add_up_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError):
        parse_leader_epochs(content)


@pytest.mark.parametrize("epochs", [[], [(0, 0)], [(0, 0), (3, 1200)], [(2, 5), (3, 5), (7, 6)]])
def test_leader_epochs_are_read_as_they_were_written(epochs: list[tuple[int, int]]) -> None:
    content = format_leader_epochs(epochs)
    assert content.startswith(b"0\n%d\n" % len(epochs))
    assert parse_leader_epochs(content) == parse_leader_epochs(content + b"\n") == epochs
