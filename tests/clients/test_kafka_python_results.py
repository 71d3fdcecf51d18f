"""What programs for kafka-python get from calls and attributes is what kafka-python gives them."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from kafkapy import (
    AsyncConsumerRebalanceListener,
    KafkaAdminClient,
    KafkaConsumer,
    KafkaProducer,
    TopicPartition,
)
from kafkapy.clients.broker_version import broker_version
from kafkapy.coordinator.assignors.abstract import (
    AbstractPartitionAssignor,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from kafkapy.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafkapy.errors import ConfigError, IllegalStateError, KafkaTimeoutError, RetriableError
from kafkapy.partitioner import DefaultPartitioner, StickyPartitioner
from kafkapy.protocol.registry import ApiKeys
from kafkapy.structs import MemberState
from kafkapy.testing import Broker

WAIT_MS = 20_000


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(auto_create_topics_enable=False) as running:
        yield running


@pytest.fixture
def topic(broker: Broker) -> str:
    name = f"t-{uuid.uuid4()}"
    broker.create_topic(name, 2)
    return name


def consumer(broker: Broker, *topics: str, **keywords: Any) -> KafkaConsumer:
    return KafkaConsumer(
        *topics, bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest", **keywords
    )


def poll_until_assigned(reader: KafkaConsumer) -> None:
    while not reader.assignment():
        reader.poll(50)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_consumer_is_looked_at_while_another_thread_polls(broker: Broker, topic: str, protocol: str) -> None:
    reader = consumer(broker, topic, group_id=f"g-{topic}", group_protocol=protocol)
    assert reader.group_metadata().state == MemberState.UNJOINED
    poll_until_assigned(reader)
    errors: list[BaseException] = []
    polls = threading.Event()

    def poll() -> None:
        try:
            polls.set()
            for _ in reader:  # holds the consumer until wakeup()
                pass
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        polls.wait()
        while not reader._core.user_waits:
            pass
        with pytest.raises(IllegalStateError, match="several threads"):
            reader.poll()
        assert reader.assignment() == {TopicPartition(topic, 0), TopicPartition(topic, 1)}
        assert reader.subscription() == {topic}
        assert reader.paused() == set()
        assert "consumer-metrics" in reader.metrics()
        while (metadata := reader.group_metadata()).state != MemberState.STABLE:
            assert metadata.state == MemberState.REBALANCING
        assert metadata.group_id == f"g-{topic}"
        assert metadata.generation_id > 0
        assert metadata.member_id
    finally:
        reader.wakeup()
        thread.join()
    reader.close()
    assert [type(error).__name__ for error in errors] == ["WakeupError"]
    with pytest.raises(IllegalStateError):
        reader.assignment()


def test_results_of_more_partitions_are_by_name_and_by_index(broker: Broker, topic: str) -> None:
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        response = admin.create_partitions({topic: 3})
        for result in response.results:
            assert result[0] == result.name == topic
            assert result[1] == result.error_code == 0
            name, code, message = result
            assert (name, code, message) == (topic, 0, None)
        refused = admin.create_partitions({topic: 1}, raise_errors=False).results[0]
        assert (refused[0], refused[1]) == (topic, 37)
        assert "3" in refused.error_message


def test_the_configuration_knows_keywords_and_the_release_of_the_broker(broker: Broker) -> None:
    servers = broker.bootstrap_servers
    with (
        KafkaConsumer(bootstrap_servers=servers, fetch_min_bytes=7) as reader,
        KafkaProducer(bootstrap_servers=servers, linger_ms=3) as producer,
        KafkaAdminClient(bootstrap_servers=servers) as admin,
    ):
        versions = {reader.config["api_version"], producer.config["api_version"], admin.config["api_version"]}
        assert versions == {broker_version(admin.api_versions())}
        assert versions.pop() >= (4, 0)
        assert reader.config["fetch_min_bytes"] == reader.config["fetch.min.bytes"] == 7
        assert producer.config["linger_ms"] == 3
        assert producer.max_usable_produce_magic(producer.config["api_version"]) == 2
        with pytest.raises(KeyError):
            _ = reader.config["fetch_min_bites"]
        with pytest.raises(KeyError):
            _ = reader.config["selector"]


def test_a_release_is_told_by_what_it_brought() -> None:
    assert broker_version({ApiKeys.FETCH: (4, 17), ApiKeys.LIST_OFFSETS: (1, 9), ApiKeys.PRODUCE: (3, 12)}) == (3, 9)
    assert broker_version({ApiKeys.FETCH: (0, 10)}) == (2, 1)
    assert broker_version({}) == (2, 1)


def test_a_client_with_an_api_version_is_made_without_a_broker() -> None:
    nobody = {"bootstrap_servers": "127.0.0.1:1", "api_version": (2, 5)}
    with KafkaConsumer(**nobody) as reader:
        assert reader.config["api_version"] == (2, 5)
        assert not reader.bootstrap_connected()
        with pytest.raises(KafkaTimeoutError):
            reader.bootstrap(timeout_ms=50)
        reader.assign([TopicPartition("t", 0)])
        assert reader.poll(10) == {}
    with KafkaProducer(**nobody, max_block_ms=50) as producer:
        assert not producer.bootstrap_connected()
        with pytest.raises(KafkaTimeoutError):
            producer.send("t", b"v")
    with KafkaAdminClient(**nobody, default_api_timeout_ms=50) as admin, pytest.raises(RetriableError):
        admin.list_topics()


def test_a_client_with_an_api_version_works_once_there_is_a_broker(broker: Broker, topic: str) -> None:
    servers = broker.bootstrap_servers
    with KafkaProducer(bootstrap_servers=servers, api_version=(3, 9)) as producer:
        producer.send(topic, b"v", partition=0).get(20)
        assert producer.bootstrap_connected()
        assert producer.config["api_version"] == (3, 9)
    with KafkaConsumer(
        topic, bootstrap_servers=servers, api_version="3.9.0", group_id=f"g-{topic}", auto_offset_reset="earliest"
    ) as reader:
        assert reader.config["api_version"] == (3, 9, 0)
        reader.bootstrap(timeout_ms=WAIT_MS)
        assert reader.bootstrap_connected()
        assert next(reader).value == b"v"
    with KafkaAdminClient(bootstrap_servers=servers, api_version=(3, 9)) as admin:
        assert topic in admin.list_topics()
    with KafkaConsumer(bootstrap_servers=servers, api_version="auto") as reader:
        assert reader.config["api_version"] >= (4, 0)
    with pytest.raises(ConfigError, match="release"):
        KafkaConsumer(bootstrap_servers=servers, api_version="3.x")


class Told(AsyncConsumerRebalanceListener):
    def __init__(self, reader: KafkaConsumer) -> None:
        self.reader = reader
        self.told: list[tuple[str, list[TopicPartition]]] = []
        self.threads: set[int] = set()
        self.refused: list[str] = []

    async def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        self.told.append(("revoked", revoked))

    async def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        self.threads.add(threading.get_ident())
        try:
            self.reader.commit()
        except IllegalStateError as error:
            self.refused.append(str(error))
        self.told.append(("assigned", assigned))


def test_a_listener_of_coroutines_is_awaited_on_the_consumers_own_thread(broker: Broker, topic: str) -> None:
    with consumer(broker, group_id=f"g-{topic}") as reader:
        listener = Told(reader)
        reader.subscribe([topic], listener=listener)
        poll_until_assigned(reader)
        while not listener.told:
            reader.poll(50)
    partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    assert listener.told == [("assigned", partitions), ("revoked", partitions)]
    assert threading.get_ident() not in listener.threads
    assert listener.refused


def test_what_a_listener_of_coroutines_raises_poll_raises(broker: Broker, topic: str) -> None:
    class Failing(Told):
        async def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
            raise ZeroDivisionError("of the listener")

    with consumer(broker, group_id=f"g-{topic}") as reader:
        reader.subscribe([topic], listener=Failing(reader))
        with pytest.raises(ZeroDivisionError):
            while True:
                reader.poll(50)


class EverythingToOne(AbstractPartitionAssignor):
    name = "everything-to-one"  # type: ignore[assignment]

    def metadata(self, topics: Any) -> ConsumerProtocolSubscription:
        return ConsumerProtocolSubscription(0, list(topics), b"")

    def assign(self, cluster: Any, members: Any) -> dict[str, ConsumerProtocolAssignment]:
        topics = {topic for member in members for topic in member.metadata.topics} & cluster.topics()
        everything = [(topic, sorted(cluster.partitions_for_topic(topic))) for topic in sorted(topics)]
        first = min(member.member_id for member in members)
        return {
            member.member_id: ConsumerProtocolAssignment(0, everything if member.member_id == first else [], b"")
            for member in members
        }

    def on_assignment(self, assignment: Any, generation: int) -> None:
        self.assigned = assignment.partitions()


def test_assignors_are_named_and_written_as_for_kafka_python(broker: Broker, topic: str) -> None:
    mine = EverythingToOne()
    for number, strategy in enumerate((RoundRobinPartitionAssignor, mine)):
        group = f"g-{number}-{topic}"
        with consumer(broker, topic, group_id=group, partition_assignment_strategy=[strategy]) as reader:
            poll_until_assigned(reader)
            assert reader.assignment() == {TopicPartition(topic, 0), TopicPartition(topic, 1)}
    assert mine.assigned == [TopicPartition(topic, 0), TopicPartition(topic, 1)]


@pytest.mark.parametrize("kind", [DefaultPartitioner, StickyPartitioner])
def test_kafka_pythons_partitioners(broker: Broker, topic: str, kind: type[DefaultPartitioner]) -> None:
    servers = broker.bootstrap_servers
    with (
        KafkaProducer(bootstrap_servers=servers) as built_in,
        KafkaProducer(bootstrap_servers=servers, partitioner=kind()) as producer,
    ):
        for number in range(20):
            key = b"key %d" % number
            assert producer.send(topic, b"v", key=key).get(20).partition == built_in.send(topic, b"v", key=key).get(
                20
            ).partition
        without = [producer.send(topic, b"v") for _ in range(100)]
        producer.flush()
        assert {future.get(20).partition for future in without} <= {0, 1}


def test_the_sticky_partitioner_leaves_a_partition_with_its_batch() -> None:
    class Cluster:
        leaders = {0, 1}

        def partitions_for_topic(self, topic: str) -> set[int] | None:
            return {0, 1, 2} if topic == "t" else None

        def available_partitions_for_topic(self, topic: str) -> set[int]:
            return self.leaders

    cluster, partitioner = Cluster(), StickyPartitioner()

    def choose() -> int:
        return partitioner.partition("t", None, None, None, b"v", cluster)

    first = choose()
    assert {choose() for _ in range(50)} == {first}
    partitioner.on_new_batch("t", cluster, first)
    assert choose() == 1 - first
    partitioner.on_new_batch("t", cluster, first)  # of a batch before
    assert choose() == 1 - first
    cluster.leaders = {2}
    assert choose() == 2
    with pytest.raises(ValueError, match="is unknown"):
        partitioner.partition("other", None, None, None, b"v", cluster)
