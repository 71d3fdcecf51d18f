"""Brokers for the interop suite: kafkapy by default, or Apache Kafka itself when KAFKAPY_INTEROP_PEER names a release
(3.9, 4.x).

Running the suite against Apache Kafka proves the tests; running it against kafkapy proves the broker.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from interop import clients
from interop.client_defects import defect_of
from interop.members import Member
from peers.apache_kafka import VERSIONS, ApacheKafka, PeerMissingError, jars, java

from kafkapy import KafkaAdminClient
from kafkapy.testing.broker_process import BrokerProcess

PEER = os.environ.get("KAFKAPY_INTEROP_PEER", "")
JAVA = [
    pytest.mark.java,
    pytest.mark.skipif(
        not os.environ.get("KAFKAPY_INTEROP_JAVA"), reason="Apache Kafka's jars run with: make interop-java"
    ),
]
"""The marks of tests that need them."""
SHARE_KINDS = ["kafkapy", pytest.param("apache-kafka", marks=JAVA)]
"""The brokers that tests of share groups run on."""
_OPTION_RENAMED = re.compile(r"^(?:Warning: |Option )--\S+ (?:is|has been) deprecated.*\n", re.MULTILINE)


def pytest_itemcollected(item: pytest.Item) -> None:
    """A test that is listed with a defect of its client is run once more when it fails; pytest's summary names it."""
    if Path(__file__).parent in item.path.parents and defect_of(item.name) is not None:
        item.add_marker(pytest.mark.flaky(reruns=1))


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


@pytest.fixture(scope="module", params=SHARE_KINDS)
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One broker with share groups, of each kind."""
    from interop.share_groups import share_broker  # which needs this module

    with share_broker(request.param, tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture(scope="module")
def admin(kafka: Any) -> Iterator[KafkaAdminClient]:
    """An admin client of `kafka`."""
    with KafkaAdminClient(bootstrap_servers=kafka.bootstrap) as client:
        yield client


@pytest.fixture
def queue(admin: KafkaAdminClient, topic: str) -> str:
    """A topic of one partition, and a group of the same name that reads it from its beginning."""
    from interop.share_groups import configure

    admin.create_topics({topic: {"num_partitions": 1, "replication_factor": 1}})
    configure(admin, topic, share_auto_offset_reset="earliest")
    return topic


def with_jars(version: str) -> str:
    """The release, whose jars are in the cache or can be fetched; else the test is skipped."""
    try:
        jars(version)
    except PeerMissingError as missing:
        pytest.skip(f"Apache Kafka {version}: {missing}")
    return version


@pytest.fixture(scope="module", params=sorted(VERSIONS))
def version(request: pytest.FixtureRequest) -> str:
    """A release whose jars there are."""
    return with_jars(request.param)


def run_java(
    version: str, main: str, *arguments: str, data: str | None = None, options: tuple[str, ...] = ("-Xmx512m",)
) -> str:
    """The standard output of one of Kafka's tools, which gets `data` to read; it has to end well. What newer releases
    say of options that have another name by now is left out."""
    command = java(version, main, *arguments, options=options)
    done = subprocess.run(command, input=data, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-1000:]
    return _OPTION_RENAMED.sub("", done.stdout)


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
    """A topic name of the test's own; its second run does not meet what the first one left."""
    run = getattr(request.node, "execution_count", 1)
    name = request.node.name if run == 1 else f"{request.node.name}-{run}"
    return "".join(c if c.isalnum() else "-" for c in name)[-200:]
