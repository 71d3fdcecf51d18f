"""What every file of the project has in common."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkapy.broker.handlers import SERVED
from kafkapy.protocol.registry import ApiKeys, api

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "kafkapy"
SPEEDUPS = PACKAGE / "_speedups"
HANDLERS = PACKAGE / "broker" / "handlers"
MAX_LINES = 700
MAX_COLUMNS = 120
LEFT_OVER = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX)\b")

NOT_HANDLERS = {"__init__"}
"""Modules of broker/handlers that serve no API by themselves."""


def sources(*suffixes: str) -> Iterator[Path]:
    for directory in ("kafkapy", "tests", "plugins", "perf", "scripts"):
        for path in sorted((ROOT / directory).rglob("*")):
            if path.suffix in suffixes and not {"build", "__pycache__"} & set(path.relative_to(ROOT).parts):
                yield path


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_no_file_is_too_long() -> None:
    files = sources(".py", ".pyx", ".pxd", ".pyi")
    sizes = {shown(path): path.read_text(encoding="utf-8").count("\n") for path in files}
    assert {name: size for name, size in sizes.items() if size > MAX_LINES} == {}


def test_no_line_of_a_kernel_is_too_long() -> None:
    """Ruff holds the same for Python."""
    kernels = [path for suffix in (".pyx", ".pxd", ".pyi") for path in sorted(PACKAGE.rglob(f"*{suffix}"))]
    assert len(kernels) > 200
    found = []
    for path in kernels:
        lines = path.read_text(encoding="utf-8").splitlines()
        found += [f"{shown(path)}:{number}" for number, line in enumerate(lines, 1) if len(line) > MAX_COLUMNS]
    assert found == []


def test_nothing_is_left_for_later() -> None:
    found = []
    for path in sources(".py", ".pyx", ".pxd", ".pyi"):
        lines = path.read_text(encoding="utf-8").splitlines()
        found += [f"{shown(path)}:{number}" for number, line in enumerate(lines, 1) if LEFT_OVER.search(line)]
    assert found == []


def test_every_module_says_what_it_is() -> None:
    modules = PACKAGE.rglob("*.py")
    silent = [path for path in modules if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))]
    assert [shown(path) for path in silent] == []


def test_every_public_class_says_what_it_is() -> None:
    silent = []
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in tree.body:
            public = isinstance(node, ast.ClassDef) and not node.name.startswith("_")
            if public and not ast.get_docstring(node):
                silent.append(f"{shown(path)}:{node.lineno} {node.name}")
    assert silent == []


def test_every_package_is_one() -> None:
    directories = {path.parent for path in PACKAGE.rglob("*.py")}
    assert [shown(path) for path in directories if not (path / "__init__.py").exists()] == []


def test_a_test_names_the_logger_whose_details_it_waits_for() -> None:
    """The level of the root logger alone shows nothing of a logger that has a level of its own."""
    nameless = re.compile(r"caplog\.(?:set|at)_level\((?:logging\.)?[\"']?(?:INFO|DEBUG|\d+)[\"']?\)")
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in sources(".py")
        for match in nameless.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_tests_have_no_packages() -> None:
    assert [shown(path) for path in (ROOT / "tests").rglob("__init__.py")] == []


# --- kernels ------------------------------------------------------------------------------------------------------

KERNELS = sorted(str(path.relative_to(SPEEDUPS).with_suffix("")) for path in SPEEDUPS.rglob("*.pyx"))
PYTHON_NAME = re.compile(r"^(?:def |class |cdef class |cpdef )", re.MULTILINE)


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_has_declarations_and_types(name: str) -> None:
    """Types where Python may import something from it."""
    assert (SPEEDUPS / f"{name}.pxd").exists()
    stub = SPEEDUPS / f"{name}.pyi"
    if PYTHON_NAME.search((SPEEDUPS / f"{name}.pyx").read_text(encoding="utf-8")):
        assert stub.exists()
    if stub.exists():
        assert ast.parse(stub.read_text(encoding="utf-8")).body, "a stub that declares nothing"


def head(path: Path) -> str:
    """The docstring a kernel or its declarations begin with."""
    body = re.sub(r"\A(\s*#.*\n)*\s*", "", path.read_text(encoding="utf-8"))
    return body.split('"""')[1] if body.startswith('"""') else ""


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_begins_with_what_it_does(name: str) -> None:
    kernel, declarations = head(SPEEDUPS / f"{name}.pyx"), head(SPEEDUPS / f"{name}.pxd")
    assert kernel
    assert len(kernel + declarations) > 120, "format or purpose in prose, in the .pyx or its .pxd"


def test_prose_of_kernels_names_files_that_exist() -> None:
    """Of its own folder by the name alone, of another room by the path from _speedups."""
    wrong = []
    for path in sorted(SPEEDUPS.rglob("*.p[yx][xdi]")):
        for match in re.finditer(r"[\w/]+\.p(?:yx|xd|yi)\b", path.read_text(encoding="utf-8")):
            if not any((base / match[0]).exists() for base in (path.parent, SPEEDUPS, PACKAGE, ROOT)):
                wrong.append(f"{shown(path)}: {match[0]}")
    assert wrong == []


EXTENSION_TYPES = {
    name
    for path in SPEEDUPS.rglob("*.p[yx][xd]")
    for name in re.findall(r"^cdef class (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
}
RETURNS_OBJECT = {"object", "bytes", "bytearray", "str", "list", "dict", "set", "tuple", "type", *EXTENSION_TYPES}
CDEF = re.compile(
    r"^[ \t]*cp?def[ \t]+(?!class|enum|struct|extern|cppclass|packed|fused|union)(?P<head>[^\n(=]*)\(", re.MULTILINE
)


@pytest.mark.parametrize(
    "path", sorted(SPEEDUPS.rglob("*.p[yx][xd]")), ids=lambda path: str(path.relative_to(SPEEDUPS))
)
def test_every_cdef_function_states_its_error_return(path: Path) -> None:
    """Functions that return a Python object report errors by themselves; every other one has to say how it does."""
    text = re.sub(r'"""[\s\S]*?"""', lambda match: "\n" * match[0].count("\n"), path.read_text(encoding="utf-8"))
    wrong = []
    for match in CDEF.finditer(text):
        depth, end = 1, match.end()
        while depth and end < len(text):
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        words = match["head"].replace("inline", "").split()
        returns_object = len(words) < 2 or words[0] in RETURNS_OBJECT
        tail = text[end:].split("\n", 1)[0].split("#")[0]
        if not returns_object and "except" not in tail:
            wrong.append(f"{path.name}:{text.count(chr(10), 0, match.start()) + 1}")
    assert wrong == []


FROM_CIMPORT = re.compile(r"^from\s+[\w.]+\s+cimport\s+(?:\((?P<many>[^)]*)\)|(?P<one>[^\n(]+))", re.MULTILINE)


def cimported_and_code(text: str) -> tuple[set[str], str]:
    """The names that a kernel cimports, and its text without cimports, docstrings and comments."""
    code = re.sub(r"#.*", "", re.sub(r'"""[\s\S]*?"""', "", text))
    names: set[str] = set()
    for match in FROM_CIMPORT.finditer(code):
        items = (match["many"] or match["one"]).split(",")
        names |= {item.split(" as ")[-1].strip() for item in items} - {"", "*"}
    return names, FROM_CIMPORT.sub("", code)


def test_a_kernel_uses_each_name_that_it_cimports() -> None:
    """A .pxd may cimport a name for its .pyx."""
    unused = []
    for path in sorted(SPEEDUPS.rglob("*.p[yx][xd]")):
        names, code = cimported_and_code(path.read_text(encoding="utf-8"))
        kernel = path.with_suffix(".pyx")
        if path.suffix == ".pxd" and kernel.exists():
            code += cimported_and_code(kernel.read_text(encoding="utf-8"))[1]
        words = set(re.findall(r"\w+", code))
        unused += [f"{shown(path)}: {name}" for name in sorted(names - words)]
    assert unused == []


def test_an_unused_cimport_is_found() -> None:
    text = 'from a.b cimport (\n    one,\n    two as other,  # three\n)\nfrom c cimport four\n"""one"""\nfour(other)\n'
    names, code = cimported_and_code(text)
    assert names == {"one", "other", "four"}
    assert names & set(re.findall(r"\w+", code)) == {"other", "four"}


# --- one name, three files ----------------------------------------------------------------------------------------

HANDLED = sorted(path.stem for path in HANDLERS.glob("*.py") if path.stem not in NOT_HANDLERS)


@pytest.mark.parametrize("name", HANDLED)
def test_a_handler_has_messages_and_tests_of_its_name(name: str) -> None:
    assert (PACKAGE / "protocol" / "messages" / f"{name}.py").exists()
    assert (ROOT / "tests" / "broker" / "handlers" / f"test_{name}.py").exists()


HEADER = re.compile(
    r"""(?P<title>\w+),\ API\ key\ (?P<key>\d+):\ versions?\ (?P<low>\d+)(?:\ to\ (?P<high>\d+))?\.\n
    \n(?P<behaviour>[A-Z].*?\.)\n
    \nVersions:\n(?P<versions>(?:\d+:\ [^\n]+\.\n)+)
    \nKnown\ gaps:\ (?P<gaps>\S.*?\.)""",
    re.VERBOSE | re.DOTALL,
)


@pytest.mark.parametrize("name", HANDLED)
def test_the_header_of_a_handler_says_what_is_served(name: str) -> None:
    """API key, versions with a line for what each added, behaviour, known gaps; the handlers are not imported."""
    docstring = ast.get_docstring(ast.parse((HANDLERS / f"{name}.py").read_text(encoding="utf-8"))) or ""
    header = HEADER.fullmatch(docstring)
    assert header is not None, docstring
    key, low = int(header["key"]), int(header["low"])
    high = int(header["high"] or low)
    served = SERVED[key]
    assert (ApiKeys(key).module, low, high) == (name, served.low, served.high)
    assert f"{header['title']}Request" == api(key).request.NAME
    lines = dict(line.split(": ", 1) for line in header["versions"].splitlines())
    assert list(lines) == [str(version) for version in range(low, high + 1)], "one line for each version"
    flexible = [int(version) for version, added in lines.items() if "flexible encoding" in added]
    assert flexible == ([served.first_flexible] if served.first_flexible else [])


def test_each_api_that_is_served_has_a_handler() -> None:
    assert sorted(ApiKeys(key).module for key in SERVED) == HANDLED
