"""The exponential back-off of reconnects and retries."""

from __future__ import annotations

import pytest

from kafkapy.clients.backoff import Backoff


def test_it_doubles_up_to_the_most() -> None:
    backoff = Backoff(100, 1000, jitter=0)
    assert [backoff.delay_ms(attempts) for attempts in range(6)] == pytest.approx([100, 200, 400, 800, 1000, 1000])
    assert backoff.delay_s(2) == pytest.approx(0.4)


def test_it_is_spread_but_never_above_the_most() -> None:
    backoff = Backoff(100, 1000)
    delays = [backoff.delay_ms(1) for _ in range(1000)]
    assert min(delays) >= 160 and max(delays) <= 240
    assert max(delays) - min(delays) > 40
    assert max(backoff.delay_ms(9) for _ in range(1000)) == 1000


def test_a_first_wait_above_the_most_is_constant() -> None:
    backoff = Backoff(5000, 1000)
    assert {backoff.delay_ms(attempts) for attempts in range(5)} == {1000}


@pytest.mark.parametrize("attempts", [0, 1, 10_000])
def test_no_wait_at_all(attempts: int) -> None:
    assert Backoff(0, 0).delay_ms(attempts) == 0
