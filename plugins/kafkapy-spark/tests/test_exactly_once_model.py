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


@pytest.mark.parametrize(("variant", "wrong"), WRONG.items())
def test_what_goes_wrong_otherwise(variant: str, wrong: str) -> None:
    assert any(Model(seed, variant).run() == wrong for seed in range(SOME))


def test_all_that_is_left_out() -> None:
    assert {PROPOSED, *WRONG} == set(VARIANTS)


@pytest.mark.soak
def test_each_row_is_written_once_in_many_schedules() -> None:
    assert outcomes(PROPOSED, MANY) == {"once": MANY}
