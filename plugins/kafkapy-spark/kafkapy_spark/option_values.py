"""Values of options: text in, numbers and truth values out. Names of options are case-insensitive. Imports neither
pyspark nor pyarrow."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from kafkapy.errors import IllegalArgumentError

T = TypeVar("T")

_DURATION: Final = re.compile(r"\s*(-?\d+)\s*([a-z]*)\s*", re.IGNORECASE)
_UNITS: Final = {
    "": 1,
    "ms": 1,
    "us": 0.001,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
"""Milliseconds; a bare number is milliseconds (org.apache.spark.network.util.JavaUtils)."""


def option(options: Mapping[str, str], name: str, parse: Callable[[str], T], default: T) -> T:
    """An option's value, `default` where it is not given. IllegalArgumentError for what is a ValueError to `parse`.

    options: by lower-case names.
    """
    text = options.get(name.lower())
    if text is None:
        return default
    try:
        return parse(text.strip())
    except ValueError as error:
        raise IllegalArgumentError(f"{name} {error}, and is '{text}'") from None


def boolean(text: str) -> bool:
    """true or false, in any case."""
    if text.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.lower() == "true"


def filled(text: str) -> str:
    """A text that says something."""
    if not text:
        raise ValueError("must not be empty")
    return text


def whole_number(text: str) -> int:
    """A whole number."""
    try:
        return int(text)
    except ValueError:
        raise ValueError("must be a whole number") from None


def positive(text: str) -> int:
    """A whole number of at least 1."""
    value = whole_number(text)
    if value <= 0:
        raise ValueError("must be positive")
    return value


def positive_number(text: str) -> float:
    """A number above 0."""
    try:
        value = float(text)
    except ValueError:
        raise ValueError("must be a number") from None
    if not 0 < value < float("inf"):
        raise ValueError("must be positive")
    return value


def not_negative(text: str) -> int:
    """A whole number of at least 0."""
    value = whole_number(text)
    if value < 0:
        raise ValueError("must not be negative")
    return value


def duration_ms(text: str) -> int:
    """A time as Spark writes it, such as 15m, in ms."""
    found = _DURATION.fullmatch(text)
    if found is None or found[2].lower() not in _UNITS:
        raise ValueError("must be a time such as 500ms, 30s, 15m, 1h or 2d")
    return int(int(found[1]) * _UNITS[found[2].lower()])


def one_of(*values: T) -> Callable[[str], T]:
    """One of some words, in any case."""

    def parse(text: str) -> T:
        for value in values:
            if text.lower() == value:
                return value
        raise ValueError(f"must be {' or '.join(map(str, values))}")

    return parse
