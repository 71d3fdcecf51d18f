"""The ACL matrix: records and topics (see acl_matrix.py)."""

from __future__ import annotations

from typing import Any

from broker.acl_case import (
    ALTER,
    CLUSTER,
    CLUSTER_ACTION,
    CREATE,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    DESCRIBE_TOPIC,
    OK,
    READ_TOPIC,
    TOPIC,
    TOPIC_DENIED,
    TXN_DENIED,
    WRITE_TOPIC,
    WRITE_TXN,
    World,
    case,
    need,
    on_cluster,
)
from broker.acting import ActingClient

from kafkapy.protocol.header import encode_request
from kafkapy.protocol.messages.api_versions import ApiVersionsRequest
from kafkapy.protocol.messages.create_partitions import CreatePartitionsRequest
from kafkapy.protocol.messages.create_topics import CreateTopicsRequest
from kafkapy.protocol.messages.delete_records import DeleteRecordsRequest
from kafkapy.protocol.messages.delete_topics import DeleteTopicsRequest
from kafkapy.protocol.messages.describe_producers import DescribeProducersRequest
from kafkapy.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from kafkapy.protocol.messages.fetch import FetchRequest
from kafkapy.protocol.messages.list_offsets import ListOffsetsRequest
from kafkapy.protocol.messages.metadata import MetadataRequest
from kafkapy.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kafkapy.protocol.messages.produce import ProduceRequest
from kafkapy.protocol.registry import ApiKeys
from kafkapy.protocol.schema import ZERO_UUID
from kafkapy.records.batches import RecordBatchBuilder
from kafkapy.types import CompressionType

# --- produce and fetch --------------------------------------------------------------------------------------------


def records(**producer: int) -> bytes:
    builder = RecordBatchBuilder()
    builder.append(1, None, b"x")
    return builder.build(CompressionType.NONE, **producer)


def produce_request(world: World, version: int, acks: int = -1, **fields: Any) -> ProduceRequest:
    part = ProduceRequest.Topic.Partition(index=0, records=fields.pop("records", None) or records())
    named: dict[str, Any] = {"topic_id": world.topic_id} if version >= 13 else {"name": world.topic}
    return ProduceRequest(
        acks=acks, timeout_ms=10_000, topic_data=[ProduceRequest.Topic(partition_data=[part], **named)], **fields
    )


def produced(response: Any) -> list[int]:
    return [part.error_code for topic in response.responses for part in topic.partition_responses]


@case(ApiKeys.PRODUCE, "records", WRITE_TOPIC, denied=[[TOPIC_DENIED]], allowed=[OK], versions=range(3, 14))
def produce(client: ActingClient, world: World, version: int) -> Any:
    return produced(client(produce_request(world, version), version))


@case(
    ApiKeys.PRODUCE,
    "records of a transaction",
    WRITE_TXN,
    WRITE_TOPIC,
    denied=[[TXN_DENIED], [TOPIC_DENIED]],
    allowed=[48],  # INVALID_TXN_STATE: the partition is not in the transaction
    versions=range(3, 11),
)
def produce_in_transaction(client: ActingClient, world: World, version: int) -> Any:
    batch = records(**world.producer, base_sequence=0, transactional=True)
    request = produce_request(world, version, transactional_id=world.txn, records=batch)
    return produced(client(request, version))


@case(
    ApiKeys.PRODUCE,
    "records without acks",
    WRITE_TOPIC,
    denied=["closed"],
    allowed="open",
    versions=[3, 9, 13],
)
def produce_without_acks(client: ActingClient, world: World, version: int) -> Any:
    alone = client.again(address=client.socket.getsockname()[0])
    try:
        alone.send_frame(encode_request(0, version, 1, None, produce_request(world, version, acks=0)))
        alone(ApiVersionsRequest(), 0)
    except ConnectionError:
        return "closed"
    else:
        return "open"
    finally:
        alone.close()


def fetch_request(world: World, version: int, replica: int) -> FetchRequest:
    part = FetchRequest.Topic.Partition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    named: dict[str, Any] = {"topic_id": world.topic_id} if version >= 13 else {"topic": world.topic}
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchRequest.Topic(partitions=[part], **named)])
    if version >= 15:
        request.replica_state = FetchRequest.ReplicaState(replica_id=replica)
    else:
        request.replica_id = replica
    return request


def fetched(response: Any) -> list[Any]:
    """The errors, and whether there are records."""
    return [
        (part.error_code, len(part.records or b"") > 0) for topic in response.responses for part in topic.partitions
    ]


@case(ApiKeys.FETCH, "as a consumer", READ_TOPIC, denied=[[(TOPIC_DENIED, False)]], allowed=[(OK, True)])
def fetch(client: ActingClient, world: World, version: int) -> Any:
    return fetched(client(fetch_request(world, version, -1), version))


@case(
    ApiKeys.FETCH,
    "as a follower",
    on_cluster(CLUSTER_ACTION),
    denied=[[(TOPIC_DENIED, False)]],
    allowed=[(6, False)],  # NOT_LEADER_OR_FOLLOWER: there is no such follower
)
def fetch_as_follower(client: ActingClient, world: World, version: int) -> Any:
    return fetched(client(fetch_request(world, version, 77), version))


# --- topics -------------------------------------------------------------------------------------------------------


@case(ApiKeys.LIST_OFFSETS, "latest", DESCRIBE_TOPIC, denied=[[TOPIC_DENIED]], allowed=[OK])
def list_offsets(client: ActingClient, world: World, version: int) -> Any:
    part = ListOffsetsRequest.Topic.Partition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsRequest.Topic(name=world.topic, partitions=[part])])
    return [each.error_code for each in client(request, version).topics[0].partitions]


def described_topics(response: Any) -> list[Any]:
    """(error, name, whether it has an id, number of partitions) of each topic."""
    return [
        (each.error_code, (each.name or "").partition("-")[0], each.topic_id != ZERO_UUID, len(each.partitions))
        for each in response.topics
    ]


@case(
    ApiKeys.METADATA,
    "by name",
    DESCRIBE_TOPIC,
    denied=[[(TOPIC_DENIED, "topic", False, 0)]],
    allowed=[(OK, "topic", True, 1)],
    versions=range(10, 14),
)
def metadata(client: ActingClient, world: World, version: int) -> Any:
    return described_topics(client(MetadataRequest(topics=[MetadataRequest.Topic(name=world.topic)]), version))


@case(
    ApiKeys.METADATA,
    "by name, old versions",
    DESCRIBE_TOPIC,
    denied=[[(TOPIC_DENIED, "topic", False, 0)]],
    allowed=[(OK, "topic", False, 1)],
    versions=range(10),
)
def metadata_old(client: ActingClient, world: World, version: int) -> Any:
    return described_topics(client(MetadataRequest(topics=[MetadataRequest.Topic(name=world.topic)]), version))


@case(
    ApiKeys.METADATA,
    "by id",
    DESCRIBE_TOPIC,
    denied=[[(TOPIC_DENIED, "", True, 0)]],
    allowed=[(OK, "topic", True, 1)],
    versions=[12, 13],
)
def metadata_by_id(client: ActingClient, world: World, version: int) -> Any:
    asked = MetadataRequest.Topic(name=None, topic_id=world.topic_id)
    return described_topics(client(MetadataRequest(topics=[asked]), version))


@case(ApiKeys.METADATA, "all topics", DESCRIBE_TOPIC, denied=[False], allowed=True)
def metadata_of_all(client: ActingClient, world: World, version: int) -> Any:
    response = client(MetadataRequest(topics=None if version else []), version)
    return world.topic in {each.name for each in response.topics}


@case(
    ApiKeys.METADATA,
    "a topic to be created",
    need((TOPIC, "new_topic", DESCRIBE)),
    need((TOPIC, "new_topic", CREATE), (CLUSTER, "cluster", CREATE)),
    denied=[[(TOPIC_DENIED, "new", False, 0)], [(TOPIC_DENIED, "new", False, 0)]],
    allowed=[(5, "new", False, 0)],  # LEADER_NOT_AVAILABLE: it is being created
    versions=[4, 13],
    changes=True,
)
def metadata_creates(client: ActingClient, world: World, version: int) -> Any:
    asked = [MetadataRequest.Topic(name=world.new_topic)]
    response = client(MetadataRequest(topics=asked, allow_auto_topic_creation=True), version)
    return [(5, "new", False, 0) if each[0] == OK else each for each in described_topics(response)]


@case(
    ApiKeys.METADATA,
    "operations on the cluster",
    on_cluster(DESCRIBE),
    denied=[False],
    allowed=True,
    versions=[8, 9, 10],
)
def metadata_cluster_operations(client: ActingClient, world: World, version: int) -> Any:
    request = MetadataRequest(topics=[], include_cluster_authorized_operations=True)
    return client(request, version).cluster_authorized_operations & 1 << DESCRIBE != 0


@case(
    ApiKeys.DESCRIBE_TOPIC_PARTITIONS,
    "by name",
    DESCRIBE_TOPIC,
    denied=[[(TOPIC_DENIED, "topic", False, 0)]],
    allowed=[(OK, "topic", True, 1)],
)
def describe_topic_partitions(client: ActingClient, world: World, version: int) -> Any:
    asked = DescribeTopicPartitionsRequest.Topic(name=world.topic)
    return described_topics(client(DescribeTopicPartitionsRequest(topics=[asked]), version))


@case(ApiKeys.DESCRIBE_TOPIC_PARTITIONS, "all topics", DESCRIBE_TOPIC, denied=[False], allowed=True)
def describe_all_topic_partitions(client: ActingClient, world: World, version: int) -> Any:
    response = client(DescribeTopicPartitionsRequest(topics=[]), version)
    return world.topic in {each.name for each in response.topics}


@case(
    ApiKeys.CREATE_TOPICS,
    "one",
    need((TOPIC, "new_topic", CREATE), (CLUSTER, "cluster", CREATE)),
    denied=[[TOPIC_DENIED]],
    allowed=[OK],
    changes=True,
)
def create_topics(client: ActingClient, world: World, version: int) -> Any:
    topic = CreateTopicsRequest.Topic(
        name=world.new_topic, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    return [each.error_code for each in client(CreateTopicsRequest(topics=[topic]), version).topics]


@case(
    ApiKeys.CREATE_TOPICS,
    "the configuration in the answer",
    need((TOPIC, "new_topic", CREATE)),
    need((TOPIC, "new_topic", DESCRIBE_CONFIGS)),
    denied=[[(TOPIC_DENIED, 0, -1, False)], [(OK, TOPIC_DENIED, -1, False)]],
    allowed=[(OK, 0, 1, True)],
    versions=[5, 6, 7],
    changes=True,
    carried_out=True,
)
def create_topics_with_configs(client: ActingClient, world: World, version: int) -> Any:
    topic = CreateTopicsRequest.Topic(
        name=world.new_topic, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    response = client(CreateTopicsRequest(topics=[topic]), version)
    return [
        (each.error_code, each.topic_config_error_code, each.num_partitions, bool(each.configs))
        for each in response.topics
    ]


@case(
    ApiKeys.CREATE_PARTITIONS,
    "one more",
    need((TOPIC, "topic", ALTER)),
    denied=[[TOPIC_DENIED]],
    allowed=[OK],
    changes=True,
)
def create_partitions(client: ActingClient, world: World, version: int) -> Any:
    topic = CreatePartitionsRequest.Topic(name=world.topic, count=2, assignments=None)
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=10_000, validate_only=False)
    return [each.error_code for each in client(request, version).results]


@case(
    ApiKeys.DELETE_TOPICS,
    "by name",
    need((TOPIC, "topic", DELETE)),
    denied=[[(TOPIC_DENIED, True)]],
    allowed=[(OK, True)],
    changes=True,
)
def delete_topics(client: ActingClient, world: World, version: int) -> Any:
    if version >= 6:
        named = [DeleteTopicsRequest.Topic(name=world.topic, topic_id=ZERO_UUID)]
        request = DeleteTopicsRequest(topics=named, timeout_ms=10_000)
    else:
        request = DeleteTopicsRequest(topic_names=[world.topic], timeout_ms=10_000)
    return [(each.error_code, each.name == world.topic) for each in client(request, version).responses]


@case(
    ApiKeys.DELETE_TOPICS,
    "by id",
    need((TOPIC, "topic", DESCRIBE)),
    need((TOPIC, "topic", DELETE)),
    # Who may delete may describe, so that only a deny takes the first need away.
    denied=[[(TOPIC_DENIED, None)], [(TOPIC_DENIED, "topic")]],
    allowed=[(OK, "topic")],
    versions=[6],
    changes=True,
)
def delete_topics_by_id(client: ActingClient, world: World, version: int) -> Any:
    request = DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(topic_id=world.topic_id)], timeout_ms=10_000)
    return [(each.error_code, each.name and each.name.partition("-")[0]) for each in client(request, version).responses]


@case(
    ApiKeys.DELETE_RECORDS, "all", need((TOPIC, "topic", DELETE)), denied=[[TOPIC_DENIED]], allowed=[OK], changes=True
)
def delete_records(client: ActingClient, world: World, version: int) -> Any:
    part = DeleteRecordsRequest.Topic.Partition(partition_index=0, offset=-1)
    topic = DeleteRecordsRequest.Topic(name=world.topic, partitions=[part])
    response = client(DeleteRecordsRequest(topics=[topic], timeout_ms=10_000), version)
    return [each.error_code for each in response.topics[0].partitions]


@case(
    ApiKeys.OFFSET_FOR_LEADER_EPOCH,
    "of a client",
    need((CLUSTER, "cluster", CLUSTER_ACTION), (TOPIC, "topic", DESCRIBE)),
    denied=[[TOPIC_DENIED]],
    allowed=[OK],
)
def offset_for_leader_epoch(client: ActingClient, world: World, version: int) -> Any:
    part = OffsetForLeaderEpochRequest.Topic.Partition(partition=0, leader_epoch=0)
    topic = OffsetForLeaderEpochRequest.Topic(topic=world.topic, partitions=[part])
    return [
        each.error_code for each in client(OffsetForLeaderEpochRequest(topics=[topic]), version).topics[0].partitions
    ]


@case(ApiKeys.DESCRIBE_PRODUCERS, "of a topic", READ_TOPIC, denied=[[TOPIC_DENIED]], allowed=[OK])
def describe_producers(client: ActingClient, world: World, version: int) -> Any:
    topic = DescribeProducersRequest.Topic(name=world.topic, partition_indexes=[0])
    return [each.error_code for each in client(DescribeProducersRequest(topics=[topic]), version).topics[0].partitions]
