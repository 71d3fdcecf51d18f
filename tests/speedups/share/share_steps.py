"""Short words for the tests of share partitions: runs of records, reads of a log, acknowledgements."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from kafkapy._speedups.testing.share_partition import SharePartition

AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED = range(5)
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
RECORD_LIMIT = 1
NONE, INVALID_REQUEST, INVALID_RECORD_STATE = 0, 42, 121
LOCK_MS = 30_000

FETCH, BUSY, FULL, CLOSED = range(4)

Run = tuple[int, int, int, int, bytes | None, int | None]


def log(*bounds: int, skipped: Sequence[int] = ()) -> list[tuple[int, int, bool]]:
    """Contiguous log batches that begin at the bounds; the last bound is the end."""
    return [(first, end - 1, first in skipped) for first, end in pairwise(bounds)]


def fetch(
    share: SharePartition, member: bytes, batches: list[tuple[int, int, bool]], **how: Any
) -> list[tuple[int, int, int]]:
    """Reads where the share partition asks for it."""
    offset = share.can_fetch()
    assert offset is not None
    return share.acquire(member, [batch for batch in batches if batch[1] >= offset], offset, **how)


def kind(number: int) -> bytes:
    return bytes([number])


def acknowledge(share: SharePartition, member: bytes, first: int, last: int, *types: int, now_ms: int = 0) -> int:
    """Acknowledges one range; the ticket."""
    error, ticket = share.acknowledge(member, [(first, last, bytes(types))], now_ms)
    assert error == NONE
    return ticket


def write(share: SharePartition, *, stored: bool = True, now_ms: int = 0) -> list[tuple[int, int, int, int]]:
    """One write from begin to end; its batches."""
    taken = share.take_write()
    assert taken is not None
    share.finish_write(taken, stored, now_ms)
    return taken.batches


def runs(share: SharePartition) -> list[Run]:
    """The records of the window, joined where they are alike."""
    joined: list[Run] = []
    for first, last, *how in share.records():
        if joined and joined[-1][1] + 1 == first and list(joined[-1][2:]) == how:
            joined[-1] = (joined[-1][0], last, *joined[-1][2:])
        else:
            joined.append((first, last, *how))  # type: ignore[arg-type]
    return joined
