"""Groups mixed from our consumer and each foreign one, by every assignor that both have: whoever leads, whoever leaves,
every record is read, and commits of one are where the other reads on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import kafka.coordinator.assignors.cooperative_sticky
import kafka.coordinator.assignors.range
import kafka.coordinator.assignors.sticky.sticky_assignor
import pytest
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor as AioSticky
from interop.conftest import make_broker
from interop.members import (
    AioKafkaMember,
    ConfluentMember,
    ConsumerProtocolMember,
    KafkapyMember,
    KafkapyProtocolMember,
    KafkaPythonMember,
    Member,
)
from interop.test_consumer_groups import GROUP_KEYS
from interop.test_groups import Source, read_on, wait_for_all, wait_until_shared

KafkaPythonSticky = kafka.coordinator.assignors.sticky.sticky_assignor.StickyPartitionAssignor
KafkaPythonCooperative = kafka.coordinator.assignors.cooperative_sticky.CooperativeStickyAssignor

PAIRS: dict[str, tuple[type[Member], dict[str, Any], dict[str, Any]]] = {
    "range of confluent-kafka": (ConfluentMember, {}, {}),
    "range of kafka-python": (KafkaPythonMember, {}, {}),
    "range of aiokafka": (AioKafkaMember, {}, {}),
    "roundrobin of confluent-kafka": (
        ConfluentMember,
        {"partition_assignment_strategy": "roundrobin"},
        {"partition.assignment.strategy": "roundrobin"},
    ),
    "sticky of kafka-python": (
        KafkaPythonMember,
        {"partition_assignment_strategy": "sticky"},
        {"partition_assignment_strategy": [KafkaPythonSticky]},
    ),
    "sticky of aiokafka": (
        AioKafkaMember,
        {"partition_assignment_strategy": "sticky"},
        {"partition_assignment_strategy": [AioSticky]},
    ),
    "cooperative-sticky of confluent-kafka": (
        ConfluentMember,
        {"partition_assignment_strategy": "cooperative-sticky"},
        {"partition.assignment.strategy": "cooperative-sticky"},
    ),
    "cooperative-sticky of kafka-python": (
        KafkaPythonMember,
        {"partition_assignment_strategy": "cooperative-sticky"},
        {"partition_assignment_strategy": [KafkaPythonCooperative]},
    ),
    "consumer protocol of confluent-kafka": (ConsumerProtocolMember, {}, {}),
}
"""Theirs, what ours is told, and what theirs is told."""
ALWAYS = ("range of kafka-python", "cooperative-sticky of confluent-kafka", "consumer protocol of confluent-kafka")
"""The others run with: make soak."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    running = make_broker(tmp_path_factory.mktemp("mixed-groups"), **GROUP_KEYS)
    running.start()
    yield running
    running.stop()
    running.remove()


def marked(pair: str, ours_first: bool) -> Any:
    marks = () if pair in ALWAYS and not ours_first else (pytest.mark.soak,)
    return pytest.param(pair, ours_first, marks=marks, id=f"{pair}-{'ours' if ours_first else 'theirs'}-first")


@pytest.mark.parametrize(("pair", "ours_first"), [marked(pair, first) for pair in PAIRS for first in (True, False)])
def test_we_share_a_group_with_others(broker: Any, topic: str, pair: str, ours_first: bool) -> None:
    theirs, our_options, their_options = PAIRS[pair]
    ours: type[Member] = KafkapyProtocolMember if theirs is ConsumerProtocolMember else KafkapyMember
    kinds = [(ours, our_options), (theirs, their_options)]
    if not ours_first:
        kinds.reverse()
    source = Source(broker.bootstrap, topic)
    source.send(120)
    members: list[Member] = []
    for kind, options in kinds:
        members.append(kind(broker.bootstrap, topic, topic, **options).start())
        wait_until_shared(members)
        source.send(120)
        wait_for_all(source, members)
    first, second = members
    first.stop()
    wait_until_shared([second])
    source.send(120)
    wait_for_all(source, members)
    kind, options = kinds[0]
    again = kind(broker.bootstrap, topic, topic, **options).start()
    wait_until_shared([second, again])
    second.stop()
    wait_until_shared([again])
    source.send(120)
    wait_for_all(source, [*members, again])
    again.stop()
    kind, options = kinds[1]
    read_on(kind, broker, topic, source, **options)
