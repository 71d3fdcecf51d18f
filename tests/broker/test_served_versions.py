"""What is served, beside the stable versions of Apache Kafka 4.4 (tests/reference/kafka_4_4/apis.txt: key, name, oldest
and newest version)."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from kafkapy.broker.handlers import SERVED
from kafkapy.network.api_table import DATA_PLANE_APIS
from kafkapy.protocol.registry import ApiKeys

APIS = Path(__file__).parents[1] / "reference" / "kafka_4_4" / "apis.txt"
ALL_SERVED = {**SERVED, **DATA_PLANE_APIS}
NEWER = {ApiKeys.INIT_PRODUCER_ID: 6}
"""Served in a version that Kafka has, but keeps from clients until it is stable (two-phase commit, KIP-939)."""
NOT_SERVED = {
    "KRaft controllers": {52, 53, 54, 58, 59, 62, 63, 70, 73, 80, 81, 82, 94},
    "streams groups": {88, 89, 93},
}


OF_ZOOKEEPER_CLUSTERS = {
    ApiKeys.LEADER_AND_ISR: (0, 7),
    ApiKeys.STOP_REPLICA: (0, 4),
    ApiKeys.UPDATE_METADATA: (0, 8),
    ApiKeys.CONTROLLED_SHUTDOWN: (0, 3),
    ApiKeys.ALTER_PARTITION: (0, 3),
    ApiKeys.ALLOCATE_PRODUCER_IDS: (0, 0),
}
"""Versions of Apache Kafka 3.9, the last release with these APIs between brokers."""


class Stable(NamedTuple):
    name: str
    oldest: int
    newest: int


def stable() -> dict[int, Stable]:
    rows = (line.split() for line in APIS.read_text().splitlines())
    return {int(key): Stable(name, int(oldest), int(newest)) for key, name, oldest, newest in rows}


def test_every_api_is_served_from_before_the_oldest_to_the_newest_version_of_kafka_4_4() -> None:
    theirs = stable()
    for key, served in ALL_SERVED.items():
        if key in OF_ZOOKEEPER_CLUSTERS:
            assert (served.low, served.high) == OF_ZOOKEEPER_CLUSTERS[ApiKeys(key)]
            continue
        assert served.low <= theirs[key].oldest, theirs[key]
        assert served.high == NEWER.get(ApiKeys(key), theirs[key].newest), theirs[key]
        assert served.high >= theirs[key].newest


def test_what_is_not_served_is_known_by_its_part() -> None:
    parts = [key for keys in NOT_SERVED.values() for key in keys]
    assert len(parts) == len(set(parts))
    assert set(parts) == stable().keys() - ALL_SERVED.keys()
