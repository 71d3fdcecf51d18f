"""The garbage collector rests, and works again whatever happens."""

from __future__ import annotations

import gc
import os

import pytest

from kafkapy import garbage
from kafkapy.garbage import begin_rest, end_rest, resting


def test_the_collector_works_again_after_an_error() -> None:
    assert gc.isenabled()
    with pytest.raises(ValueError, match="x"), resting():
        assert not gc.isenabled()
        raise ValueError("x")
    assert gc.isenabled()


def test_the_collector_works_after_the_last_of_several() -> None:
    with resting():
        with resting(keeps=False):
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_overlapping_rests_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(garbage.time, "monotonic", lambda: now)
    assert begin_rest()
    now += garbage.LONGEST_S
    assert begin_rest()
    end_rest()
    now += 1
    assert not begin_rest(), "it has rested for long enough"
    with resting():
        assert not gc.isenabled()
    end_rest()
    assert gc.isenabled()
    with resting():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_the_collector_works_in_a_child_that_was_forked_during_a_rest() -> None:
    """Only where it worked before."""
    for works in (True, False):
        (gc.enable if works else gc.disable)()
        try:
            with resting():
                child = os.fork()
                if child == 0:
                    right = gc.isenabled() is works
                    with resting():
                        right &= not gc.isenabled()
                    os._exit(0 if right and gc.isenabled() is works else 1)
                assert os.waitpid(child, 0)[1] == 0
        finally:
            gc.enable()


@pytest.mark.parametrize(("keeps", "frozen"), [(True, 1), (False, 0)])
def test_only_what_stays_is_left_out_of_later_collections(
    monkeypatch: pytest.MonkeyPatch, keeps: bool, frozen: int
) -> None:
    frozen_times: list[None] = []
    monkeypatch.setattr(garbage.gc, "freeze", lambda: frozen_times.append(None))
    made = []
    with resting(keeps):
        made = [[number] for number in range(2 * garbage.MANY_SURVIVORS)]
    assert len(frozen_times) == frozen
    del made
