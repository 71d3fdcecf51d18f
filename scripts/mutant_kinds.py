"""Small bugs for scripts/mutants.py: what can be done to a Python module, and to a kernel.

Python goes by the syntax tree, whose positions say which bytes to replace, so that a diff shows the bug and nothing
else. Kernels go line by line: no parser of Cython keeps positions of expressions, and a mutant that does not compile is
not counted.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["Mutant", "kernel_mutants", "mutants_of", "python_mutants"]


@dataclass(frozen=True, order=True)
class Mutant:
    """One bug: bytes `start` to `end` of a file become `text`. `line`, from 1 on, is where it begins."""

    path: str
    start: int
    end: int
    line: int
    kind: str
    text: str

    def applied(self, source: str) -> str:
        """The file with the bug in it."""
        data = source.encode()
        return (data[: self.start] + self.text.encode() + data[self.end :]).decode()

    def diff(self, source: str) -> str:
        """What a reader sees."""
        before, after = source.splitlines(keepends=True), self.applied(source).splitlines(keepends=True)
        return "".join(difflib.unified_diff(before, after, self.path, self.path, n=3))


# --- Python -------------------------------------------------------------------------------------------------------

COMPARISONS: Final = {
    ast.Lt: ("<", ("<=", ">")),
    ast.LtE: ("<=", ("<", ">")),
    ast.Gt: (">", (">=", "<")),
    ast.GtE: (">=", (">", "<")),
    ast.Eq: ("==", ("!=",)),
    ast.NotEq: ("!=", ("==",)),
    ast.Is: ("is", ("is not",)),
    ast.IsNot: ("is not", ("is",)),
    ast.In: ("in", ("not in",)),
    ast.NotIn: ("not in", ("in",)),
}
ARITHMETIC: Final = {
    ast.Add: ("+", ("-",)),
    ast.Sub: ("-", ("+",)),
    ast.Mult: ("*", ("//",)),
    ast.FloorDiv: ("//", ("*",)),
    ast.Div: ("/", ("*",)),
    ast.Mod: ("%", ("//",)),
    ast.BitAnd: ("&", ("|",)),
    ast.BitOr: ("|", ("&",)),
    ast.LShift: ("<<", (">>",)),
    ast.RShift: (">>", ("<<",)),
}
QUIET_CALLS: Final = frozenset({"debug", "info", "warning", "error", "critical", "exception", "print", "log"})
"""Methods that only say something: no test has to hold their words."""
CAPITALS: Final = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*$")


class PythonMutants(ast.NodeVisitor):
    """Collects what can be done to one module. What is outside of functions is left alone but for its constants."""

    def __init__(self, path: str, source: str) -> None:
        self.path = path
        self.data = source.encode()
        self.found: list[Mutant] = []
        self._starts = [0]
        for line in self.data.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._tree = ast.parse(source)
        self._in_function = 0
        self._members: dict[str, set[str]] = {}
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and CAPITALS.match(node.attr):
                self._members.setdefault(node.value.id, set()).add(node.attr)

    def collect(self) -> list[Mutant]:
        """All of them, in the order of the file."""
        self.visit(self._tree)
        return sorted(set(self.found))

    # ---- places ----

    def _at(self, line: int, column: int) -> int:
        return self._starts[line - 1] + column

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._at(node.lineno, node.col_offset), self._at(node.end_lineno, node.end_col_offset)

    def _add(self, kind: str, line: int, start: int, end: int, text: str) -> None:
        self.found.append(Mutant(self.path, start, end, line, kind, text))

    def _replace(self, node: ast.expr | ast.stmt, kind: str, text: str) -> None:
        self._add(kind, node.lineno, *self._span(node), text)

    def _operator(self, kind: str, left: ast.expr, right: ast.expr, old: str, new: Iterable[str]) -> None:
        """The operator stands between its operands, perhaps among parentheses and comments."""
        start, end = self._span(left)[1], self._span(right)[0]
        between = re.sub(rb"#[^\n]*", lambda match: b" " * len(match[0]), self.data[start:end])
        pattern = rb"\s+".join(re.escape(word.encode()) for word in old.split())
        found = re.search(pattern, between)
        if found is None:
            return
        line = self.data.count(b"\n", 0, start + found.start()) + 1
        for text in new:
            self._add(kind, line, start + found.start(), start + found.end(), text)

    # ---- what is not looked into ----

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Its body and defaults; annotations and decorators are no code."""
        self._in_function += 1
        for default in [*node.args.defaults, *(each for each in node.args.kw_defaults if each is not None)]:
            self.visit(default)
        self._body(node.body)
        body = node.body[1:] if ast.get_docstring(node) is not None else node.body
        if len(body) > 1 or (body and isinstance(body[0], ast.If | ast.For | ast.While | ast.With | ast.Try)):
            statement = body[1] if len(body) > 1 else body[0]
            self._early_return(statement)
        self._in_function -= 1

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Its body only."""
        self._body(node.body)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """The value only."""
        if node.value is not None:
            self.visit(node.value)

    def visit_If(self, node: ast.If) -> None:
        """Imports for types are no code."""
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        self._condition(node)

    def visit_Assert(self, node: ast.Assert) -> None:
        """Is a test by itself."""

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        """Nothing to do."""

    visit_ImportFrom = visit_Import

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Texts are not held to the letter."""

    def visit_Subscript(self, node: ast.Subscript) -> None:
        """A type at the top of a module is no code."""
        if self._in_function:
            self.generic_visit(node)

    # ---- statements ----

    def _body(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                continue
            if self._is_quiet(statement):
                continue
            if self._in_function and self._may_be_missing(statement):
                self._replace(statement, "statement", "pass")
            self.visit(statement)

    def generic_visit(self, node: ast.AST) -> None:
        """Bodies go by `_body`, the rest by itself."""
        for _, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                self._body(value)
            else:
                for each in value if isinstance(value, list) else [value]:
                    if isinstance(each, ast.AST):
                        self.visit(each)

    @staticmethod
    def _is_quiet(statement: ast.stmt) -> bool:
        call = statement.value if isinstance(statement, ast.Expr) else None
        if not isinstance(call, ast.Call):
            return False
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        return name in QUIET_CALLS

    @staticmethod
    def _may_be_missing(statement: ast.stmt) -> bool:
        if isinstance(statement, ast.Assign):
            # Of a local name that is gone every test hears.
            return all(isinstance(target, ast.Attribute | ast.Subscript) for target in statement.targets)
        return isinstance(statement, ast.Expr | ast.AugAssign | ast.Delete | ast.Raise | ast.Continue | ast.Break)

    def _early_return(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Return | ast.Raise | ast.Pass | ast.FunctionDef | ast.AsyncFunctionDef):
            return
        start = self._at(statement.lineno, statement.col_offset)
        self._add("early return", statement.lineno, start, start, "return\n" + " " * statement.col_offset)

    # ---- expressions ----

    def _condition(self, node: ast.If | ast.While | ast.IfExp) -> None:
        if self._in_function and not isinstance(node.test, ast.Constant):
            start, end = self._span(node.test)
            text = self.data[start:end].decode()
            self._replace(node.test, "condition", f"(not ({text}))")
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        """See _condition."""
        self._condition(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        """See _condition."""
        self._condition(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        """Each of its operators."""
        left = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            old, new = COMPARISONS[type(operator)]
            self._operator("comparison", left, right, old, new)
            left = right
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        """`and` and `or`, whose operands are put into parentheses by the parser only."""
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        if len(node.values) == 2:
            self._operator("and, or", node.values[0], node.values[1], old, (new,))
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        """Not of texts, and not of types."""
        texts = [each for each in (node.left, node.right) if isinstance(each, ast.JoinedStr) or _is_text(each)]
        if self._in_function and not texts and type(node.op) in ARITHMETIC:
            old, new = ARITHMETIC[type(node.op)]
            self._operator("arithmetic", node.left, node.right, old, new)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """`+=` and its like."""
        if type(node.op) in ARITHMETIC and not _is_text(node.value):
            old, new = ARITHMETIC[type(node.op)]
            self._operator("arithmetic", node.target, node.value, old + "=", [each + "=" for each in new])
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        """Numbers go one up or down, truth turns round."""
        if isinstance(node.value, bool):
            self._replace(node, "constant", str(not node.value))
        elif isinstance(node.value, int):
            self._replace(node, "off by one", str(node.value + 1))
            if node.value > 0:
                self._replace(node, "off by one", str(node.value - 1))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """A member of an enumeration becomes another one that the module uses."""
        if self._in_function and isinstance(node.value, ast.Name) and isinstance(node.ctx, ast.Load):
            others = self._members.get(node.value.id, set()) - {node.attr}
            if CAPITALS.match(node.attr):
                for other in sorted(others)[:4]:
                    self._replace(node, "constant", f"{node.value.id}.{other}")
        self.generic_visit(node)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)


def python_mutants(path: str, source: str) -> list[Mutant]:
    """What can be done to a module."""
    return PythonMutants(path, source).collect()


# --- kernels ------------------------------------------------------------------------------------------------------

STATEMENT: Final = re.compile(
    r"\s+(if|elif|while|return|for|[A-Za-z_&(\[][\w.\[\]()&*, ]*\s*([-+*/%|&]|<<|>>)?=(?!=)|[\w.]+\()"
)
DECLARATION: Final = re.compile(r"\s*(cdef|cpdef|ctypedef|cimport|from|import|def|class|async|@|raise|assert|print)\b")
TOKENS: Final = (
    ("comparison", re.compile(r"(?<= )(<=|>=|==|!=|<|>)(?= )"), {
        "<": ("<=", ">"), "<=": ("<", ">"), ">": (">=", "<"), ">=": (">", "<"), "==": ("!=",), "!=": ("==",)
    }),
    ("arithmetic", re.compile(r"(?<= )(\+|-|\*|//|/|%|&|\||<<|>>|\+=|-=)(?= )"), {
        "+": ("-",), "-": ("+",), "*": ("+",), "//": ("*",), "/": ("*",), "%": ("/",), "&": ("|",), "|": ("&",),
        "<<": (">>",), ">>": ("<<",), "+=": ("-=",), "-=": ("+=",),
    }),
    ("and, or", re.compile(r"(?<= )(and|or)(?= )"), {"and": ("or",), "or": ("and",)}),
    ("constant", re.compile(r"\b(True|False)\b"), {"True": ("False",), "False": ("True",)}),
    ("statement", re.compile(r"(?<= )(break|continue)$"), {"break": ("continue",), "continue": ("break",)}),
)  # fmt: skip
NUMBER: Final = re.compile(r"(?<![\w.])\d+(?![\w.])")
CONDITION: Final = re.compile(r"(\s+(?:el)?(?:if|while) )(.+):$")
ERROR: Final = re.compile(r"\bERROR_[A-Z_]+\b")
REMOVABLE: Final = re.compile(
    r"(\s+)([\w.]+\(.*\)|[\w\[\]().&*]*[.\[][\w\[\]().&*]* ([-+|&*]|<<|>>)?= .+|\w+ [-+|&]= .+)$"
)


def code_lines(source: str) -> Iterator[tuple[int, str]]:
    """(number from 1 on, code) of a kernel's lines, with texts and comments blanked, without docstrings."""
    in_text = ""
    for number, line in enumerate(source.splitlines(), 1):
        if in_text:
            if in_text in line:
                in_text = ""
            continue
        opening = re.search(r'"""|\'\'\'', line)
        if opening is not None:
            if line.count(opening[0]) % 2:
                in_text = opening[0]
            continue
        code = re.sub(r'b?"[^"\n]*"|b?\'[^\'\n]*\'', lambda match: '"' + "_" * (len(match[0]) - 2) + '"', line)
        code = re.sub(r"#.*", "", code).rstrip()
        if code.strip():
            yield number, code


def kernel_mutants(path: str, source: str) -> list[Mutant]:
    """What can be done to single lines of a kernel. Some do not compile; those are not counted."""
    data = source.encode()
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    lines = source.splitlines()
    errors = sorted(set(ERROR.findall(source)))
    found: list[Mutant] = []
    depth = 0
    for number, code in code_lines(source):
        whole = depth == 0
        depth += sum(code.count(each) for each in "([{") - sum(code.count(each) for each in ")]}")
        if DECLARATION.match(code) or not lines[number - 1].isascii():
            continue
        # The lines that go on from the one before are a part of its expression.
        if whole and not STATEMENT.match(code) and code.strip() not in ("break", "continue"):
            continue

        def add(kind: str, start: int, end: int, text: str, number: int = number) -> None:
            at = starts[number - 1]
            found.append(Mutant(path, at + start, at + end, number, kind, text))

        for kind, pattern, table in TOKENS:
            for match in pattern.finditer(code):
                for text in table[match[0]]:
                    add(kind, match.start(), match.end(), text)
        for match in NUMBER.finditer(code):
            add("off by one", match.start(), match.end(), str(int(match[0]) + 1))
            if int(match[0]) > 0:
                add("off by one", match.start(), match.end(), str(int(match[0]) - 1))
        for match in ERROR.finditer(code):
            for other in [each for each in errors if each != match[0]][:4]:
                add("constant", match.start(), match.end(), other)
        if not whole or depth:
            continue
        condition = CONDITION.match(code)
        if condition is not None:
            start, end = condition.span(2)
            add("condition", start, end, f"not ({lines[number - 1][start:end]})")
        removable = REMOVABLE.match(code)
        if removable is not None:
            add("statement", len(removable[1]), len(code), "pass")
    return sorted(set(found))


def mutants_of(path: str, source: str) -> list[Mutant]:
    """Of a module or a kernel."""
    return kernel_mutants(path, source) if path.endswith(".pyx") else python_mutants(path, source)
