"""What the tests of memberships share."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from clients.consumer.membership.fake_core import Run


@pytest.fixture
def run() -> Run:
    """One kind of loop is enough here."""

    async def bounded(coroutine: Any) -> Any:
        async with asyncio.timeout(30):
            return await coroutine

    return lambda coroutine: asyncio.run(bounded(coroutine))
