"""Imports go one way: a module may import its own layer and those below, never one above.

Python modules are read with `ast`, kernels with a pattern for their cimports. Imports under `if TYPE_CHECKING:` exist
only for annotations and are left out; imports inside functions count.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "kafkapy"

LAYERS = (
    (
        "errors",
        "types",
        "version",
        "config",
        "hookspecs",
        "installed_plugins",
        "plugin_contracts",
        "plugins",
        "serializer",
        "slices",
        "garbage",
    ),
    ("_speedups",),
    ("protocol", "records"),
    ("log", "network", "security"),
    ("metadata", "clients", "admin", "aio", "arrow", "connector", "consumer", "partitioner", "producer", "structs"),
    ("replica", "coordinator", "controller"),
    ("broker",),
    ("tools", "testing"),
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}

CLIENT_PARTS = {"clients", "admin", "aio", "arrow", "connector", "consumer", "partitioner", "producer", "structs"}
CLIENTS_NEVER = {"broker", "controller", "coordinator", "replica", "log", "network", "metadata"}
"""A client must work without the broker's code."""

BOTTOM = {"errors", "types"}
"""These import nothing of ours."""

CIMPORT = re.compile(r"^\s*(?:from\s+(kafkapy[\w.]*)\s+c?import\b|c?import\s+(kafkapy[\w.]*))", re.MULTILINE)


def part_of(module: str) -> str | None:
    """The part of the package a dotted name lies in: kafkapy.log.x gives log; kafkapy itself gives None."""
    pieces = module.split(".")
    return pieces[1] if len(pieces) > 1 and pieces[0] == "kafkapy" else None


def imports_of(tree: ast.AST, module: str) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of every import of ours that happens at run time."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from imports_of(ast.Module(node.orelse, []), module)
        elif isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names if alias.name.split(".")[0] == "kafkapy")
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join([*module.split(".")[: -node.level], *filter(None, [node.module])])
            if base == "kafkapy":
                yield from ((node.lineno, f"kafkapy.{alias.name}") for alias in node.names)
            elif base.startswith("kafkapy."):
                yield node.lineno, base
        else:
            yield from imports_of(node, module)


def module_name(path: Path) -> str:
    pieces = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(pieces)


def all_imports() -> Iterator[tuple[str, int, str]]:
    """(importing module, line, imported module) of the whole package, kernels and stubs included."""
    for path in sorted(PACKAGE.rglob("*.py*")):
        module = module_name(path)
        text = path.read_text(encoding="utf-8") if path.suffix in (".py", ".pyi", ".pyx", ".pxd") else ""
        if path.suffix in (".py", ".pyi"):
            yield from ((module, line, name) for line, name in imports_of(ast.parse(text), module))
        else:
            for match in CIMPORT.finditer(text):
                yield module, text.count("\n", 0, match.start(1 if match[1] else 2)) + 1, match[1] or match[2]


IMPORTS = list(all_imports())


def test_every_part_has_a_layer() -> None:
    parts = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert parts - {"__init__"} <= set(LEVEL)


def test_imports_go_down_only() -> None:
    wrong = []
    for module, line, name in IMPORTS:
        importer, imported = part_of(module), part_of(name)
        if importer not in LEVEL or imported is None:
            continue
        if imported not in LEVEL:
            wrong.append(f"{module}:{line} imports {name}, which is in no layer")
        elif LEVEL[imported] > LEVEL[importer]:
            wrong.append(f"{module}:{line} imports {name} from a layer above")
    assert wrong == []


def test_errors_and_types_import_nothing_of_ours() -> None:
    assert [entry for entry in IMPORTS if part_of(entry[0]) in BOTTOM] == []


def test_clients_never_import_broker_code() -> None:
    assert [
        entry for entry in IMPORTS if part_of(entry[0]) in CLIENT_PARTS and part_of(entry[2]) in CLIENTS_NEVER
    ] == []


def test_coordinators_and_the_controller_never_import_a_log() -> None:
    shards = {"coordinator", "controller"}
    assert [entry for entry in IMPORTS if part_of(entry[0]) in shards and part_of(entry[2]) == "log"] == []


def every_import(path: Path, modules: set[str]) -> set[str]:
    """The modules of ours that a module names, also those only for annotations."""
    own = module_name(path).removesuffix(".__init__")
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            parts = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {part if part in modules else node.module for part in parts}
    return found & modules - {own}


def test_no_modules_import_each_other() -> None:
    """Imports for annotations count: who needs the other's names is no part of its own."""
    paths = {module_name(path).removesuffix(".__init__"): path for path in PACKAGE.rglob("*.py")}
    named = {module: every_import(path, set(paths)) for module, path in paths.items()}

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = list(named[start])
        while waiting:
            module = waiting.pop()
            if module not in seen:
                seen.add(module)
                waiting += named[module]
        return seen

    reachable = {module: reached(module) for module in paths}
    circles = {
        frozenset(other for other in reachable[module] if module in reachable[other])
        for module in paths
        if module in reachable[module]
    }
    assert circles == set()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import kafkapy.log.x", ["kafkapy.log.x"]),
        ("from kafkapy import errors, types", ["kafkapy.errors", "kafkapy.types"]),
        ("from kafkapy.log import y", ["kafkapy.log"]),
        ("from . import z", ["kafkapy.broker"]),
        ("from ..log import z", ["kafkapy.log"]),
        ("def f():\n    from kafkapy.log import y", ["kafkapy.log"]),
        ("if TYPE_CHECKING:\n    from kafkapy.log import y\nelse:\n    import kafkapy.types", ["kafkapy.types"]),
        ("import os\nfrom kafka import x", []),
    ],
)
def test_the_search_finds_what_is_imported(source: str, expected: list[str]) -> None:
    assert [name for _, name in imports_of(ast.parse(source), "kafkapy.broker.server")] == expected


def test_the_search_finds_cimports() -> None:
    text = "from libc.stdint cimport int32_t\nfrom kafkapy._speedups.base.wire cimport Cursor\ncimport kafkapy.log\n"
    assert [match[1] or match[2] for match in CIMPORT.finditer(text)] == ["kafkapy._speedups.base.wire", "kafkapy.log"]
