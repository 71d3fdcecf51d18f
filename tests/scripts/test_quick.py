"""`make quick` checks what is near to a change, and says what it did not get to."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "quick.py"
FILES = {
    "pytest.ini": "[pytest]\nmarkers =\n    soak: x\n    spark: x\n    alone: x\n",
    "kafkapy/__init__.py": "",
    "kafkapy/log/__init__.py": "",
    "kafkapy/log/manager.py": "size = 1\n",
    "kafkapy/log/reader.py": "size = 1\n",
    "kafkapy/_speedups/base/wire.pyx": "",
    "tests/log/test_manager.py": "from kafkapy.log.manager import size\n\ndef test_it():\n    assert size == 1\n",
    "tests/log/test_manager_faults.py": "def test_it():\n    pass\n",
    "tests/log/test_reader.py": "def test_it():\n    pass\n",
    "tests/broker/test_uses.py": "from kafkapy.log import manager\n\ndef test_it():\n    assert manager.size < 3\n",
    "tests/speedups/base/test_wire.py": "def test_it():\n    pass\n",
    "tests/system/test_manager_whole.py": "import kafkapy.log.manager\n\ndef test_it():\n    raise ValueError\n",
}


class Repository:
    """A repository with a branch that left main, and `quick` in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        for name, text in FILES.items():
            self.write(name, text)
        (path / "scripts").mkdir()
        shutil.copy(SCRIPT, path / "scripts")
        self.git("init", "-q", "-b", "main")
        self.commit()
        self.git("checkout", "-q", "-b", "work")

    def write(self, name: str, text: str) -> None:
        """Write a file."""
        (self.path / name).parent.mkdir(parents=True, exist_ok=True)
        (self.path / name).write_text(text)

    def git(self, *arguments: str) -> None:
        """Run git as somebody."""
        who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        subprocess.run(["git", *who, *arguments], cwd=self.path, check=True, capture_output=True, timeout=60)

    def commit(self) -> None:
        """Commit everything."""
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "x")

    def quick(self, *arguments: str) -> tuple[int, list[str]]:
        """The exit code and what is printed."""
        known = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        done = subprocess.run(
            [sys.executable, "scripts/quick.py", *arguments],
            cwd=self.path,
            env=known | {"PYTHONPATH": str(self.path), "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=250,
        )
        return done.returncode, done.stdout.splitlines()


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def test_mirrored_tests_come_first_then_those_that_import_the_module(repository: Repository) -> None:
    repository.write("kafkapy/log/manager.py", "size = 2\n")
    near = ["tests/log/test_manager.py", "tests/log/test_manager_faults.py"]
    assert repository.quick("--list") == (0, [*near, "tests/broker/test_uses.py"])
    repository.commit()
    assert repository.quick("--list") == (0, [*near, "tests/broker/test_uses.py"]), "committed or not"
    assert repository.quick("--list", "--since", "HEAD") == (0, [""])


def test_a_kernel_has_its_tests_in_any_room_and_a_new_test_is_one(repository: Repository) -> None:
    repository.write("kafkapy/_speedups/base/wire.pyx", "pass\n")
    repository.write("tests/system/test_new.py", "def test_it():\n    pass\n")
    assert repository.quick("--list") == (0, ["tests/system/test_new.py", "tests/speedups/base/test_wire.py"])


def test_a_test_that_a_change_breaks_fails(repository: Repository) -> None:
    repository.write("kafkapy/log/manager.py", "size = 2\n")
    code, said = repository.quick()
    assert code == 1
    assert "1 failed, 2 passed" in "\n".join(said)
    repository.write("kafkapy/log/manager.py", "size = 1  # one\n")
    code, said = repository.quick()
    assert code == 0, said
    assert "3 passed" in "\n".join(said)
    assert "mypy: Success: no issues found in 1 source file" in said


def test_lint_of_a_changed_file_fails_it(repository: Repository) -> None:
    repository.write("kafkapy/log/reader.py", "import os\nsize: int = 'x'\n")
    code, said = repository.quick()
    assert code == 1
    assert any("F401" in line for line in said)
    assert any("Incompatible types in assignment" in line for line in said)


def test_no_test_begins_after_the_limit_and_the_summary_says_so(repository: Repository) -> None:
    repository.write("kafkapy/log/manager.py", "size = 2\n")
    code, said = repository.quick("--seconds", "0")
    assert code == 0
    assert "3 tests did not run: the time was over" in said
