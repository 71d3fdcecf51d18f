"""The file operations of this process as numbered points: spoiled one at a time, or replayed into what a crash leaves.

Works in a process with the library made from file_faults.c preloaded; `Disk` works anywhere.
"""

from __future__ import annotations

import ctypes
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

OPEN, WRITE, TRUNCATE, SYNC, RENAME, UNLINK, MKDIR, RMDIR, CLOSE, UTIME, READ, MMAP, LOOK = range(1, 14)
MARK = 0
CREATED = 1
EIO_ONCE, EIO_FROM_HERE, FULL_FROM_HERE, SHORT_ONCE, SHORT_THEN_FULL, DISK_FROM_HERE = range(1, 7)
KINDS = {
    "EIO": EIO_ONCE,
    "EIO on": EIO_FROM_HERE,
    "ENOSPC": FULL_FROM_HERE,
    "short": SHORT_ONCE,
    "torn": SHORT_THEN_FULL,
}
ONE_DISK = {"disk": DISK_FROM_HERE}
"""Every directory in the root is a disk: from here on, one of them fails and the others do not."""
LOST = ("killed", "all lost", "data lost", "holes", "names lost", "mixed")
"""What a crash leaves. "killed": all that was done. The others are power failures: of what was not synced, everything
is lost; the data but no name; the data, but files have their length; names (creations, renames, removals) but no data;
a random part of each."""
SHORTAGE = 1000
"""A kind `times * SHORTAGE + errno` lets so many operations in a row fail with that errno."""
PAGE = 512
ENTRY = struct.Struct("<iiqqii")


@dataclass(frozen=True, slots=True)
class Operation:
    """One entry of the journal. `number`: that of the point, from 1 on."""

    op: int
    fd: int
    argument: int
    number: int
    path: str
    data: bytes


def build(directory: Path) -> Path:
    """Compiles the library to preload."""
    library = directory / "file_faults.so"
    source = Path(__file__).with_suffix(".c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True)
    return library


class Faults:
    """The preloaded library. One thread."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        for name in ("faults_count", "faults_journal_size"):
            getattr(self._library, name).restype = ctypes.c_int64
        self._library.faults_journal.restype = ctypes.c_void_p

    def begin(self, root: Path, at: int = 0, kind: int = 0) -> None:
        """Numbers the operations below `root` from here on, and spoils that number `at` (0: none)."""
        self._library.faults_root(str(root).encode())
        self._library.faults_arm(ctypes.c_int64(at), kind)

    def disarm(self) -> None:
        self._library.faults_arm(ctypes.c_int64(0), 0)

    def mark(self, what: int) -> None:
        """Puts a number of the caller's into the journal."""
        self._library.faults_mark(ctypes.c_int64(what))

    @property
    def count(self) -> int:
        return int(self._library.faults_count())

    def journal(self) -> list[Operation]:
        """What has been done since `begin`."""
        size = self._library.faults_journal_size()
        raw = ctypes.string_at(self._library.faults_journal(), size)
        found, at = [], 0
        while at < size:
            op, fd, argument, number, size1, size2 = ENTRY.unpack_from(raw, at)
            at += ENTRY.size
            path, data = raw[at : at + size1].decode(), raw[at + size1 : at + size1 + size2]
            at += size1 + size2
            found.append(Operation(op, fd, argument, number, path, data))
        return found


class File:
    """Contents now, and when they were synced last."""

    __slots__ = ("now", "synced")

    def __init__(self, data: bytes = b"") -> None:
        self.now = bytearray(data)
        self.synced = data


class Disk:
    """A directory tree as the page cache has it and as the disk has it, from which any crash state can be made."""

    def __init__(self, root: Path) -> None:
        """All that is there now is on the disk."""
        self.root = root
        self.files = {str(path): File(path.read_bytes()) for path in root.rglob("*") if path.is_file()}
        self.dirs = {str(path) for path in root.rglob("*") if path.is_dir()}
        self.durable_files, self.durable_dirs = dict(self.files), set(self.dirs)
        self._open: dict[int, File | str] = {}

    def apply(self, operation: Operation) -> bool:
        """Does it; whether anything changed."""
        op, path = operation.op, operation.path
        if op == OPEN:
            if operation.argument & CREATED:
                self.files[path] = File()
            target = self.files.get(path)
            self._open[operation.fd] = path if target is None else target
            if operation.argument & 2 and target is not None:
                target.now.clear()
            return operation.argument != 0
        if op == CLOSE:
            self._open.pop(operation.fd, None)
            return False
        if op in (WRITE, TRUNCATE):
            file = self._open[operation.fd]
            assert isinstance(file, File)
            end = operation.argument if op == TRUNCATE else operation.argument + len(operation.data)
            file.now.extend(bytes(max(0, end - len(file.now))))
            if op == TRUNCATE:
                del file.now[end:]
            else:
                file.now[operation.argument : end] = operation.data
        elif op == SYNC:
            opened = self._open[operation.fd]
            if isinstance(opened, File):
                opened.synced = bytes(opened.now)
            else:
                self._sync_names(opened)
        elif op == RENAME:
            self._rename(path, operation.data.decode())
        elif op == UNLINK:
            del self.files[path]
        elif op == MKDIR:
            self.dirs.add(path)
        elif op == RMDIR:
            self.dirs.discard(path)
        else:
            return False
        return True

    def _rename(self, old: str, new: str) -> None:
        if old in self.files:
            self.files[new] = self.files.pop(old)
            return
        self.dirs.discard(old)
        self.dirs.add(new)
        for path in [path for path in self.files if path.startswith(old + "/")]:
            self.files[new + path[len(old) :]] = self.files.pop(path)
        if old in self.durable_dirs:
            # What was on the disk in it stays in it, under whichever name.
            for path in [path for path in self.durable_files if path.startswith(old + "/")]:
                self.durable_files[new + path[len(old) :]] = self.durable_files[path]

    def _sync_names(self, directory: str) -> None:
        def inside(path: str) -> bool:
            return path.rpartition("/")[0] == directory

        kept = {path: file for path, file in self.durable_files.items() if not inside(path)}
        self.durable_files = kept | {path: file for path, file in self.files.items() if inside(path)}
        kept_dirs = {path for path in self.durable_dirs if not inside(path)}
        self.durable_dirs = kept_dirs | {path for path in self.dirs if inside(path)}
        # What was in a directory whose name is gone is not in one that gets the name later.
        known = self.durable_dirs | self.dirs | {str(self.root)}
        self.durable_files = {
            path: file for path, file in self.durable_files.items() if path.rpartition("/")[0] in known
        }

    def after(self, how: str, random: Random) -> tuple[dict[str, bytes], set[str]]:
        """The files and directories that are left; see LOST."""
        names_kept = {"killed": True, "all lost": False, "data lost": True, "holes": True, "names lost": False}
        kept = names_kept.get(how, random.random() < 0.5)
        files, dirs = (self.files, self.dirs) if kept else (self.durable_files, self.durable_dirs)
        # A directory that was not synced itself takes along what is in it.
        there = {str(self.root)}
        for directory in sorted(dirs):
            if directory.rpartition("/")[0] in there:
                there.add(directory)
        left = {path: file for path, file in files.items() if path.rpartition("/")[0] in there}
        return {path: self._left(file, how, random) for path, file in left.items()}, there - {str(self.root)}

    def _left(self, file: File, how: str, random: Random) -> bytes:
        if how in ("killed", "names lost"):
            return bytes(file.now)
        if how in ("all lost", "data lost"):
            return file.synced
        if how == "holes":
            return pages_of(file.synced, bytes(file.now), lambda: False)
        size = random.choice((len(file.now), len(file.now), len(file.synced)))
        return pages_of(file.synced, bytes(file.now), lambda: random.random() < 0.5)[:size]


def pages_of(old: bytes, new: bytes, is_written: Callable[[], bool]) -> bytes:
    """A file of the new length whose changed pages were written or were not: then the old bytes are there, or zeros."""
    out = bytearray(new)
    for at in range(0, len(new), PAGE):
        page = new[at : at + PAGE]
        before = old[at : at + len(page)]
        before += bytes(len(page) - len(before))
        if page != before and not is_written():
            out[at : at + len(page)] = before
    return bytes(out)


def put(root: Path, files: dict[str, bytes], dirs: set[str]) -> None:
    """Makes the directory tree hold exactly this."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    for directory in sorted(dirs):
        Path(directory).mkdir(exist_ok=True)
    for name, data in files.items():
        Path(name).write_bytes(data)


def crash_states(
    disk: Disk, journal: list[Operation], kinds: tuple[str, ...], random: Random
) -> Iterator[tuple[int, int, str, dict[str, bytes], set[str]]]:
    """(point, last mark, kind, files, directories) for a crash after each operation and at each mark; each state once
    per mark."""
    mark, seen = 0, set()
    for operation in [Operation(CLOSE, -1, 0, 0, "", b""), *journal]:
        if operation.op == MARK:
            mark = operation.argument
            seen.clear()
        elif not disk.apply(operation) and operation.number:
            continue
        for how in kinds:
            files, dirs = disk.after(how, random)
            key = hash((frozenset(files.items()), frozenset(dirs)))
            if (key, how == "killed") not in seen and (how == "killed" or (key, True) not in seen):
                seen.add((key, how == "killed"))
                yield operation.number, mark, how, files, dirs
