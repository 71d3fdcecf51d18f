"""Groups of our own consumers against a real broker, by every protocol."""

from __future__ import annotations

import itertools
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest

from kafkapy.clients.consumer.consumer import KafkaConsumer
from kafkapy.clients.consumer.subscription import ConsumerRebalanceListener, SubscriptionPattern
from kafkapy.errors import CommitFailedError, FencedInstanceIdError
from kafkapy.testing.broker_process import BrokerProcess
from kafkapy.types import TopicPartition

PARTITIONS = 6
PROTOCOLS = {
    "range": {"partition_assignment_strategy": ["range"]},
    "roundrobin": {"partition_assignment_strategy": ["roundrobin"]},
    "sticky": {"partition_assignment_strategy": ["sticky"]},
    "cooperative-sticky": {"partition_assignment_strategy": ["cooperative-sticky"]},
    "consumer": {"group_protocol": "consumer"},
}
SERVER = """
from kafkapy.coordinator.group.consumer import patterns
from kafkapy.tools.server import main

patterns.LEAST_REFRESH_INTERVAL_MS = 500
main()
"""
"""The broker, but for the ten seconds that expressions are not looked at again."""
numbers = itertools.count()
SOME = ["range", "cooperative-sticky", "consumer"]
COOPERATIVE = ["cooperative-sticky", "consumer"]


def at_least(*always: str) -> list[Any]:
    """Every protocol; those that are not named run with: make soak."""
    return [name if name in always else pytest.param(name, marks=pytest.mark.soak) for name in PROTOCOLS]


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    overrides = {
        "num.partitions": str(PARTITIONS),
        "auto.create.topics.enable": "false",
        "group.min.session.timeout.ms": "500",
        "group.consumer.min.heartbeat.interval.ms": "50",
        "group.consumer.heartbeat.interval.ms": "50",
        "group.consumer.min.session.timeout.ms": "500",
        "group.consumer.session.timeout.ms": "3000",
    }
    with BrokerProcess(overrides=overrides, command=[sys.executable, "-c", SERVER]) as running:
        yield running


class Group:
    """Consumers of one group, all polled by one thread in turn."""

    def __init__(self, broker: BrokerProcess, protocol: str) -> None:
        self.broker = broker
        self.protocol = protocol
        self.topic = f"topic-{next(numbers)}"
        self.consumers: list[KafkaConsumer] = []
        self.values: list[bytes] = []
        self.admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap})
        self.create(self.topic)

    def create(self, topic: str) -> None:
        self.admin.create_topics([confluent_kafka.admin.NewTopic(topic, PARTITIONS, 1)])[topic].result(30)

    def produce(self, count: int, topic: str | None = None) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": self.broker.bootstrap})
        for number in range(count):
            producer.produce(topic or self.topic, b"%d" % number, partition=number % PARTITIONS)
        assert producer.flush(30) == 0

    def join(self, listener: ConsumerRebalanceListener | None = None, pattern: Any = None, **keys: Any) -> Any:
        timing = {} if self.protocol == "consumer" else {"session_timeout_ms": 3000, "heartbeat_interval_ms": 50}
        consumer = KafkaConsumer(
            bootstrap_servers=self.broker.bootstrap,
            group_id=f"group-of-{self.topic}",
            auto_offset_reset="earliest",
            **(PROTOCOLS[self.protocol] | timing | keys),
        )
        if pattern is not None:
            consumer.subscribe(pattern=pattern, listener=listener)
        else:
            consumer.subscribe([self.topic], listener=listener)
        self.consumers.append(consumer)
        return consumer

    def leave(self, consumer: KafkaConsumer) -> None:
        self.consumers.remove(consumer)
        consumer.close()

    def poll_until(self, condition: Callable[[], Any], but: KafkaConsumer | None = None) -> None:
        deadline = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < deadline, [each.assignment() for each in self.consumers]
            for consumer in self.consumers:
                if consumer is not but:
                    for records in consumer.poll(20).values():
                        self.values.extend(record.value for record in records)

    def shares(self) -> list[int]:
        return [len(consumer.assignment()) for consumer in self.consumers]

    def settle(self, *shares: int) -> None:
        self.poll_until(lambda: self.shares() == list(shares))

    def close(self) -> None:
        for consumer in self.consumers:
            consumer.close()


@pytest.fixture
def make_group(broker: BrokerProcess) -> Iterator[Callable[[str], Group]]:
    with ExitStack() as groups:

        def make(protocol: str) -> Group:
            group = Group(broker, protocol)
            groups.callback(group.close)
            return group

        yield make


class Told(ConsumerRebalanceListener):
    """Keeps what it was told, and on which thread."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int]] = []
        self.threads: set[int] = set()
        self.on_revoke: Callable[[], Any] = lambda: None

    def _tell(self, kind: str, partitions: list[TopicPartition]) -> None:
        self.threads.add(threading.get_ident())
        if partitions:
            self.told.append((kind, len(partitions)))

    @property
    def has(self) -> int:
        """How many partitions it knows to have."""
        return sum(count if kind == "assigned" else -count for kind, count in self.told)

    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        self._tell("revoked", revoked)
        self.on_revoke()

    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        self._tell("assigned", assigned)

    def on_partitions_lost(self, lost: list[TopicPartition]) -> None:
        self._tell("lost", lost)


@pytest.mark.parametrize("protocol", at_least(*SOME))
def test_members_share_partitions_and_hand_them_over_with_nothing_read_twice(
    make_group: Callable[[str], Group], protocol: str
) -> None:
    group = make_group(protocol)
    group.produce(60)
    first = group.join()
    group.settle(6)
    group.poll_until(lambda: len(group.values) == 60)
    second = group.join()
    group.settle(3, 3)
    group.produce(60)
    group.poll_until(lambda: len(group.values) == 120)
    group.leave(first)
    group.produce(60)
    group.settle(6)
    group.poll_until(lambda: len(group.values) == 180)
    group.leave(second)
    group.join()
    group.produce(6)
    group.settle(6)
    group.poll_until(lambda: len(group.values) >= 186)
    assert sorted(group.values) == sorted(
        [b"%d" % number for number in range(60)] * 3 + [b"%d" % no for no in range(6)]
    )


@pytest.mark.parametrize("protocol", at_least("range", "consumer"))
def test_the_listener_is_told_on_the_users_thread_and_may_commit(
    make_group: Callable[[str], Group], protocol: str
) -> None:
    group = make_group(protocol)
    group.produce(60)
    listener = Told()
    first = group.join(listener, enable_auto_commit=False)
    listener.on_revoke = first.commit
    group.poll_until(lambda: len(group.values) == 60)
    group.join()
    group.settle(3, 3)
    told = (
        [("assigned", 6), ("revoked", 6), ("assigned", 3)]
        if protocol not in COOPERATIVE
        else [("assigned", 6), ("revoked", 3)]
    )
    group.poll_until(lambda: listener.told == told)
    assert listener.threads == {threading.get_ident()}
    group.leave(first)
    assert listener.told[-1] == ("revoked", 3)
    group.settle(6)
    group.produce(1)
    group.poll_until(lambda: len(group.values) > 60)
    assert len(group.values) == 61, "what the listener has committed is not read again"


@pytest.mark.parametrize("protocol", at_least("range", "consumer"))
def test_a_static_member_that_restarts_disturbs_nobody(make_group: Callable[[str], Group], protocol: str) -> None:
    group = make_group(protocol)
    listener = Told()
    group.join(listener, group_instance_id="one")
    second = group.join(group_instance_id="two")
    group.settle(3, 3)
    group.poll_until(lambda: listener.has == 3)
    before, told = second.assignment(), list(listener.told)
    group.leave(second)
    second = group.join(group_instance_id="two")
    group.settle(3, 3)
    assert second.assignment() == before
    assert listener.told == told


@pytest.mark.parametrize("protocol", ["range", "cooperative-sticky"])
def test_an_instance_that_another_one_replaces_is_fenced(make_group: Callable[[str], Group], protocol: str) -> None:
    group = make_group(protocol)
    first = group.join(group_instance_id="one")
    group.settle(6)
    second = group.join(group_instance_id="one")
    with pytest.raises(FencedInstanceIdError):
        group.poll_until(lambda: False)
    group.leave(first)
    group.settle(6)
    assert group.consumers == [second]


@pytest.mark.parametrize("protocol", at_least("consumer"))
def test_a_member_whose_user_does_not_poll_loses_its_partitions(
    make_group: Callable[[str], Group], protocol: str
) -> None:
    group = make_group(protocol)
    listener = Told()
    slow = group.join(listener, max_poll_interval_ms=1000, enable_auto_commit=False)
    group.settle(6)
    group.produce(6)
    group.poll_until(lambda: group.values)
    other = group.join()
    group.poll_until(lambda: len(other.assignment()) == 6, but=slow)
    assert [kind for kind, _ in listener.told] == ["assigned"], "the user is told when it polls again"
    with pytest.raises(CommitFailedError):
        slow.commit()
    group.settle(3, 3)
    group.poll_until(lambda: listener.told[-1] == ("assigned", 3))
    # Some are revoked first where the member's heartbeat, and then its user, came before the broker's patience ended.
    gone = [each for each in listener.told if each[0] != "assigned"]
    assert gone[-1][0] == "lost"
    assert sum(count for _, count in gone) == 6


@pytest.mark.parametrize("protocol", at_least("consumer"))
def test_topics_that_match_a_pattern_are_read_when_they_come(make_group: Callable[[str], Group], protocol: str) -> None:
    group = make_group(protocol)
    group.join(pattern=f"{group.topic}(-more)?$", metadata_max_age_ms=200)
    group.join(pattern=f"{group.topic}(-more)?$", metadata_max_age_ms=200)
    group.settle(3, 3)
    group.create(f"{group.topic}-more")
    group.create(f"{group.topic}-others")
    group.produce(6, f"{group.topic}-more")
    group.settle(6, 6)
    group.poll_until(lambda: len(group.values) == 6)
    assert group.consumers[0].subscription() == {group.topic, f"{group.topic}-more"}


def test_the_broker_finds_the_topics_of_an_expression(make_group: Callable[[str], Group]) -> None:
    group = make_group("consumer")
    group.join(pattern=SubscriptionPattern(f"{group.topic}(-more)?"), metadata_max_age_ms=200)
    group.join(metadata_max_age_ms=200)
    group.settle(3, 3)
    group.create(f"{group.topic}-more")
    group.produce(6, f"{group.topic}-more")
    group.poll_until(lambda: len(group.values) == 6)
    assert {partition.topic for partition in group.consumers[0].assignment()} >= {f"{group.topic}-more"}
    assert {partition.topic for partition in group.consumers[1].assignment()} == {group.topic}


@pytest.mark.parametrize("protocol", at_least("range"))
def test_partitions_that_are_added_are_read_and_a_changed_subscription_counts(
    make_group: Callable[[str], Group], protocol: str
) -> None:
    group = make_group(protocol)
    first = group.join(metadata_max_age_ms=200)
    group.join(metadata_max_age_ms=200)
    group.settle(3, 3)
    more = [confluent_kafka.admin.NewPartitions(group.topic, 8)]
    group.admin.create_partitions(more)[group.topic].result(30)
    group.settle(4, 4)
    other = f"{group.topic}-other"
    group.create(other)
    first.subscribe([other])
    group.settle(6, 8)
    assert {partition.topic for partition in first.assignment()} == {other}
    first.unsubscribe()
    assert first.assignment() == set()
    first.subscribe([group.topic])
    group.settle(4, 4)


def test_members_go_over_from_eager_to_cooperative_with_two_assignors(make_group: Callable[[str], Group]) -> None:
    """As KIP-429 says: first with both, then without the old one."""
    group = make_group("range")
    both = {"partition_assignment_strategy": ["cooperative-sticky", "range"]}
    old = [group.join(), group.join()]
    group.settle(3, 3)
    between = []
    for consumer in old:
        between.append(group.join(**both))
        group.leave(consumer)
        group.settle(3, 3)
    for consumer in between:
        group.join(partition_assignment_strategy=["cooperative-sticky"])
        group.leave(consumer)
        group.settle(3, 3)
    group.produce(60)
    group.poll_until(lambda: len(group.values) == 60)


def test_members_of_both_protocols_share_a_group(make_group: Callable[[str], Group]) -> None:
    """Online migration (KIP-848): a group of the classic protocol takes a member of the new one, and goes over."""
    group = make_group("cooperative-sticky")
    old = group.join()
    group.settle(6)
    group.protocol = "consumer"
    group.join()
    group.settle(3, 3)
    group.produce(60)
    group.poll_until(lambda: len(group.values) == 60)
    group.leave(old)
    group.settle(6)


@pytest.mark.parametrize("protocol", at_least("range", "consumer"))
def test_a_member_that_leaves_is_not_waited_for(make_group: Callable[[str], Group], protocol: str) -> None:
    group = make_group(protocol)
    first = group.join()
    group.join()
    group.settle(3, 3)
    assert re.fullmatch(r"group-of-topic-\d+", first.group_metadata().group_id)
    assert first.group_metadata().generation_id > 0
    [found] = group.admin.describe_consumer_groups([first.group_metadata().group_id]).values()
    assert len(found.result(30).members) == 2
    group.leave(first)
    [found] = group.admin.describe_consumer_groups([f"group-of-{group.topic}"]).values()
    assert len(found.result(30).members) == 1
