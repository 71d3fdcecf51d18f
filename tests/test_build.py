"""What a build does: it compiles what differs, says so kernel by kernel, and leaves the rest alone.

The real setup.py builds a small package in a tree of its own: two kernels share declarations, and one is in a room.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SUFFIX = str(sysconfig.get_config_var("EXT_SUFFIX"))
MACHINERY = ("setup.py", "scripts/build_kernels.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE")
SHARED = """\
cdef inline int of_first(int value) noexcept nogil:
    return value + 1

cdef inline int of_second(int value) noexcept nogil:
    return value + 2
"""
FILES = {
    "kafkapy/__init__.py": "",
    "kafkapy/version.py": '__version__ = "1"\n',
    "kafkapy/_speedups/__init__.py": "",
    "kafkapy/_speedups/shared.pxd": SHARED,
    "kafkapy/_speedups/base/__init__.py": "",
    "kafkapy/_speedups/base/first.pyx": """\
from kafkapy._speedups.shared cimport of_first

cdef extern from *:
    '''
    #ifdef WITH_HEADER
    #include "number.h"
    #else
    #define NUMBER 0
    #endif
    '''
    const int NUMBER

def answer():
    return of_first(NUMBER)
""",
    "kafkapy/_speedups/second.pyx": """\
from kafkapy._speedups.shared cimport of_second

def answer():
    return of_second(0)
""",
}


class Tree:
    """A source tree, and what builds in it said."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.speedups = path / "kafkapy" / "_speedups"

    def run(self, *arguments: str, fails: bool = False, **variables: str) -> str:
        """What a Python command in the tree prints."""
        known = {name: value for name, value in os.environ.items() if not name.startswith(("KAFKAPY_", "PYTHON"))}
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.path,
            env=known | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=250,
        )
        assert (done.returncode != 0) == fails, done.stdout
        return done.stdout

    def build(self, *options: str, fails: bool = False, **variables: str) -> list[str]:
        """The lines of a build in place, without their counts and in the order of the names."""
        text = self.run("setup.py", "-q", "build_ext", *(options or ("--inplace",)), fails=fails, **variables)
        return text.splitlines() if fails else sorted(line.partition("] ")[2] for line in text.splitlines())

    def answer(self, kernel: str, **variables: str) -> int:
        """What a kernel's function returns."""
        return int(self.run("-c", f"import kafkapy._speedups.{kernel} as kernel; print(kernel.answer())", **variables))

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace text in a file of the package."""
        path = self.speedups / name
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))

    def times(self) -> dict[str, int]:
        """When each file that a build makes was written last."""
        made = [*(self.path / "build").rglob("*"), *self.speedups.rglob(f"*{SUFFIX}")]
        return {str(path): path.stat().st_mtime_ns for path in made}

    def module(self, kernel: str) -> Path:
        """The file of a kernel that is built."""
        return self.speedups / f"{kernel}{SUFFIX}"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A tree that is built, and what its build printed."""
    tree = Tree(tmp_path_factory.mktemp("built") / "tree")
    for name, text in FILES.items():
        (tree.path / name).parent.mkdir(parents=True, exist_ok=True)
        (tree.path / name).write_text(text)
    for name in MACHINERY:
        (tree.path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tree.path / name)
    return tree.path, tree.run("setup.py", "-q", "build_ext", "--inplace")


@pytest.fixture
def tree(built: tuple[Path, str], tmp_path: Path) -> Tree:
    """A copy of it. All its files are new: a build that goes by times would do everything."""
    return Tree(Path(shutil.copytree(built[0], tmp_path / "tree", copy_function=shutil.copy)))


def test_a_first_build_names_each_kernel_by_its_room_and_counts(built: tuple[Path, str]) -> None:
    lines = built[1].splitlines()
    assert [line[:5] for line in lines] == ["[1/2]", "[2/2]"]
    assert sorted(line[6:] for line in lines) == ["compiling base/first", "compiling second"]
    assert Tree(built[0]).answer("base.first") == 1
    assert Tree(built[0]).answer("second") == 2


def test_a_build_of_what_is_built_says_and_writes_nothing(tree: Tree) -> None:
    before = tree.times()
    assert tree.build() == []
    assert tree.times() == before


def test_a_line_that_moves_in_shared_declarations_compiles_nothing(tree: Tree) -> None:
    tree.edit("shared.pxd", "cdef inline int of_first", "# A comment.\n\n\ncdef inline int of_first")
    modules = {kernel: tree.module(kernel).stat().st_mtime_ns for kernel in ("base/first", "second")}
    assert tree.build() == ["unchanged base/first", "unchanged second"]
    assert {kernel: tree.module(kernel).stat().st_mtime_ns for kernel in modules} == modules
    assert tree.build() == []


def test_a_change_of_shared_declarations_compiles_the_kernels_that_use_it(tree: Tree) -> None:
    tree.edit("shared.pxd", "value + 1", "value + 10")
    assert tree.build() == ["compiling base/first", "unchanged second"]
    assert tree.answer("base.first") == 10
    assert tree.build() == []
    # And back: there is nothing that remembers it.
    tree.edit("shared.pxd", "value + 10", "value + 1")
    assert tree.build() == ["compiling base/first", "unchanged second"]
    assert tree.answer("base.first") == 1


def test_a_changed_header_compiles_the_kernels_that_include_it(tree: Tree) -> None:
    header = tree.path / "include" / "number.h"
    header.parent.mkdir()
    header.write_text("#define NUMBER 40\n")
    variables = {"CPATH": str(header.parent), "CXXFLAGS": "-DWITH_HEADER"}
    assert tree.build(**variables) == ["compiling base/first", "compiling second"], "other flags"
    assert tree.build(**variables) == []
    assert tree.answer("base.first") == 41
    header.write_text("#define NUMBER 50\n")
    assert tree.build(**variables) == ["compiling base/first"]
    assert tree.answer("base.first") == 51


def test_a_module_that_another_build_wrote_is_built_again(tree: Tree) -> None:
    tree.module("second").write_bytes(tree.module("base/first").read_bytes())
    tree.module("base/first").unlink()
    assert tree.build() == ["compiling base/first", "compiling second"]
    assert tree.answer("second") == 2


def test_debug_builds_and_others_replace_each_other(tree: Tree) -> None:
    only = {"KAFKAPY_EXT": "second"}
    assert tree.build(KAFKAPY_DEBUG="1", **only) == ["compiling second"]
    assert (tree.path / "build" / "cython-debug" / "kafkapy" / "_speedups" / "second.html").exists()
    assert tree.build(KAFKAPY_DEBUG="1", **only) == []
    assert tree.build() == ["compiling second"]
    assert tree.answer("second") == 2


@pytest.mark.parametrize("name", ["first", "base/first"])
def test_kernels_are_named_by_stem_or_by_path(tree: Tree, name: str) -> None:
    tree.edit("shared.pxd", "return value + 1", "return value + 10")
    tree.edit("shared.pxd", "return value + 2", "return value + 20")
    assert tree.build(KAFKAPY_EXT=name) == ["compiling base/first"]
    assert tree.answer("second") == 2


def test_a_name_that_no_kernel_has_is_refused(tree: Tree) -> None:
    assert tree.build(KAFKAPY_EXT="second,thrid", fails=True)[-1] == (
        "KAFKAPY_EXT: kafkapy/_speedups has no kernel thrid"
    )


def test_a_kernel_that_does_not_compile_says_what_building_needs(tree: Tree) -> None:
    before = tree.module("second").read_bytes()
    broken = "cdef extern from *:\n    '''\n    #error no such library\n    '''\n\n"
    tree.edit("second.pyx", "def answer", f"{broken}def answer")
    lines = tree.build(fails=True)
    assert any("#error no such library" in line for line in lines)
    assert any(line.startswith("error: kafkapy/_speedups/second.pyx does not compile") for line in lines)
    assert "apt install g++ python3-dev" in lines[-1]
    assert tree.module("second").read_bytes() == before
    assert [path.name for path in tree.speedups.rglob("*.new")] == []
    tree.edit("second.pyx", "#error no such library", "")
    assert tree.build() == ["compiling second"]


def test_a_machine_without_a_compiler_says_so_in_one_sentence(tree: Tree) -> None:
    tree.edit("shared.pxd", "value + 1", "value + 10")
    last = tree.build(fails=True, CXX="/nowhere/g++", CC="/nowhere/gcc")[-1]
    assert last.startswith("error: kafkapy cannot be built: g++, python3-dev, liblz4-dev")
    assert "apt install g++ python3-dev liblz4-dev" in last


def test_pip_without_a_compiler_shows_the_sentence_and_little_else(tree: Tree) -> None:
    tree.edit("shared.pxd", "value + 1", "value + 10")
    pip = ("-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "--no-index", "-w", "dist", ".")
    text = tree.run(*pip, fails=True, CXX="/nowhere/g++", CC="/nowhere/gcc")
    assert "error: kafkapy cannot be built: g++, python3-dev, liblz4-dev" in text
    assert "copying" not in text, "the kernels come before the files of the package"


def test_a_machine_without_a_library_names_its_package(tree: Tree) -> None:
    tree.edit("shared.pxd", "value + 1", "value + 10")
    script = tree.path / "scripts" / "build_kernels.py"
    script.write_text(script.read_text().replace('"snappy-c.h"', '"no-such-header.h"'))
    assert tree.build(fails=True)[-1] == (
        "error: kafkapy cannot be built: libsnappy-dev is missing: apt install libsnappy-dev"
    )
    assert tree.answer("base.first") == 1, "the old kernel is still there"


def test_a_kernel_that_cython_refuses_is_named(tree: Tree) -> None:
    tree.edit("second.pyx", "of_second(0)", "of_nobody(0)")
    lines = tree.build(fails=True)
    assert any("undeclared name not builtin: of_nobody" in line for line in lines)
    assert lines[-1] == "error: kafkapy/_speedups/second.pyx does not translate (see above)"
    assert tree.answer("second") == 2
    tree.edit("second.pyx", "of_nobody(0)", "of_second(0)")
    assert tree.build() == []


def test_a_kernel_that_moves_leaves_no_module_behind(tree: Tree) -> None:
    (tree.speedups / "second.pyx").rename(tree.speedups / "base" / "second.pyx")
    assert tree.build() == ["compiling base/second"]
    assert not tree.module("second").exists()
    assert tree.answer("base.second") == 2


def test_a_wheel_takes_kernels_built_in_place_but_no_test_kernels(tree: Tree) -> None:
    room = tree.speedups / "testing"
    room.mkdir()
    (room / "__init__.py").touch()
    (room / "third.pxd").touch()
    shutil.copy(tree.speedups / "second.pyx", room / "third.pyx")
    assert tree.build() == ["compiling testing/third"]
    assert tree.answer("testing.third") == 2
    tree.module("second").unlink()

    pip = ("-m", "pip", "wheel", "-v", "--no-build-isolation", "--no-deps", "--no-index", "-w", "dist", ".")
    said = [line.split() for line in tree.run(*pip).splitlines()]
    assert [words[-1] for words in said if "compiling" in words] == ["second"]
    [wheel] = (tree.path / "dist").glob("*.whl")
    names = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("kafkapy/_speedups/")}
    assert names == {
        "kafkapy/_speedups/__init__.py",
        "kafkapy/_speedups/shared.pxd",
        f"kafkapy/_speedups/second{SUFFIX}",
        "kafkapy/_speedups/base/__init__.py",
        f"kafkapy/_speedups/base/first{SUFFIX}",
    }


def test_a_source_distribution_has_all_that_its_build_needs(tree: Tree) -> None:
    tree.run("setup.py", "-q", "sdist")
    [archive] = (tree.path / "dist").glob("*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(tree.path / "unpacked", filter="data")
    [unpacked] = (tree.path / "unpacked").iterdir()
    copy = Tree(unpacked)
    assert copy.build() == ["compiling base/first", "compiling second"]
    assert copy.answer("base.first") == 1
