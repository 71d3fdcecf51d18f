"""The deadline heap against a sorted list."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkapy._speedups.network.purgatory import Purgatory


def test_the_earliest_deadline_comes_first():
    heap = Purgatory()
    assert heap.next_deadline() is None and heap.pop_expired(10**18) is None
    for token, deadline in enumerate((50, 10, 30, 20, 40)):
        heap.add(token, deadline)
    assert heap.next_deadline() == 10 and len(heap) == 5
    assert heap.pop_expired(9) is None
    assert [heap.pop_expired(30) for _ in range(4)] == [1, 3, 2, None]
    assert heap.next_deadline() == 40


def test_an_unknown_token_cannot_be_removed():
    heap = Purgatory()
    heap.add(1, 5)
    heap.remove(1)
    with pytest.raises(KeyError):
        heap.remove(1)


operation = st.one_of(
    st.tuples(st.just("add"), st.integers(0, 30), st.integers(0, 100)),
    st.tuples(st.just("remove"), st.integers(0, 30), st.just(0)),
    st.tuples(st.just("pop"), st.just(0), st.integers(0, 100)),
)


@given(st.lists(operation, max_size=200))
def test_any_sequence_agrees_with_a_sorted_list(operations):
    heap = Purgatory()
    model: dict[int, int] = {}
    for what, token, number in operations:
        if what == "add":
            heap.add(token, number)
            model[token] = number
        elif what == "remove" and token in model:
            heap.remove(token)
            del model[token]
        elif what == "pop":
            popped = heap.pop_expired(number)
            due = min(model.values(), default=None)
            if due is None or due > number:
                assert popped is None
            else:
                assert popped is not None and model.pop(popped) == due
        assert len(heap) == len(model)
        assert heap.next_deadline() == min(model.values(), default=None)


@pytest.mark.parametrize("seed", range(40))
def test_long_runs_of_many_tokens_agree_with_a_sorted_list(seed: int) -> None:
    """A heap that is wrong in its depth, or after a removal from its middle, shows it only when it is large."""
    chance = random.Random(seed)
    heap, model = Purgatory(), {}
    spread = chance.choice((10, 1_000, 10**12))
    for _ in range(600):
        what = chance.random()
        if what < 0.55:
            token = chance.randrange(400)
            model[token] = chance.randrange(spread)
            heap.add(token, model[token])
        elif what < 0.85 and model:
            token = chance.choice(list(model))
            heap.remove(token)
            del model[token]
        elif model:
            due = min(model.values())
            assert heap.pop_expired(due - 1) is None
            assert model.pop(heap.pop_expired(due)) == due
        assert (len(heap), heap.next_deadline()) == (len(model), min(model.values(), default=None))
    left = sorted(model.values())
    assert [model[heap.pop_expired(10**12)] for _ in range(len(model))] == left
    assert len(heap) == 0
