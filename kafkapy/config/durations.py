"""ISO 8601 durations in values of keys."""

from __future__ import annotations

import re
from typing import Final

BY_DURATION: Final = "by_duration:"
"""Beginning of a reset strategy that goes back by a duration (KIP-1106)."""

_DURATION = re.compile(
    r"P(?:([0-9]+)D)?(?:T(?:([0-9]+)H)?(?:([0-9]+)M)?(?:([0-9]+)(?:\.([0-9]{1,9}))?S)?)?\Z", re.IGNORECASE | re.ASCII
)
_MS_PER: Final = (86_400_000, 3_600_000, 60_000, 1000)


def duration_ms(text: str) -> int:
    """ms of an ISO 8601 duration, such as P1DT2H30M5.5S.

    It may have days, hours, minutes and seconds. ValueError for another text.
    """
    match = _DURATION.match(text) if len(text) < 128 else None
    if match is None or not any(match.groups()) or text[-1] in "tT":
        raise ValueError(f"{text[:64]!r} is not an ISO 8601 duration such as P7D or PT1H30M")
    whole = sum(int(part) * ms for part, ms in zip(match.groups()[:4], _MS_PER, strict=True) if part)
    return whole + int((match[5] or "").ljust(3, "0")[:3])


def is_reset(value: str, words: tuple[str, ...]) -> bool:
    """Whether a value is one of the words, or "by_duration:" with a duration."""
    if value in words:
        return True
    if not value.startswith(BY_DURATION):
        return False
    try:
        duration_ms(value.removeprefix(BY_DURATION))
    except ValueError:
        return False
    return True
