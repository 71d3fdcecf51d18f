"""Every file operation of appends, rolls, flushes, truncations, deletions, restarts, recoveries, cleanings and moves
between directories fails, or is the last one before a crash: afterwards no acknowledged record is missing, none is
there twice, none was invented, and a partition is in one directory.

The points are enumerated. `make test` writes out the crash states of every point and lets every third operation fail in
one way; `make soak` lets every operation fail in every way. What is done and how it is judged: fault_scenarios.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from log.file_faults import build

HERE = Path(__file__).parent
SCENARIOS = (
    "append, roll, flush",
    "space ahead",
    "transactions",
    "truncation",
    "deletion",
    "restart",
    "recovery",
    "compaction",
    "recovery of a swap",
    "flush.messages",
    "log manager",
    "directory swap",
    "recovery of a directory swap",
)
LONG_SCENARIOS = ("directory swap and back",)
SLOW_TO_SPOIL = ("recovery of a directory swap",)

pytestmark = pytest.mark.skipif(bool(os.environ.get("KAFKAPY_ASAN")), reason="preloaded libraries in each other's way")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("faults"))


def run(library: Path, directory: Path, scenario: str, what: str) -> tuple[int, int]:
    """How many operations there were, and how many runs."""
    environment = {**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": str(HERE.parent.parent)}
    command = [sys.executable, str(HERE / "fault_runner.py"), str(directory / "logs"), scenario, what]
    said = json.loads(subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE).stdout)
    assert not said["failures"], f"{len(said['failures'])} failed:\n" + "\n".join(said["failures"][:10])
    return said["points"], said["runs"]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_crash_between_any_two_file_operations(library: Path, fast_directory: Path, scenario: str) -> None:
    points, runs = run(library, fast_directory, scenario, "crashes")
    assert points >= 50
    assert runs >= points


@pytest.mark.parametrize("scenario", [scenario for scenario in SCENARIOS if scenario not in SLOW_TO_SPOIL])
def test_any_file_operation_fails(library: Path, fast_directory: Path, scenario: str) -> None:
    points, runs = run(library, fast_directory, scenario, "faults")
    assert points >= 50
    assert runs == len(range(0, points, 3))


@pytest.mark.soak
@pytest.mark.parametrize("scenario", LONG_SCENARIOS)
def test_a_crash_between_any_two_file_operations_of_a_long_run(
    library: Path, fast_directory: Path, scenario: str
) -> None:
    points, runs = run(library, fast_directory, scenario, "crashes")
    assert points >= 200
    assert runs >= points


@pytest.mark.soak
@pytest.mark.parametrize("scenario", (*SCENARIOS, *LONG_SCENARIOS))
def test_any_file_operation_fails_in_every_way(library: Path, fast_directory: Path, scenario: str) -> None:
    points, runs = run(library, fast_directory, scenario, "every fault")
    assert runs >= 3 * points
