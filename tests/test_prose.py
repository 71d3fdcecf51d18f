"""The words of pages, command line, docstrings and log lines: forbidden ones are absent, summaries are short."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from inspect import cleandoc
from pathlib import Path

import click
import pytest

from kafkapy.tools import cli, server_command

ROOT = Path(__file__).parent.parent
MOST_WORDS = 12
"""Words of a summary line."""

PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "plugins").glob("*/README.md")),
]
CODE = re.compile(r"^```.*?^```|^    .*?$|`[^`\n]*`|\]\([^)\n]*\)|<!--.*?-->", re.MULTILINE | re.DOTALL)
"""Parts of a page that are no prose: code blocks, code words, the targets of links, comments."""
SENTENCE_START = r"(?:(?<=[.:;?!] )|(?<=\| )|^[ \t]*(?:[-#>]+[ \t]+|[0-9]+\.[ \t]+)*)(?:\*\*|_)?"
FORBIDDEN = {
    "anew": re.compile(r"\banew\b", re.IGNORECASE),
    "but for": re.compile(r"\bbut for\b", re.IGNORECASE),
    "comes to": re.compile(r"\bcomes to\b", re.IGNORECASE),
    "is had": re.compile(r"\b(?:is|are|was|be) had\b", re.IGNORECASE),
    "a sentence whose subject is no noun": re.compile(
        SENTENCE_START + r"(?:What|Who|Whoever|Whatever|Those|That which|One that)\b", re.MULTILINE
    ),
}


def wrong(text: str, forbidden: Mapping[str, re.Pattern[str]] = FORBIDDEN) -> list[str]:
    """Each forbidden use in a text, with the words around it. Lines of one paragraph are one line."""
    joined = re.sub(r"(?<!\n)\n(?!\n|[ \t]*(?:[-#|>*]|[0-9]+\.))", " ", text)
    return [
        f"{name}: ...{joined[max(0, found.start() - 20) : found.end() + 30]!r}"
        for name, pattern in forbidden.items()
        for found in pattern.finditer(joined)
    ]


def commands(group: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """The command and all below it, by the words that one types. Commands of installed plugins are left out."""
    yield path, group
    if isinstance(group, click.Group):
        context = click.Context(group)
        for name in cli.COMMANDS if group is cli.main else group.list_commands(context):
            command = group.get_command(context, name)
            assert command is not None, name
            yield from commands(command, f"{path} {name}")


def spark_commands() -> Iterator[tuple[str, click.Command]]:
    """The Spark connector's commands; some modules of theirs need pyspark."""
    if find_spec("pyspark") is not None and find_spec("pyarrow") is not None:
        from kafkapy_spark.cli import main

        yield from commands(main, "kafkapy-spark")


COMMANDS = dict([*commands(cli.main, "kafkapy"), ("kafkapy-server", server_command.command), *spark_commands()])


@pytest.mark.parametrize(
    "text",
    [
        "It is sent anew.",
        "All but for one.",
        "That comes to nothing.",
        "It cannot be had, and is had\nnowhere.",
        "The broker stops. What is left is deleted.",
        "- Those of the topic.",
        "| Who waits |",
        "## What differs",
        "A broker. One\nthat fails stops.",
    ],
)
def test_forbidden_words_are_found(text: str) -> None:
    assert wrong(text)


def test_other_uses_are_not() -> None:
    assert wrong("The log says what failed, and who asked for\nthose records. The broker comes\n\nto an end.") == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_has_no_forbidden_words(page: Path) -> None:
    assert wrong(CODE.sub("``", page.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_no_forbidden_words(name: str) -> None:
    command = COMMANDS[name]
    texts = [command.help or "", *(getattr(each, "help", None) or "" for each in command.params)]
    assert [problem for text in texts for problem in wrong(text)] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_a_short_summary(name: str) -> None:
    summary = (COMMANDS[name].help or "").strip().partition("\n")[0]
    assert summary.endswith(".")
    assert len(summary.split()) <= MOST_WORDS, summary


def test_the_summaries_of_the_first_help_page_are_short() -> None:
    assert [line for _, line in cli.COMMANDS.values() if len(line.split()) > MOST_WORDS] == []


# --- the table of CONTRIBUTING ------------------------------------------------------------------------------------

ROW = re.compile(r"^\| (?P<what>an? .+?) \| (?P<rest>.+) \|$", re.MULTILINE)
NAMED_FILE = re.compile(r"`([\w./-]+\.(?:pyx|pxd|pyi|py|md))`")
QUESTIONS = (
    "an API version", "an API", "a codec", "a topic key", "a broker key", "a metric", "a CLI command",
    "an Arrow column", "a hook", "a client option", "a kernel",
)  # fmt: skip


def rows() -> dict[str, str]:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.partition("## I want to add ...")[2].partition("\n## ")[0]
    return {match["what"]: match["rest"] for match in ROW.finditer(table)}


def test_contributing_answers_the_questions_of_newcomers() -> None:
    assert set(QUESTIONS) <= set(rows())


@pytest.mark.parametrize(("what", "rest"), rows().items(), ids=list(rows()))
def test_the_files_that_contributing_names_exist(what: str, rest: str) -> None:
    """A kernel is named without its folder; every row names a test to copy."""
    names = NAMED_FILE.findall(rest)
    assert any(Path(name).name.startswith("test_") for name in names), what
    for name in names:
        if "/" in name or name == "setup.py":
            assert (ROOT / name).is_file(), name
        else:
            assert [*(ROOT / "kafkapy" / "_speedups").rglob(name)], name


# --- docstrings ---------------------------------------------------------------------------------------------------

MOST_DOCSTRING_WORDS = 14
"""Words of a docstring's first line."""
PLAIN_PACKAGES = (
    "admin.py", "aio", "arrow.py", "broker", "clients", "config", "connector.py", "consumer", "controller",
    "coordinator", "errors.py", "hookspecs.py", "installed_plugins.py", "log", "metadata", "network", "partitioner",
    "plugin_contracts.py", "plugins.py", "producer", "protocol", "records", "replica", "security", "serializer.py",
    "slices.py", "structs.py", "testing", "tools", "types.py",
)  # fmt: skip
"""Packages and modules of kafkapy whose docstrings follow the rules. Add yours once it does."""
DOCSTRING_FORBIDDEN = FORBIDDEN | {"of its own": re.compile(r"\bof (?:its|his|their|one's) own\b", re.IGNORECASE)}
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def modules(package: str) -> list[Path]:
    """The Python files of an entry of PLAIN_PACKAGES."""
    found = sorted((ROOT / "kafkapy").glob(package))
    return [file for path in found for file in ([path] if path.is_file() else sorted(path.rglob("*.py")))]


def docstring_problems(source: str) -> list[str]:
    """Forbidden words in docstrings (also of attributes), and long first lines of modules and public objects."""
    problems = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            text = CODE.sub("``", cleandoc(node.value.value))
            problems += [f"line {node.lineno}: {problem}" for problem in wrong(text, DOCSTRING_FORBIDDEN)]
        elif isinstance(node, Documented) and not getattr(node, "name", "").startswith("_"):
            summary = (ast.get_docstring(node) or "").partition("\n")[0]
            if len(summary.split()) > MOST_DOCSTRING_WORDS:
                problems.append(f"line {getattr(node, 'lineno', 1)}: {len(summary.split())} words: {summary}")
    return problems


@pytest.mark.parametrize(
    "source",
    [
        '"""A module that is read anew."""',
        'class A:\n    """An offset.\n\n    What is left is dropped.\n    """',
        'def f():\n    """A batch with a\n    header of its own."""',
        'LIMIT = 1\n"""Those of the topic."""',
        'async def f():\n    """' + "word " * (MOST_DOCSTRING_WORDS + 1) + '"""',
    ],
)
def test_bad_docstrings_are_found(source: str) -> None:
    assert len(docstring_problems(source)) == 1


def test_other_docstrings_are_not() -> None:
    words = "word " * (MOST_DOCSTRING_WORDS + 1)
    source = f'def f():\n    """A batch.\n\n    {words}\n    `What` is code.\n    """\ndef _f():\n    """{words}"""'
    assert docstring_problems(source) == []


@pytest.mark.parametrize("package", PLAIN_PACKAGES)
def test_docstrings_are_plain(package: str) -> None:
    files = modules(package)
    assert files, package
    assert {str(file): found for file in files if (found := docstring_problems(file.read_text("utf-8")))} == {}


# --- log lines ----------------------------------------------------------------------------------------------------

LOGGER_METHODS = frozenset({"debug", "info", "warning", "error", "exception", "critical", "log"})
LOGGER_NAME = re.compile(r"(?:^|[._])(?:logger|log)$|^logging\.getLogger\(")
KAFKAS_OWN = frozenset({
    "Completed request", "starting", "started", "listening on %s", "shutting down", "shut down completed",
    "Shutdown broker because all log dirs in %s have failed",
})  # fmt: skip
"""Lines of Apache Kafka and of the start that monitoring and scripts look for."""
NO_NOUN = re.compile(
    r"^(?:Error|Errors|Unable|Cannot|Could|Failed|Failure|Not|No longer|[A-Z][a-z]*(?:ing|ed))\b|"
    r"^(?:The|An?) (?:error|problem|failure) (?:while|when|in)\b"
)
NOUN_FIRST_PACKAGES = (
    "broker", "controller", "coordinator", "log", "metadata", "network", "plugins.py", "records", "replica", "security",
)  # fmt: skip
"""Packages of the broker: their log lines begin with the noun that the line is about."""
KERNEL_TEXT = re.compile(r'b"((?:[^"\\\n]|\\.)*)"')


def log_texts(source: str) -> Iterator[tuple[int, str]]:
    """(line, text) of each call of a logger whose text is a literal, or a choice of literals."""
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in LOGGER_METHODS
            and LOGGER_NAME.search(ast.unparse(node.func.value))
        ):
            for text in node.args[node.func.attr == "log" :][:1]:
                for each in [text.body, text.orelse] if isinstance(text, ast.IfExp) else [text]:
                    if isinstance(each, ast.Constant) and isinstance(each.value, str):
                        yield node.lineno, each.value


def log_problems(source: str, noun_first: bool = True) -> list[str]:
    """Forbidden words in log lines, and lines without their noun in front, or with a sentence's end."""
    problems = []
    for line, text in log_texts(source):
        problems += [f"line {line}: {problem}" for problem in wrong(CODE.sub("``", text), DOCSTRING_FORBIDDEN)]
        if noun_first and text not in KAFKAS_OWN:
            if NO_NOUN.search(text) or text[0].islower():
                problems.append(f"line {line}: no noun in front: {text}")
            if text.endswith("."):
                problems.append(f"line {line}: ends like a sentence: {text}")
    return problems


def kernel_texts(room: str) -> list[str]:
    """Literals of a kernel room with at least three words."""
    sources = [file.read_text("utf-8") for file in sorted((ROOT / "kafkapy" / "_speedups" / room).rglob("*.pyx"))]
    return [text for source in sources for text in KERNEL_TEXT.findall(source) if len(text.split()) >= 3]


@pytest.mark.parametrize(
    "call",
    [
        'logger.info("Cleaning %s failed", tp)',
        'logger.info("Unable to open %s", tp)',
        'self._logger.error("What follows is lost")',
        'logging.getLogger("x").exception("Error while stopping")',
        'log.log(level, "copied anew: %s", tp)',
        'logger.log(level, "The log of %s is copied anew", tp)',
        'logger.warning("Partition %s is offline.")',
        'logger.warning("A log" if one else "two logs")',
    ],
)
def test_bad_log_lines_are_found(call: str) -> None:
    assert log_problems(call)


def test_other_log_lines_are_not() -> None:
    calls = [
        'logger.info("Partition %s moved from %s to %s", tp, a, b)',
        'logger.debug("started")',
        "logger.info(text)",
        'replicas.log("Cleaning")',
        'self.log("Cleaning")',
        "math.log(2)",
    ]
    assert log_problems("\n".join(calls)) == []
    assert log_problems('logger.info("Resetting the offset")', noun_first=False) == []


@pytest.mark.parametrize("package", PLAIN_PACKAGES)
def test_log_lines_are_plain(package: str) -> None:
    noun_first = package in NOUN_FIRST_PACKAGES
    found = {str(file): log_problems(file.read_text("utf-8"), noun_first) for file in modules(package)}
    assert {file: problems for file, problems in found.items() if problems} == {}


def texts(source: str) -> Iterator[tuple[int, str]]:
    """(line, text) of each literal of three words or more that is no docstring; errors are such. {} is a value."""
    tree = ast.parse(source)
    parts = {id(value) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for value in node.values}
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        text = ""
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(each.value) if isinstance(each, ast.Constant) else "{}" for each in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts | documentation:
            text = node.value
        if len(text.split()) >= 3:
            yield node.lineno, text


def test_texts_are_found_whole() -> None:
    source = '"""A docstring of words."""\nraise A(f"{name} is sent" f" anew to {node}.")\nraise A("All but for one")'
    assert sorted(texts(source)) == [(2, "{} is sent anew to {}."), (3, "All but for one")]


@pytest.mark.parametrize("package", PLAIN_PACKAGES)
def test_errors_and_other_texts_are_plain(package: str) -> None:
    found = {
        str(file): [text for text in texts(file.read_text("utf-8")) if wrong(text[1])] for file in modules(package)
    }
    assert {file: bad for file, bad in found.items() if bad} == {}


def test_the_packages_of_the_broker_log() -> None:
    assert set(NOUN_FIRST_PACKAGES) <= set(PLAIN_PACKAGES)
    logging_packages = ("broker", "controller", "coordinator", "log", "metadata", "network", "replica")
    silent = [
        package
        for package in logging_packages
        if not any(True for file in modules(package) for _ in log_texts(file.read_text("utf-8")))
    ]
    assert silent == []


@pytest.mark.parametrize("room", ["log", "network", "requests"])
def test_texts_of_kernels_are_plain(room: str) -> None:
    texts = kernel_texts(room)
    assert [problem for text in texts for problem in wrong(text, DOCSTRING_FORBIDDEN)] == []
    assert texts or room == "log"
