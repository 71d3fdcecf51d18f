"""UpdateFeatures beside Apache Kafka 4.4: the same errors in the same words, and Kafka's own tool on kafkapy."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from interop.conftest import JAVA, with_jars
from interop.tool_runner import Done, ToolRunner
from peers.apache_kafka import ApacheKafka

from kafkapy import KafkaAdminClient
from kafkapy.errors import KafkaError, code_of
from kafkapy.testing.broker_process import BrokerProcess

pytestmark = [*JAVA, pytest.mark.timeout(900)]

FEATURES = "org.apache.kafka.tools.FeatureCommand"
SHARED = {"metadata.version", "group.version", "transaction.version", "share.version"}
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
    {"share.version": (SAFE, 1)},
    {"share.version": (UPGRADE, 2)},
    {"share.version": (UPGRADE, 3)},
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
                outcomes.append((updates, validate_only, outcome, settled(admin)))
    return outcomes


def settled(admin: KafkaAdminClient) -> dict[str, int]:
    """The levels, when they change no more: a broker of KRaft hears of an update after its answer."""

    def levels() -> dict[str, int]:
        found = admin.describe_features()
        return {name: found[name].get("finalized", (0, 0))[1] for name in SHARED}

    before: dict[str, int] = {}
    while (now := levels()) != before:
        before = now
        time.sleep(0.3)
    return now


def test_updates_end_as_on_apache_kafka(apache: Any, ours: Any) -> None:
    assert told(ours.bootstrap) == told(apache.bootstrap)


def test_supported_levels(apache: Any, ours: Any) -> None:
    def supported(bootstrap: str) -> dict[str, Any]:
        with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
            return {name: each["supported"] for name, each in admin.describe_features().items() if name in SHARED}

    assert supported(ours.bootstrap) == supported(apache.bootstrap)


STEPS: list[tuple[str, ...]] = [
    ("describe",),
    ("upgrade", "--feature", "group.version=1", "--dry-run"),
    ("upgrade", "--feature", "group.version=2", "--dry-run"),
    ("downgrade", "--feature", "transaction.version=1", "--dry-run"),
    ("describe",),
    ("downgrade", "--feature", "transaction.version=1"),
    ("describe",),
    ("downgrade", "--feature", "transaction.version=2"),
    ("upgrade", "--feature", "transaction.version=1"),
    ("upgrade", "--feature", "transaction.version=3"),
    ("upgrade", "--feature", "transaction.version=2", "--feature", "group.version=7"),
    ("upgrade", "--feature", "transaction.version=2"),
    ("disable", "--feature", "group.version", "--dry-run"),
    ("disable", "--feature", "group.version"),
    ("disable", "--feature", "group.version"),
    ("downgrade", "--feature", "group.version=0"),
    ("downgrade", "--feature", "group.version=0", "--unsafe"),
    ("upgrade", "--feature", "group.version=1"),
    ("disable", "--feature", "metadata.version"),
    ("disable", "--feature", "metadata.version", "--unsafe"),
    ("downgrade", "--metadata", "4.0"),
    ("downgrade", "--metadata", "4.0", "--unsafe", "--dry-run"),
    ("downgrade", "--metadata", "3.9", "--dry-run"),
    ("upgrade", "--metadata", "9.9"),
    ("upgrade", "--metadata", "3.9"),
    ("upgrade", "--release-version", "9.9"),
    ("upgrade", "--feature", "nothing.version=1"),
    ("disable", "--feature", "nothing.version"),
    ("upgrade", "--feature", "group.version"),
    ("upgrade", "--feature", "group.version=many"),
    ("upgrade", "--feature", "group.version=-1"),
    ("upgrade", "--feature", "group.version=1", "--feature", "group.version=1"),
    ("upgrade",),
    ("downgrade", "--feature", "group.version=0", "--release-version", "4.0"),
    ("describe",),
    ("version-mapping", "--release-version", "4.0"),
    ("feature-dependencies", "--feature", "group.version=1"),
]
"""Commands of kafka-features, which change the same brokers one after another."""


def lines(done: Done, bootstrap: str) -> tuple[int, list[str]]:
    """Exit code and lines about the features of both, without the epoch of the cluster's levels."""
    kept = []
    for line in done.text.replace(bootstrap, "BOOTSTRAP").splitlines():
        feature = re.match(r"Feature: (\S+)", line)
        if line.strip() and not re.match(r"\s+at ", line) and (feature is None or feature[1] in SHARED):
            kept.append(re.sub(r"Epoch: \d+", "Epoch: *", line).expandtabs(1))
    return done.code, kept


def test_the_tool_of_apache_kafka(tmp_path: Path) -> None:
    """What it prints and how it ends, on kafkapy as on Apache Kafka."""
    found = []
    with (
        ApacheKafka(with_jars("4.x"), tmp_path / "apache") as apache,
        BrokerProcess(tmp_path / "kafkapy") as ours,
        ToolRunner("4.x", apache.bootstrap) as theirs,
        ToolRunner("4.x", ours.bootstrap) as own,
    ):
        for step in STEPS:
            wanted = lines(theirs(FEATURES, *step), apache.bootstrap)
            got = lines(own(FEATURES, *step), ours.bootstrap)
            if got != wanted:
                found.append(f"{' '.join(step)}\n  ours   {got}\n  theirs {wanted}")
    assert not found, f"{len(found)} of {len(STEPS)} commands differ\n" + "\n".join(found)
