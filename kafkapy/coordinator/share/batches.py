"""Merging of state batches.

The state of a share-partition is a list of batches in the order of offsets. They never overlap, and neighbours of the
same state and delivery count are one batch. Where a change overlaps the list, each offset keeps the higher delivery
count, and of equal counts the higher state. So the order of changes makes no difference, and a change may be applied
twice. Source of the behaviour: PersisterStateBatchCombiner; this works on sorted lists, in one pass over the batches
that a change touches.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from operator import attrgetter

from kafkapy.coordinator.share.state import StateBatch

_first = attrgetter("first")
_last = attrgetter("last")


def merge(batches: list[StateBatch], changes: Sequence[StateBatch], start_offset: int) -> None:
    """Merge changes into a list of batches, and drop what the start offset passed.

    `changes` have any order, and may overlap each other.
    """
    new = combined(changes)
    if new:
        # Batches that only touch a change are merged along: they may become one.
        begin = bisect_left(batches, new[0].first - 1, key=_last)
        end = bisect_right(batches, new[-1].last + 1, key=_first)
        batches[begin:end] = _overlaid(batches[begin:end], new)
    drop_below(batches, start_offset)


def combined(batches: Iterable[StateBatch]) -> list[StateBatch]:
    """Batches of any order as a list of the form described above."""
    ordered = sorted(batches)
    return ordered if _are_combined(ordered) else _combined(ordered)


def _are_combined(ordered: Iterable[StateBatch]) -> bool:
    """Whether sorted batches have the form already: most changes do."""
    end = before = count_before = -2
    for first, last, state, count in ordered:
        if first <= end + 1 and (first <= end or (state == before and count == count_before)):
            return False
        end, before, count_before = last, state, count
    return True


def _combined(ordered: Sequence[StateBatch]) -> list[StateBatch]:
    """See combined; the batches are in the order of their first offsets."""
    pieces: list[StateBatch] = []
    for batch in ordered:
        if pieces and batch.first <= pieces[-1].last:
            # Halves, so that any number of overlapping batches takes few passes.
            middle = len(ordered) // 2
            return _overlaid(_combined(ordered[:middle]), _combined(ordered[middle:]))
        _add(pieces, batch.first, batch.last, batch)
    return pieces


def drop_below(batches: list[StateBatch], start_offset: int) -> None:
    """Drop the offsets below the start offset."""
    if not batches or batches[0].first >= start_offset:
        return
    del batches[: bisect_left(batches, start_offset, key=_last)]
    if batches and batches[0].first < start_offset:
        batches[0] = batches[0]._replace(first=start_offset)


def _overlaid(old: Sequence[StateBatch], new: Sequence[StateBatch]) -> list[StateBatch]:
    """Two lists of batches as one."""
    pieces: list[StateBatch] = []
    ours, theirs = iter(old), iter(new)
    one, other = next(ours, None), next(theirs, None)
    while one is not None and other is not None:
        if one.last < other.first:
            _add(pieces, one.first, one.last, one)
            one = next(ours, None)
        elif other.last < one.first:
            _add(pieces, other.first, other.last, other)
            other = next(theirs, None)
        else:
            first, last = max(one.first, other.first), min(one.last, other.last)
            if one.first < first:
                _add(pieces, one.first, first - 1, one)
            elif other.first < first:
                _add(pieces, other.first, first - 1, other)
            _add(pieces, first, last, max(one, other, key=_rank))
            one = one._replace(first=last + 1) if one.last > last else next(ours, None)
            other = other._replace(first=last + 1) if other.last > last else next(theirs, None)
    for each, rest in ((one, ours), (other, theirs)):
        if each is not None:
            _add(pieces, each.first, each.last, each)
            pieces += rest
    return pieces


def _rank(batch: StateBatch) -> tuple[int, int]:
    return batch.delivery_count, batch.state


def _add(pieces: list[StateBatch], first: int, last: int, like: StateBatch) -> None:
    """Add offsets of a batch's state at the end of a list."""
    if pieces:
        end = pieces[-1]
        if end.last == first - 1 and end.delivery_count == like.delivery_count and end.state == like.state:
            pieces[-1] = end._replace(last=last)
            return
    pieces.append(StateBatch(first, last, like.state, like.delivery_count))
