"""Brokers for the interop suite: kafkapy by default, or Apache Kafka itself when KAFKAPY_INTEROP_PEER names a release
(3.9, 4.x).

Running the suite against Apache Kafka proves the tests; running it against kafkapy proves the broker.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from interop import clients
from interop.members import Member
from peers.apache_kafka import VERSIONS, ApacheKafka, PeerMissingError, jars, java

from kafkapy.testing.broker_process import BrokerProcess

PEER = os.environ.get("KAFKAPY_INTEROP_PEER", "")
JAVA = [
    pytest.mark.java,
    pytest.mark.skipif(
        not os.environ.get("KAFKAPY_INTEROP_JAVA"), reason="Apache Kafka's jars run with: make interop-java"
    ),
]
"""The marks of tests that need them."""


def make_broker(data_dir: Path, **overrides: str) -> Any:
    """A broker of the kind under test, not started."""
    if PEER:
        return ApacheKafka(PEER, data_dir, overrides)
    return BrokerProcess(data_dir, overrides)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One broker for a module's tests."""
    running = make_broker(tmp_path_factory.mktemp("broker"), **{"group.min.session.timeout.ms": "1000"})
    running.start()
    yield running
    running.stop()
    running.remove()


@pytest.fixture(scope="module", params=sorted(VERSIONS))
def version(request: pytest.FixtureRequest) -> str:
    """A release whose jars are in the cache or can be fetched."""
    try:
        jars(request.param)
    except PeerMissingError as missing:
        pytest.skip(f"Apache Kafka {request.param}: {missing}")
    return str(request.param)


def run_java(
    version: str, main: str, *arguments: str, data: str | None = None, options: tuple[str, ...] = ("-Xmx512m",)
) -> str:
    """The standard output of one of Kafka's tools, which gets `data` to read; it has to end well."""
    command = java(version, main, *arguments, options=options)
    done = subprocess.run(command, input=data, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-1000:]
    return done.stdout


@pytest.fixture(autouse=True)
def no_member_is_left() -> Iterator[None]:
    """Members of a test that failed end with it; they would take the processor from the tests after it."""
    yield
    left = list(Member.running)
    for member in left:
        member.abandon()
    for member in left:
        member.join()


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
