"""Foreign text without control characters, for a terminal.

Foreign text is record contents, client ids, names and messages of a broker. A terminal obeys control characters (C0
except tab and newline, DEL, C1): they change the title, move the cursor, or simulate input. The output shows them as
escapes such as \\x1b.
"""

from __future__ import annotations

import logging
import re
import sys
from typing import Any

__all__ = ["PrintableFormatter", "echo", "fitted", "json_without_controls", "printable", "printable_bytes"]

CONTROL = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
SPACES = {"\t": "\\t", "\n": "\\n"}
RAW_IN_JSON = re.compile("[\x7f-\x9f\ud800-\udfff]")
"""Characters that JSON allows in a string and a terminal obeys, or that UTF-8 cannot hold."""
SUSPECT_BYTES = re.compile(rb"[^\t\n\x20-\x7e]")


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def printable(text: str, one_line: bool = False) -> str:
    """The text with control characters and lone surrogates as escapes.

    With `one_line`, tabs and newlines become escapes too.
    """
    if one_line:
        for character, escape in SPACES.items():
            text = text.replace(character, escape)
    return CONTROL.sub(_escape, text)


def printable_bytes(data: bytes) -> bytes:
    """Bytes as printable text; invalid UTF-8 becomes escapes too."""
    if SUSPECT_BYTES.search(data) is None:
        return data
    return printable(data.decode(errors="backslashreplace")).encode()


def json_without_controls(text: str) -> str:
    """The same JSON, with \\u escapes for remaining control characters."""
    return RAW_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def fitted(text: str, stream: Any) -> str:
    """A sentence with line breaks between its words, if `stream` is a terminal.

    A terminal itself breaks lines inside of words.
    """
    if not stream.isatty():
        return text
    import os
    import textwrap

    try:
        width = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        return text
    if not width:
        return text
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False, replace_whitespace=False)


def echo(text: str) -> None:
    """Print a line on stdout.

    A pipe or a file gets it unchanged, a terminal without control characters.
    """
    print(printable(text) if sys.stdout.isatty() else text)


class PrintableFormatter(logging.Formatter):
    """Formats log lines without control characters from peers.

    Used by the handler's thread.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line, followed by the lines of a traceback."""
        return printable(super().format(record))
