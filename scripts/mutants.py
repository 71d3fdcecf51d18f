"""Puts small random bugs into one area, one at a time, and prints those that the area's tests do not notice.

    scripts/mutants.py --area controller --count 20 --seed 1
    scripts/mutants.py --area log --since main        # bugs only in lines that have changed since then

The bugs ("mutants") are those of a tired engineer: another comparison, another operator, off by one, a negated
condition, a deleted statement, another constant, an early return (mutant_kinds.py). A mutant of a kernel rebuilds that
kernel only.

Everything happens in a copy below build/mutants, so a run that is killed leaves the sources as they are; the next run
removes what it left. The same area, count, seed and sources give the same mutants.

Exit status: 0, whatever survived; 2 when nothing could be tried (the tests fail without a mutant, for instance).
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Final, NamedTuple

from mutant_kinds import Mutant, mutants_of

ROOT: Final = Path(__file__).resolve().parent.parent
COPIED: Final = ("kafkapy", "tests", "perf", "plugins", "scripts", "config", "docs")
COPIED_FILES: Final = ("setup.py", "pyproject.toml", "Makefile", "LICENSE", "README.md", "CONTRIBUTING.md")
KERNELS: Final = "kafkapy/_speedups"
SLOWEST: Final = 4
"""A mutant whose tests take so many times as long as without one has made an endless loop."""
LEAST_S: Final = 60.0
BUILD_S: Final = 900.0


class Area(NamedTuple):
    """Sources are files and directories (with all below them); tests are arguments of pytest."""

    sources: tuple[str, ...]
    tests: tuple[str, ...]


SINK: Final = "plugins/kafkapy-spark/"
AREAS: Final = {
    "controller": Area(("kafkapy/controller",), ("tests/controller", "tests/replica/test_store_failures.py")),
    "coordinator": Area(("kafkapy/coordinator",), ("tests/coordinator",)),
    "transactions": Area(
        ("kafkapy/coordinator/transaction",),
        ("tests/coordinator/transaction", "tests/clients/producer/test_two_phase_commit.py"),
    ),
    "log": Area(("kafkapy/log",), ("tests/log",)),
    "replica": Area(("kafkapy/replica",), ("tests/replica", "tests/broker/handlers/test_alter_replica_log_dirs.py")),
    "sasl": Area(
        (
            "kafkapy/security/sasl/authenticator.py",
            "kafkapy/security/sasl/plain.py",
            "kafkapy/security/sasl/scram.py",
            "kafkapy/security/jaas.py",
            "kafkapy/security/scram.py",
            "kafkapy/security/add_scram.py",
            "kafkapy/security/delegation_tokens.py",
            "kafkapy/config/password_encoder.py",
            "kafkapy/metadata/delegation_tokens.py",
            "kafkapy/broker/authentication.py",
            "kafkapy/broker/delegation_tokens.py",
            "kafkapy/broker/scram_credentials.py",
            "kafkapy/broker/stored_passwords.py",
            "kafkapy/broker/token_requests.py",
        ),
        (
            "tests/security/sasl",
            "tests/security/test_jaas.py",
            "tests/security/test_add_scram.py",
            "tests/config/test_password_encoder.py",
            "tests/broker/test_scram_credentials.py",
            "tests/broker/test_delegation_tokens.py",
            "tests/broker/test_stored_passwords.py",
            "tests/broker/test_secrets.py",
            *(
                f"tests/broker/handlers/test_{name}.py"
                for name in (
                    "sasl_handshake",
                    "sasl_authenticate",
                    "create_delegation_token",
                    "renew_delegation_token",
                    "expire_delegation_token",
                    "describe_delegation_token",
                    "alter_user_scram_credentials",
                    "describe_user_scram_credentials",
                )
            ),
        ),
    ),
    "metadata": Area(("kafkapy/metadata",), ("tests/metadata", "tests/controller")),
    "kernels-log": Area(
        ("kafkapy/_speedups/log",),
        (
            "tests/speedups/log",
            "tests/speedups/requests/produce/test_produce_turns.py",
            "tests/speedups/requests/produce/test_produce_groups.py",
            "tests/speedups/requests/fetch/test_replica_fetch.py",
            "tests/log",
        ),
    ),
    "kernels-requests": Area(
        ("kafkapy/_speedups/requests",), ("tests/speedups/requests", "tests/network", "tests/broker/handlers")
    ),
    "kernels-network": Area(("kafkapy/_speedups/network",), ("tests/speedups/network", "tests/network")),
    "producer": Area(
        ("kafkapy/clients/producer", "kafkapy/_speedups/clients/producer"),
        ("tests/speedups/clients/producer", "tests/clients/producer", "tests/clients/aio/test_producer.py"),
    ),
    "consumer": Area(
        ("kafkapy/clients/consumer", "kafkapy/_speedups/clients/consumer"),
        ("tests/speedups/clients/consumer", "tests/clients/consumer", "tests/clients/aio/test_consumer.py"),
    ),
    "sink": Area(
        tuple(
            f"{SINK}kafkapy_spark/{name}.py"
            for name in (
                "control_topic",
                "exactly_once",
                "exactly_once_stream",
                "sink_identity",
                "sink_session",
                "transactional_task",
                "transactions",
                "two_phase_commit",
            )
        ),
        tuple(
            f"{SINK}tests/test_{name}.py"
            for name in (
                "transaction_client",
                "control_topic",
                "sink_session",
                "transactional_task",
                "exactly_once_model",
                "sink_transactions",
                "decision_time",
                "superseded",
                "known_batches",
                "outcomes",
                "two_phase_sink",
                "exactly_once",
                "exactly_once_faults",
            )
        ),
    ),
}


class MutantsError(Exception):
    """Nothing can be tried, and why."""


# --- which -------------------------------------------------------------------------------------------------------


def sources_of(area: Area, root: Path) -> list[str]:
    """The area's modules and kernels, by their path in the project."""
    found = []
    for name in area.sources:
        place = root / name
        if place.is_file():
            found.append(name)
        elif place.is_dir():
            found += [str(each.relative_to(root)) for each in place.rglob("*") if each.suffix in (".py", ".pyx")]
        else:
            raise MutantsError(f"there is no {name}")
    return sorted(each for each in found if not each.endswith("__init__.py"))


def changed_lines(diff: str) -> dict[str, set[int]]:
    """The lines that a unified diff without context (`git diff -U0`) adds or changes, by path."""
    found: dict[str, set[int]] = {}
    path = ""
    for line in diff.splitlines():
        if line.startswith("+++ "):
            path = line[4:].removeprefix("b/")
        hunk = re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line)
        if hunk is not None:
            first, size = int(hunk[1]), int(hunk[2] or 1)
            found.setdefault(path, set()).update(range(first, first + size))
    return found


def choose(mutants: Sequence[Mutant], count: int, seed: int) -> list[Mutant]:
    """At most `count`, each at another place, in random order. The same seed gives the same ones."""
    picker = random.Random(seed)
    shuffled = sorted(mutants)
    picker.shuffle(shuffled)
    places: dict[tuple[str, int], Mutant] = {}
    for mutant in shuffled:
        places.setdefault((mutant.path, mutant.start), mutant)
    return list(places.values())[:count]


# --- trying -------------------------------------------------------------------------------------------------------


class Outcome(NamedTuple):
    """`said` is "killed", "survived", "timed out" (which counts as killed) or "does not build" (which does not)."""

    said: str
    by: str = ""
    """The test that noticed; the last line that the build of a kernel said."""


def kernel_of(path: str) -> str:
    """The name of a kernel's source for KAFKAPY_EXT."""
    return Path(path).with_suffix("").relative_to(KERNELS).as_posix()


class Copy:
    """A copy of the project, in which mutants are put in and taken out. A context manager."""

    def __init__(self, root: Path, python: str = sys.executable) -> None:
        self.root = root
        self.python = python
        self.path = root / "build" / "mutants" / str(os.getpid())

    def __enter__(self) -> Copy:
        remove_dead(self.path.parent)
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir(parents=True)
        skipped = shutil.ignore_patterns("__pycache__", ".hypothesis", "build", "*.egg-info", ".pytest_cache")
        for name in COPIED:
            if (self.root / name).is_dir():
                shutil.copytree(self.root / name, self.path / name, ignore=skipped, symlinks=True)
        for name in COPIED_FILES:
            if (self.root / name).is_file():
                shutil.copy2(self.root / name, self.path / name)
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def write(self, path: str, source: str) -> None:
        """Replaces a module's text. Python knows compiled modules by second and size, which may be the same ones."""
        target = self.path / path
        target.write_text(source, encoding="utf-8")
        for compiled in (target.parent / "__pycache__").glob(f"{target.stem}.*.pyc"):
            compiled.unlink(missing_ok=True)

    def run(self, command: Sequence[str], limit_s: float, **variables: str) -> tuple[int | None, str]:
        """(exit status, or None after the time limit; output). Nothing that it started is left."""
        environment = {**os.environ, "PYTHONPATH": str(self.path), **variables}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        with subprocess.Popen(
            command,
            cwd=self.path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as process:
            try:
                output, _ = process.communicate(timeout=limit_s)
                return process.returncode, output
            except subprocess.TimeoutExpired:
                return None, ""
            finally:
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass

    def test(self, tests: Sequence[str], limit_s: float) -> tuple[int | None, str]:
        """Runs the tests up to the first that fails."""
        command = [self.python, "-m", "pytest", "-q", "-x", "--no-header", "--tb=no", "-p", "no:cacheprovider", *tests]
        return self.run(command, limit_s)

    def build(self, path: str) -> tuple[int | None, str]:
        """Compiles one kernel in place."""
        command = [self.python, "setup.py", "-q", "build_ext", "--inplace"]
        return self.run(command, BUILD_S, KAFKAPY_EXT=kernel_of(path))

    def attempt(self, mutant: Mutant, tests: Sequence[str], limit_s: float) -> Outcome:
        """Puts the mutant in, runs the tests, and takes it out again."""
        source = (self.path / mutant.path).read_text(encoding="utf-8")
        built = None
        try:
            changed = mutant.applied(source)
            self.write(mutant.path, changed)
            if mutant.path.endswith(".py") and not compiles(changed):
                return Outcome("does not build")
            if mutant.path.endswith(".pyx"):
                (binary,) = (self.path / mutant.path).parent.glob(f"{Path(mutant.path).stem}.*.so")
                built = binary, binary.read_bytes()
                binary.unlink()
                status, output = self.build(mutant.path)
                if status != 0 or not binary.exists():
                    return Outcome("does not build", output.strip().rpartition("\n")[2])
            return outcome_of(*self.test(tests, limit_s))
        finally:
            self.write(mutant.path, source)
            if built is not None:
                # Another file: the one that is there may be mapped by a process that is about to end.
                built[0].unlink(missing_ok=True)
                built[0].write_bytes(built[1])


def compiles(source: str) -> bool:
    """Whether it is Python."""
    try:
        compile(source, "mutant", "exec")
    except (SyntaxError, ValueError):
        return False
    return True


def outcome_of(status: int | None, output: str) -> Outcome:
    """What pytest's exit status says. MutantsError when it says that nothing was tested."""
    if status is None:
        return Outcome("timed out")
    if status == 0:
        return Outcome("survived")
    if status in (4, 5):
        raise MutantsError(f"pytest ran no tests:\n{output}")
    noticed = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
    return Outcome("killed", noticed[1] if noticed else "")


def remove_dead(directory: Path) -> None:
    """Copies of runs that were killed. Those of runs that are alive stay."""
    for each in directory.glob("[0-9]*"):
        if not Path(f"/proc/{each.name}").exists():
            shutil.rmtree(each, ignore_errors=True)


# --- the run ------------------------------------------------------------------------------------------------------


def candidates(area: Area, root: Path, since: str | None) -> list[Mutant]:
    """All mutants of the area, or of its lines that have changed since a commit."""
    found = []
    for path in sources_of(area, root):
        found += mutants_of(path, (root / path).read_text(encoding="utf-8"))
    if since is not None:
        command = ["git", "diff", "-U0", since, "--", *area.sources]
        diff = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
        if diff.returncode != 0:
            raise MutantsError(diff.stderr.strip())
        lines = changed_lines(diff.stdout)
        found = [each for each in found if each.line in lines.get(each.path, ())]
    return found


def run(area: Area, count: int, seed: int, since: str | None, root: Path = ROOT) -> dict[str, int]:
    """Tries the mutants one after the other and prints how each of them fares; how many fared how."""
    chosen = choose(candidates(area, root, since), count, seed)
    if not chosen:
        raise MutantsError("no line of the area has changed" if since else "nothing in the area can be changed")
    counts = dict.fromkeys(("killed", "timed out", "survived", "does not build"), 0)
    survivors = []
    with Copy(root) as copy:
        print(f"The tests without a mutant: {' '.join(area.tests)}", flush=True)
        began = time.monotonic()
        status, output = copy.test(area.tests, BUILD_S * 4)
        if status != 0:
            raise MutantsError(f"the tests fail without a mutant:\n{output[-4000:]}")
        limit_s = max(LEAST_S, SLOWEST * (time.monotonic() - began))
        for number, mutant in enumerate(chosen, 1):
            outcome = copy.attempt(mutant, area.tests, limit_s)
            counts[outcome.said] += 1
            place = f"{mutant.path}:{mutant.line} ({mutant.kind})"
            print(f"[{number}/{len(chosen)}] {outcome.said:9} {place} {outcome.by}".rstrip(), flush=True)
            if outcome.said == "survived":
                survivors.append(mutant)
                print(mutant.diff((root / mutant.path).read_text(encoding="utf-8")), flush=True)
    tried = sum(counts.values()) - counts["does not build"]
    noticed = tried - counts["survived"]
    print(f"\n{noticed} of {tried} mutants were noticed (seed {seed}); {counts['does not build']} did not build")
    for mutant in survivors:
        print(f"  survived: {mutant.path}:{mutant.line} ({mutant.kind})")
    return counts


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(2)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Random small bugs of one area against its tests.")
    parser.add_argument("--area", required=True, choices=sorted(AREAS))
    parser.add_argument("--count", type=int, default=20, help="how many mutants (20)")
    parser.add_argument("--seed", type=int, default=None, help="which ones (random, and printed)")
    parser.add_argument("--since", metavar="COMMIT", help="only lines that have changed since this commit")
    options = parser.parse_args(arguments)
    if options.count < 1:
        parser.error("--count must be at least 1")
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    signal.signal(signal.SIGTERM, _stop)
    try:
        run(AREAS[options.area], options.count, seed, options.since)
    except MutantsError as error:
        print(f"mutants: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
