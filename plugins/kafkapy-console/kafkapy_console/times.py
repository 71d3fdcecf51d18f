"""Times that people type: ISO 8601 (UTC without a zone), milliseconds since 1970, or a time ago such as 15m, 2h, 7d."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime

from kafkapy_console.errors import BadInputError

__all__ = ["parse_time"]

AGO = re.compile(r"(\d{1,9})\s*(s|m|h|d)(?:\s+ago)?\Z")
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def parse_time(text: str) -> int:
    """The time in ms since 1970. BadInputError."""
    text = text.strip()
    if match := AGO.match(text.lower()):
        return max(0, int((time.time() - int(match[1]) * UNITS[match[2]]) * 1000))
    if text.isdecimal() and len(text) <= 16:
        return int(text)
    try:
        found = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise BadInputError(
            f"{text[:40]!r} is no time: 2026-11-26T12:00 (UTC), milliseconds since 1970, or 15m, 2h, 7d ago."
        ) from None
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return max(0, int(found.timestamp() * 1000))
