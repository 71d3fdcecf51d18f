"""A ZooKeeper server for the tests that need one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from peers.apache_kafka import PeerMissingError
from peers.zookeeper import ZooKeeper


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A ZooKeeper server of Debian's package on 127.0.0.1, its host:port."""
    try:
        server = ZooKeeper(tmp_path_factory.mktemp("zookeeper"))
    except PeerMissingError as missing:
        pytest.skip(str(missing))
    with server:
        yield server.connect
