"""RenewDelegationToken as a client sees it; test_token_expiry.py has the rest."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from broker.handlers.tokens import DAY_MS, new_token, renew


def test_a_negative_period_is_the_brokers(sasl_connect: Callable[..., Any]) -> None:
    alice = sasl_connect("alice")
    made = new_token(alice)
    now_ms = int(time.time() * 1000)
    assert now_ms + DAY_MS <= renew(alice, made.hmac).expiry_timestamp_ms <= now_ms + 2 * DAY_MS
