"""A server that stores offsets by leases: `commits` for one test, `many` for all of a file."""

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
