"""The garbage collector rests while something makes many objects that are all alive.

Looking through a million of them takes longer than anything else, and nothing of it is garbage. Those that stay
afterwards, such as 200,000 ACLs or the partitions of a new controller, are state: the collector never looks at them, as
at those of the start.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["MANY_SURVIVORS", "begin_rest", "end_rest", "resting"]

MANY_SURVIVORS: Final = 50_000
"""Objects that take the collector longer than a few ms; so many new ones are left to reference counts."""


LONGEST_S: Final = 60.0
"""Longest rest in seconds; overlapping ones would never end."""


class _Rests:
    """Those that want the collector to rest. Any thread."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.count = 0
        self.began = 0.0
        self.keeps = False
        """Whether what is left afterwards is state."""
        self.collects = False
        """Whether the collector worked before."""


_rests = _Rests()


def _after_fork() -> None:
    """A child has no thread that would end a rest of its parent."""
    global _rests
    collects = bool(_rests.count) and _rests.collects
    _rests = _Rests()
    if collects:
        gc.enable()


os.register_at_fork(after_in_child=_after_fork)


def begin_rest(keeps: bool = True) -> bool:
    """Have the collector rest until as many calls of `end_rest`.

    `keeps`: much of what is made stays. False when it has rested for long enough; then no `end_rest` belongs to it.
    """
    with _rests.lock:
        now = time.monotonic()
        if _rests.count and now - _rests.began > LONGEST_S:
            return False
        if not _rests.count:
            _rests.began, _rests.keeps = now, False
            _rests.collects = gc.isenabled()
            gc.disable()
        _rests.keeps |= keeps
        _rests.count += 1
        return True


def end_rest() -> None:
    """One fewer needs the rest. After the last one the collector works again."""
    with _rests.lock:
        _rests.count -= 1
        if _rests.count or not _rests.collects:
            return
        if _rests.keeps and gc.get_count()[0] > MANY_SURVIVORS:
            gc.freeze()
        gc.enable()


@contextmanager
def resting(keeps: bool = True) -> Iterator[None]:
    """The collector rests within the block."""
    rests = begin_rest(keeps)
    try:
        yield
    finally:
        if rests:
            end_rest()
