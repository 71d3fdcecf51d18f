"""The model of the exactly-once sink: no schedule writes a row twice or loses one, unless something is left out."""

from __future__ import annotations

from collections import Counter

import pytest
from exactly_once_model import PROPOSED, VARIANTS, Model

FEW = 500
SOME = 2_000
MANY = 20_000

WRONG = {
    "no second phase": "twice",
    "no decision": "twice",
    "blind abort": "taken",
    "fixed ids": "taken",
    "numbered ids": "taken",
    "known is skipped": "lost",
    "known is counted": "lost",
    "known is written": "twice",
    "forgotten is lost": "twice",
    "forgotten is committed": "lost",
    "open is enough": "late",
    "decisions take long": "late",
    "others are not asked": "twice",
}


def outcomes(variant: str, schedules: int) -> Counter[str]:
    return Counter(Model(seed, variant).run() for seed in range(schedules))


def test_each_row_is_written_once() -> None:
    assert outcomes(PROPOSED, FEW) == {"once": FEW}


@pytest.mark.parametrize("chance", [0.5, 1])
def test_each_row_is_written_once_with_two_phase_commit(chance: float) -> None:
    """Where all brokers have it, or some: nothing that was decided on times out where they have it."""
    models = [Model(seed, two_phase_chance=chance) for seed in range(FEW)]
    assert Counter(model.run() for model in models) == {"once": FEW}
    if chance == 1:
        assert sum(model.losses for model in models) == 0


@pytest.mark.parametrize(("variant", "wrong"), WRONG.items())
def test_what_goes_wrong_otherwise(variant: str, wrong: str) -> None:
    assert any(Model(seed, variant).run() == wrong for seed in range(SOME))


def test_all_that_is_left_out() -> None:
    assert {PROPOSED, *WRONG} == set(VARIANTS)


@pytest.mark.soak
def test_each_row_is_written_once_in_many_schedules() -> None:
    assert outcomes(PROPOSED, MANY) == {"once": MANY}


@pytest.mark.soak
@pytest.mark.parametrize("chance", [0.5, 1])
def test_each_row_is_written_once_in_many_schedules_with_two_phase_commit(chance: float) -> None:
    assert Counter(Model(seed, two_phase_chance=chance).run() for seed in range(MANY)) == {"once": MANY}


def test_transactions_that_were_decided_on_time_out_without_it() -> None:
    """The hole that two-phase commit closes: such rows have to be written again."""
    models = [Model(seed) for seed in range(FEW)]
    assert all(model.run() == "once" for model in models)
    assert sum(model.losses for model in models) > 0
