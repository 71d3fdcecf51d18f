"""Java's regular expressions and replacement texts in rules that map names of principals.

The patterns of both languages agree on nearly all that such rules use. Digits, words and spaces are ASCII, as in
Java. A pattern that Python would read differently (an intersection of classes) is refused. Source: java.util.regex.
"""

from __future__ import annotations

import re
import warnings
from typing import Final

__all__ = ["compile_java", "replace_java"]

_DIGITS: Final = "0123456789"
_NAMED_GROUP: Final = re.compile(r"(\\.)|\(\?<([A-Za-z][A-Za-z0-9]*)>", re.DOTALL)
"""A protected character, or the beginning of a group that Python writes (?P<name>...)."""


def compile_java(pattern: str) -> re.Pattern[str]:
    """The compiled pattern.

    ValueError with the reason when Python cannot compile it, or would read it differently.
    """
    translated = _NAMED_GROUP.sub(lambda match: match[1] or f"(?P<{match[2]}>", pattern)
    with warnings.catch_warnings():
        # A nested class or an intersection of classes: Python would take its characters literally.
        warnings.simplefilter("error", FutureWarning)
        try:
            return re.compile(translated, re.ASCII)
        except (re.error, RecursionError, OverflowError, FutureWarning) as error:
            raise ValueError(f"{pattern!r} is no supported regular expression: {error}") from None


def replace_java(pattern: re.Pattern[str], replacement: str, text: str, *, every: bool = True) -> str:
    """Replace every match, or the first one.

    $n and ${name} in the replacement stand for groups, a backslash protects the next character. ValueError for any
    other use of them.
    """
    return pattern.sub(lambda match: _expand(replacement, match), text, count=0 if every else 1)


def _expand(replacement: str, match: re.Match[str]) -> str:
    """The replacement of one match, as Matcher.appendReplacement makes it."""
    out: list[str] = []
    at, end = 0, len(replacement)
    while at < end:
        char = replacement[at]
        at += 1
        if char == "\\":
            if at == end:
                raise ValueError(f"the replacement {replacement!r} ends with a backslash")
            out.append(replacement[at])
            at += 1
        elif char == "$":
            group, at = _reference(replacement, at, match)
            out.append(match[group] or "")
        else:
            out.append(char)
    return "".join(out)


def _reference(replacement: str, at: int, match: re.Match[str]) -> tuple[int | str, int]:
    """The group behind a $, and the place behind the reference."""
    if replacement.startswith("{", at):
        close = replacement.find("}", at)
        name = replacement[at + 1 : close]
        if close < 0 or name not in match.re.groupindex:
            raise ValueError(f"the replacement {replacement!r} names an unknown group")
        return name, close + 1
    if at == len(replacement) or replacement[at] not in _DIGITS:
        raise ValueError(f"a group's number is missing behind $ in the replacement {replacement!r}")
    group = int(replacement[at])
    at += 1
    if group > match.re.groups:
        raise ValueError(f"the replacement {replacement!r} refers to group {group}, which does not exist")
    # Java takes further digits as long as such a group exists.
    while at < len(replacement) and replacement[at] in _DIGITS:
        longer = group * 10 + int(replacement[at])
        if longer > match.re.groups:
            break
        group = longer
        at += 1
    return group, at
