"""Checks that the heartbeats of consumer groups and share groups have in common."""

from __future__ import annotations

from typing import Final

from kafkapy.errors import ErrorCode, error_for

LEAVE_GROUP_EPOCH: Final = -1
"""Member epoch with which a member leaves for good."""
JOIN_EPOCH: Final = 0
"""Member epoch with which a member joins."""


def require(holds: bool, message: str) -> None:
    """Refuse a request that contradicts itself: INVALID_REQUEST."""
    if not holds:
        raise error_for(ErrorCode.INVALID_REQUEST, message)


def is_blank(text: str | None) -> bool:
    """Whether a text is given and has nothing but blanks."""
    return text is not None and not text.strip()
