"""The files of a partition's directory when a start finds them: which go, which take another's place, what they say."""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from log.conftest import make_batch

from kafkapy.log import loader
from kafkapy.log.backends.local import LocalLogStorage
from kafkapy.log.backends.memory import MemoryLogStorage
from kafkapy.log.loader import LoadReport, finish_interrupted_work, list_files, read_topic_id, write_topic_id
from kafkapy.types import ZERO_UUID, uuid_to_string

TOPIC_ID = uuid.UUID(int=77)


def put(directory: Path, *names: str) -> None:
    """Files whose content says their name. A number stands for its twenty digits."""
    for name in names:
        stem, dot, suffix = name.partition(".")
        (directory / f"{int(stem):020d}{dot}{suffix}" if stem.isdigit() else directory / name).write_text(name)


def left(directory: Path) -> dict[str, str]:
    """Content by name."""
    found = {}
    for path in directory.iterdir():
        stem, dot, suffix = path.name.partition(".")
        name = f"{int(stem)}{dot}{suffix}" if stem.isdigit() and len(stem) == 20 else path.name
        data = path.read_bytes()
        found[name] = "batches" if b"\0" in data else data.decode()
    return found


def same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


def test_what_is_deleted_or_temporary_goes(tmp_path: Path) -> None:
    kept = ("5.log", "5.index", "partition.metadata", "x.swap")
    put(tmp_path, "5.log.deleted", "x.deleted", "x.tmp", "x.cleaned", *kept)
    finish_interrupted_work(tmp_path)
    assert left(tmp_path) == same(*kept)


@pytest.mark.parametrize(
    ("cleaned", "taken"),
    [
        ((), (3, 5, 7)),
        (("5.log.cleaned",), (3,)),
        (("6.index.cleaned",), (3, 5)),
        (("5.log.cleaned", "3.log.cleaned"), ()),
        (("x.cleaned",), (3, 5, 7)),
        (("8.log.cleaned",), (3, 5, 7)),
        (("7.log.cleaned", "8.log.cleaned"), (3, 5)),
    ],
)
def test_a_swap_below_an_unfinished_cleaning_is_taken(
    tmp_path: Path, cleaned: tuple[str, ...], taken: tuple[int, ...]
) -> None:
    bases = (3, 5, 7)
    put(tmp_path, *cleaned)
    for base in bases:
        put(tmp_path, f"{base}.log", f"{base}.log.swap", f"{base}.index.swap")
    finish_interrupted_work(tmp_path)
    expected = {f"{base}.log": f"{base}.log" + ".swap" * (base in taken) for base in bases}
    expected |= {f"{base}.index": f"{base}.index.swap" for base in taken}
    assert left(tmp_path) == expected


def test_a_swap_replaces_the_segments_whose_offsets_it_has(tmp_path: Path) -> None:
    """Those up to the last offset of its last batch, with their indexes; all others stay."""
    for base in (3, 4, 5, 8, 9):
        put(tmp_path, *(f"{base}.{suffix}" for suffix in ("log", "index", "timeindex", "txnindex", "snapshot")))
    data = make_batch(1, base_offset=5) + make_batch(2, base_offset=7)
    (tmp_path / f"{4:020d}.log.swap").write_bytes(data)
    put(tmp_path, "4.timeindex.swap", "x.log", "leader-epoch-checkpoint")
    finish_interrupted_work(tmp_path)
    kept = [f"{base}.{suffix}" for base in (3, 9) for suffix in ("log", "index", "timeindex", "txnindex", "snapshot")]
    kept += [f"{base}.snapshot" for base in (4, 5, 8)]
    assert left(tmp_path) == same(*kept, "x.log", "leader-epoch-checkpoint") | {
        "4.log": "batches",
        "4.timeindex": "4.timeindex.swap",
    }
    assert (tmp_path / f"{4:020d}.log").read_bytes() == data


def test_an_empty_swap_replaces_its_own_segment(tmp_path: Path) -> None:
    put(tmp_path, "4.log", "4.index", "5.log")
    (tmp_path / f"{4:020d}.log.swap").touch()
    finish_interrupted_work(tmp_path)
    assert left(tmp_path) == same("5.log") | {"4.log": ""}


def test_indexes_alone_are_no_swap(tmp_path: Path) -> None:
    put(tmp_path, "4.log", "4.index", "4.index.swap", "4.timeindex.swap")
    finish_interrupted_work(tmp_path)
    assert left(tmp_path) == same("4.log", "4.index")


@pytest.mark.parametrize("leftover", ["5.log.deleted", "x.tmp", "5.log.cleaned", "5.index.swap", None])
def test_interrupted_work_is_looked_for_by_the_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leftover: str | None
) -> None:
    put(tmp_path, "4.log", *([] if leftover is None else [leftover]))
    done: list[Path] = []

    def finish(directory: Path) -> None:
        done.append(directory)
        finish_interrupted_work(directory)

    monkeypatch.setattr(loader, "finish_interrupted_work", finish)
    assert list_files(LocalLogStorage(tmp_path)) == [f"{4:020d}.log"]
    assert done == ([] if leftover is None else [tmp_path])
    storage = MemoryLogStorage("t-0")
    storage.write_file("x.tmp", b"")
    assert list_files(storage) == ["x.tmp"]
    assert len(done) == (leftover is not None)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, ZERO_UUID),
        (b"", ZERO_UUID),
        (bytes(40), ZERO_UUID),
        (f"version: 0\ntopic_id: {uuid_to_string(TOPIC_ID)}\n".encode(), TOPIC_ID),
        (f"topic_id: {uuid_to_string(TOPIC_ID)}\nversion: 0\nno field\nother: a: b".encode(), TOPIC_ID),
        (b"version: 0\n", None),
        (f"topic_id: {uuid_to_string(TOPIC_ID)}\n".encode(), None),
        (f"version: 1\ntopic_id: {uuid_to_string(TOPIC_ID)}\n".encode(), None),
        (b"\n", None),
    ],
)
def test_the_topic_id_of_a_log(content: bytes | None, expected: uuid.UUID | None) -> None:
    storage = MemoryLogStorage("t-0")
    if content is not None:
        storage.write_file("partition.metadata", content)
    if expected is None:
        with pytest.raises(ValueError, match="partition.metadata is malformed"):
            read_topic_id(storage)
    else:
        assert read_topic_id(storage) == expected


def test_the_topic_id_is_written_for_the_next_sync() -> None:
    seen: list[Any] = []
    storage: Any = SimpleNamespace(write_file=lambda name, data, *, sync: seen.append((name, data, sync)))
    write_topic_id(storage, TOPIC_ID)
    content = f"version: 0\ntopic_id: {uuid_to_string(TOPIC_ID)}\n"
    assert seen == [("partition.metadata", content.encode(), False)]


def test_indexes_without_a_segment_go(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    storage = LocalLogStorage(tmp_path)
    names = [f"{base}.{suffix}" for base in (4, 5) for suffix in ("index", "log", "snapshot", "timeindex", "txnindex")]
    put(tmp_path, *names, "x.index")
    assert loader._remove_orphans(storage, storage.names(), {4, 5}) == 0
    assert not caplog.messages
    assert loader._remove_orphans(storage, storage.names(), {4}) == 3
    orphans = ("5.index", "5.timeindex", "5.txnindex")
    assert left(tmp_path) == same(*(name for name in [*names, "x.index"] if name not in orphans))
    assert caplog.messages[0] == f"File {tmp_path}/{5:020d}.index belongs to no segment; the broker deletes it"
    # Without any segment, snapshots speak of nothing.
    assert loader._remove_orphans(storage, storage.names(), set()) == 5
    assert left(tmp_path) == same("4.log", "5.log", "x.index")


@pytest.mark.parametrize(
    ("offsets", "end", "kept"),
    [
        ((), 9, ()),
        ((4, 5, 6, 7), 9, (4, 7)),
        ((4, 5, 6, 7), 6, (4, 6)),
        ((4, 5, 6, 7), 5, (4, 5)),
        ((6, 8, 9), 9, (8, 9)),
        ((6, 8, 9), 10, (8, 9)),
        ((10, 11), 9, ()),
    ],
)
def test_snapshots_of_rolls_and_the_newest_stay(
    tmp_path: Path, offsets: tuple[int, ...], end: int, kept: tuple[int, ...]
) -> None:
    storage = LocalLogStorage(tmp_path)
    put(tmp_path, *(f"{offset}.snapshot" for offset in offsets), "x.snapshot", "3.log")
    log: Any = SimpleNamespace(log_end_offset=end, segments=lambda: [(4, 1), (8, 1)])
    gone = loader._remove_stray_snapshots(log, storage, storage.names())
    assert gone == {f"{offset:020d}.snapshot" for offset in offsets if offset not in kept}
    assert left(tmp_path) == same(*(f"{offset}.snapshot" for offset in kept), "x.snapshot", "3.log")


class Producers:
    """What is asked of the kernel when the producer state is loaded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *malformed: bytes) -> None:
        self.log: Any = SimpleNamespace(
            log_end_offset=9, segments=lambda: [(0, 1), (4, 1), (8, 1)], rewrite_transaction_indexes=self.rewrite
        )
        self.aborted: list[bytes] = []
        self.rewritten: list[int] = []
        self.snapshots: list[tuple[int, bytes]] = []
        self.malformed = malformed
        monkeypatch.setattr(loader, "load_aborted", self.load_aborted)
        monkeypatch.setattr(loader, "rebuild_producers", self.rebuild)
        monkeypatch.setattr(time, "time_ns", lambda: 1_234_999_999)

    def rewrite(self, base: int) -> None:
        self.rewritten.append(base)

    def load_aborted(self, log: Any, data: bytes) -> int:
        self.aborted.append(data)
        return -1 if data in self.malformed else 0

    def rebuild(self, log: Any, snapshots: list[tuple[int, bytes]], now_ms: int) -> int:
        assert (log, now_ms) == (self.log, 1234)
        self.snapshots = snapshots
        return 77

    def load(self, directory: Path, first_recovered: int = -1) -> int:
        storage, report = LocalLogStorage(directory), LoadReport()
        assert report.snapshot_offset == -1
        loader._load_producers(self.log, storage, storage.names(), first_recovered, report)
        return report.snapshot_offset


FILES = ("0.txnindex", "4.txnindex", "8.txnindex", "0.snapshot", "4.snapshot", "8.snapshot", "9.snapshot")


@pytest.mark.parametrize(
    ("first_recovered", "aborted", "snapshots"),
    [(-1, (0, 4, 8), (0, 4, 8, 9)), (0, (), (0,)), (3, (0,), (0,)), (4, (0,), (0, 4)), (5, (0, 4), (0, 4)),
     (8, (0, 4), (0, 4, 8))],
)  # fmt: skip
def test_nothing_that_comes_from_recovered_segments_is_believed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    first_recovered: int,
    aborted: tuple[int, ...],
    snapshots: tuple[int, ...],
) -> None:
    put(tmp_path, *FILES, "x.snapshot", "0.log")
    kernel = Producers(monkeypatch)
    assert kernel.load(tmp_path, first_recovered) == 77
    assert kernel.aborted == [b"%d.txnindex" % base for base in aborted]
    assert kernel.snapshots == [(offset, b"%d.snapshot" % offset) for offset in snapshots]
    assert kernel.rewritten == []


def test_a_malformed_transaction_index_ends_what_is_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    put(tmp_path, *FILES)
    (tmp_path / f"{0:020d}.txnindex").write_bytes(b"")
    kernel = Producers(monkeypatch, b"4.txnindex")
    kernel.load(tmp_path)
    assert kernel.aborted == [b"4.txnindex"]
    assert [offset for offset, _ in kernel.snapshots] == [0, 4]
    assert kernel.rewritten == [4]
    assert f"is malformed: {4:020d}.txnindex; recovery reads aborted" in caplog.text
    # The very first one too.
    put(tmp_path, "0.txnindex")
    kernel = Producers(monkeypatch, b"0.txnindex")
    kernel.load(tmp_path)
    assert ([offset for offset, _ in kernel.snapshots], kernel.rewritten) == ([0], [0])


def test_a_snapshot_beyond_the_end_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "8.snapshot", "9.snapshot", "10.snapshot", "12.snapshot")
    kernel = Producers(monkeypatch)
    kernel.log.segments = lambda: [(8, 1), (12, 1)]
    kernel.load(tmp_path)
    assert left(tmp_path) == same("8.snapshot", "9.snapshot")
    assert [offset for offset, _ in kernel.snapshots] == [8, 9]
