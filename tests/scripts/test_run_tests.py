"""`make test` runs tests in two parts: in parallel those that may, then those that are marked `alone`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from unittest.mock import ANY

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "run_tests.py"
SETTINGS = """\
[pytest]
addopts = -ra --strict-markers
markers =
    alone: x
    soak: x
    java: x
"""
# Each test writes its name, the process of pytest-xdist that ran it and the number of tests that run beside it.
TESTS = """\
import os
from pathlib import Path

import pytest


def run(name):
    with open("ran", "a") as file:
        file.write(f"{name} {os.environ.get('PYTEST_XDIST_WORKER', 'alone')}\\n")
    assert name not in os.environ.get("FAILING", "").split()


@pytest.mark.alone
def test_a():
    run("a")

@pytest.mark.parametrize("number", range(4))
def test_many(number):
    run(f"many{number}")

@pytest.mark.soak
def test_long():
    run("long")

@pytest.mark.java
@pytest.mark.alone
def test_java():
    run("java")
"""


class Run:
    """One run: its exit code, what pytest printed last in each part, the lines below that, and what ran."""

    def __init__(self, directory: Path, *arguments: str, failing: str = "") -> None:
        known = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        # What other runs have left in the common place would be warned of in the last line.
        places = directory / "temporary"
        places.mkdir(exist_ok=True)
        done = subprocess.run(
            [sys.executable, str(directory / "scripts" / SCRIPT.name), *arguments],
            # No plugin that tests here do without: pytest starts twice each time, and so do its workers.
            env=known
            | {
                "FAILING": failing,
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
                "PYTEST_PLUGINS": "xdist.plugin",
                "PYTEST_DEBUG_TEMPROOT": str(places),
            },
            capture_output=True,
            text=True,
            timeout=200,
        )
        self.code = done.returncode
        closing = [line.strip("= ") for line in done.stdout.splitlines() if line.startswith("=") and " in " in line]
        self.closing = [line.partition(" in ")[0] for line in closing]
        lines = done.stdout.splitlines()
        self.last = lines[max(number for number, line in enumerate(lines, 1) if line.startswith("=")) :]
        ran = directory / "ran"
        self.ran = [line.split() for line in ran.read_text().splitlines()] if ran.exists() else []
        ran.unlink(missing_ok=True)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "scripts").mkdir()
    shutil.copy(SCRIPT, tmp_path / "scripts")
    (tmp_path / "pytest.ini").write_text(SETTINGS)
    (tmp_path / "test_it.py").write_text(TESTS)
    return tmp_path


def test_tests_that_are_marked_alone_run_last_and_in_one_process(directory: Path) -> None:
    run = Run(directory, "-n", "2")
    assert run.code == 0
    assert sorted(name for name, _ in run.ran[:4]) == ["many0", "many1", "many2", "many3"]
    assert {process for _, process in run.ran[:4]} <= {"gw0", "gw1"}
    assert run.ran[4:] == [["a", "alone"], ["java", "alone"]]
    assert run.closing == ["4 passed", "2 passed, 5 deselected"]


@pytest.mark.parametrize(("failing", "closing"), [("many2", "1 failed, 3 passed"), ("a", "4 passed")])
def test_both_parts_run_and_either_fails_the_whole(directory: Path, failing: str, closing: str) -> None:
    run = Run(directory, "-n", "2", failing=failing)
    assert run.code == 1
    assert len(run.ran) == 6
    assert run.closing[0] == closing
    test = {"many2": "test_it::test_many[2]", "a": "test_it::test_a"}[failing]
    assert [line.partition(": ")[::2] for line in run.last] == [(f"FAILED {test}", ANY)]
    assert "AssertionError" in run.last[0]


def test_few_of_many_failures_are_named_last(directory: Path) -> None:
    parametrized = "@pytest.mark.parametrize('number', range(20))\ndef test_it(number):"
    many = f"import pytest\n\n\n{parametrized}\n    assert not 'x' * 999\n"
    (directory / "test_it.py").write_text(many)
    run = Run(directory, "-n", "2")
    assert run.last[-1] == "and 5 more (see above)"
    assert len(run.last) == 16
    assert max(map(len, run.last)) < 400


def test_a_part_without_tests_fails_nothing_unless_both_are(directory: Path) -> None:
    assert Run(directory, "-k", "test_a").code == 0
    assert Run(directory, "-k", "test_many").code == 0
    nothing = Run(directory, "-k", "test_nothing")
    assert (nothing.code, nothing.ran) == (5, [])


def test_markers_of_the_caller_narrow_both_parts(directory: Path) -> None:
    assert [name for name, _ in Run(directory, "-m", "java or soak").ran] == ["long", "java"]
    assert "long" not in [name for name, _ in Run(directory).ran]
