"""Members with group.protocol=consumer (KIP-848): librdkafka's, alone and beside members of the classic protocol."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupType
from interop.conftest import make_broker
from interop.members import ConfluentMember, ConsumerProtocolMember, Member, in_a_process
from interop.test_groups import (
    PARTITIONS,
    TIMEOUT_S,
    Source,
    committed,
    read_on,
    wait_for,
    wait_for_all,
    wait_until_shared,
)

GROUP_KEYS = {
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
}
"""The broker tells members how often to send a heartbeat; Kafka's five seconds make for long tests."""


def member(broker: Any, topic: str, group: str | None = None, **options: Any) -> ConsumerProtocolMember:
    made = ConsumerProtocolMember(broker.bootstrap, topic if group is None else group, topic, **options)
    made.start()
    return made


def stop(*members: Member) -> None:
    for each in members:
        each.stop()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    running = make_broker(tmp_path_factory.mktemp("consumer-groups"), **GROUP_KEYS)
    running.start()
    yield running
    running.stop()
    running.remove()


@pytest.fixture
def admin(broker: Any) -> Any:
    return confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap})


def describe(admin: Any, group: str) -> Any:
    return admin.describe_consumer_groups([group])[group].result(TIMEOUT_S)


# --- members come and go --------------------------------------------------------------------------------------------


def test_members_share_a_group(broker: Any, topic: str) -> None:
    source = Source(broker.bootstrap, topic)
    source.send(300)
    members: list[Member] = []
    for _ in range(3):
        members.append(member(broker, topic))
        wait_until_shared(members)
        source.send(120)
        wait_for_all(source, members)
    sizes = [len(each.partitions) for each in members]
    assert sizes == [2, 2, 2]
    leaving = members[0]
    leaving.stop()
    wait_until_shared(members[1:])
    source.send(300)
    wait_for_all(source, members)
    # Every record is delivered once: nobody was killed, and members commit what they give up.
    assert sorted(value for each in members for value in each.values) == sorted(source.sent)
    stop(*members[1:])
    read_on(ConsumerProtocolMember, broker, topic, source)


@pytest.mark.parametrize(("assignor", "expected"), [("uniform", None), ("range", [{0, 1, 2}, {3, 4, 5}])])
def test_members_choose_the_assignor(
    broker: Any, admin: Any, topic: str, assignor: str, expected: list[set[int]] | None
) -> None:
    source = Source(broker.bootstrap, topic)
    members = [member(broker, topic, **{"group.remote.assignor": assignor}) for _ in range(2)]
    wait_until_shared(members)
    assert sorted(len(each.partitions) for each in members) == [3, 3]
    if expected is not None:
        assert sorted((each.partitions for each in members), key=min) == expected
    assert describe(admin, topic).partition_assignor == assignor
    source.send(60)
    wait_for_all(source, members)
    stop(*members)


def test_an_assignor_that_the_broker_does_not_have_is_refused(broker: Any, topic: str) -> None:
    Source(broker.bootstrap, topic)
    wait_for_fatal_error("assignor", broker, topic, **{"group.remote.assignor": "nobody"})


def wait_for_fatal_error(words: str, broker: Any, topic: str, **options: Any) -> None:
    """A consumer with these options is told that it cannot join."""
    config = ConsumerProtocolMember(broker.bootstrap, topic, topic).config() | options
    consumer = confluent_kafka.Consumer(config, logger=logging.getLogger("refused"))
    consumer.subscribe([topic])
    deadline = time.monotonic() + TIMEOUT_S
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is not None and message.error() is not None:
                assert message.error().code() == confluent_kafka.KafkaError._FATAL
                assert words in message.error().str()
                return
    finally:
        consumer.close()
    raise AssertionError("no error was reported")


def test_new_partitions_are_assigned(broker: Any, admin: Any, topic: str) -> None:
    source = Source(broker.bootstrap, topic)
    members = [member(broker, topic) for _ in range(2)]
    wait_until_shared(members)
    admin.create_partitions([confluent_kafka.admin.NewPartitions(topic, PARTITIONS + 2)])[topic].result(TIMEOUT_S)
    wait_until_shared(members, PARTITIONS + 2)
    source.partitions = PARTITIONS + 2
    source.send(160)
    wait_for_all(source, members)
    stop(*members)


def test_a_pattern_subscribes_to_the_topics_that_match(broker: Any, topic: str) -> None:
    sources = [Source(broker.bootstrap, f"{topic}-{name}") for name in ("one", "two")]
    Source(broker.bootstrap, f"other-{topic}").send(6)
    for each in sources:
        each.send(30)
    reader = ConsumerProtocolMember(broker.bootstrap, topic, f"^{topic}-.*")
    reader.start()
    wait_for(lambda: len(reader.values) >= 60, [reader], "records are missing")
    assert sorted(reader.values) == sorted([*sources[0].sent, *sources[1].sent])
    reader.stop()


@pytest.mark.soak
def test_a_pattern_finds_topics_that_are_created_later(broker: Any, topic: str) -> None:
    first = Source(broker.bootstrap, f"{topic}-one")
    Source(broker.bootstrap, f"other-{topic}").send(6)
    members = [
        ConsumerProtocolMember(broker.bootstrap, topic, f"^{topic}-.*").start(),
        ConsumerProtocolMember(broker.bootstrap, topic, f"^{topic}-.*").start(),
    ]
    first.send(60)
    wait_for_all(first, members)
    got = {value for each in members for value in each.values}
    assert got == first.sent
    second = Source(broker.bootstrap, f"{topic}-two")
    second.send(90)
    wait_for_all(second, members)
    stop(*members)


@pytest.mark.soak
def test_a_member_that_is_killed_loses_its_partitions_after_the_session_timeout(broker: Any, topic: str) -> None:
    source = Source(broker.bootstrap, topic)
    survivor = member(broker, topic)
    wait_until_shared([survivor])
    with in_a_process(ConsumerProtocolMember, broker.bootstrap, topic, topic) as victim:
        wait_for(lambda: len(survivor.partitions) == PARTITIONS // 2, [survivor], "the partitions are not shared")
        source.send(60)
        victim.kill()
    wait_until_shared([survivor])
    source.send(60)
    late = {value for value in source.sent if int(value) >= 60}
    wait_for(lambda: late <= set(survivor.values), [survivor], "records are missing")
    survivor.stop()


# --- static members -------------------------------------------------------------------------------------------------


def test_a_static_member_that_restarts_has_its_partitions_again(broker: Any, admin: Any, topic: str) -> None:
    source = Source(broker.bootstrap, topic)
    one, two = (member(broker, topic, **{"group.instance.id": name}) for name in ("one", "two"))
    wait_until_shared([one, two])
    owned = {"one": set(one.partitions), "two": set(two.partitions)}
    two.stop()
    assert {each.group_instance_id for each in describe(admin, topic).members} == {"one", "two"}
    two = member(broker, topic, **{"group.instance.id": "two"})
    wait_until_shared([one, two])
    assert {"one": one.partitions, "two": two.partitions} == owned
    source.send(60)
    wait_for_all(source, [one, two])
    stop(one, two)


def test_the_instance_of_a_static_member_that_lives_cannot_be_taken(broker: Any, topic: str) -> None:
    source = Source(broker.bootstrap, topic)
    one = member(broker, topic, **{"group.instance.id": "one"})
    wait_until_shared([one])
    wait_for_fatal_error("instance ID is still used", broker, topic, **{"group.instance.id": "one"})
    source.send(60)
    wait_for_all(source, [one])
    one.stop()


# --- the broker dies ------------------------------------------------------------------------------------------------


@pytest.mark.soak
@pytest.mark.parametrize("how", ["restart", "kill"])
def test_a_group_lives_on_over_a_broker_that_is_gone_for_a_while(tmp_path: Path, topic: str, how: str) -> None:
    broker = make_broker(tmp_path, **GROUP_KEYS)
    broker.start()
    try:
        source = Source(broker.bootstrap, topic)
        members: list[Member] = [member(broker, topic) for _ in range(2)]
        wait_until_shared(members)
        source.send(120)
        wait_for_all(source, members)
        if how == "kill":
            broker.kill()
            broker.start()
        else:
            broker.restart()
        source.send(120)
        wait_for_all(source, members)
        wait_until_shared(members)
        members.append(member(broker, topic))
        wait_until_shared(members)
        stop(*members)
        assert committed(broker.bootstrap, topic, topic) == [40] * PARTITIONS
        read_on(ConsumerProtocolMember, broker, topic, source)
    finally:
        broker.remove()


# --- both protocols -------------------------------------------------------------------------------------------------


def test_a_group_is_upgraded_and_downgraded_member_by_member(broker: Any, admin: Any, topic: str) -> None:
    source = Source(broker.bootstrap, topic)
    old: list[Member] = [ConfluentMember(broker.bootstrap, topic, topic).start() for _ in range(2)]
    wait_until_shared(old)
    assert describe(admin, topic).type is ConsumerGroupType.CLASSIC
    new: list[Member] = []
    gone: list[Member] = []
    while old:
        new.append(member(broker, topic))
        wait_until_shared(old + new)
        source.send(60)
        wait_for_all(source, old + new + gone)
        assert describe(admin, topic).type is ConsumerGroupType.CONSUMER
        gone.append(old.pop())
        gone[-1].stop()
        wait_until_shared(old + new)
        source.send(60)
        wait_for_all(source, old + new + gone)
    back = ConfluentMember(broker.bootstrap, topic, topic).start()
    wait_until_shared([*new, back])
    source.send(60)
    wait_for_all(source, [*new, back, *gone])
    stop(*new)
    wait_until_shared([back])
    assert describe(admin, topic).type is ConsumerGroupType.CLASSIC
    source.send(60)
    wait_for_all(source, [*new, back, *gone])
    back.stop()
    read_on(ConsumerProtocolMember, broker, topic, source)


def test_an_empty_group_changes_its_protocol_and_keeps_its_offsets(broker: Any, admin: Any, topic: str) -> None:
    source = Source(broker.bootstrap, topic)
    kinds = (ConfluentMember, ConsumerProtocolMember, ConfluentMember)
    types = (ConsumerGroupType.CLASSIC, ConsumerGroupType.CONSUMER, ConsumerGroupType.CLASSIC)
    for kind, type_ in zip(kinds, types, strict=True):
        read_on(kind, broker, topic, source)
        found = {each.group_id: each for each in admin.list_consumer_groups().result(TIMEOUT_S).valid}[topic]
        assert (found.type, found.state) == (type_, ConsumerGroupState.EMPTY)


# --- administration -------------------------------------------------------------------------------------------------


def test_groups_are_listed_described_and_deleted(broker: Any, admin: Any, topic: str) -> None:
    source = Source(broker.bootstrap, topic)
    source.send(60)
    reader = member(broker, topic, **{"client.id": "reader"})
    wait_until_shared([reader])
    wait_for_all(source, [reader])
    described = describe(admin, topic)
    assert (described.type, described.state) == (ConsumerGroupType.CONSUMER, ConsumerGroupState.STABLE)
    assert described.partition_assignor == "uniform"
    (one,) = described.members
    assert (one.client_id, one.host) == ("reader", "/127.0.0.1")
    assert {each.partition for each in one.assignment.topic_partitions} == set(range(PARTITIONS))
    assert {each.partition for each in one.target_assignment.topic_partitions} == set(range(PARTITIONS))

    def listed(**filters: Any) -> set[str]:
        return {each.group_id for each in admin.list_consumer_groups(**filters).result(TIMEOUT_S).valid}

    assert topic in listed(types={ConsumerGroupType.CONSUMER}, states={ConsumerGroupState.STABLE})
    assert topic not in listed(types={ConsumerGroupType.CLASSIC})
    assert topic not in listed(states={ConsumerGroupState.EMPTY})
    with pytest.raises(confluent_kafka.KafkaException, match="NON_EMPTY_GROUP"):
        admin.delete_consumer_groups([topic])[topic].result(TIMEOUT_S)
    reader.stop()
    assert committed(broker.bootstrap, topic, topic) == [10] * PARTITIONS
    assert describe(admin, topic).state is ConsumerGroupState.EMPTY
    new = confluent_kafka.ConsumerGroupTopicPartitions(topic, [confluent_kafka.TopicPartition(topic, 0, 3)])
    admin.alter_consumer_group_offsets([new])[topic].result(TIMEOUT_S)
    assert committed(broker.bootstrap, topic, topic) == [3, *[10] * (PARTITIONS - 1)]
    admin.delete_consumer_groups([topic])[topic].result(TIMEOUT_S)
    assert committed(broker.bootstrap, topic, topic) == [confluent_kafka.OFFSET_INVALID] * PARTITIONS
    assert topic not in listed()


@pytest.mark.soak
def test_members_that_come_and_go_miss_nothing(broker: Any, topic: str) -> None:
    source = Source(broker.bootstrap, topic)
    everybody: list[Member] = []
    present: list[Member] = []

    def come() -> None:
        present.append(member(broker, topic))
        everybody.append(present[-1])

    def go() -> None:
        leaving = present.pop(0)
        threading.Thread(target=leaving.stop).start()

    steps: list[Callable[[], None]] = [come, come, go, come, come, go, go, come]
    for step in steps:
        step()
        source.send(60)
        time.sleep(0.4)
    wait_until_shared(present)
    wait_for_all(source, everybody)
    for each in everybody:
        each.stop()
