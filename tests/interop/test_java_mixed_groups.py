"""Groups of our consumer and Kafka's own, on our broker and on Apache Kafka's, by every assignor; and our consumers
alone on both (make interop-java).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from interop.conftest import JAVA
from interop.members import KafkapyMember, KafkapyProtocolMember, Member
from interop.test_consumer_groups import GROUP_KEYS
from interop.test_groups import PARTITIONS, Source, read_on, wait_for, wait_for_all, wait_until_shared
from interop.test_java_consumer_groups import JavaMember
from peers.apache_kafka import ApacheKafka

from kafkapy.testing.broker_process import BrokerProcess

pytestmark = [*JAVA, pytest.mark.timeout(600)]

CLASSES = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "roundrobin": "org.apache.kafka.clients.consumer.RoundRobinAssignor",
    "sticky": "org.apache.kafka.clients.consumer.StickyAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}
PROTOCOLS = [*CLASSES, "consumer"]
PREVIEW = {"group.coordinator.rebalance.protocols": "classic,consumer", "unstable.api.versions.enable": "true"}
"""What 3.9 wants to hear before it serves the consumer protocol."""


@pytest.fixture(scope="module", params=["kafkapy", "Apache Kafka"])
def broker(request: pytest.FixtureRequest, version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    place = tmp_path_factory.mktemp("java-mixed-groups")
    running: Any = BrokerProcess(place, GROUP_KEYS)
    if request.param == "Apache Kafka":
        running = ApacheKafka(version, place, GROUP_KEYS | (PREVIEW if version == "3.9" else {}))
    running.start()
    yield running
    running.stop()
    running.remove()


def ours(broker: Any, topic: str, protocol: str, **options: Any) -> Member:
    if protocol == "consumer":
        return KafkapyProtocolMember(broker.bootstrap, topic, topic, **options).start()
    return KafkapyMember(
        broker.bootstrap, topic, topic, partition_assignment_strategy=CLASSES[protocol], **options
    ).start()


def java_member(version: str, broker: Any, topic: str, protocol: str) -> JavaMember:
    options = {} if protocol == "consumer" else {"partition.assignment.strategy": CLASSES[protocol]}
    made = JavaMember(version, broker, topic, "consumer" if protocol == "consumer" else "classic", **options)
    made.start()
    return made


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_we_share_a_group_with_java(version: str, broker: Any, topic: str, protocol: str) -> None:
    source = Source(broker.bootstrap, topic)
    source.send(60)
    mine = ours(broker, topic, protocol)
    wait_until_shared([mine])
    wait_for_all(source, [mine])
    java = java_member(version, broker, topic, protocol)
    wait_for(lambda: len(mine.partitions) == PARTITIONS // 2, [java, mine], "the partitions are not shared")
    source.send(120)
    wait_for_all(source, [java, mine])
    mine.stop()
    source.send(120)
    wait_for_all(source, [java, mine])
    # Now Java's consumer leads.
    again = ours(broker, topic, protocol)
    wait_for(lambda: len(again.partitions) == PARTITIONS // 2, [java, again], "the partitions are not shared")
    source.send(120)
    wait_for_all(source, [java, mine, again])
    java.kill()
    wait_until_shared([again])  # after the session timeout
    before = set(source.sent)
    source.send(60)
    wait_for(lambda: source.sent - before <= set(again.values), [again], "records are missing")
    again.stop()
    late = KafkapyProtocolMember if protocol == "consumer" else KafkapyMember
    read_on(late, broker, topic, source)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_our_members_share_a_group(version: str, broker: Any, topic: str, protocol: str) -> None:
    source = Source(broker.bootstrap, topic)
    source.send(60)
    members = [ours(broker, topic, protocol, group_instance_id=str(number)) for number in range(3)]
    wait_until_shared(members)
    source.send(60)
    wait_for_all(source, members)
    kept = {number: set(members[number].partitions) for number in range(3)}
    members[1].stop()
    # A static member that comes back has its partitions again.
    members.append(ours(broker, topic, protocol, group_instance_id="1"))
    wait_for(lambda: members[3].partitions == kept[1], members, "the partitions have gone elsewhere")
    assert [members[number].partitions for number in (0, 2)] == [kept[0], kept[2]]
    source.send(60)
    wait_for_all(source, members)
    for member in (members[0], members[2], members[3]):
        member.stop()
