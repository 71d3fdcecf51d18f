"""Java .properties files with line numbers. Source: java.util.Properties.load.

    # comment              ! comment
    key=value              key: value            key value
    long.value=one,\\
               two         (a line that ends in an odd number of backslashes goes on)

Escapes: \\t \\n \\r \\f \\uXXXX; a backslash before any other character is dropped. A key given twice
keeps the last value, as in Java. Files are UTF-8.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from kafkapy.errors import ConfigError

_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_HEX4 = re.compile(r"[0-9a-fA-F]{4}")
OVERRIDE_SOURCE = "--override"


class Properties(Mapping[str, str]):
    """Keys and values of a properties file, with their lines.

    The main thread uses it at the start. `set` overrides a value of the file, for command-line overrides.
    """

    def __init__(self, source: str = "") -> None:
        self.source = source
        self._values: dict[str, str] = {}
        self._lines: dict[str, int | None] = {}

    def __getitem__(self, key: str) -> str:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def set(self, key: str, value: str, line: int | None = None) -> None:
        """Set a value; `line` is None for a value outside the file."""
        self._values[key] = value
        self._lines[key] = line

    def line_of(self, key: str) -> int | None:
        """The first line of the key's value, or None outside the file."""
        return self._lines.get(key)

    def source_of(self, key: str) -> str:
        """The file, or ``--override`` for a value from the command line."""
        return OVERRIDE_SOURCE if key in self._lines and self._lines[key] is None else self.source

    def override(self, assignments: Iterable[str]) -> Properties:
        """Apply ``key=value`` texts from the command line; the last wins.

        ConfigError for a text without "=".
        """
        for text in assignments:
            key, equals, value = text.partition("=")
            if not equals or not key.strip():
                raise ConfigError(OVERRIDE_SOURCE, text, "must be key=value")
            self.set(key.strip(), value.strip())
        return self


def load_properties(path: str | Path) -> Properties:
    """Read a file. ConfigError when it is unreadable."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError("properties file", str(path), error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise ConfigError("properties file", str(path), f"is not UTF-8 (byte {error.start})") from error
    return parse_properties(text, str(path))


def parse_properties(text: str, source: str = "") -> Properties:
    """Parse the text of a file.

    ConfigError, with the line, for a malformed \\u escape.
    """
    properties = Properties(source)
    for line, logical in _logical_lines(text):
        raw_key, raw_value = _split(logical)
        key = _unescape(raw_key, raw_key, line, source)
        properties.set(key, _unescape(raw_value, key, line, source), line)
    return properties


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Joined lines without comments and blank lines, with their numbers."""
    parts: list[str] = []
    first = 0
    for number, physical in enumerate(re.split(r"\r\n|\n|\r", text), start=1):
        stripped = physical.lstrip(_BLANKS)
        if not parts:
            if not stripped or stripped[0] in "#!":
                continue
            first = number
        backslashes = len(stripped) - len(stripped.rstrip("\\"))
        if backslashes % 2:
            parts.append(stripped[:-1])
            continue
        yield first, "".join([*parts, stripped])
        parts = []
    if parts:
        yield first, "".join(parts)


def _split(line: str) -> tuple[str, str]:
    """Key and value, still escaped.

    The key ends at the first unescaped "=", ":" or blank.
    """
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANKS:
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return line[:end], rest


def _unescape(text: str, key: str, line: int, source: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char != "\\" or position == len(text):
            out.append(char)
            continue
        char = text[position]
        position += 1
        if char != "u":
            out.append(_ESCAPES.get(char, char))
            continue
        match = _HEX4.match(text, position)
        if match is None:
            raise ConfigError(key, text, "\\u must be followed by four hexadecimal digits", line, source)
        out.append(chr(int(match.group(), 16)))
        position += 4
    # \u escapes are UTF-16 code units: join surrogate pairs into one character.
    return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
