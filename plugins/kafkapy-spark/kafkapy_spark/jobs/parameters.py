"""Kinds of values on the jobs' command lines: types of click's options."""

from __future__ import annotations

import re
from typing import Final

import click

from kafkapy.tools.reset_offsets import parse_datetime

__all__ = ["size", "time_ms"]

_SIZE: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?b)?\s*", re.IGNORECASE)
_UNITS: Final = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def size(text: str | int) -> int:
    """Bytes: 1000, 64KB, 128M, 1.5GiB. K, M, G and T are powers of 1024. click.BadParameter."""
    if isinstance(text, int):
        return text
    found = _SIZE.fullmatch(text)
    value = int(float(found[1]) * 1024 ** _UNITS[found[2].lower()]) if found else 0
    if value <= 0:
        raise click.BadParameter(f"{text!r} is no size: 500KB, 128MB or 1GB is expected.")
    return value


def time_ms(text: str | int) -> int:
    """ms since 1970 of an ISO 8601 time, UTC unless it says otherwise. click.BadParameter."""
    if isinstance(text, int):
        return text
    try:
        return parse_datetime(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
