"""Runs a scenario with each of its file operations spoiled, or the last one before a crash.

Started by test_fault_injection.py with the library of file_faults.c preloaded:

    python fault_runner.py <directory> <scenario> crashes|faults|"every fault"

runs a scenario once and counts its file operations. "crashes": what a kill and several kinds of power failure after
each operation would leave is written out. "every fault": the scenario is run again for each operation, which fails, in
each way; "faults": for every third one, each in one way. Each time the log is opened again and looked at. Prints
`{"points": operations, "runs": ..., "failures": [...]}`.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import sys
import traceback
from pathlib import Path
from random import Random
from typing import Final

from fault_flushes import FLUSH_SCENARIOS
from fault_log_manager import MANAGER_SCENARIOS
from fault_moves import MOVE_SCENARIOS
from fault_scenarios import COMPACT, SCENARIOS, Context, Ledger, Scenario
from file_faults import KINDS, LOST, ONE_DISK, Disk, Faults, crash_states, put

STRIDE: Final = 3


class Runner:
    """Runs one scenario again and again in one directory."""

    def __init__(self, root: Path, scenario: Scenario) -> None:
        self.root = root
        self.scenario = scenario
        self.faults = Faults()
        self.failures: list[str] = []
        self.runs = 0
        put(root, {}, set())
        self.prepared = self.context()
        scenario.before(self.prepared)
        self.prepared.log = None  # type: ignore[assignment]
        gc.collect()
        disk = Disk(root)
        self.files, self.dirs = {path: bytes(file.now) for path, file in disk.files.items()}, disk.dirs

    def context(self) -> Context:
        made = self.scenario.context(self.root, self.faults)
        if self.scenario.compacted:
            made.config = COMPACT
        return made

    def run(self, at: int = 0, kind: int = 0) -> Context:
        """The scenario from its beginning."""
        put(self.root, self.files, self.dirs)
        c = self.context()
        c.ledgers, c.attempts = [self.prepared.now], set(self.prepared.attempts)
        c.number, c.clock = self.prepared.number, self.prepared.clock
        self.faults.begin(self.root, at, kind)
        self.scenario.run(c)
        return c

    def crashes(self, kinds: tuple[str, ...]) -> int:
        """All states that a crash may leave."""
        put(self.root, self.files, self.dirs)
        disk = Disk(self.root)
        c = self.run()
        journal, points = self.faults.journal(), self.faults.count
        self.faults.begin(Path("/nowhere"))
        c.release()
        replayed = Disk(self.root)
        for number, mark, how, files, dirs in crash_states(disk, journal, kinds, Random(1)):
            put(self.root, files, dirs)
            self.look(c, c.ledgers[mark], how == "killed", f"after operation {number}, {how}")
        assert {path: bytes(file.now) for path, file in disk.files.items()} == {
            path: bytes(file.now) for path, file in replayed.files.items()
        }, "the journal is not complete"
        return points

    def look(self, c: Context, ledger: Ledger, killed: bool, what: str) -> None:
        self.runs += 1
        try:
            c.check(ledger, killed=killed)
        except Exception as error:
            where = "; ".join(f"{frame.name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__))
            self.failures.append(f"{what}: {type(error).__name__}: {error} ({where})")

    def spoil(self, *, every_kind: bool) -> int:
        """Each operation fails in each way, or every third in one, in a process of its own."""
        c = self.run()
        journal, points = self.faults.journal(), self.faults.count
        self.faults.disarm()
        writes = {operation.number for operation in journal if operation.op == 2}
        del c
        gc.collect()
        gc.freeze()
        for point in range(1, points + 1, 1 if every_kind else STRIDE):
            kinds = list(KINDS) if point in writes else ["EIO", "EIO on", "ENOSPC"]
            kinds += ONE_DISK if len(self.scenario.disks) > 1 else []
            for kind in kinds if every_kind else [kinds[self.runs % len(kinds)]]:
                code = (KINDS | ONE_DISK)[kind]
                self.runs += 1
                reading, writing = os.pipe()
                child = os.fork()
                if not child:
                    os.close(reading)
                    self.failures = []
                    try:
                        self.spoiled(point, kind, code)
                    except BaseException:
                        self.failures.append(f"operation {point}, {kind}: {traceback.format_exc()}")
                    os.write(writing, "\n".join(self.failures).encode()[:60000])
                    os._exit(0)
                os.close(writing)
                with os.fdopen(reading, "rb") as pipe:
                    said = pipe.read().decode()
                _, status = os.waitpid(child, 0)
                if status:
                    said += f"operation {point}, {kind}: the process ended with {status}"
                self.failures += [said] if said else []
        return points

    def go_on(self, c: Context, what: str) -> None:
        try:
            c.check_online()
        except Exception as error:
            where = "; ".join(f"{frame.name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__))
            self.failures.append(f"{what}, still online: {type(error).__name__}: {error} ({where})")

    def spoiled(self, point: int, kind: str, code: int) -> None:
        put(self.root, self.files, self.dirs)
        disk = Disk(self.root)
        c = self.run(point, code)
        self.faults.disarm()
        self.go_on(c, f"operation {point}, {kind}")
        journal = self.faults.journal()
        self.faults.begin(Path("/nowhere"))
        c.release()
        self.look(c, c.now, True, f"operation {point}, {kind}")
        # What a flush acknowledged after the fault must be on the disk.
        for operation in journal:
            disk.apply(operation)
        files, dirs = disk.after("all lost", Random(point))
        put(self.root, files, dirs)
        self.look(c, c.now, False, f"operation {point}, {kind}, then a power failure")


def main() -> None:
    logging.disable(logging.CRITICAL)
    root, name, what = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    runner = Runner(root, (SCENARIOS | FLUSH_SCENARIOS | MANAGER_SCENARIOS | MOVE_SCENARIOS)[name])
    points = runner.crashes(LOST) if what == "crashes" else runner.spoil(every_kind=what == "every fault")
    print(json.dumps({"points": points, "runs": runner.runs, "failures": runner.failures}))


if __name__ == "__main__":
    main()
