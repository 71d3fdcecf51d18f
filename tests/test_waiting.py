"""The waits of the tests: bounded, and with a sentence."""

from __future__ import annotations

import asyncio

import pytest
import waiting


def test_a_wait_ends_when_its_condition_holds() -> None:
    seen: list[int] = []

    async def third() -> bool:
        seen.append(0)
        return len(seen) == 3

    asyncio.run(waiting.until(third, "three looks"))
    assert len(seen) == 3
    asyncio.run(waiting.until_not(seen.pop, "a zero"))
    waiting.wait_until(lambda: seen.append(0) or len(seen) == 5, "five")
    assert len(seen) == 5


def test_a_wait_that_never_ends_says_for_what(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "WAIT_S", 0.0)
    with pytest.raises(AssertionError, match="not within 0 s: a leader"):
        asyncio.run(waiting.until(lambda: False, "a leader"))
    with pytest.raises(AssertionError, match=r"not within 0 s: marks are gone; still \['t'\]"):
        asyncio.run(waiting.until_not(lambda: ["t"], "marks are gone"))
    with pytest.raises(AssertionError, match="not within 0 s: a leader"):
        waiting.wait_until(lambda: False, "a leader")
