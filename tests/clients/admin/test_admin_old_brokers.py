"""KafkaAdminClient against the releases of this run (KAFKAPY_PEER_VERSIONS), from 2.1 on: what each of them serves,
and a clear error for what it does not."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from clients.admin.members import eventually, member
from interop.conftest import JAVA, with_jars
from peers.apache_kafka import VERSIONS, ApacheKafka

from kafkapy import KafkaConsumer, KafkaProducer, TopicPartition, errors
from kafkapy.admin import ConfigResource, KafkaAdminClient, OffsetSpec
from kafkapy.types import OffsetAndMetadata

pytestmark = JAVA
START_MS = int(time.time() * 1000) - 100_000


@pytest.fixture(scope="module", params=sorted(VERSIONS))
def java(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    with ApacheKafka(with_jars(request.param), tmp_path_factory.mktemp("java")) as broker:
        yield broker


@pytest.fixture(scope="module")
def admin(java: ApacheKafka) -> Iterator[KafkaAdminClient]:
    with KafkaAdminClient(bootstrap_servers=java.bootstrap) as client:
        yield client


@pytest.fixture
def topic(java: ApacheKafka, admin: KafkaAdminClient, request: pytest.FixtureRequest) -> Iterator[str]:
    """A topic of two partitions with ten records each."""
    name = request.node.originalname
    admin.create_topics({name: {"num_partitions": 2, "replication_factor": 1, "configs": {"retention.ms": "3600000"}}})
    admin.wait_for_topics([name])
    with KafkaProducer(bootstrap_servers=java.bootstrap) as producer:
        for number in range(20):
            producer.send(name, b"%d" % number, partition=number % 2, timestamp_ms=START_MS + number)
    yield name
    admin.delete_topics([name])
    eventually(lambda: name not in admin.list_topics())


def test_topics_and_partitions(admin: KafkaAdminClient, topic: str) -> None:
    [described] = admin.describe_topics([topic])
    assert sorted(each["partition_index"] for each in described["partitions"]) == [0, 1]
    with pytest.raises(errors.TopicAlreadyExistsError):
        admin.create_topics({topic: {"num_partitions": 1, "replication_factor": 1}})
    admin.create_partitions({topic: 3})
    eventually(lambda: len(admin.describe_topics([topic])[0]["partitions"]) == 3)
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        admin.delete_topics(["nothing-here"])


def test_configurations(admin: KafkaAdminClient, topic: str) -> None:
    resource = ConfigResource("topic", topic)

    def value(key: str) -> str:
        return str(admin.describe_configs([resource], config_filter="all")["topic"][topic][key]["value"])

    assert value("retention.ms") == "3600000"
    admin.alter_configs([ConfigResource("topic", topic, {"retention.ms": "7200000", "max.message.bytes": "2000000"})])
    eventually(lambda: (value("retention.ms"), value("max.message.bytes")) == ("7200000", "2000000"))
    admin.reset_configs([ConfigResource("topic", topic, {"retention.ms": None})])
    eventually(lambda: value("retention.ms") == "604800000")
    assert value("max.message.bytes") == "2000000"


def test_offsets_and_deleted_records(admin: KafkaAdminClient, topic: str) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    ends = admin.list_partition_offsets({first: OffsetSpec.LATEST, second: OffsetSpec.EARLIEST})
    assert (ends[first].offset, ends[second].offset) == (10, 0)
    at = admin.list_partition_offsets({first: START_MS + 6})[first]
    assert (at.offset, at.timestamp) == (3, START_MS + 6)
    admin.delete_records({first: 4})
    assert admin.list_partition_offsets({first: OffsetSpec.EARLIEST})[first].offset == 4


def test_groups(java: ApacheKafka, admin: KafkaAdminClient, topic: str) -> None:
    group = f"g-{topic}"
    with member(java.bootstrap, group, topic):
        described = admin.describe_consumer_groups([group])[group]
        assert described.state == "Stable"
        assert len(described.members) == 1
        assert group in {each["group_id"] for each in admin.list_groups()}
    partition = TopicPartition(topic, 0)
    eventually(lambda: admin.describe_consumer_groups([group])[group].state == "Empty")
    admin.alter_group_offsets(group, {partition: OffsetAndMetadata(7, "noted")})
    found = admin.list_group_offsets(group)[group][partition]
    assert (found.offset, found.metadata) == (7, "noted")
    with KafkaConsumer(bootstrap_servers=java.bootstrap, group_id=group) as consumer:
        consumer.assign([partition])
        assert consumer.position(partition) == 7
    admin.delete_groups([group])
    eventually(lambda: group not in {each["group_id"] for each in admin.list_groups()})


def test_the_cluster_and_its_log_directories(java: ApacheKafka, admin: KafkaAdminClient, topic: str) -> None:
    cluster = admin.describe_cluster()
    assert [broker["broker_id"] for broker in cluster["brokers"]] == [1]
    assert cluster["controller_id"] == 1
    assert cluster["cluster_id"]
    assert topic in str(admin.describe_log_dirs())


def test_what_a_release_does_not_serve_is_said(java: ApacheKafka, admin: KafkaAdminClient) -> None:
    if java.version == "4.x":
        pytest.skip("it serves everything that is asked for here")
    with pytest.raises(errors.UnsupportedVersionError):
        admin.describe_share_groups(["g"])
    with pytest.raises(errors.UnsupportedVersionError):
        admin.list_config_resources(["group"])
