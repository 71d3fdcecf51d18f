"""Random schedules of faults on the simulated cluster, and weakenings of the protocol that they notice.

Each runs in a process whose order of sets is fixed, so that a seed means one schedule. KAFKAPY_SCHEDULES is the number
of schedules of the whole default test: 5,000, which with the mutants take two minutes of one core. A million run with
the soak tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from simulation.mutants import MUTANTS
from simulation.schedules import SCHEDULES

HERE = Path(__file__).parent
PARTS = 10
DEFAULT = int(os.environ.get("KAFKAPY_SCHEDULES", "5000"))
SOAK = 1_000_000
LIMIT_S = 1800
SOON = {
    "a leaving member counts as gone before the controller agrees",
    "a follower is cut to its high watermark",
    "a Fetch tells no last epoch",
    "a producer is answered before the high watermark",
    "an election keeps the leader epoch",
    "every live follower joins the ISR",
}
"""The mutants that the first runs notice."""


def run(program: str, *arguments: str, timeout: float | None = LIMIT_S) -> subprocess.CompletedProcess[str]:
    """Run a program of this directory."""
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    command = [sys.executable, str(HERE / program), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout, check=False)


def check(first: int, last: int, timeout: float | None = LIMIT_S) -> None:
    """The runs of these seeds break no rule."""
    done = run("schedules.py", str(first), str(last), timeout=timeout)
    said = done.stdout[-6000:] + done.stderr[-2000:]
    assert done.returncode == 0, f"{said}\nPYTHONHASHSEED=0 python {HERE / 'schedules.py'} SEED SEED+1 runs one again"


@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("part", range(PARTS))
def test_no_schedule_breaks_a_rule(part: int) -> None:
    runs = max(DEFAULT // SCHEDULES // PARTS, 1)
    check(part * runs, (part + 1) * runs)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(PARTS))
def test_no_schedule_of_many_breaks_a_rule(part: int) -> None:
    runs = SOAK // SCHEDULES // PARTS
    check(1_000_000 + part * runs, 1_000_000 + (part + 1) * runs, timeout=None)


@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("name", sorted(SOON))
def test_a_weaker_protocol_is_noticed(name: str) -> None:
    check_mutant(name)


@pytest.mark.soak
@pytest.mark.parametrize("name", sorted(MUTANTS.keys() - SOON))
def test_a_weaker_protocol_is_noticed_some_day(name: str) -> None:
    check_mutant(name)


def check_mutant(name: str) -> None:
    """A rule is broken with the mutant, within MOST_RUNS runs."""
    done = run("mutants.py", name)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "seed" in done.stdout
