"""Servers of ZooKeeper and etcd for the tests that need one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from peers.apache_kafka import PeerMissingError
from peers.etcd import Etcd
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


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An etcd server of Debian's package on 127.0.0.1, its endpoint."""
    try:
        server = Etcd(tmp_path_factory.mktemp("etcd"))
    except PeerMissingError as missing:
        pytest.skip(str(missing))
    with server:
        yield server.endpoint
