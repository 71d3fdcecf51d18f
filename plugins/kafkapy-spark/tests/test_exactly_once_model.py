"""The model of the exactly-once sink: no schedule writes a row twice or loses one, unless something is left out."""

from __future__ import annotations

from collections import Counter

import pytest
from exactly_once_model import Model

FEW = 500
MANY = 20_000


def outcomes(variant: str, schedules: int) -> Counter[str]:
    return Counter(Model(seed, variant).run() for seed in range(schedules))


def test_each_row_is_written_once() -> None:
    assert outcomes("proposed", FEW) == {"once": FEW}


@pytest.mark.parametrize(
    ("variant", "wrong"),
    [("no second phase", "twice"), ("no decision", "twice"), ("blind abort", "lost"), ("fixed ids", "lost")],
)
def test_what_goes_wrong_otherwise(variant: str, wrong: str) -> None:
    assert outcomes(variant, 250)[wrong] > 0


@pytest.mark.soak
def test_each_row_is_written_once_in_many_schedules() -> None:
    assert outcomes("proposed", MANY) == {"once": MANY}
