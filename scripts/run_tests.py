"""Run the tests: first those that share the machine, in parallel, then those marked `alone`, one after another.

    scripts/run_tests.py [arguments for pytest]

Each part closes with pytest's own line, and both run whatever the other says. What failed in either stands in the last
lines. The exit code is that of the first part that failed. `-m` among the arguments narrows both parts, `-n` sets the
number of processes of the first.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
# What a process may need at most: it can have a Spark session and a broker.
MEMORY_OF_WORKER = 3 << 30
NOTHING_RAN = 5
DEFAULT_MARKERS = "not soak"
# Of the last lines: a reader may have no more than the end of the output.
SHOWN_FAILURES = 15
SHOWN_CHARACTERS = 300


def workers() -> int:
    """How many processes run tests at a time: one for each core, fewer where memory is short."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(1, min(len(os.sched_getaffinity(0)), memory // MEMORY_OF_WORKER))


def parts(arguments: list[str]) -> list[list[str]]:
    """The arguments of pytest for each part."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("-m", dest="markers", default=DEFAULT_MARKERS)
    parser.add_argument("-n", "--numprocesses", dest="workers", default=str(workers()))
    known, others = parser.parse_known_args(arguments)
    parallel = ["-n", known.workers, "--dist", "worksteal"] if known.workers not in ("0", "1") else []
    return [
        [*parallel, "-m", f"({known.markers}) and not alone", *others],
        ["-m", f"({known.markers}) and alone", *others],
    ]


def exit_code(codes: list[int]) -> int:
    """One code for all parts: a part that had no test to run does not matter, unless none had."""
    failed = [code for code in codes if code not in (0, NOTHING_RAN)]
    return failed[0] if failed else min(codes)


def failures(report: Path) -> list[str]:
    """A line for each test that failed, of pytest's report in the form of JUnit; none where pytest wrote no report."""
    if not report.exists():
        return []
    lines = []
    for test in ElementTree.parse(report).iter("testcase"):
        for outcome in (*test.iter("failure"), *test.iter("error")):
            message = " ".join(outcome.get("message", "").split())[:SHOWN_CHARACTERS]
            lines.append(f"FAILED {test.get('classname')}::{test.get('name')}: {message}")
    return lines


def main(arguments: list[str]) -> int:
    """Run both parts."""
    codes: list[int] = []
    failed: list[str] = []
    with tempfile.TemporaryDirectory() as directory:
        for part in parts(arguments):
            report = Path(directory) / f"{len(codes)}.xml"
            command = [sys.executable, "-m", "pytest", f"--junitxml={report}", *part]
            codes.append(subprocess.run(command, cwd=ROOT).returncode)
            failed += failures(report)
            # Ctrl-C ends all of it.
            if codes[-1] == 2:
                break
    if len(failed) > SHOWN_FAILURES:
        failed[SHOWN_FAILURES:] = [f"and {len(failed) - SHOWN_FAILURES} more (see above)"]
    print(*failed, sep="\n", end="\n" if failed else "")
    return exit_code(codes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
