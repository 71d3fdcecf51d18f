"""The storage backends: files and directories by name, what is synced when, and what a deleted partition still does."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkapy.log.backends import local, memory
from kafkapy.log.backends.base import LogStorage, SegmentFile, StorageBackend
from kafkapy.log.backends.local import LocalBackend, LocalLogStorage
from kafkapy.log.backends.memory import MemoryBackend, MemoryLogStorage

NOW_MS = 1_600_000_000_000


class Later:
    """Keeps what shall be done later."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], None], int]] = []

    def __call__(self, function: Callable[[], None], delay_ms: int) -> None:
        self.waiting.append((function, delay_ms))


def names(path: Path) -> list[str]:
    return sorted(each.name for each in path.iterdir())


def test_backends_are_registered_by_their_names() -> None:
    config: Any = None
    [(name, make)] = local.register_storage_backends().items()
    backend = make(config)
    assert (name, isinstance(backend, LocalBackend), backend.persistent) == ("local", True, True)
    [(name, make)] = memory.register_storage_backends().items()
    backend = make(config)
    assert (name, isinstance(backend, MemoryBackend), backend.persistent) == ("memory", True, False)
    assert isinstance(backend, StorageBackend)
    assert isinstance(backend.open_log(Path("/x"), "t-0", create=True), LogStorage)


def test_segments_are_the_data_files_in_order(tmp_path: Path) -> None:
    storage = LocalLogStorage(tmp_path)
    for number, base in enumerate((300, 0, 25)):
        path = tmp_path / f"{base:020d}.log"
        path.write_bytes(b"x" * number)
        os.utime(path, ns=(0, (NOW_MS + number) * 1_000_000 + 999_999))
    for name in ("x.log", f"{1:020d}.index", f"{2:020d}.log.deleted", ".log"):
        (tmp_path / name).touch()
    expected = [
        SegmentFile(0, 1, NOW_MS + 1),
        SegmentFile(25, 2, NOW_MS + 2),
        SegmentFile(300, 0, NOW_MS),
    ]
    assert storage.segments() == expected
    assert storage.segments([f"{25:020d}.log", f"{25:020d}.index"]) == expected[1:2]
    assert storage.segments([]) == []
    assert storage.names() == names(tmp_path)


def test_a_prepared_segment_is_empty_and_has_a_new_name(tmp_path: Path) -> None:
    storage = LocalLogStorage(tmp_path)
    (tmp_path / "1.next-segment.deleted").write_bytes(b"left")
    for number in (1, 2):
        fd, path = storage.prepare_segment()
        assert path == f"{tmp_path}/{number}.next-segment.deleted"
        assert os.fstat(fd).st_size == 0
        os.write(fd, b"x")
        assert os.pread(fd, 1, 0) == b"x"
        assert Path(path).stat().st_mode & 0o133 == 0
        assert not os.get_inheritable(fd)
        os.close(fd)
    assert storage.native_segments
    assert not type("Own", (LocalLogStorage,), {"prepare_segment": lambda self: (0, "")})(tmp_path).native_segments


@pytest.mark.parametrize(("scheduled", "delay_ms"), [(True, 1), (True, 0), (True, -1), (False, 1)])
def test_the_files_of_a_segment_go_after_the_delay(tmp_path: Path, scheduled: bool, delay_ms: int) -> None:
    later = Later()
    storage = LocalLogStorage(tmp_path, later if scheduled else None)
    suffixes = ("index", "log", "snapshot", "timeindex", "txnindex")
    for base in (5, 6):
        for suffix in suffixes:
            (tmp_path / f"{base:020d}.{suffix}").touch()
    kept = [f"{6:020d}.{suffix}" for suffix in suffixes]
    storage.delete_segments([5, 7], delay_ms=delay_ms)
    if scheduled and delay_ms > 0:
        assert names(tmp_path) == [f"{5:020d}.{suffix}.deleted" for suffix in suffixes] + kept
        [(remove, delay)] = later.waiting
        assert delay == delay_ms
        (tmp_path / f"{5:020d}.log.deleted").unlink()  # somebody was faster
        remove()
    assert names(tmp_path) == kept
    storage.retire()
    storage.delete_segments([6], delay_ms=0)
    assert names(tmp_path) == kept


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 8, 9])
def test_a_small_file_is_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(local, "READ_SIZE", 4)
    storage = LocalLogStorage(tmp_path)
    before = len(list(Path("/proc/self/fd").iterdir()))
    storage.write_file("small", bytes(range(size)))
    assert storage.read_file("small") == bytes(range(size))
    assert storage.read_file("none") is None
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


def test_a_flush_syncs_what_was_written_since_and_a_new_directory_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    for name in ("sync_file", "sync_directory"):
        monkeypatch.setattr(local, name, synced.append)
    directory = tmp_path / "t-0"
    storage = LocalBackend().open_log(tmp_path, "t-0", create=True)
    storage.sync()
    assert synced == [tmp_path]
    storage.sync()
    storage.write_file("at once", b"1")
    storage.sync()
    assert synced[1:] == []
    storage.write_file("later", b"2", sync=False)
    storage.write_leader_epochs([(3, 4)])
    assert (directory / "leader-epoch-checkpoint").read_text() == "0\n1\n3 4\n"
    storage.sync()
    assert sorted(synced[1:3]) == [directory / "later", directory / "leader-epoch-checkpoint"]
    assert synced[3:] == [directory]
    storage.sync()
    assert synced[4:] == []
    # One that was there already is synced with what was written only.
    LocalBackend().open_log(tmp_path, "t-0", create=False).sync()
    LocalLogStorage(directory).sync()
    assert synced[4:] == []


def test_a_sync_that_fails_is_repeated_unless_the_partition_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = [True]
    synced: list[Path] = []

    def sync(path: Path) -> None:
        if broken[0]:
            raise OSError(errno.EIO, "broken")
        synced.append(path)

    monkeypatch.setattr(local, "sync_file", sync)
    monkeypatch.setattr(local, "sync_directory", sync)
    (tmp_path / "t-0").mkdir()
    storage = LocalLogStorage(tmp_path / "t-0", created=True)
    storage.write_file("a", b"1", sync=False)
    with pytest.raises(OSError, match="broken"):
        storage.sync()
    broken[0] = False
    storage.sync()
    assert synced == [tmp_path / "t-0" / "a", tmp_path / "t-0", tmp_path]
    storage.write_file("a", b"1", sync=False)
    storage.retire()
    broken[0] = True
    storage.sync()


def test_a_deleted_partition_changes_no_file_any_more(tmp_path: Path) -> None:
    storage = LocalLogStorage(tmp_path)
    storage.write_file("a", b"1")
    storage.write_file("b", b"2")
    storage.remove_file("b")
    storage.remove_file("b")
    storage.retire()
    storage.write_file("a", b"3")
    storage.write_file("c", b"3", sync=False)
    storage.remove_file("a")
    with pytest.raises(FileNotFoundError, match="the partition is deleted") as raised:
        storage.prepare_segment()
    assert (raised.value.errno, raised.value.filename) == (errno.ENOENT, str(tmp_path))
    assert (names(tmp_path), storage.read_file("a")) == (["a"], b"1")


def test_partition_directories_are_made_listed_renamed_and_removed(tmp_path: Path) -> None:
    backend = LocalBackend()
    with pytest.raises(FileNotFoundError) as raised:
        backend.open_log(tmp_path, "t-1", create=False)
    assert (raised.value.errno, raised.value.filename) == (errno.ENOENT, f"{tmp_path}/t-1")
    (tmp_path / "t-1").touch()
    with pytest.raises(FileNotFoundError):
        backend.open_log(tmp_path, "t-1", create=False)
    (tmp_path / "lost").mkdir()
    for name in ("t-2", "t-0"):
        for create in (True, True, False):
            assert backend.open_log(tmp_path, name, create=create).directory == f"{tmp_path}/{name}"
    assert backend.list_logs(tmp_path) == ["t-0", "t-2"]
    backend.rename_log(tmp_path, "t-0", "t-3")
    assert backend.list_logs(tmp_path) == ["t-2", "t-3"]
    backend.delete_log(tmp_path, "t-3")
    backend.delete_log(tmp_path, "t-3")
    assert backend.list_logs(tmp_path) == ["t-2"]


@pytest.mark.parametrize("failures", range(5))
@pytest.mark.parametrize("error", [OSError(errno.ENOTEMPTY, "a writer came"), FileNotFoundError(2, "a file has gone")])
def test_a_directory_that_does_not_get_empty_is_tried_three_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int, error: OSError
) -> None:
    """A file that goes while the directory is emptied is no failure, and neither is one that comes."""
    (tmp_path / "t-0").mkdir()
    tries: list[int] = []
    rmtree = shutil.rmtree

    def remove(path: Path) -> None:
        tries.append(1)
        if len(tries) <= failures:
            raise error
        rmtree(path)

    monkeypatch.setattr(local.shutil, "rmtree", remove)
    pauses: list[float] = []
    monkeypatch.setattr(local.time, "sleep", pauses.append)
    if failures < 3 or error.errno == errno.ENOENT:
        LocalBackend().delete_log(tmp_path, "t-0")
    else:
        with pytest.raises(OSError, match="a writer came"):
            LocalBackend().delete_log(tmp_path, "t-0")
    assert len(tries) == min(failures + 1, 3)
    raised = failures >= 3 and error.errno != errno.ENOENT
    assert pauses == [0.01] * (min(failures, 3) - raised)
    assert (tmp_path / "t-0").exists() == (failures >= 3)


def test_logs_in_memory_are_known_by_directory_and_name() -> None:
    backend, here, there = MemoryBackend(), Path("/here"), Path("/there")
    with pytest.raises(FileNotFoundError) as raised:
        backend.open_log(here, "t-0", create=False)
    assert (raised.value.errno, raised.value.filename) == (errno.ENOENT, "t-0")
    one = backend.open_log(here, "t-0", create=True)
    assert backend.open_log(here, "t-0", create=True) is one is backend.open_log(here, "t-0", create=False)
    other = backend.open_log(there, "t-0", create=True)
    assert other is not one
    backend.open_log(here, "a-0", create=True)
    assert (backend.list_logs(here), backend.list_logs(there)) == (["a-0", "t-0"], ["t-0"])
    backend.rename_log(here, "t-0", "t-1")
    assert backend.list_logs(here) == ["a-0", "t-1"]
    assert backend.open_log(here, "t-1", create=False) is one
    backend.delete_log(here, "t-1")
    backend.delete_log(here, "t-1")
    assert (backend.list_logs(here), backend.list_logs(there)) == (["a-0"], ["t-0"])


def test_files_in_memory_are_those_that_were_written() -> None:
    storage = MemoryLogStorage("t" * 249 + "-0")
    storage.write_file("b", b"1")
    storage.write_file("a", b"2", sync=False)
    storage.write_leader_epochs([(1, 2)])
    assert storage.names() == ["a", "b", "leader-epoch-checkpoint"]
    assert [storage.read_file(name) for name in (*storage.names(), "c")] == [b"2", b"1", b"0\n1\n1 2\n", None]
    storage.remove_file("a")
    storage.remove_file("a")
    storage.retire()
    storage.sync()
    storage.delete_segments([0], delay_ms=0)
    assert (storage.names(), storage.segments(), storage.segments(["0.log"]), storage.directory) == (
        ["b", "leader-epoch-checkpoint"], [], [], ""
    )  # fmt: skip
    fd, path = storage.prepare_segment()
    assert (path, os.fstat(fd).st_size, os.get_inheritable(fd)) == ("", 0, False)
    assert f"memfd:kafkapy:{'t' * 192} " in f"{Path(f'/proc/self/fd/{fd}').readlink()} "
    os.close(fd)
    assert storage.native_segments
    assert not type("Own", (MemoryLogStorage,), {"prepare_segment": lambda self: (0, "")})("t-0").native_segments
