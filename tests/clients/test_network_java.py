"""NetworkClient against three brokers of Apache Kafka: leaders that move, brokers that are lost and come back."""

from __future__ import annotations

import asyncio
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import uvloop
from clients.connected import client
from clients.fake_broker import eventually
from interop.conftest import JAVA, with_jars
from peers.apache_kafka import VERSIONS, ApacheKafka, java

from kafkapy.clients.coordinator_lookup import CoordinatorLookup
from kafkapy.clients.network_client import NetworkClient
from kafkapy.errors import ErrorCode, KafkaError, error_for
from kafkapy.protocol.messages.create_topics import CreateTopicsRequest
from kafkapy.protocol.messages.elect_leaders import ElectLeadersRequest
from kafkapy.protocol.messages.list_offsets import ListOffsetsRequest
from kafkapy.types import CoordinatorType, TopicPartition

pytestmark = JAVA
PARTITIONS = 6


class ThreeBrokers:
    """A KRaft cluster of brokers 1 to 3, each of them a controller too."""

    def __init__(self, version: str, directory: Path) -> None:
        self.brokers = {number: ApacheKafka(version, directory / str(number)) for number in (1, 2, 3)}
        voters = ",".join(f"{number}@127.0.0.1:{each.controller_port}" for number, each in self.brokers.items())
        cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A")
        for number, broker in self.brokers.items():
            broker.overrides = {
                "node.id": str(number),
                "controller.quorum.voters": voters,
                "offsets.topic.replication.factor": "3",
                "broker.session.timeout.ms": "3000",
                "broker.heartbeat.interval.ms": "500",
                "auto.leader.rebalance.enable": "false",
            }
            self._format(version, broker, cluster_id)

    @staticmethod
    def _format(version: str, broker: ApacheKafka, cluster_id: str) -> None:
        broker.data_dir.mkdir(parents=True)
        config = broker.data_dir / "format.properties"
        keys = broker._kraft_keys() | {"log.dirs": str(broker.data_dir / "logs")} | broker.overrides
        config.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
        tool = java(version, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(config))
        subprocess.run(tool, check=True, capture_output=True)

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def start(self) -> None:
        with ThreadPoolExecutor() as threads:
            list(threads.map(lambda broker: broker.start(), self.brokers.values()))

    def remove(self) -> None:
        for broker in self.brokers.values():
            broker.remove()


@pytest.fixture(scope="module", params=sorted(VERSIONS))
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeBrokers]:
    made = ThreeBrokers(with_jars(request.param), tmp_path_factory.mktemp("kafka"))
    try:
        made.start()
        yield made
    finally:
        made.remove()


async def create(network: NetworkClient, topic: str) -> None:
    """A topic with a replica of each partition on every broker."""
    request = CreateTopicsRequest(
        topics=[CreateTopicsRequest.Topic(name=topic, num_partitions=PARTITIONS, replication_factor=3)],
        timeout_ms=30_000,
    )
    response = await network.send_to_controller(request)
    assert response.topics[0].error_code == 0, response
    network.cluster.want([topic])
    await eventually(lambda: leaders(network, topic) == {1, 2, 3})


def leaders(network: NetworkClient, topic: str) -> set[int | None]:
    numbers = network.cluster.partitions_for_topic(topic) or ()
    return {network.cluster.leader_for(TopicPartition(topic, number)) for number in numbers}


def refreshed_leaders(network: NetworkClient, topic: str) -> set[int | None]:
    """For a change that no error tells of, and that brokers hear of a little later than the controller."""
    network.cluster.invalidate()
    return leaders(network, topic)


def epochs(network: NetworkClient, topic: str) -> list[int]:
    return [network.cluster.leader_epoch_for(TopicPartition(topic, number)) for number in range(PARTITIONS)]


async def end_offset(network: NetworkClient, place: TopicPartition) -> int:
    """The log end offset as the partition's leader says, asked with the epoch that is known; tried until it answers."""
    while True:
        try:
            leader = network.cluster.leader_for(place)
            if leader is None:
                await network.cluster.refresh()
                await asyncio.sleep(0.05)
                continue
            partition = ListOffsetsRequest.Topic.Partition(
                partition_index=place.partition,
                current_leader_epoch=network.cluster.leader_epoch_for(place),
                timestamp=-1,
            )
            topic = ListOffsetsRequest.Topic(name=place.topic, partitions=[partition])
            response = await network.send(leader, ListOffsetsRequest(replica_id=-1, topics=[topic]))
            [answer] = response.topics[0].partitions
            if answer.error_code:
                raise error_for(answer.error_code)
            return int(answer.offset)
        except KafkaError as error:
            if not error.retriable:
                raise
            network.cluster.invalidate()
            await asyncio.sleep(0.05)


async def every_partition_answers(network: NetworkClient, topic: str) -> None:
    places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    async with asyncio.timeout(40):
        assert await asyncio.gather(*(end_offset(network, place) for place in places)) == [0] * PARTITIONS


def test_leaders_on_every_broker(cluster: ThreeBrokers) -> None:
    async def scenario() -> None:
        async with client(cluster.bootstrap) as network:
            topic = f"spread-{uuid.uuid4().hex}"
            await create(network, topic)
            await every_partition_answers(network, topic)
            assert set(network.cluster.brokers()) == {1, 2, 3}
            assert network.metrics.connection_count <= 4
            coordinator = await CoordinatorLookup(network).find("group", CoordinatorType.GROUP, 30_000)
            await network.ready(coordinator)

    uvloop.run(scenario())


def test_one_bootstrap_server_is_enough_for_all(cluster: ThreeBrokers) -> None:
    async def scenario() -> None:
        async with client(cluster.brokers[2].bootstrap) as network:
            for node_id in (1, 2, 3):
                await network.ready(node_id)
            assert network.metrics.connection_count == 3

    uvloop.run(scenario())


def test_a_lost_broker_and_its_return(cluster: ThreeBrokers) -> None:
    async def scenario() -> None:
        async with client(cluster.bootstrap, request_timeout_ms=5000) as network:
            topic = f"lost-{uuid.uuid4().hex}"
            await create(network, topic)
            await every_partition_answers(network, topic)
            before = epochs(network, topic)

            await asyncio.to_thread(cluster.brokers[3].kill)
            await every_partition_answers(network, topic)
            await eventually(lambda: leaders(network, topic) == {1, 2})
            after = epochs(network, topic)
            assert all(new >= old for new, old in zip(after, before, strict=True))
            assert sum(new > old for new, old in zip(after, before, strict=True)) >= 2, "broker 3 led some"

            await asyncio.to_thread(cluster.brokers[3].start)
            await elect_preferred(network, topic)
            await eventually(lambda: refreshed_leaders(network, topic) == {1, 2, 3})
            await every_partition_answers(network, topic)
            assert epochs(network, topic) > after

    uvloop.run(scenario())


async def elect_preferred(network: NetworkClient, topic: str) -> None:
    """Broker 3 leads again what it led at first, once it is in sync."""
    partitions = [ElectLeadersRequest.TopicPartitions(topic=topic, partitions=list(range(PARTITIONS)))]
    request = ElectLeadersRequest(election_type=0, topic_partitions=partitions, timeout_ms=10_000)
    accepted = {ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED}
    async with asyncio.timeout(40):
        while True:
            try:
                response = await network.send_to_controller(request)
                results = [each for found in response.replica_election_results for each in found.partition_result]
                if {each.error_code for each in results} <= accepted:
                    return
            except KafkaError as error:
                assert error.retriable, error
            await asyncio.sleep(0.2)
