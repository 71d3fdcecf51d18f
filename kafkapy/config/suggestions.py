"""Names close to one that nobody knows: keys, options, commands, topics and groups that were misspelt."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["did_you_mean", "nearest"]

CLOSE = 0.75
"""How alike two names are at least, 1 being equal."""
MOST = 3


def nearest(name: str, known: Iterable[str], likeness: float = CLOSE) -> list[str]:
    """The known names that are closest to `name`, the best first, at most three; upper case counts as lower case."""
    import difflib  # only when something is wrong: a start does not pay for it

    by_lower: dict[str, str] = {}
    for each in known:
        by_lower.setdefault(each.lower(), each)
    return [by_lower[each] for each in difflib.get_close_matches(name.lower(), by_lower, n=MOST, cutoff=likeness)]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """ "did you mean a or b?", or nothing where no known name is close."""
    close = nearest(name, known)
    return f"did you mean {' or '.join(close)}?" if close else ""
