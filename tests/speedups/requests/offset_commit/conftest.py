"""A server that stores offsets: `commits` for a test, `many` for a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from speedups.requests.offset_commit.committing import CommitBroker


@pytest.fixture
def commits() -> Iterator[CommitBroker]:
    broker = CommitBroker()
    yield broker
    broker.close()


@pytest.fixture(scope="module")
def many() -> Iterator[CommitBroker]:
    broker = CommitBroker()
    yield broker
    broker.close()
