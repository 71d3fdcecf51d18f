"""State batches are merged as if each offset had its own state."""

from __future__ import annotations

import pytest
from coordinator.share.conftest import KEY
from hypothesis import given
from hypothesis import strategies as st

from kafkapy.coordinator.share.batches import combined, drop_below, merge
from kafkapy.coordinator.share.records import MOST_UNMERGED, StoredState, update_key, update_record
from kafkapy.coordinator.share.state import StateBatch

OFFSETS = st.integers(0, 60)


@st.composite
def batch(draw: st.DrawFn) -> StateBatch:
    first, last = sorted((draw(OFFSETS), draw(OFFSETS)))
    return StateBatch(first, last, draw(st.sampled_from([0, 2, 4])), draw(st.integers(1, 3)))


BATCHES = st.lists(batch(), max_size=12)


def offsets_of(batches: list[StateBatch]) -> dict[int, tuple[int, int]]:
    """Each offset's delivery count and state: the highest of all batches that have it."""
    found: dict[int, tuple[int, int]] = {}
    for each in batches:
        for offset in range(each.first, each.last + 1):
            found[offset] = max(found.get(offset, (-1, -1)), (each.delivery_count, each.state))
    return found


def shortest(offsets: dict[int, tuple[int, int]]) -> list[StateBatch]:
    """The shortest list of batches with these offsets, in order."""
    made: list[StateBatch] = []
    for offset, (count, state) in sorted(offsets.items()):
        if made and made[-1].last == offset - 1 and made[-1][2:] == (state, count):
            made[-1] = made[-1]._replace(last=offset)
        else:
            made.append(StateBatch(offset, offset, state, count))
    return made


@given(BATCHES)
def test_any_batches_become_the_shortest_list_without_overlaps(batches: list[StateBatch]) -> None:
    assert combined(batches) == shortest(offsets_of(batches))


@given(st.lists(st.tuples(BATCHES, st.integers(-1, 60)), max_size=8))
def test_changes_are_merged_as_if_each_offset_had_its_own_state(
    changes: list[tuple[list[StateBatch], int]],
) -> None:
    batches: list[StateBatch] = []
    model: dict[int, tuple[int, int]] = {}
    start_offset = -1
    for change, start in changes:
        start_offset = max(start_offset, start)
        merge(batches, change, start_offset)
        model = {
            offset: state for offset, state in offsets_of([*shortest(model), *change]).items() if offset >= start_offset
        }
        assert batches == shortest(model)


@given(BATCHES, BATCHES)
def test_the_order_and_the_number_of_times_make_no_difference(one: list[StateBatch], other: list[StateBatch]) -> None:
    forwards, backwards = combined(one), combined(other)
    merge(forwards, other, -1)
    merge(backwards, one, -1)
    assert forwards == backwards
    again = list(forwards)
    merge(again, one, -1)
    assert again == forwards


@given(BATCHES, st.integers(-1, 70))
def test_what_lies_below_the_start_offset_is_dropped(batches: list[StateBatch], start_offset: int) -> None:
    kept = combined(batches)
    drop_below(kept, start_offset)
    offsets = {offset: state for offset, state in offsets_of(batches).items() if offset >= start_offset}
    assert kept == shortest(offsets)


@given(st.lists(st.tuples(BATCHES, st.integers(-1, 60), st.booleans()), max_size=10))
def test_updates_that_wait_change_a_state_as_if_each_were_merged_at_once(
    updates: list[tuple[list[StateBatch], int, bool]],
) -> None:
    waiting = StoredState(0, 1, 0, 0, 0)
    at_once: list[StateBatch] = []
    start = 0
    for changes, start_offset, read in updates:
        record = update_record(update_key(KEY), 0, 0, start_offset, 0, changes)
        waiting.update(record.value)  # type: ignore[arg-type]  # an update's value
        start = start if start_offset == -1 else start_offset
        merge(at_once, changes, start)
        assert not read or waiting.batches == at_once
    assert waiting.batches == at_once
    assert waiting.updates == len(updates)


def test_few_updates_wait_to_be_merged() -> None:
    state = StoredState(0, 1, 0, 0, 0)
    for first in range(0, 4 * MOST_UNMERGED, 2):
        record = update_record(update_key(KEY), 0, 0, 0, 0, [StateBatch(first, first, 2, 1)])
        state.update(record.value)  # type: ignore[arg-type]  # an update's value
        assert len(state.unmerged) <= MOST_UNMERGED
    assert len(state.merged) >= MOST_UNMERGED


@pytest.mark.parametrize(
    ("changes", "merged"),
    [
        ([(0, 9, 0, 1), (10, 19, 0, 1)], [(0, 19, 0, 1)]),
        ([(0, 9, 0, 1), (10, 19, 0, 2)], [(0, 9, 0, 1), (10, 19, 0, 2)]),
        ([(0, 9, 0, 1), (3, 5, 2, 1)], [(0, 2, 0, 1), (3, 5, 2, 1), (6, 9, 0, 1)]),
        ([(0, 9, 2, 1), (3, 5, 0, 1)], [(0, 9, 2, 1)]),
        ([(0, 9, 4, 1), (3, 5, 0, 2)], [(0, 2, 4, 1), (3, 5, 0, 2), (6, 9, 4, 1)]),
        ([(5, 9, 0, 1), (0, 6, 2, 1)], [(0, 6, 2, 1), (7, 9, 0, 1)]),
        ([(0, 3, 0, 1), (6, 9, 0, 1), (4, 5, 0, 1)], [(0, 9, 0, 1)]),
    ],
)
def test_overlaps(changes: list[tuple[int, ...]], merged: list[tuple[int, ...]]) -> None:
    batches: list[StateBatch] = []
    for change in changes:
        merge(batches, [StateBatch(*change)], -1)
    assert [tuple(each) for each in batches] == merged


def test_many_batches_of_the_same_offsets_are_merged_without_recursion_into_each() -> None:
    same = [StateBatch(0, 10, 0, 1)] * 5_000
    nested = [StateBatch(number, 20_000 - number, 0, 1 + number % 3) for number in range(5_000)]
    assert combined(same) == [StateBatch(0, 10, 0, 1)]
    assert combined(nested)[0].first == 0
