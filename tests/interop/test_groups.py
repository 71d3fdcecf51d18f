"""Consumers of all kinds share groups: they join, leave, commit, and no record is missed."""

from __future__ import annotations

import itertools
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest
from interop.conftest import make_broker
from interop.members import ALL, ConfluentMember, DoomedMember, Member, in_a_process

PARTITIONS = 6
TIMEOUT_S = 60.0


def wait_for(condition: Callable[[], bool], members: Iterable[Member], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        for member in members:
            if member.failure is not None:
                raise member.failure
        assert time.monotonic() < deadline, f"{what}: {[(m.name, m.partitions, len(m.values)) for m in members]}"
        time.sleep(0.05)


def wait_until_shared(members: list[Member], expected: int = PARTITIONS) -> None:
    """Every partition has one owner, and every member owns some."""

    def shared() -> bool:
        owned = [partition for member in members for partition in member.partitions]
        return sorted(owned) == list(range(expected)) and all(member.partitions for member in members)

    wait_for(shared, members, "the partitions are not shared")


class Source:
    """Produces numbered values into a topic."""

    def __init__(self, bootstrap: str, topic: str, partitions: int = PARTITIONS) -> None:
        self.topic = topic
        self.partitions = partitions
        self.sent: set[bytes] = set()
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([confluent_kafka.admin.NewTopic(topic, partitions, 1)])[topic].result(30)
        self._producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 1})
        self._numbers = itertools.count()

    def send(self, count: int) -> None:
        for number in itertools.islice(self._numbers, count):
            value = b"%d" % number
            self._producer.produce(self.topic, value, partition=number % self.partitions)
            self.sent.add(value)
        assert self._producer.flush(TIMEOUT_S) == 0


def wait_for_all(source: Source, members: list[Member]) -> None:
    wait_for(
        lambda: source.sent <= {value for member in members for value in member.values}, members, "records are missing"
    )


def read_on(kind: type[Member], broker: Any, group: str, source: Source, **options: Any) -> None:
    """A new member of the group starts where the others have committed: it gets the new records and only those."""
    before = set(source.sent)
    source.send(PARTITIONS * 5)
    late = kind(broker.bootstrap, group, source.topic, **options).start()
    wait_for(lambda: source.sent - before <= set(late.values), [late], "the new records are missing")
    late.stop()
    assert sorted(late.values) == sorted(source.sent - before)


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.name)
def test_members_of_one_kind_share_a_group(kind: type[Member], broker: Any, topic: str) -> None:
    source = Source(broker.bootstrap, topic)
    source.send(300)
    members = [kind(broker.bootstrap, topic, topic).start() for _ in range(3)]
    wait_until_shared(members)
    source.send(300)
    wait_for_all(source, members)
    leaving = members[0]
    leaving.stop()
    wait_until_shared(members[1:])
    source.send(300)
    wait_for_all(source, members)
    for member in members[1:]:
        member.stop()
    read_on(kind, broker, topic, source)


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_strategies_of_librdkafka(broker: Any, topic: str, strategy: str) -> None:
    options = {"partition.assignment.strategy": strategy}
    source = Source(broker.bootstrap, topic)
    source.send(300)
    first = ConfluentMember(broker.bootstrap, topic, topic, **options).start()
    wait_until_shared([first])
    members = [first, *(ConfluentMember(broker.bootstrap, topic, topic, **options).start() for _ in range(2))]
    wait_until_shared(members)
    source.send(300)
    wait_for_all(source, members)
    members.pop().stop()
    wait_until_shared(members)
    source.send(300)
    wait_for(lambda: sum(len(m.values) for m in members) >= 600, members, "records are missing")
    for member in members:
        member.stop()
    read_on(ConfluentMember, broker, topic, source, **options)


def test_members_of_all_kinds_share_one_group(broker: Any, topic: str) -> None:
    source = Source(broker.bootstrap, topic)
    members: list[Member] = []
    for kind in ALL:
        members.append(kind(broker.bootstrap, topic, topic).start())
        wait_until_shared(members)
        source.send(120)
        wait_for_all(source, members)
    gone: list[Member] = []
    while len(members) > 1:
        leaving = members.pop(0)
        leaving.stop()
        gone.append(leaving)
        wait_until_shared(members)
        source.send(120)
        wait_for_all(source, [*members, *gone])
    members[0].stop()
    read_on(ConfluentMember, broker, topic, source)


def test_a_static_member_that_restarts_causes_no_rebalance(broker: Any, topic: str) -> None:
    def member(name: str) -> Member:
        return ConfluentMember(broker.bootstrap, topic, topic, **{"group.instance.id": name}).start()

    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap})
    source = Source(broker.bootstrap, topic)
    first, second = member("one"), member("two")
    wait_until_shared([first, second])
    owned = set(second.partitions)
    second.stop()  # librdkafka does not leave for static members
    second = member("two")
    source.send(60)
    wait_until_shared([first, second])
    assert second.partitions == owned
    wait_for_all(source, [first, second])
    described = admin.describe_consumer_groups([topic])[topic].result(30)
    assert {each.group_instance_id for each in described.members} == {"one", "two"}
    for each in (first, second):
        each.stop()


def test_the_partitions_of_a_killed_member_are_taken_over(broker: Any, topic: str) -> None:
    source = Source(broker.bootstrap, topic)
    survivor = ConfluentMember(broker.bootstrap, topic, topic).start()
    wait_until_shared([survivor])
    with in_a_process(DoomedMember, broker.bootstrap, topic, topic) as victim:
        wait_for(lambda: len(survivor.partitions) == PARTITIONS // 2, [survivor], "the partitions are not shared")
        source.send(60)
        victim.kill()
    source.send(60)
    wait_until_shared([survivor])
    # What the victim had read and not committed is read again: nothing is missing, whatever it had got.
    source.send(60)
    late = {value for value in source.sent if int(value) >= 60}
    wait_for(lambda: late <= set(survivor.values), [survivor], "records are missing")
    survivor.stop()


# --- commits --------------------------------------------------------------------------------------------------------


def committed(bootstrap: str, group: str, topic: str) -> list[int]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "reconnect.backoff.max.ms": 200}
    )
    wanted = [confluent_kafka.TopicPartition(topic, index) for index in range(PARTITIONS)]
    offsets = [each.offset for each in consumer.committed(wanted, timeout=TIMEOUT_S)]
    consumer.close()
    return offsets


@pytest.mark.parametrize("how", ["restart", "kill"])
def test_commits_survive_the_broker(tmp_path: Path, topic: str, how: str) -> None:
    broker = make_broker(tmp_path)
    broker.start()
    try:
        Source(broker.bootstrap, topic)
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": topic,
                "log_level": 0,
                "reconnect.backoff.max.ms": 200,
            }
        )
        for count in (1, 2):
            offsets = [count * 100 + index for index in range(PARTITIONS)]
            wanted = [confluent_kafka.TopicPartition(topic, i, offset) for i, offset in enumerate(offsets)]
            deadline = time.monotonic() + TIMEOUT_S
            while True:
                try:
                    consumer.commit(offsets=wanted, asynchronous=False)
                    break
                except confluent_kafka.KafkaException:
                    # The broker has just come back: the client has not found the coordinator again.
                    assert time.monotonic() < deadline
                    time.sleep(0.1)
            if how == "kill":
                broker.kill()
                broker.start()
            else:
                broker.restart()
            assert committed(broker.bootstrap, topic, topic) == offsets
        consumer.close()
    finally:
        broker.remove()


def test_a_group_lives_on_over_a_killed_broker(tmp_path: Path, topic: str) -> None:
    broker = make_broker(tmp_path)
    broker.start()
    try:
        source = Source(broker.bootstrap, topic)
        members = [ConfluentMember(broker.bootstrap, topic, topic).start() for _ in range(2)]
        wait_until_shared(members)
        source.send(120)
        wait_for_all(source, members)
        broker.kill()
        broker.start()
        source.send(120)
        wait_for_all(source, members)
        wait_until_shared(members)
        for member in members:
            member.stop()
        read_on(ConfluentMember, broker, topic, source)
    finally:
        broker.remove()


# --- administration -------------------------------------------------------------------------------------------------


def test_groups_are_listed_described_and_deleted(broker: Any, topic: str) -> None:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap})
    source = Source(broker.bootstrap, topic)
    source.send(60)
    member = ConfluentMember(broker.bootstrap, topic, topic).start()
    wait_for_all(source, [member])
    listed = {each.group_id: each.state.name for each in admin.list_consumer_groups().result(30).valid}
    assert listed[topic] == "STABLE"
    described = admin.describe_consumer_groups([topic])[topic].result(30)
    assert described.partition_assignor == "range"
    (one,) = described.members
    assert {each.partition for each in one.assignment.topic_partitions} == set(range(PARTITIONS))
    assert one.host == "/127.0.0.1"
    with pytest.raises(confluent_kafka.KafkaException):
        admin.delete_consumer_groups([topic])[topic].result(30)
    member.stop()
    new = confluent_kafka.ConsumerGroupTopicPartitions(topic, [confluent_kafka.TopicPartition(topic, 0, 3)])
    admin.alter_consumer_group_offsets([new])[topic].result(30)
    assert committed(broker.bootstrap, topic, topic) == [3, 10, 10, 10, 10, 10]
    asked = confluent_kafka.ConsumerGroupTopicPartitions(topic)
    found = admin.list_consumer_group_offsets([asked])[topic].result(30).topic_partitions
    assert sorted((each.partition, each.offset) for each in found)[0] == (0, 3)
    admin.delete_consumer_groups([topic])[topic].result(30)
    assert committed(broker.bootstrap, topic, topic) == [confluent_kafka.OFFSET_INVALID] * PARTITIONS


def test_kcat_reads_in_a_group(broker: Any, topic: str) -> None:
    source = Source(broker.bootstrap, topic)
    source.send(60)
    command = ["kcat", "-b", broker.bootstrap, "-G", topic, "-X", "auto.offset.reset=earliest", "-q", "-u", "-e", topic]
    try:
        ran = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=True)
    except FileNotFoundError:
        pytest.skip("kcat is not installed")
    assert set(ran.stdout.split()) == source.sent
    read_on(ConfluentMember, broker, topic, source)
