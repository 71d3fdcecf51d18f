"""Brokers for the interop suite: kafkapy by default, or Apache Kafka itself when KAFKAPY_INTEROP_PEER names a release
(3.9, 4.x).

Running the suite against Apache Kafka proves the tests; running it against kafkapy proves the broker.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from interop import clients

from kafkapy.testing.broker_process import BrokerProcess

PEER = os.environ.get("KAFKAPY_INTEROP_PEER", "")


def make_broker(data_dir: Path, **overrides: str) -> Any:
    """A broker of the kind under test, not started."""
    if PEER:
        from peers.apache_kafka import ApacheKafka

        return ApacheKafka(PEER, data_dir, overrides)
    return BrokerProcess(data_dir, overrides)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One broker for a module's tests."""
    running = make_broker(tmp_path_factory.mktemp("broker"))
    running.start()
    yield running
    running.stop()
    running.remove()


@pytest.fixture(params=clients.ALL, ids=lambda kind: kind.name)
def client(request: pytest.FixtureRequest, broker: Any) -> clients.Client:
    """Each foreign client in turn, connected to the module's broker."""
    if not request.param.available():
        pytest.skip(f"{request.param.name} is not installed")
    made: clients.Client = request.param(broker.bootstrap)
    return made


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name of the test's own."""
    return "".join(c if c.isalnum() else "-" for c in request.node.name)[-200:]
