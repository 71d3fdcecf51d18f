"""Foreign consumers of several kinds come, go and are killed at random in one group, under load and over a killed
broker: no record is missed, no commit is undone, no partition is shared, and the group settles.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest
from interop.churn import SETTINGS, Churn, Command, python_member
from interop.conftest import make_broker
from peers.apache_kafka import VERSIONS, PeerMissingError, compiled, jars

KINDS = {
    "range": ["confluent-kafka", "kafka-python", "aiokafka"],
    "sticky": ["kafka-python", "aiokafka"],
    "cooperative-sticky": ["confluent-kafka", "kafka-python"],
    "consumer": ["confluent-kafka"],
}
"""The clients that have each protocol."""
JAVA_MEMBER = Path(__file__).parent / "java" / "ChurnMember.java"


def java_member(version: str) -> list[str]:
    """The command line of a member with Kafka's own consumer of that release, less its arguments."""
    libs = jars(version)
    path = f"{compiled(JAVA_MEMBER, libs)}:{libs}/*"
    quiet = ["-XX:TieredStopAtLevel=1", "-Xmx128m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    return ["java", *quiet, "-cp", path, "ChurnMember"]


def churn(folder: Path, protocol: str, seconds: float, others: dict[str, Command] | None = None) -> None:
    broker = make_broker(folder / "broker", **SETTINGS)
    broker.start()
    try:
        kinds = {kind: partial(python_member, kind) for kind in KINDS[protocol]} | (others or {})
        Churn(folder / "members", broker, f"churn-{protocol}", protocol, kinds, seconds).run()
    finally:
        broker.remove()


@pytest.mark.parametrize("protocol", ["range", "consumer"])
def test_a_group_survives_members_that_come_and_go(tmp_path: Path, protocol: str) -> None:
    churn(tmp_path, protocol, 3)


@pytest.mark.soak
@pytest.mark.parametrize("protocol", KINDS)
def test_a_group_survives_a_minute_of_members_that_come_and_go(tmp_path: Path, protocol: str) -> None:
    churn(tmp_path, protocol, 60)


@pytest.mark.java
@pytest.mark.skipif(not os.environ.get("KAFKAPY_INTEROP_JAVA"), reason="Java tools run with: make interop-java")
@pytest.mark.parametrize("protocol", KINDS)
def test_java_consumers_come_and_go_among_the_others(tmp_path: Path, protocol: str) -> None:
    # The consumer of 3.9 speaks an early form of the new protocol.
    versions = ["4.x"] if protocol == "consumer" else sorted(VERSIONS)
    try:
        for version in versions:
            jars(version)
    except PeerMissingError as missing:
        pytest.skip(f"Apache Kafka: {missing}")
    churn(tmp_path, protocol, 60, {f"java {version}": partial(java_member, version) for version in versions})
