"""scripts/mutants.py: the bugs that it makes, that it prints those that tests do not notice, and leaves nothing."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import mutant_kinds
import mutants
import pytest
from build_kernels import find_kernels

ROOT = Path(__file__).parent.parent


def lines(made: list[mutant_kinds.Mutant], source: str) -> dict[str, set[str]]:
    """The line that each mutant makes, by kind."""
    found: dict[str, set[str]] = {}
    for each in made:
        after = each.applied(source).splitlines()
        found.setdefault(each.kind, set()).add(after[each.line - 1].strip())
    return found


# --- Python -------------------------------------------------------------------------------------------------------

PYTHON = dedent(
    '''
    """Text with 1 < 2."""
    from __future__ import annotations
    from typing import TYPE_CHECKING
    if TYPE_CHECKING:
        from x import y
    LIMIT: int | None = 10
    def run(self, a: int | str, b: int = 3) -> int | None:
        """Adds 1 + 1."""
        text = "ü" if (a) < (b) else ""  # <
        if a not in b and not c:
            self.seen = a * 2
            logger.info("seen %d", a + 1)
            return Kind.ONE
        self.items[a] += 1
        self.tell(a, True)
        return Kind.TWO
    '''
)


def test_the_bugs_of_a_module() -> None:
    found = lines(mutant_kinds.python_mutants("m.py", PYTHON), PYTHON)
    assert found == {
        "off by one": {
            "LIMIT: int | None = 9",
            "LIMIT: int | None = 11",
            "def run(self, a: int | str, b: int = 2) -> int | None:",
            "def run(self, a: int | str, b: int = 4) -> int | None:",
            "self.seen = a * 1",
            "self.seen = a * 3",
            "self.items[a] += 0",
            "self.items[a] += 2",
        },
        "comparison": {
            'text = "ü" if (a) <= (b) else ""  # <',
            'text = "ü" if (a) > (b) else ""  # <',
            "if a in b and not c:",
        },
        "and, or": {"if a not in b or not c:"},
        "condition": {'text = "ü" if (not ((a) < (b))) else ""  # <', "if (not (a not in b and not c)):"},
        "arithmetic": {"self.seen = a // 2", "self.items[a] -= 1"},
        "statement": {"pass"},
        "constant": {"return Kind.TWO", "return Kind.ONE", "self.tell(a, False)"},
        "early return": {"return"},
    }
    deleted = [each for each in mutant_kinds.python_mutants("m.py", PYTHON) if each.kind == "statement"]
    gone = [PYTHON.encode()[each.start : each.end].decode() for each in deleted]
    assert gone == ["self.seen = a * 2", "self.items[a] += 1", "self.tell(a, True)"]


def test_every_bug_of_a_module_compiles_and_changes_it() -> None:
    for path in ("kafkapy/controller/event_queue.py", "kafkapy/log/retention.py", "kafkapy/coordinator/timer.py"):
        source = (ROOT / path).read_text(encoding="utf-8")
        before = ast.dump(ast.parse(source))
        made = mutant_kinds.python_mutants(path, source)
        assert len(made) > 20
        for each in made:
            assert ast.dump(ast.parse(each.applied(source))) != before, each
            assert each.diff(source).count("\n@@ ") == 1, each


# --- kernels ------------------------------------------------------------------------------------------------------

KERNEL = dedent(
    '''
    """Text with a < b.

    size - 1
    """
    from x cimport ERROR_ONE, ERROR_TWO
    cdef int LIMIT = 3
    cdef int run(State* s, int64_t n) noexcept nogil:
        """Counts n + 1."""
        cdef int i = 0
        if s.count < <int64_t>n and not s.done:    # a < b
            s.error = ERROR_ONE
            continue
        wake(s, "a < b")
        return (s.count
                + n) if ERROR_TWO else 7
    '''
)


def test_the_bugs_of_a_kernel() -> None:
    assert lines(mutant_kinds.kernel_mutants("k.pyx", KERNEL), KERNEL) == {
        "comparison": {
            "if s.count <= <int64_t>n and not s.done:    # a < b",
            "if s.count > <int64_t>n and not s.done:    # a < b",
        },
        "and, or": {"if s.count < <int64_t>n or not s.done:    # a < b"},
        "condition": {"if not (s.count < <int64_t>n and not s.done):    # a < b"},
        "constant": {"s.error = ERROR_TWO", "+ n) if ERROR_ONE else 7"},
        "statement": {"pass", "break"},
        "arithmetic": {"- n) if ERROR_TWO else 7"},
        "off by one": {"+ n) if ERROR_TWO else 6", "+ n) if ERROR_TWO else 8"},
    }


def test_every_kernel_has_bugs_and_only_in_code() -> None:
    for path in sorted((ROOT / "kafkapy" / "_speedups").rglob("*.pyx")):
        source = path.read_text(encoding="utf-8")
        data, lines = source.encode(), source.splitlines()
        for each in mutant_kinds.kernel_mutants(str(path), source):
            assert not lines[each.line - 1].lstrip().startswith(("#", "cdef ", "cimport ", "from ")), each
            assert data[each.start : each.end].decode() != each.text, each


def test_every_kernel_is_built_by_its_own_name() -> None:
    root = Path(mutants.KERNELS)
    for path in sorted((ROOT / root).rglob("*.pyx")):
        source = str(path.relative_to(ROOT))
        (found,) = find_kernels(ROOT / root, {mutants.kernel_of(source)}, {})
        assert found.sources == [str(path)]


# --- which --------------------------------------------------------------------------------------------------------


def test_a_seed_names_the_same_bugs_each_at_another_place() -> None:
    made = mutant_kinds.python_mutants("m.py", PYTHON)
    chosen = mutants.choose(made, 8, 5)
    assert chosen == mutants.choose(list(reversed(made)), 8, 5)
    assert len({each.start for each in chosen}) == 8
    assert chosen != mutants.choose(made, 8, 6)
    assert mutants.choose(made, 3, 5) == chosen[:3]
    assert len(mutants.choose(made, 1000, 5)) == len({each.start for each in made})


def test_lines_of_a_diff() -> None:
    diff = dedent(
        """\
        diff --git a/a.py b/a.py
        --- a/a.py
        +++ b/a.py
        @@ -1 +1,2 @@ def x
        -old
        +new
        +more
        @@ -7,2 +8,0 @@
        -gone
        -gone
        @@ -20,0 +20 @@
        +one
        --- a/b.py
        +++ b/b.py
        @@ -3 +3 @@
        -x
        +y
        """
    )
    assert mutants.changed_lines(diff) == {"a.py": {1, 2, 20}, "b.py": {3}}


@pytest.mark.parametrize("name", sorted(mutants.AREAS))
def test_every_area_has_sources_and_tests(name: str) -> None:
    area = mutants.AREAS[name]
    assert len(mutants.candidates(area, ROOT, None)) >= 100
    for test in area.tests:
        assert (ROOT / test).exists(), test


# --- a run --------------------------------------------------------------------------------------------------------

AREA = mutants.Area(("kafkapy/small.py",), ("tests/test_small.py",))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Two functions, of which one is tested."""
    for name, text in {
        "kafkapy/__init__.py": "",
        "kafkapy/small.py": "def tested(a, b):\n    return a < b\n\n\ndef not_tested(a, b):\n    return a < b\n",
        "tests/test_small.py": (
            "from kafkapy import small\n\n\ndef test_it():\n"
            "    assert [small.tested(a, 2) for a in (1, 2, 3)] == [True, False, False]\n"
        ),
        "pyproject.toml": "",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return tmp_path


def everything(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_what_no_test_notices_is_printed(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = everything(project)
    counts = mutants.run(AREA, 10, 1, None, project)
    assert counts == {"killed": 1, "timed out": 0, "survived": 1, "does not build": 0}
    said = capsys.readouterr().out
    assert "1 of 2 mutants were noticed (seed 1)" in said
    assert "killed    kafkapy/small.py:2 (comparison) tests/test_small.py::test_it" in said
    assert "survived: kafkapy/small.py:6 (comparison)" in said
    assert "-    return a < b\n+    return a " in said
    assert everything(project) == before


def test_only_changed_lines(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def git(*arguments: str) -> None:
        command = ["git", "-c", "user.name=n", "-c", "user.email=e@e", *arguments]
        subprocess.run(command, cwd=project, check=True, capture_output=True)

    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "before")
    with pytest.raises(mutants.MutantsError, match="no line of the area has changed"):
        mutants.run(AREA, 10, 1, "HEAD", project)
    path = project / "kafkapy" / "small.py"
    path.write_text(path.read_text().replace("return a < b", "return b > a", 1))
    counts = mutants.run(AREA, 10, 1, "HEAD", project)
    assert (counts["killed"], counts["survived"]) == (1, 0)
    assert "kafkapy/small.py:2" in capsys.readouterr().out
    with pytest.raises(mutants.MutantsError, match="nowhere"):
        mutants.run(AREA, 10, 1, "nowhere", project)


def test_tests_that_fail_by_themselves_try_nothing(project: Path) -> None:
    (project / "tests" / "test_small.py").write_text("def test_it():\n    assert False\n")
    before = everything(project)
    with pytest.raises(mutants.MutantsError, match="the tests fail without a mutant"):
        mutants.run(AREA, 1, 1, None, project)
    assert everything(project) == before


def test_a_bug_that_never_ends_is_noticed_and_ended(project: Path) -> None:
    loop = "def tested(a, b):\n    while not a < b:\n        a -= 1\n    return True\n"
    (project / "kafkapy" / "small.py").write_text(loop)
    test = "from kafkapy import small\n\n\ndef test_it():\n    assert small.tested(3, 2)\n"
    (project / "tests" / "test_small.py").write_text(test)
    source = (project / "kafkapy" / "small.py").read_text()
    (endless,) = [each for each in mutant_kinds.python_mutants("kafkapy/small.py", source) if "+=" in each.text]
    with mutants.Copy(project) as copy:
        assert copy.attempt(endless, AREA.tests, 5.0).said == "timed out"
        assert (copy.path / "kafkapy" / "small.py").read_text() == source


def test_a_bug_is_not_hidden_by_a_compiled_module(project: Path) -> None:
    """Of the same size and in the same second as the module that was compiled before."""
    source = (project / "kafkapy" / "small.py").read_text()
    bug = next(each for each in mutant_kinds.python_mutants("kafkapy/small.py", source) if each.text == ">")
    with mutants.Copy(project) as copy:
        for _ in range(3):
            assert copy.test(AREA.tests, 60.0)[0] == 0
            assert copy.attempt(bug, AREA.tests, 60.0).said == "killed"


@pytest.mark.parametrize(("status", "said"), [(None, "timed out"), (0, "survived"), (1, "killed"), (2, "killed")])
def test_what_pytest_says(status: int | None, said: str) -> None:
    assert mutants.outcome_of(status, "").said == said


def test_no_tests_at_all_are_no_success(project: Path) -> None:
    with pytest.raises(mutants.MutantsError, match="ran no tests"):
        mutants.outcome_of(5, "no tests ran")


def test_copies_of_runs_that_were_killed_go_with_the_next_run(project: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    directory = project / "build" / "mutants"
    for name in (str(ended.pid), str(os.getppid())):
        (directory / name).mkdir(parents=True)
    with mutants.Copy(project):
        assert sorted(path.name for path in directory.iterdir()) == sorted([str(os.getppid()), str(os.getpid())])
    shutil.rmtree(directory)


# --- the command --------------------------------------------------------------------------------------------------


def test_make_mutants_is_the_script() -> None:
    command = ["make", "--no-print-directory", "-n", "mutants", "AREA=log", "COUNT=3", "SEED=4", "SINCE=main"]
    said = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    said = " ".join(said.replace("\\\n", "").split())
    assert said.endswith("scripts/mutants.py --area log --count 3 --seed 4 --since main")
    help_text = subprocess.run(["make", "help"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert "mutants" in help_text


@pytest.mark.parametrize("arguments", [["--area", "nowhere"], [], ["--area", "log", "--count", "0"]])
def test_a_command_that_cannot_be(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        mutants.main(arguments)
    assert ended.value.code == 2
    assert "usage" in capsys.readouterr().err
