"""Numbers, sizes and times for people: filters of the templates."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

from kafkapy.tools.output import size_text, time_text

__all__ = ["FILTERS", "ago", "grouped", "url_part"]

NOTHING = "–"


def grouped(value: float | int | None) -> str:
    """A number with commas; a dash for None."""
    if value is None:
        return NOTHING
    return f"{value:,.1f}" if isinstance(value, float) and not value.is_integer() else f"{int(value):,}"


def counted(number: int, noun: str) -> str:
    """A number with its noun: 1 topic, 10,000 topics."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def size(value: float | None) -> str:
    """A size in bytes; a dash for None and for unknown sizes."""
    return NOTHING if value is None or value < 0 else size_text(value)


def when(milliseconds: int | None) -> str:
    """A time in ms since 1970 in UTC; a dash for none."""
    try:
        text = time_text(milliseconds)
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds} ms"
    return NOTHING if text is None else text.replace("T", " ").replace("Z", " UTC")


def when_s(seconds: float | None) -> str:
    """A time in seconds since 1970 in UTC."""
    return NOTHING if seconds is None else when(int(seconds * 1000))


def ago(seconds: float | None) -> str:
    """The time since a moment: 5 s, 3 min, 2 h, 4 d."""
    return NOTHING if seconds is None else span(time.time() - seconds)


def span(seconds: float | None) -> str:
    """A duration in its largest unit."""
    if seconds is None:
        return NOTHING
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{max(0, seconds) / unit:.0f} {name}"
    return f"{seconds / 86_400:.0f} d"


def url_part(text: Any) -> str:
    """A name as one part of an address: also / and dots are quoted."""
    quoted = quote(str(text), safe="")
    return quoted.replace(".", "%2E") if quoted in (".", "..") else quoted


def duration_ms(value: str | None) -> str:
    """A configured number of ms in words: 604800000 is 7 d."""
    try:
        number = int(value or "")
    except ValueError:
        return ""
    return "" if number < 1000 else span(number / 1000)


FILTERS: Mapping[str, Callable[..., str]] = {
    "grouped": grouped,
    "counted": counted,
    "size": size,
    "when": when,
    "when_s": when_s,
    "ago": ago,
    "span": span,
    "part": url_part,
    "duration_ms": duration_ms,
    "base64": lambda data: base64.b64encode(data).decode(),
    "to_json": lambda value: json.dumps(value, indent=2, ensure_ascii=False),
}
