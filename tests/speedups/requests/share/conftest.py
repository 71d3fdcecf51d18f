"""A broker with share partitions, for one test each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from speedups.requests.share.members import ShareBroker


@pytest.fixture
def shares() -> Iterator[ShareBroker]:
    broker = ShareBroker()
    yield broker
    broker.shares.close()
