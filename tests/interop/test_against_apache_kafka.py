"""Every API in every version: the same requests to kafkapy and Apache Kafka, answers compared (make interop-java).

What differs on purpose stands in differential/intended.py with its reason. Where the two releases differ, the newer one
counts; where it does not serve a version any more, the older one does.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from interop import differential
from interop.conftest import JAVA, with_jars
from interop.differential.exchanges import SCENARIOS, Peer, differences, run
from interop.differential.intended import INTENDED
from peers.apache_kafka import ApacheKafka

from kafkapy.protocol.registry import ApiKeys
from kafkapy.testing.broker_process import BrokerProcess

pytestmark = [*JAVA, pytest.mark.timeout(1200)]

for scenarios in pkgutil.iter_modules(differential.__path__, f"{differential.__name__}."):
    importlib.import_module(scenarios.name)  # which registers them

COMPARED = os.environ.get("KAFKAPY_PEER_VERSIONS", "3.9,4.1").split(",")
"""Not the newest yet: 4.4 answers ListOffsets with odd isolation levels and some exchanges of groups and fetch sessions
in ways of its own. KAFKAPY_PEER_VERSIONS=3.9,4.x shows them."""
OVERRIDES = {"log.retention.check.interval.ms": "3600000", "log.retention.ms": "-1"}
"""Nothing is deleted behind a scenario's back, 30 seconds after the start or later: its records are years old."""


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Peer]]:
    """kafkapy, then Apache Kafka from the oldest to the newest release."""
    for version in COMPARED:
        with_jars(version)
    place: Path = tmp_path_factory.mktemp("differential")
    brokers: list[Any] = [BrokerProcess(place / "kafkapy", OVERRIDES)]
    brokers += [ApacheKafka(version, place / version, OVERRIDES) for version in sorted(COMPARED)]
    try:
        made = [
            Peer(name, each.start().bootstrap)
            for name, each in zip(("kafkapy", *sorted(COMPARED)), brokers, strict=True)
        ]
        for peer in made[1:]:
            if not peer.can(ApiKeys.FETCH, 0):
                # Shown for librdkafka's sake, but not served any more (KAFKA-18659).
                peer.serves[ApiKeys.PRODUCE] = (3, peer.serves[ApiKeys.PRODUCE][1])
        yield made
        for peer in made:
            peer.close()
    finally:
        for each in brokers:
            each.remove()


covered: set[int] = set()


def unexpected(label: str, ours: Any, theirs: Any) -> list[str]:
    """The differences of one exchange that are not meant to be."""
    found = []
    for difference in differences(ours, theirs):
        entries = {number for number, each in enumerate(INTENDED) if each.covers(label, difference)}
        covered.update(entries)
        if not entries:
            found.append(f"{label} | {difference}")
    return found


@pytest.mark.parametrize(("name", "key", "function"), SCENARIOS, ids=[each[0] for each in SCENARIOS])
def test_answers_are_those_of_apache_kafka(peers: list[Peer], name: str, key: int, function: Any) -> None:
    kafkapy, *apache = peers
    low, high = kafkapy.serves[key]
    compared, found = 0, []
    for version in range(low, high + 1):
        reference: dict[str, Any] = {}
        for peer in apache:
            reference |= run(peer, name, key, function, version)
        if not reference:
            continue
        ours = run(kafkapy, name, key, function, version)
        assert ours.keys() == reference.keys()
        compared += len(ours)
        for label, answer in ours.items():
            found += unexpected(label, answer, reference[label])
    print(f"{name}: {compared} exchanges compared")
    assert compared
    assert not found, f"{len(found)} differences\n" + "\n".join(found[:100])


def test_versions_of_every_api(peers: list[Peer]) -> None:
    """Of what both serve, kafkapy serves at least what each release does."""
    kafkapy, *apache = peers
    for peer in apache:
        for key, (low, high) in peer.serves.items():
            if key in kafkapy.serves:
                ours = kafkapy.serves[key]
                assert ours[0] <= low, f"{ApiKeys(key).name}: {peer.name} serves {low} to {high}, kafkapy {ours}"
                assert ours[1] >= high, f"{ApiKeys(key).name}: {peer.name} serves {low} to {high}, kafkapy {ours}"


def test_every_intended_difference_is_still_one(peers: list[Peer]) -> None:
    """Runs last: an entry that covered nothing has had its day."""
    if len(covered) == 0:
        pytest.skip("nothing was compared in this run")
    idle = [f"{each.label} | {each.difference}" for number, each in enumerate(INTENDED) if number not in covered]
    assert not idle, "\n".join(idle)
