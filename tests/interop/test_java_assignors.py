"""Our assignors beside Kafka's, with the same groups (make interop-java).

Range and round robin agree to the partition. The sticky ones agree where nobody has had anything; after a change they
keep as much and balance as well, but who keeps what depends on the order of Java's hash maps.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from interop.conftest import JAVA
from peers.apache_kafka import compiled, jars

from kafkapy.clients.consumer.membership.assignors import ALIASES, BUILTIN
from kafkapy.clients.consumer.membership.assignors.balancing import MemberData
from kafkapy.clients.consumer.membership.assignors.sticky import encode_user_data
from kafkapy.clients.consumer.membership.protocol import Subscription
from kafkapy.types import TopicPartition

pytestmark = JAVA

PROGRAM = Path(__file__).parent / "java" / "Assign.java"
CLASSES = {name: alias.rpartition(".")[2] for alias, name in ALIASES.items()}
CASES = 200
Members = dict[str, Subscription]
Topics = dict[str, list[frozenset[str]]]
Shares = dict[str, list[TopicPartition]]


class Java:
    """Owns a JVM that assigns."""

    def __init__(self, version: str) -> None:
        libs = jars(version)
        path = f"{compiled(PROGRAM, libs)}:{libs}/*"
        options = ["-XX:TieredStopAtLevel=1", "-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]
        self._process = subprocess.Popen(
            ["java", *options, "-cp", path, "Assign"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def assign(self, assignor: str, topics: Topics, members: Members) -> Shares:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        lines = [
            f"topic {name} {' '.join(','.join(sorted(each)) or '-' for each in racks)}"
            for name, racks in topics.items()
        ]
        for member_id, each in members.items():
            owned = ",".join(f"{partition.topic}:{partition.partition}" for partition in each.owned_partitions)
            data = (each.user_data or b"").hex()
            words = [
                member_id,
                each.group_instance_id,
                each.rack_id,
                each.generation_id,
                ",".join(each.topics),
                owned,
                data,
            ]
            lines.append(" ".join(["member", *(str(word) if word not in (None, "") else "-" for word in words)]))
        self._process.stdin.write("\n".join([*lines, f"assign {CLASSES[assignor]}", ""]))
        self._process.stdin.flush()
        shares: Shares = {}
        while line := self._process.stdout.readline().split():
            shares[line[0]] = sorted(
                TopicPartition(word.partition(":")[0], int(word.partition(":")[2])) for word in line[1:]
            )
        return shares

    def close(self) -> None:
        self._process.communicate("")


@pytest.fixture
def java(version: str) -> Any:
    running = Java(version)
    yield running
    running.close()


def group(dice: random.Random, same: bool, racks: bool) -> tuple[Members, Topics]:
    names = "abcd"
    where = ["r1", "r2", "r3"]
    topics = {
        name: [frozenset(dice.sample(where, dice.randint(1, 2)) if racks else ()) for _ in range(dice.randint(1, 7))]
        for name in names
    }
    everybodys = sorted(dice.sample(names, dice.randint(1, 4)))
    members = {}
    for number in range(dice.randint(1, 6)):
        mine = everybodys if same else sorted(dice.sample(names, dice.randint(1, 4)))
        members[f"m{number}"] = Subscription(
            tuple(mine),
            rack_id=dice.choice([*where, None]) if racks else None,
            group_instance_id=dice.choice([None, f"i{9 - number}"]),
        )
    subscribed = {topic for each in members.values() for topic in each.topics}
    return members, {name: each for name, each in topics.items() if name in subscribed}


def ours(assignor: str, topics: Topics, members: Members) -> Shares:
    made: Any = BUILTIN[assignor]()
    return {member_id: sorted(each) for member_id, each in made.assign_partitions(topics, members).items()}


def sizes(shares: Mapping[str, Sequence[TopicPartition]]) -> list[int]:
    return sorted(map(len, shares.values()))


@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
def test_range_and_round_robin_are_javas(java: Java, assignor: str) -> None:
    dice = random.Random(1)
    for _ in range(CASES):
        members, topics = group(dice, dice.random() < 0.5, dice.random() < 0.5)
        assert ours(assignor, topics, members) == java.assign(assignor, topics, members), (members, topics)


@pytest.mark.parametrize("assignor", ["sticky", "cooperative-sticky"])
def test_sticky_is_javas_in_a_new_group(java: Java, assignor: str) -> None:
    dice = random.Random(2)
    for _ in range(CASES):
        members, topics = group(dice, True, dice.random() < 0.5)
        assert ours(assignor, topics, members) == java.assign(assignor, topics, members), (members, topics)
        members, topics = group(dice, False, dice.random() < 0.3)
        assert sizes(ours(assignor, topics, members)) == sizes(java.assign(assignor, topics, members))


@pytest.mark.parametrize("assignor", ["sticky", "cooperative-sticky"])
@pytest.mark.parametrize("same", [True, False])
def test_sticky_keeps_as_much_as_java_and_balances_as_well(java: Java, assignor: str, same: bool) -> None:
    dice = random.Random(3)
    kept_by_us = kept_by_java = 0
    for _ in range(CASES):
        members, topics = group(dice, same, False)
        before = ours("sticky", topics, members)
        for gone in dice.sample(sorted(members), dice.randint(0, len(members) - 1)):
            del members[gone]
        if dice.random() < 0.5:
            members["m9"] = dice.choice(list(members.values()))._replace(group_instance_id=None)
        subscribed = {topic for each in members.values() for topic in each.topics}
        topics = {name: each for name, each in topics.items() if name in subscribed}
        for member_id, each in members.items():
            owned = tuple(before.get(member_id, ()))
            if assignor == "sticky":
                members[member_id] = each._replace(user_data=encode_user_data(MemberData(owned, 4)), generation_id=4)
            else:
                members[member_id] = each._replace(owned_partitions=owned, generation_id=4)
        mine, javas = ours(assignor, topics, members), java.assign(assignor, topics, members)
        kept = [
            sum(len({*before.get(member_id, ())} & {*each}) for member_id, each in shares.items())
            for shares in (mine, javas)
        ]
        kept_by_us += kept[0]
        kept_by_java += kept[1]
        if same:
            assert kept[0] == kept[1], (members, topics)
            assert sizes(mine) == sizes(javas), (members, topics)
    assert kept_by_us >= kept_by_java * 0.99
