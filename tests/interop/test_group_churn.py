"""Consumers of several kinds, our own among them, come, go and are killed at random in one group, under load and over
a killed broker: no record is missed, no commit is undone, no partition is shared, and the group settles.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
from interop.churn import SETTINGS, Churn, Command, python_member
from interop.conftest import make_broker
from peers.apache_kafka import VERSIONS, PeerMissingError, compiled, jars

CLIENTS = {
    "range": ["kafkapy", "confluent-kafka", "kafka-python", "aiokafka"],
    "sticky": ["kafkapy", "kafka-python", "aiokafka"],
    "cooperative-sticky": ["kafkapy", "confluent-kafka", "kafka-python"],
    "consumer": ["kafkapy", "confluent-kafka"],
}
"""Those that have each protocol."""
NO_MIGRATION = {"range": ["aiokafka"], "cooperative-sticky": ["confluent-kafka"]}
"""Those that cannot be in a group which changes its protocol, with Apache Kafka neither. An aiokafka that is waiting to
join when the group is converted is told REBALANCE_IN_PROGRESS, and ends with an error. With cooperative-sticky a
leading librdkafka puts user data into its assignments, which a group of the consumer protocol could not keep:
it is not converted, and whoever comes with the consumer protocol is told GROUP_ID_NOT_FOUND.
"""
JAVA_MEMBER = Path(__file__).parent / "java" / "ChurnMember.java"


def java_member(version: str) -> list[str]:
    """The command line of a member with Kafka's own consumer of that release, less its arguments."""
    libs = jars(version)
    path = f"{compiled(JAVA_MEMBER, libs)}:{libs}/*"
    quiet = ["-XX:TieredStopAtLevel=1", "-Xmx128m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    return ["java", *quiet, "-cp", path, "ChurnMember"]


def churn(folder: Path, name: str, kinds: dict[str, tuple[Command, str]], seconds: float) -> None:
    broker = make_broker(folder / "broker", **SETTINGS)
    broker.start()
    try:
        classic = all(protocol != "consumer" for _, protocol in kinds.values())
        Churn(folder / "members", broker, f"churn-{name}", classic, kinds, seconds).run()
    finally:
        broker.remove()


def members(protocol: str, clients: Sequence[str] = ()) -> dict[str, tuple[Command, str]]:
    return {client: (partial(python_member, client), protocol) for client in clients or CLIENTS[protocol]}


@pytest.mark.parametrize("protocol", ["range", "consumer"])
def test_a_group_survives_members_that_come_and_go(tmp_path: Path, protocol: str) -> None:
    churn(tmp_path, protocol, members(protocol), 2)


def test_our_own_consumers_come_and_go(tmp_path: Path) -> None:
    churn(tmp_path, "ours", members("cooperative-sticky", ["kafkapy"]), 2)


@pytest.mark.soak
@pytest.mark.parametrize("protocol", CLIENTS)
def test_our_own_consumers_come_and_go_for_a_minute(tmp_path: Path, protocol: str) -> None:
    churn(tmp_path, protocol, members(protocol, ["kafkapy"]), 60)


@pytest.mark.soak
@pytest.mark.parametrize("protocol", CLIENTS)
def test_a_group_survives_a_minute_of_members_that_come_and_go(tmp_path: Path, protocol: str) -> None:
    churn(tmp_path, protocol, members(protocol), 60)


@pytest.mark.soak
@pytest.mark.parametrize("protocol", ["range", "cooperative-sticky"])
def test_a_group_changes_its_protocol_with_its_members(tmp_path: Path, protocol: str) -> None:
    """Online migration (KIP-848), forth and back."""
    kinds = {f"{client} of the consumer protocol": kind for client, kind in members("consumer").items()}
    kinds |= {client: kind for client, kind in members(protocol).items() if client not in NO_MIGRATION[protocol]}
    churn(tmp_path, f"{protocol}-and-consumer", kinds, 60)


@pytest.mark.java
@pytest.mark.skipif(not os.environ.get("KAFKAPY_INTEROP_JAVA"), reason="Java tools run with: make interop-java")
@pytest.mark.parametrize("protocol", CLIENTS)
def test_java_consumers_come_and_go_among_the_others(tmp_path: Path, protocol: str) -> None:
    # The consumer of 3.9 speaks an early form of the new protocol.
    versions = ["4.x"] if protocol == "consumer" else sorted(VERSIONS)
    try:
        for version in versions:
            java_member(version)  # jars are fetched and the program is compiled now
    except PeerMissingError as missing:
        pytest.skip(f"Apache Kafka: {missing}")
    java: dict[str, tuple[Command, str]] = {f"java {each}": (partial(java_member, each), protocol) for each in versions}
    churn(tmp_path, protocol, members(protocol) | java, 60)
