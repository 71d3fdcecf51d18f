"""Suggestions for misspelt keys, options, commands, topics and groups."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["did_you_mean", "nearest"]

CLOSE = 0.75
"""Least similarity of two names; 1 is equal."""
MOST = 3


def nearest(name: str, known: Iterable[str], likeness: float = CLOSE) -> list[str]:
    """The closest known names, the best first, at most three.

    Upper and lower case are equal.
    """
    import difflib  # only after an error: a start does not pay for it

    by_lower: dict[str, str] = {}
    for each in known:
        by_lower.setdefault(each.lower(), each)
    return [by_lower[each] for each in difflib.get_close_matches(name.lower(), by_lower, n=MOST, cutoff=likeness)]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The question "did you mean a or b?", or an empty text."""
    close = nearest(name, known)
    return f"did you mean {' or '.join(close)}?" if close else ""
