"""The scenarios of partitions that move between two log directories, for fault_runner.py: copy, catch-up, the swap of
the directories, a move that is given up, and a start that finishes what a kill cut short."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from fault_log_manager import PARTITIONS, ManagerContext
from fault_scenarios import Context, Scenario

from kafkapy.errors import KafkaStorageError
from kafkapy.log.backends.local import LocalBackend
from kafkapy.log.dir_scan import parse_directory_name
from kafkapy.log.future_logs import Progress
from kafkapy.log.log_manager import LogManager
from kafkapy.types import TopicPartition

MOVED, OTHER = PARTITIONS
CHECKPOINTS = {
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
    ".lock",
    ".kafka_cleanshutdown",
}


DISKS = ("disk1", "disk2")


class Killed(BaseException):
    """The broker ends here."""


class KilledBetweenRenames(LocalBackend):
    """The process ends when the old log has its new name, and the future log has not."""

    def rename_log(self, log_dir: Path, old: str, new: str) -> None:
        if old.endswith("-future"):
            raise Killed
        super().rename_log(log_dir, old, new)


class MoveContext(ManagerContext):
    """One run with two log directories."""

    directories = DISKS

    def start(self) -> bool:
        """Only with both: a partition of one that cannot be read would be made anew."""
        started = super().start() and not self.manager.offline_dirs
        self.running = started
        return started

    def begin_move(self, tp: TopicPartition, name: str) -> None:
        with contextlib.suppress(KafkaStorageError, OSError):
            self.manager.futures.create(tp, self.root / name)

    def finish_move(self, tp: TopicPartition) -> None:
        while self.manager.futures.advance(tp) is Progress.COPYING:
            pass

    def delete_records(self, tp: TopicPartition, offset: int) -> None:
        log = self.manager.get(tp)
        if log is not None and not log.offline_errno:
            self.note(started={**self.now.started, tp: offset})  # type: ignore[attr-defined]
            self.attempt(log.delete_records, offset)

    # ---- looking ----

    def check_places(self, manager: LogManager) -> None:
        """Every partition has one directory, and a future log in the other one at most."""
        for tp, log in manager.logs().items():
            place = manager.table.place(tp)
            assert place is not None
            if place.log_dir.failure is not None:
                continue
            assert log.storage.directory == str(place.log_dir.path / str(tp))
            here = {each.path.name for each in manager.live_dirs if (each.path / str(tp)).exists()}
            assert here == {place.log_dir.path.name}, f"{tp} is in {here}, not in {place.log_dir.path.name} alone"
            future = manager.futures.get(tp)
            copies = {path for each in manager.live_dirs for path in each.path.glob(f"{tp}.*-future")}
            known = {future.place.log_dir.path / future.place.name} if future is not None else set()
            assert copies == known, f"{copies} of {tp} for {known}"
            assert future is None or future.place.log_dir is not place.log_dir
        for each in manager.live_dirs:
            names = {path.name.removesuffix(".tmp") for path in each.path.iterdir()} - CHECKPOINTS
            strange = {name for name in names if parse_directory_name(name) is None and "-future" not in name}
            if manager.offline_dirs:
                # What a move has left is kept until the other disk can be read.
                strange = {name for name in strange if not name.endswith("-delete")}
            assert not strange, f"{strange} in {each.path.name}"

    def check_opened(self, manager: LogManager, ledger: Any, *, killed: bool) -> None:
        """A move that was under way goes on to its end, and the log is the same after it."""
        self.check_places(manager)
        for tp, future in manager.futures.all().items():
            if manager.get(tp) is None:
                continue  # only a new partition of that name takes it away
            before = self.values_of(manager.get(tp))
            while (progress := manager.futures.advance(tp)) is Progress.COPYING:
                pass
            log, failures = manager.get(tp), [each.failure for each in manager.offline_dirs]
            assert progress is Progress.DONE, f"the move of {tp} ended with {progress}: {log}, {future.log}, {failures}"
            place = manager.table.place(tp)
            assert place is not None
            assert place.log_dir is future.place.log_dir
            # Of deleted records the crash may have brought some back, which the copy did not have any more.
            after = self.values_of(manager.get(tp))
            assert after == before[len(before) - len(after) :], f"{tp} had {before}, and has {after} after a move"
        self.check_places(manager)

    def check_online(self) -> None:
        super().check_online()
        if self.running:
            self.check_places(self.manager)


def two_directories(c: Context) -> None:
    """A partition in each, after a clean stop."""
    assert isinstance(c, MoveContext)
    for name in c.directories:
        (c.root / name).mkdir()
    assert c.start()
    c.write(MOVED, 8)
    c.write(OTHER, 2)
    assert [c.manager.dir_of(tp) for tp in PARTITIONS] == [c.root / name for name in c.directories]
    c.stop()


def cut_short(c: Context) -> None:
    """As a kill between the two renames of a swap leaves it; half of another partition has been copied."""
    assert isinstance(c, MoveContext)
    two_directories(c)
    assert c.start()
    c.write(OTHER, 3)
    c.begin_move(OTHER, "disk1")
    c.manager.futures.advance(OTHER, 200)
    c.begin_move(MOVED, "disk2")
    place = c.manager.table.place(MOVED)
    assert place is not None
    future = c.manager.futures.get(MOVED)
    assert future is not None
    backend = KilledBetweenRenames()
    c.manager.futures.get(MOVED).place = future.place._replace(backend=backend)  # type: ignore[union-attr]
    try:
        c.finish_move(MOVED)
    except Killed:
        c.release()
    assert not (c.root / "disk1" / str(MOVED)).exists()
    assert not (c.root / "disk2" / str(MOVED)).exists()
    c.manager = None  # type: ignore[assignment]


def move(c: Context) -> None:
    """With appends, a roll and a deletion on the way."""
    assert isinstance(c, MoveContext)
    if not c.start():
        return
    c.begin_move(MOVED, "disk2")
    c.manager.futures.advance(MOVED, 200)
    c.write(MOVED, 3)
    c.delete_records(MOVED, 2)
    c.manager.futures.advance(MOVED, 600)
    c.write(MOVED, 2)
    c.flush()
    c.write(MOVED, 1)
    c.finish_move(MOVED)
    c.write(MOVED, 1)
    c.flush()


def move_back(c: Context) -> None:
    """There and back again, so that the name that the log had before is used once more, and a restart."""
    assert isinstance(c, MoveContext)
    move(c)
    if not c.running:
        return
    c.begin_move(MOVED, "disk1")
    c.finish_move(MOVED)
    c.write(MOVED, 1)
    c.stop()
    if not c.manager.offline_dirs and c.start():
        c.write(MOVED, 1)
        c.flush()


def recover_moves(c: Context) -> None:
    """The start finishes the swap; the other move goes on, is given up, and begins again before the partition goes."""
    assert isinstance(c, MoveContext)
    if not c.start():
        return
    c.write(MOVED, 2)
    c.manager.futures.advance(OTHER, 100)
    c.manager.futures.remove(OTHER)
    c.write(OTHER, 1)
    c.begin_move(OTHER, "disk1")
    c.manager.futures.advance(OTHER, 300)
    c.flush()
    c.delete(OTHER)
    if OTHER not in c.now.deleting:  # type: ignore[attr-defined]
        c.write(OTHER, 1)


MOVE_SCENARIOS = {
    "directory swap": Scenario(two_directories, move, MoveContext, disks=DISKS),
    "directory swap and back": Scenario(two_directories, move_back, MoveContext, disks=DISKS),
    "recovery of a directory swap": Scenario(cut_short, recover_moves, MoveContext, disks=DISKS),
}
