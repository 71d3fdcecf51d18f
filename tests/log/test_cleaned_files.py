"""The files of a cleaned segment: which there are after each step, and which go when a step is not done."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import pytest

from kafkapy.log import cleaned_files
from kafkapy.log.backends.local import LocalLogStorage
from kafkapy.log.backends.memory import MemoryLogStorage
from kafkapy.log.cleaned_files import CleanedFiles

BASE = 5
STEM = f"{BASE:020d}"
OTHER = f"{9:020d}"


def names(path: Path) -> list[str]:
    return sorted(each.name.replace(STEM, "5").replace(OTHER, "9") for each in path.iterdir())


def write(path: Path, *suffixes: str) -> None:
    for suffix in suffixes:
        (path / f"{STEM}.{suffix}").write_text(f"new {suffix.partition('.')[0]}")


@pytest.fixture
def storage(tmp_path: Path) -> LocalLogStorage:
    return LocalLogStorage(tmp_path)


def test_the_data_file_begins_empty_and_old_files_go(tmp_path: Path, storage: Any) -> None:
    write(tmp_path, "log.cleaned", "index.cleaned", "timeindex.cleaned", "txnindex.cleaned", "log", "log.swap")
    fd, path = CleanedFiles(storage, BASE).create()
    assert (path, os.fstat(fd).st_size) == (f"{tmp_path}/{STEM}.log.cleaned", 0)
    os.write(fd, b"x")
    assert os.pread(fd, 1, 0) == b"x"
    os.close(fd)
    assert names(tmp_path) == ["5.log", "5.log.cleaned", "5.log.swap"]
    assert Path(path).stat().st_mode & 0o133 == 0


@pytest.mark.parametrize("aborted", [[], [(1, 2, 3, 4), (5, 6, 7, 8)]])
def test_aborted_transactions_and_the_age_are_kept(
    tmp_path: Path, storage: Any, monkeypatch: pytest.MonkeyPatch, aborted: list[tuple[int, int, int, int]]
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(
        cleaned_files.os, "fsync", lambda fd: synced.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
    )
    write(tmp_path, "log.cleaned")
    index = tmp_path / f"{STEM}.txnindex.cleaned"
    if aborted:
        index.write_bytes(b"left over" * 20)
    CleanedFiles(storage, BASE).finish(aborted, 1234)
    if aborted:
        assert index.read_bytes() == b"".join(struct.pack(">hqqqq", 0, *each) for each in aborted)
        assert synced == [str(index)]
    else:
        assert (names(tmp_path), synced) == (["5.log.cleaned"], [])
    status = (tmp_path / f"{STEM}.log.cleaned").stat()
    assert (status.st_atime_ns, status.st_mtime_ns) == (1_234_000_000, 1_234_000_000)


@pytest.mark.parametrize("indexes", [(), ("index",), ("index", "timeindex", "txnindex")])
def test_the_data_file_gets_its_new_name_last(
    tmp_path: Path, storage: Any, monkeypatch: pytest.MonkeyPatch, indexes: tuple[str, ...]
) -> None:
    """As long as a file with the first name is there, a restart throws all of them away."""
    write(tmp_path, "log.cleaned", *(f"{each}.cleaned" for each in indexes))
    seen: list[Any] = []
    rename = Path.rename
    monkeypatch.setattr(Path, "rename", lambda self, to: (seen.append(self.name[21:]), rename(self, to))[1])
    monkeypatch.setattr(cleaned_files, "sync_directory", seen.append)
    CleanedFiles(storage, BASE).promote()
    assert seen == [*(f"{each}.cleaned" for each in indexes), "log.cleaned", tmp_path]
    assert names(tmp_path) == sorted(["5.log.swap", *(f"5.{each}.swap" for each in indexes)])


def test_a_data_file_that_is_missing_is_an_error(storage: Any) -> None:
    with pytest.raises(FileNotFoundError):
        CleanedFiles(storage, BASE).promote()


@pytest.mark.parametrize("indexes", [(), ("index",), ("index", "timeindex", "txnindex")])
def test_the_new_segment_takes_the_place_of_the_old_ones(
    tmp_path: Path, storage: Any, monkeypatch: pytest.MonkeyPatch, indexes: tuple[str, ...]
) -> None:
    waiting: list[int] = []
    storage._later = lambda remove, delay_ms: waiting.append(delay_ms)
    write(tmp_path, "log", "index", "timeindex", "txnindex")
    write(tmp_path, "log.swap", *(f"{each}.swap" for each in indexes))
    for suffix in ("log", "index"):
        (tmp_path / f"{OTHER}.{suffix}").touch()
    CleanedFiles(storage, BASE).install([BASE, 9], 777)
    assert names(tmp_path) == sorted(["5.log", *(f"5.{each}" for each in indexes), "9.log.deleted", "9.index.deleted"])
    assert waiting == [777]
    assert (tmp_path / f"{STEM}.log").read_text() == "new log"


def test_what_was_written_goes_with_the_data_file_first(
    tmp_path: Path, storage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in ("swap", "cleaned"):
        write(tmp_path, *(f"{each}.{kind}" for each in ("log", "index", "timeindex", "txnindex")))
    write(tmp_path, "log", "index")
    gone: list[str] = []
    unlink = Path.unlink
    monkeypatch.setattr(
        Path, "unlink", lambda self, missing_ok=False: (gone.append(self.name[21:]), unlink(self, missing_ok))[1]
    )
    CleanedFiles(storage, BASE).discard()
    order = ["log", "txnindex", "timeindex", "index"]
    assert gone == [f"{each}.{kind}" for kind in ("swap", "cleaned") for each in order]
    assert names(tmp_path) == ["5.index", "5.log"]
    CleanedFiles(storage, BASE).discard()


def test_in_memory_there_is_a_descriptor_and_nothing_to_move() -> None:
    files = CleanedFiles(MemoryLogStorage("t-0"), BASE)
    fd, path = files.create()
    assert (path, os.fstat(fd).st_size) == ("", 0)
    os.close(fd)
    files.finish([(1, 2, 3, 4)], 5)
    files.promote()
    files.install([BASE, 9], 1)
    files.discard()
