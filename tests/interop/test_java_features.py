"""UpdateFeatures beside Apache Kafka 4.4: the same errors in the same words, and Kafka's own tool on kafkapy."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from interop.conftest import JAVA, with_jars
from peers.apache_kafka import ApacheKafka, java

from kafkapy import KafkaAdminClient
from kafkapy.errors import KafkaError, code_of
from kafkapy.testing.broker_process import BrokerProcess

pytestmark = [*JAVA, pytest.mark.timeout(900)]

FEATURES = "org.apache.kafka.tools.FeatureCommand"
SHARED = {"metadata.version", "group.version", "transaction.version"}
"""The features that both have."""
UPGRADE, SAFE, UNSAFE = "upgrade", "safe_downgrade", "unsafe_downgrade"
UPDATES: list[dict[str, tuple[str, int]]] = [
    {"group.version": (UPGRADE, 1)},
    {"group.version": (UPGRADE, 0)},
    {"group.version": (UPGRADE, 2)},
    {"group.version": (SAFE, -1)},
    {"group.version": (SAFE, 1)},
    {"transaction.version": (SAFE, 3)},
    {"metadata.version": (UPGRADE, 34)},
    {"metadata.version": (SAFE, 6)},
    {"metadata.version": (SAFE, 0)},
    {"metadata.version": (SAFE, 32)},
    {"metadata.version": (UNSAFE, 25)},
    {"metadata.version": (UPGRADE, 33)},
    {"nothing.version": (UPGRADE, 1)},
    {"nothing.version": (SAFE, 0)},
    {"transaction.version": (SAFE, 1), "nothing.version": (UPGRADE, 1)},
    {"transaction.version": (SAFE, 1)},
    {"transaction.version": (SAFE, 2)},
    {"transaction.version": (UNSAFE, 0), "group.version": (SAFE, 0)},
    {"transaction.version": (UPGRADE, 2), "group.version": (UPGRADE, 1)},
]


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    running = ApacheKafka(with_jars("4.x"), tmp_path_factory.mktemp("apache"))
    running.start()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    running = BrokerProcess(tmp_path_factory.mktemp("kafkapy"))
    running.start()
    yield running
    running.stop()


def told(bootstrap: str) -> list[Any]:
    """The outcomes of all updates, each tried before it is made, and the levels after it."""
    outcomes: list[Any] = []
    with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        for updates in UPDATES:
            for validate_only in (True, False):
                try:
                    outcome: Any = admin.update_features(updates, validate_only=validate_only)
                except KafkaError as error:
                    outcome = code_of(error).name, error.message
                found = admin.describe_features()
                levels = {name: found[name].get("finalized", (0, 0))[1] for name in SHARED}
                outcomes.append((updates, validate_only, outcome, levels))
    return outcomes


def test_updates_end_as_on_apache_kafka(apache: Any, ours: Any) -> None:
    assert told(ours.bootstrap) == told(apache.bootstrap)


def test_supported_levels(apache: Any, ours: Any) -> None:
    def supported(bootstrap: str) -> dict[str, Any]:
        with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
            return {name: each["supported"] for name, each in admin.describe_features().items() if name in SHARED}

    assert supported(ours.bootstrap) == supported(apache.bootstrap)


def test_the_tool_of_apache_kafka(ours: Any) -> None:
    def run(*arguments: str, code: int = 0) -> str:
        command = java(with_jars("4.x"), FEATURES, "--bootstrap-server", ours.bootstrap, *arguments)
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    shown = run("describe")
    assert "Feature: transaction.version" in shown
    assert "FinalizedVersionLevel: 2" in shown
    assert "can be downgraded to 1" in run("downgrade", "--feature", "transaction.version=1", "--dry-run")
    assert "was downgraded to 1" in run("downgrade", "--feature", "transaction.version=1")
    assert "was disabled" in run("disable", "--feature", "group.version")
    assert "was upgraded to 1" in run("upgrade", "--feature", "group.version=1")
    assert "Could not" in run("upgrade", "--feature", "share.version=1", code=1)
    with KafkaAdminClient(bootstrap_servers=ours.bootstrap) as admin:
        assert admin.describe_features()["transaction.version"]["finalized"][1] == 1
