"""Check what changed since main, within a minute: `make quick`.

Ruff reads the changed files and mypy the changed modules, while pytest runs the tests that changed, those at the
mirrored path of a changed module (`kafkapy/log/manager.py`, `tests/log/test_manager.py`) and those that import one.
After the limit no test begins, and the summary counts those that are left. Tests of whole systems run only if they
changed themselves.

    scripts/quick.py [--since COMMIT] [--seconds 45] [--list] [arguments for pytest]
"""

from __future__ import annotations

import argparse
import ast
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {
    "kafkapy": "tests",
    "plugins/kafkapy-spark/kafkapy_spark": "plugins/kafkapy-spark/tests",
    "plugins/kafkapy-console/kafkapy_console": "plugins/kafkapy-console/tests",
}
# Tests that need what `make build` does not install.
PLUGINS = {"plugins/kafkapy-console/tests": "starlette"}
KERNELS = "kafkapy/_speedups"
SLOW = ("tests/system", "tests/interop", "tests/fuzz", "tests/perf", "tests/test_build.py", "tests/test_packaging.py")
MARKERS = "not soak and not spark and not alone"


def git(*arguments: str) -> list[str]:
    """The lines that git prints, or none where it fails."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.splitlines() if done.returncode == 0 else []


def changed_files(since: str) -> list[str]:
    """Files that differ from where this branch left `since`, committed or not, and new ones."""
    base = git("merge-base", since, "HEAD") or git("rev-parse", "--verify", "HEAD")
    names = git("diff", "--name-only", "--diff-filter=d", *base) + git("ls-files", "--others", "--exclude-standard")
    return sorted(set(names))


def module_of(path: str) -> str:
    """The module that a file is, or ''."""
    file = Path(path)
    if file.suffix not in (".py", ".pyx", ".pxd", ".pyi"):
        return ""
    for package in PACKAGES:
        if file.is_relative_to(package):
            parts = file.relative_to(Path(package).parent).with_suffix("").parts
            return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return ""


def mirrored(path: str, tests: Iterable[str]) -> list[str]:
    """Tests at the path of a module: test_x.py or test_x_*.py in the folder that mirrors its own."""
    file = Path(path)
    for package, folder in PACKAGES.items():
        if not file.is_relative_to(package):
            continue
        kernel = file.is_relative_to(KERNELS)
        inside = Path("tests/speedups") if kernel else folder / file.relative_to(package).parent
        found = []
        for test in map(Path, tests):
            name = test.stem.removeprefix("test_")
            place = test.is_relative_to(inside) if kernel else test.parent == inside
            if place and (name == file.stem or name.startswith(f"{file.stem}_")):
                found.append(test.as_posix())
        return found
    return []


def imports_of(text: str) -> set[str]:
    """The modules that a Python file imports; of `from a import b` also a.b, which may be one."""
    names = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return names


def tests_for(changed: list[str], root: Path = ROOT) -> list[str]:
    """The test files to run, the nearest to the change first."""
    tests = sorted(
        path.relative_to(root).as_posix() for folder in PACKAGES.values() for path in (root / folder).rglob("test_*.py")
    )
    modules = {module for path in changed if (module := module_of(path))}
    unit = [test for test in tests if not test.startswith(SLOW)]
    near = [test for test in tests if test in changed]
    near += [test for path in changed for test in mirrored(path, unit)]
    far = [test for test in unit if modules & imports_of((root / test).read_text())] if modules else []
    return list(dict.fromkeys(near + far))


class Deadline:
    """A pytest plugin: no test begins after the limit."""

    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds
        self.left = 0

    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        """Pass over a test that comes too late."""
        if time.monotonic() < self.end:
            return None
        self.left += 1
        return True

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what did not run."""
        if self.left:
            terminalreporter.write_line(f"{self.left} tests did not run: the time was over", yellow=True)


def start_lint(changed: list[str]) -> list[tuple[str, subprocess.Popen[str]]]:
    """Start ruff and mypy on what changed."""
    python = [path for path in changed if path.endswith((".py", ".pyi"))]
    typed = [path for path in python if module_of(path)]
    commands = []
    if python:
        commands.append(("ruff", ["ruff", "check", "--output-format", "concise", "--force-exclude", *python]))
    if typed:
        commands.append(("mypy", ["mypy", *typed]))
    started = []
    for name, command in commands:
        pipe = subprocess.PIPE
        whole = [sys.executable, "-m", *command]
        started.append((name, subprocess.Popen(whole, cwd=ROOT, stdout=pipe, stderr=subprocess.STDOUT, text=True)))
    return started


def main(arguments: list[str]) -> int:
    """Lint and test; the exit code is 1 if anything failed."""
    parser = argparse.ArgumentParser(description="lint and unit tests of what changed since main", allow_abbrev=False)
    parser.add_argument("--since", default="main", help="the commit to compare with (main)")
    parser.add_argument("--seconds", type=float, default=45.0, help="no test begins later (45)")
    parser.add_argument("--list", action="store_true", help="print the tests and run nothing")
    options, others = parser.parse_known_args(arguments)
    os.chdir(ROOT)
    begin = time.monotonic()
    changed = changed_files(options.since)
    tests = tests_for(changed)
    for folder, package in PLUGINS.items():
        if find_spec(package) is None:
            tests = [test for test in tests if not test.startswith(folder)]
    if options.list:
        print(*tests, sep="\n")
        return 0
    print(f"{len(changed)} files changed since {options.since}: {len(tests)} test files")
    lint = start_lint(changed)
    failed = False
    if tests:
        deadline = Deadline(options.seconds - (time.monotonic() - begin))
        code = pytest.main(["-q", "-m", MARKERS, *others, *tests], plugins=[deadline])
        failed = code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    for name, process in lint:
        said, _ = process.communicate()
        print(f"{name}: {said.strip()}")
        failed = failed or process.returncode != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
