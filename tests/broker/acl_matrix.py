"""The permissions that each served API needs, and its answers without them: a table of Apache Kafka's behaviour.

Each case sends one request. `needs` are the permissions, all of them; a need with several entries is met by any of
them. `denied` has the answer without the need at the same place, `allowed` the answer with all of them. Answers are
error codes in the order of the request, and where the error codes do not tell enough, what the client sees.
Source: section 4 of the reference on security, made from kafka.server.KafkaApis of 3.9 and 4.x; not this broker's code.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from broker.acting import ANY_FILTER, ActingClient, binding, creation
from waiting import wait_until

from kafkapy.broker.handlers import SERVED
from kafkapy.errors import ErrorCode
from kafkapy.network.api_table import DATA_PLANE_APIS
from kafkapy.protocol.header import encode_request
from kafkapy.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kafkapy.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kafkapy.protocol.messages.alter_configs import AlterConfigsRequest
from kafkapy.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from kafkapy.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from kafkapy.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from kafkapy.protocol.messages.api_versions import ApiVersionsRequest
from kafkapy.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kafkapy.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kafkapy.protocol.messages.create_acls import CreateAclsRequest
from kafkapy.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from kafkapy.protocol.messages.create_partitions import CreatePartitionsRequest
from kafkapy.protocol.messages.create_topics import CreateTopicsRequest
from kafkapy.protocol.messages.delete_acls import DeleteAclsRequest
from kafkapy.protocol.messages.delete_groups import DeleteGroupsRequest
from kafkapy.protocol.messages.delete_records import DeleteRecordsRequest
from kafkapy.protocol.messages.delete_topics import DeleteTopicsRequest
from kafkapy.protocol.messages.describe_acls import DescribeAclsRequest
from kafkapy.protocol.messages.describe_cluster import DescribeClusterRequest
from kafkapy.protocol.messages.describe_configs import DescribeConfigsRequest
from kafkapy.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from kafkapy.protocol.messages.describe_groups import DescribeGroupsRequest
from kafkapy.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from kafkapy.protocol.messages.describe_producers import DescribeProducersRequest
from kafkapy.protocol.messages.describe_quorum import DescribeQuorumRequest
from kafkapy.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from kafkapy.protocol.messages.describe_transactions import DescribeTransactionsRequest
from kafkapy.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from kafkapy.protocol.messages.elect_leaders import ElectLeadersRequest
from kafkapy.protocol.messages.end_txn import EndTxnRequest
from kafkapy.protocol.messages.fetch import FetchRequest
from kafkapy.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkapy.protocol.messages.heartbeat import HeartbeatRequest
from kafkapy.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kafkapy.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkapy.protocol.messages.join_group import JoinGroupRequest
from kafkapy.protocol.messages.leave_group import LeaveGroupRequest
from kafkapy.protocol.messages.list_config_resources import ListConfigResourcesRequest
from kafkapy.protocol.messages.list_groups import ListGroupsRequest
from kafkapy.protocol.messages.list_offsets import ListOffsetsRequest
from kafkapy.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from kafkapy.protocol.messages.list_transactions import ListTransactionsRequest
from kafkapy.protocol.messages.metadata import MetadataRequest
from kafkapy.protocol.messages.offset_commit import OffsetCommitRequest
from kafkapy.protocol.messages.offset_delete import OffsetDeleteRequest
from kafkapy.protocol.messages.offset_fetch import OffsetFetchRequest
from kafkapy.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kafkapy.protocol.messages.produce import ProduceRequest
from kafkapy.protocol.messages.sync_group import SyncGroupRequest
from kafkapy.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from kafkapy.protocol.messages.unregister_broker import UnregisterBrokerRequest
from kafkapy.protocol.messages.update_features import UpdateFeaturesRequest
from kafkapy.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from kafkapy.protocol.registry import ApiKeys
from kafkapy.protocol.schema import ZERO_UUID
from kafkapy.records.batches import RecordBatchBuilder
from kafkapy.types import AclOperation, CompressionType, ResourceType

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TXN, USER, TOKEN = ResourceType.TRANSACTIONAL_ID, ResourceType.USER, ResourceType.DELEGATION_TOKEN
READ, WRITE, CREATE, DELETE, ALTER = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DELETE,
    AclOperation.ALTER,
)
DESCRIBE, CLUSTER_ACTION = AclOperation.DESCRIBE, AclOperation.CLUSTER_ACTION
DESCRIBE_CONFIGS, ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS
IDEMPOTENT_WRITE = AclOperation.IDEMPOTENT_WRITE

OK = 0
TOPIC_DENIED, GROUP_DENIED, CLUSTER_DENIED, TXN_DENIED = 29, 30, 31, 53
UNKNOWN_TOPIC, UNKNOWN_MEMBER, NOT_ATTEMPTED = 3, 25, 55
NO_OPERATIONS = -(2**31)

_numbers = itertools.count(1)


class World:
    """What a case acts on: a topic with one record, a group with one offset, a transactional id, new names."""

    def __init__(self, admin: ActingClient) -> None:
        number = f"{next(_numbers):04d}"
        self.topic, self.new_topic = f"topic-{number}", f"new-{number}"
        self.group, self.txn, self.cluster = f"group-{number}", f"txn-{number}", "kafka-cluster"
        self.topic_id: UUID = admin.create_topic(self.topic)
        wait_until(lambda: admin.append(self.topic) == ErrorCode.NONE, "the topic takes records")
        admin.coordinate(self.group)
        assert offset_commit(admin, self, 8) == [OK]
        admin.coordinate_transactions(self.txn)
        begun: list[Any] = []

        def has_begun() -> bool:
            asked = InitProducerIdRequest(transactional_id=self.txn, transaction_timeout_ms=900_000)
            begun[:] = [admin(asked, 4)]
            return bool(begun[0].error_code == OK)

        wait_until(has_begun, "the transactional id has a producer")
        self.producer = {"producer_id": begun[0].producer_id, "producer_epoch": begun[0].producer_epoch}
        self.owner = f"User:owner-{number}"
        request = CreateDelegationTokenRequest(
            owner_principal_type="User", owner_principal_name=self.owner[5:], renewers=[], max_lifetime_ms=-1
        )
        self.token: str = admin(request, 3).token_id

    def name(self, resource: str) -> str:
        """The name behind a permission's "topic", "new_topic", "group", "txn", "cluster", "owner" or "token"."""
        found: str = getattr(self, resource)
        return found


class Permission(NamedTuple):
    resource_type: ResourceType
    resource: str
    operation: AclOperation


Ask = Callable[[ActingClient, World, int], Any]


class Case(NamedTuple):
    key: int
    label: str
    needs: Sequence[Sequence[Permission]]
    denied: Sequence[Any]
    allowed: Any
    versions: Sequence[int]
    changes: bool
    carried_out: bool
    ask: Ask


CASES: list[Case] = []


def need(*entries: tuple[ResourceType, str, AclOperation]) -> list[Permission]:
    return [Permission(*each) for each in entries]


def case(
    key: ApiKeys,
    label: str,
    *needs: list[Permission],
    denied: Sequence[Any],
    allowed: Any,
    versions: Sequence[int] | None = None,
    changes: bool = False,
    carried_out: bool = False,
) -> Callable[[Ask], Ask]:
    """`changes`: the request uses its world up when it succeeds.

    `carried_out`: without the last need it is carried out, and the answer leaves something out.
    """
    served = SERVED.get(key) or DATA_PLANE_APIS[key]
    every = range(served.low, served.high + 1)

    def register(ask: Ask) -> Ask:
        chosen = every if versions is None else [each for each in versions if each in every]
        CASES.append(Case(key, f"{key.name}: {label}", needs, denied, allowed, chosen, changes, carried_out, ask))
        return ask

    return register


READ_TOPIC = need((TOPIC, "topic", READ))
WRITE_TOPIC = need((TOPIC, "topic", WRITE))
DESCRIBE_TOPIC = need((TOPIC, "topic", DESCRIBE))
READ_GROUP, DESCRIBE_GROUP = need((GROUP, "group", READ)), need((GROUP, "group", DESCRIBE))
WRITE_TXN, DESCRIBE_TXN = need((TXN, "txn", WRITE)), need((TXN, "txn", DESCRIBE))


def on_cluster(*operations: AclOperation) -> list[Permission]:
    return need(*((CLUSTER, "cluster", each) for each in operations))


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


# --- groups -------------------------------------------------------------------------------------------------------


@case(
    ApiKeys.OFFSET_COMMIT,
    "one",
    READ_GROUP,
    READ_TOPIC,
    denied=[[GROUP_DENIED], [TOPIC_DENIED]],
    allowed=[OK],
)
def offset_commit(client: ActingClient, world: World, version: int) -> Any:
    part = OffsetCommitRequest.Topic.Partition(partition_index=0, committed_offset=1, committed_metadata="m")
    named: dict[str, Any] = {"topic_id": world.topic_id} if version >= 10 else {"name": world.topic}
    topic = OffsetCommitRequest.Topic(partitions=[part], **named)
    response = client(OffsetCommitRequest(group_id=world.group, topics=[topic]), version)
    return [each.error_code for each in response.topics[0].partitions]


def fetched_offsets(version: int, response: Any, world: World) -> tuple[int, list[tuple[int, int]]]:
    """The group's error, and (error, offset) of the world's topic."""
    answer = response.groups[0] if version >= 8 else response
    group_error = answer.error_code
    topics = [
        each
        for each in answer.topics
        if (each.topic_id == world.topic_id if version >= 10 else each.name == world.topic)
    ]
    parts = [(each.error_code, each.committed_offset) for topic in topics for each in topic.partitions]
    return group_error, parts


def offset_fetch_request(world: World, version: int, everything: bool) -> OffsetFetchRequest:
    if version >= 8:
        named: dict[str, Any] = {"topic_id": world.topic_id} if version >= 10 else {"name": world.topic}
        topics = [OffsetFetchRequest.Group.Topic(partition_indexes=[0], **named)]
        group = OffsetFetchRequest.Group(group_id=world.group, topics=None if everything else topics)
        return OffsetFetchRequest(groups=[group])
    old = [OffsetFetchRequest.Topic(name=world.topic, partition_indexes=[0])]
    return OffsetFetchRequest(group_id=world.group, topics=None if everything else old)


@case(
    ApiKeys.OFFSET_FETCH,
    "of a topic",
    DESCRIBE_GROUP,
    DESCRIBE_TOPIC,
    denied=[(GROUP_DENIED, []), (OK, [(TOPIC_DENIED, -1)])],
    allowed=(OK, [(OK, 1)]),
    versions=range(2, 11),
)
def offset_fetch(client: ActingClient, world: World, version: int) -> Any:
    return fetched_offsets(version, client(offset_fetch_request(world, version, False), version), world)


@case(
    ApiKeys.OFFSET_FETCH,
    "of a topic, old versions",
    DESCRIBE_GROUP,
    DESCRIBE_TOPIC,
    denied=[[(GROUP_DENIED, -1)], [(TOPIC_DENIED, -1)]],
    allowed=[(OK, 1)],
    versions=[1],
)
def offset_fetch_old(client: ActingClient, world: World, version: int) -> Any:
    return fetched_offsets(version, client(offset_fetch_request(world, version, False), version), world)[1]


@case(
    ApiKeys.OFFSET_FETCH,
    "of all topics",
    DESCRIBE_GROUP,
    DESCRIBE_TOPIC,
    denied=[(GROUP_DENIED, []), (OK, [])],
    allowed=(OK, [(OK, 1)]),
    versions=range(2, 11),
)
def offset_fetch_all(client: ActingClient, world: World, version: int) -> Any:
    return fetched_offsets(version, client(offset_fetch_request(world, version, True), version), world)


def coordinator(client: ActingClient, version: int, key: str, key_type: int) -> list[int]:
    if version >= 4:
        response = client(FindCoordinatorRequest(coordinator_keys=[key], key_type=key_type), version)
        return [each.error_code for each in response.coordinators]
    request = FindCoordinatorRequest(key=key, key_type=key_type) if version else FindCoordinatorRequest(key=key)
    return [client(request, version).error_code]


@case(ApiKeys.FIND_COORDINATOR, "of a group", DESCRIBE_GROUP, denied=[[GROUP_DENIED]], allowed=[OK])
def find_group_coordinator(client: ActingClient, world: World, version: int) -> Any:
    return coordinator(client, version, world.group, 0)


@case(
    ApiKeys.FIND_COORDINATOR,
    "of a transactional id",
    DESCRIBE_TXN,
    denied=[[TXN_DENIED]],
    allowed=[OK],
    versions=range(1, 7),
)
def find_transaction_coordinator(client: ActingClient, world: World, version: int) -> Any:
    return coordinator(client, version, world.txn, 1)


@case(
    ApiKeys.FIND_COORDINATOR,
    "of a share partition",
    on_cluster(CLUSTER_ACTION),
    denied=[[CLUSTER_DENIED]],
    allowed=[42],  # INVALID_REQUEST: there are no share groups
    versions=[6],
)
def find_share_coordinator(client: ActingClient, world: World, version: int) -> Any:
    return coordinator(client, version, f"{world.group}:{world.topic_id}:0", 2)


@case(ApiKeys.JOIN_GROUP, "a new member", READ_GROUP, denied=[GROUP_DENIED], allowed=UNKNOWN_MEMBER)
def join_group(client: ActingClient, world: World, version: int) -> Any:
    request = JoinGroupRequest(
        group_id=world.group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id="nobody",
        protocol_type="consumer",
        protocols=[JoinGroupRequest.Protocol(name="range", metadata=b"")],
    )
    return client(request, version).error_code


@case(ApiKeys.SYNC_GROUP, "a member", READ_GROUP, denied=[GROUP_DENIED], allowed=UNKNOWN_MEMBER)
def sync_group(client: ActingClient, world: World, version: int) -> Any:
    named = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
    request = SyncGroupRequest(group_id=world.group, generation_id=1, member_id="nobody", assignments=[], **named)
    return client(request, version).error_code


@case(ApiKeys.HEARTBEAT, "a member", READ_GROUP, denied=[GROUP_DENIED], allowed=UNKNOWN_MEMBER)
def heartbeat(client: ActingClient, world: World, version: int) -> Any:
    request = HeartbeatRequest(group_id=world.group, generation_id=1, member_id="nobody")
    return client(request, version).error_code


@case(ApiKeys.LEAVE_GROUP, "a member", READ_GROUP, denied=[(GROUP_DENIED, [])], allowed=(OK, [UNKNOWN_MEMBER]))
def leave_group(client: ActingClient, world: World, version: int) -> Any:
    if version < 3:
        error = client(LeaveGroupRequest(group_id=world.group, member_id="nobody"), version).error_code
        return (OK, [error]) if error == UNKNOWN_MEMBER else (error, [])
    request = LeaveGroupRequest(group_id=world.group, members=[LeaveGroupRequest.Member(member_id="nobody")])
    response = client(request, version)
    return response.error_code, [each.error_code for each in response.members]


@case(
    ApiKeys.CONSUMER_GROUP_HEARTBEAT,
    "a member",
    READ_GROUP,
    DESCRIBE_TOPIC,
    denied=[GROUP_DENIED, TOPIC_DENIED],
    allowed=69,  # GROUP_ID_NOT_FOUND: it is a classic group
)
def consumer_group_heartbeat(client: ActingClient, world: World, version: int) -> Any:
    request = ConsumerGroupHeartbeatRequest(
        group_id=world.group,
        member_id="nobody",
        member_epoch=7,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=[world.topic],
        topic_partitions=[],
    )
    return client(request, version).error_code


@case(ApiKeys.DESCRIBE_GROUPS, "one", DESCRIBE_GROUP, denied=[[(GROUP_DENIED, "")]], allowed=[(OK, "Empty")])
def describe_groups(client: ActingClient, world: World, version: int) -> Any:
    response = client(DescribeGroupsRequest(groups=[world.group]), version)
    return [(each.error_code, each.group_state) for each in response.groups]


@case(
    ApiKeys.CONSUMER_GROUP_DESCRIBE,
    "one",
    DESCRIBE_GROUP,
    denied=[[GROUP_DENIED]],
    allowed=[69],  # GROUP_ID_NOT_FOUND: it is a classic group
)
def consumer_group_describe(client: ActingClient, world: World, version: int) -> Any:
    request = ConsumerGroupDescribeRequest(group_ids=[world.group], include_authorized_operations=False)
    return [each.error_code for each in client(request, version).groups]


@case(
    ApiKeys.LIST_GROUPS,
    "all",
    need((CLUSTER, "cluster", DESCRIBE), (GROUP, "group", DESCRIBE)),
    denied=[False],
    allowed=True,
)
def list_groups(client: ActingClient, world: World, version: int) -> Any:
    response = client(ListGroupsRequest(), version)
    assert response.error_code == OK
    return world.group in {each.group_id for each in response.groups}


@case(
    ApiKeys.DELETE_GROUPS,
    "one",
    need((GROUP, "group", DELETE)),
    denied=[[GROUP_DENIED]],
    allowed=[OK],
    changes=True,
)
def delete_groups(client: ActingClient, world: World, version: int) -> Any:
    return [each.error_code for each in client(DeleteGroupsRequest(groups_names=[world.group]), version).results]


@case(
    ApiKeys.OFFSET_DELETE,
    "one",
    need((GROUP, "group", DELETE)),
    READ_TOPIC,
    denied=[(GROUP_DENIED, []), (OK, [TOPIC_DENIED])],
    allowed=(OK, [OK]),
    changes=True,
)
def offset_delete(client: ActingClient, world: World, version: int) -> Any:
    part = OffsetDeleteRequest.Topic.Partition(partition_index=0)
    topic = OffsetDeleteRequest.Topic(name=world.topic, partitions=[part])
    response = client(OffsetDeleteRequest(group_id=world.group, topics=[topic]), version)
    return response.error_code, [each.error_code for topic in response.topics for each in topic.partitions]


# --- transactions -------------------------------------------------------------------------------------------------


@case(ApiKeys.INIT_PRODUCER_ID, "transactional", WRITE_TXN, denied=[(TXN_DENIED, -1)], allowed=(OK, 0), changes=True)
def init_producer_id(client: ActingClient, world: World, version: int) -> Any:
    request = InitProducerIdRequest(transactional_id=world.txn, transaction_timeout_ms=900_000)
    response = client(request, version)
    return response.error_code, min(response.producer_id, 0)


@case(
    ApiKeys.INIT_PRODUCER_ID,
    "idempotent",
    need((CLUSTER, "cluster", IDEMPOTENT_WRITE), (TOPIC, "topic", WRITE)),
    denied=[(CLUSTER_DENIED, -1)],
    allowed=(OK, 0),
)
def init_idempotent_producer(client: ActingClient, world: World, version: int) -> Any:
    response = client(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=900_000), version)
    return response.error_code, min(response.producer_id, 0)


@case(
    ApiKeys.ADD_PARTITIONS_TO_TXN,
    "of a client",
    WRITE_TXN,
    WRITE_TOPIC,
    denied=[[TXN_DENIED], [TOPIC_DENIED]],
    allowed=[OK],
    versions=range(4),
    changes=True,
)
def add_partitions_to_txn(client: ActingClient, world: World, version: int) -> Any:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=world.txn,
        v3_and_below_producer_id=world.producer["producer_id"],
        v3_and_below_producer_epoch=world.producer["producer_epoch"],
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=world.topic, partitions=[0])],
    )
    topics = client(request, version).results_by_topic_v3_and_below
    return [each.partition_error_code for topic in topics for each in topic.results_by_partition]


@case(
    ApiKeys.ADD_PARTITIONS_TO_TXN,
    "of a broker",
    on_cluster(CLUSTER_ACTION),
    denied=[(CLUSTER_DENIED, [])],
    allowed=(OK, [OK]),
    versions=[4, 5],
    changes=True,
)
def add_partitions_of_broker(client: ActingClient, world: World, version: int) -> Any:
    transaction = AddPartitionsToTxnRequest.Transaction(
        transactional_id=world.txn,
        verify_only=False,
        topics=[AddPartitionsToTxnTopic(name=world.topic, partitions=[0])],
        **world.producer,
    )
    response = client(AddPartitionsToTxnRequest(transactions=[transaction]), version)
    return response.error_code, [
        each.partition_error_code
        for result in response.results_by_transaction
        for topic in result.topic_results
        for each in topic.results_by_partition
    ]


@case(
    ApiKeys.ADD_OFFSETS_TO_TXN,
    "a group",
    WRITE_TXN,
    READ_GROUP,
    denied=[TXN_DENIED, GROUP_DENIED],
    allowed=OK,
    changes=True,
)
def add_offsets_to_txn(client: ActingClient, world: World, version: int) -> Any:
    request = AddOffsetsToTxnRequest(transactional_id=world.txn, group_id=world.group, **world.producer)
    return client(request, version).error_code


@case(
    ApiKeys.END_TXN,
    "an empty one",
    WRITE_TXN,
    denied=[TXN_DENIED],
    allowed=48,  # INVALID_TXN_STATE: it has not begun
    versions=range(5),
)
def end_txn(client: ActingClient, world: World, version: int) -> Any:
    return client(EndTxnRequest(transactional_id=world.txn, committed=True, **world.producer), version).error_code


@case(
    ApiKeys.TXN_OFFSET_COMMIT,
    "one",
    WRITE_TXN,
    READ_GROUP,
    READ_TOPIC,
    denied=[[TXN_DENIED], [GROUP_DENIED], [TOPIC_DENIED]],
    allowed=[48],  # INVALID_TXN_STATE: the group is not in the transaction
    versions=[0, 1, 2, 3],
)
def txn_offset_commit(client: ActingClient, world: World, version: int) -> Any:
    part = TxnOffsetCommitRequest.Topic.Partition(partition_index=0, committed_offset=5, committed_metadata="m")
    topic = TxnOffsetCommitRequest.Topic(name=world.topic, partitions=[part])
    request = TxnOffsetCommitRequest(transactional_id=world.txn, group_id=world.group, topics=[topic], **world.producer)
    return [each.error_code for each in client(request, version).topics[0].partitions]


@case(
    ApiKeys.TXN_OFFSET_COMMIT,
    "one, as a part of the transaction",
    WRITE_TXN,
    READ_GROUP,
    READ_TOPIC,
    denied=[[TXN_DENIED], [GROUP_DENIED], [TOPIC_DENIED]],
    allowed=[OK],
    versions=[5, 6],
    changes=True,
)
def txn_offset_commit_new(client: ActingClient, world: World, version: int) -> Any:
    part = TxnOffsetCommitRequest.Topic.Partition(partition_index=0, committed_offset=5, committed_metadata="m")
    named: dict[str, Any] = {"topic_id": world.topic_id} if version >= 6 else {"name": world.topic}
    topic = TxnOffsetCommitRequest.Topic(partitions=[part], **named)
    request = TxnOffsetCommitRequest(transactional_id=world.txn, group_id=world.group, topics=[topic], **world.producer)
    return [each.error_code for each in client(request, version).topics[0].partitions]


@case(
    ApiKeys.WRITE_TXN_MARKERS,
    "an abort",
    on_cluster(ALTER, CLUSTER_ACTION),
    denied=[[CLUSTER_DENIED]],
    allowed=[OK],
    changes=True,
)
def write_txn_markers(client: ActingClient, world: World, version: int) -> Any:
    marker = WriteTxnMarkersRequest.Marker(
        transaction_result=False,
        topics=[WriteTxnMarkersRequest.Marker.Topic(name=world.topic, partition_indexes=[0])],
        coordinator_epoch=0,
        **world.producer,
    )
    response = client(WriteTxnMarkersRequest(markers=[marker]), version)
    return [each.error_code for topic in response.markers[0].topics for each in topic.partitions]


@case(ApiKeys.DESCRIBE_TRANSACTIONS, "one", DESCRIBE_TXN, denied=[[(TXN_DENIED, "")]], allowed=[(OK, "Empty")])
def describe_transactions(client: ActingClient, world: World, version: int) -> Any:
    response = client(DescribeTransactionsRequest(transactional_ids=[world.txn]), version)
    return [(each.error_code, each.transaction_state) for each in response.transaction_states]


@case(ApiKeys.LIST_TRANSACTIONS, "all", DESCRIBE_TXN, denied=[False], allowed=True)
def list_transactions(client: ActingClient, world: World, version: int) -> Any:
    response = client(ListTransactionsRequest(state_filters=[], producer_id_filters=[]), version)
    assert response.error_code == OK
    return world.txn in {each.transactional_id for each in response.transaction_states}


# --- configuration ------------------------------------------------------------------------------------------------

CONFIG_TOPIC, CONFIG_BROKER, CONFIG_LOGGER, CONFIG_METRICS, CONFIG_GROUP = 2, 4, 8, 16, 32


def describing(kind: int, name: Callable[[World], str]) -> Ask:
    def ask(client: ActingClient, world: World, version: int) -> Any:
        asked = DescribeConfigsRequest.Resource(resource_type=kind, resource_name=name(world), configuration_keys=None)
        response = client(DescribeConfigsRequest(resources=[asked]), version)
        return [(each.error_code, bool(each.configs)) for each in response.results]

    return ask


def altering(kind: int, name: Callable[[World], str], key: str, value: str) -> Ask:
    def ask(client: ActingClient, world: World, version: int) -> Any:
        config = AlterConfigsRequest.Resource.Config(name=key, value=value)
        asked = AlterConfigsRequest.Resource(resource_type=kind, resource_name=name(world), configs=[config])
        response = client(AlterConfigsRequest(resources=[asked], validate_only=False), version)
        return [each.error_code for each in response.responses]

    return ask


def incrementing(kind: int, name: Callable[[World], str], key: str, value: str) -> Ask:
    def ask(client: ActingClient, world: World, version: int) -> Any:
        config = IncrementalAlterConfigsRequest.Resource.Config(name=key, config_operation=0, value=value)
        asked = IncrementalAlterConfigsRequest.Resource(resource_type=kind, resource_name=name(world), configs=[config])
        response = client(IncrementalAlterConfigsRequest(resources=[asked], validate_only=False), version)
        return [each.error_code for each in response.responses]

    return ask


class Configured(NamedTuple):
    label: str
    kind: int
    name: Callable[[World], str]
    resource: tuple[ResourceType, str]
    denied: int
    key: str
    value: str
    answer: int = OK


ON_CLUSTER = (CLUSTER, "cluster")
CONFIGURED = (
    Configured("a topic", CONFIG_TOPIC, lambda w: w.topic, (TOPIC, "topic"), TOPIC_DENIED, "retention.ms", "77777777"),
    Configured("a broker", CONFIG_BROKER, lambda w: "1", ON_CLUSTER, CLUSTER_DENIED, "log.retention.ms", "5555555"),
    Configured("a logger", CONFIG_LOGGER, lambda w: "1", ON_CLUSTER, CLUSTER_DENIED, "kafka.request.logger", "WARN"),
    Configured("client metrics", CONFIG_METRICS, lambda w: "m", ON_CLUSTER, CLUSTER_DENIED, "interval.ms", "1000", 42),
    Configured(
        "a group",
        CONFIG_GROUP,
        lambda w: w.group,
        (GROUP, "group"),
        GROUP_DENIED,
        "consumer.session.timeout.ms",
        "46000",
    ),
)
for each in CONFIGURED:
    case(
        ApiKeys.DESCRIBE_CONFIGS,
        each.label,
        need((*each.resource, DESCRIBE_CONFIGS)),
        denied=[[(each.denied, False)]],
        allowed=[(each.answer, each.answer == OK)],
    )(describing(each.kind, each.name))
    if each.kind != CONFIG_LOGGER:
        case(
            ApiKeys.ALTER_CONFIGS,
            each.label,
            need((*each.resource, ALTER_CONFIGS)),
            denied=[[each.denied]],
            allowed=[each.answer],
            changes=True,
        )(altering(each.kind, each.name, each.key, each.value))
    case(
        ApiKeys.INCREMENTAL_ALTER_CONFIGS,
        each.label,
        need((*each.resource, ALTER_CONFIGS)),
        denied=[[each.denied]],
        allowed=[each.answer],
        changes=True,
    )(incrementing(each.kind, each.name, each.key, each.value))


@case(ApiKeys.LIST_CONFIG_RESOURCES, "all", on_cluster(DESCRIBE_CONFIGS), denied=[(CLUSTER_DENIED, 0)], allowed=(OK, 0))
def list_config_resources(client: ActingClient, world: World, version: int) -> Any:
    response = client(ListConfigResourcesRequest(), version)
    return response.error_code, len(response.config_resources) if response.error_code else 0


# --- cluster ------------------------------------------------------------------------------------------------------


@case(ApiKeys.DESCRIBE_ACLS, "all", on_cluster(DESCRIBE), denied=[(CLUSTER_DENIED, False)], allowed=(OK, True))
def describe_acls(client: ActingClient, world: World, version: int) -> Any:
    every = ANY_FILTER if version else ANY_FILTER | {"pattern_type_filter": 3}
    response = client(DescribeAclsRequest(**every), version)
    return response.error_code, bool(response.resources)


@case(ApiKeys.CREATE_ACLS, "one", on_cluster(ALTER), denied=[[CLUSTER_DENIED]], allowed=[OK], changes=True)
def create_acls(client: ActingClient, world: World, version: int) -> Any:
    entry = creation(binding(TOPIC, world.new_topic, READ, "User:somebody"))
    return [each.error_code for each in client(CreateAclsRequest(creations=[entry]), version).results]


@case(ApiKeys.DELETE_ACLS, "none", on_cluster(ALTER), denied=[[CLUSTER_DENIED]], allowed=[OK])
def delete_acls(client: ActingClient, world: World, version: int) -> Any:
    fields = ANY_FILTER | {"pattern_type_filter": 3, "principal_filter": "User:nobody"}
    request = DeleteAclsRequest(filters=[DeleteAclsRequest.Filter(**fields)])
    return [each.error_code for each in client(request, version).filter_results]


@case(ApiKeys.DESCRIBE_CLUSTER, "operations", on_cluster(DESCRIBE), denied=[(OK, False)], allowed=(OK, True))
def describe_cluster(client: ActingClient, world: World, version: int) -> Any:
    response = client(DescribeClusterRequest(include_cluster_authorized_operations=True), version)
    return response.error_code, response.cluster_authorized_operations & 1 << DESCRIBE != 0


@case(
    ApiKeys.DESCRIBE_LOG_DIRS,
    "all",
    on_cluster(DESCRIBE),
    denied=[(CLUSTER_DENIED, False)],
    allowed=(OK, True),
    versions=range(3, 6),
)
def describe_log_dirs(client: ActingClient, world: World, version: int) -> Any:
    response = client(DescribeLogDirsRequest(topics=None), version)
    return response.error_code, bool(response.results)


@case(
    ApiKeys.DESCRIBE_LOG_DIRS,
    "all, old versions",
    on_cluster(DESCRIBE),
    denied=[False],
    allowed=True,
    versions=range(3),
)
def describe_log_dirs_old(client: ActingClient, world: World, version: int) -> Any:
    return bool(client(DescribeLogDirsRequest(topics=None), version).results)


@case(
    ApiKeys.ALTER_REPLICA_LOG_DIRS,
    "to nowhere",
    on_cluster(ALTER),
    denied=[[CLUSTER_DENIED]],
    allowed=[57],  # LOG_DIR_NOT_FOUND
)
def alter_replica_log_dirs(client: ActingClient, world: World, version: int) -> Any:
    topic = AlterReplicaLogDirsRequest.Dir.Topic(name=world.topic, partitions=[0])
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDirsRequest.Dir(path="/nowhere", topics=[topic])])
    return [each.error_code for each in client(request, version).results[0].partitions]


@case(
    ApiKeys.ELECT_LEADERS,
    "preferred",
    on_cluster(ALTER),
    denied=[(CLUSTER_DENIED, [CLUSTER_DENIED])],
    allowed=(OK, [84]),  # ELECTION_NOT_NEEDED
    versions=[1, 2],
)
def elect_leaders(client: ActingClient, world: World, version: int) -> Any:
    asked = ElectLeadersRequest.TopicPartitions(topic=world.topic, partitions=[0])
    response = client(ElectLeadersRequest(topic_partitions=[asked]), version)
    return response.error_code, [
        each.error_code for topic in response.replica_election_results for each in topic.partition_result
    ]


@case(
    ApiKeys.ELECT_LEADERS,
    "preferred, old version",
    on_cluster(ALTER),
    denied=[[CLUSTER_DENIED]],
    allowed=[84],
    versions=[0],
)
def elect_leaders_old(client: ActingClient, world: World, version: int) -> Any:
    asked = ElectLeadersRequest.TopicPartitions(topic=world.topic, partitions=[0])
    response = client(ElectLeadersRequest(topic_partitions=[asked]), version)
    return [each.error_code for topic in response.replica_election_results for each in topic.partition_result]


@case(
    ApiKeys.ALTER_PARTITION_REASSIGNMENTS,
    "a cancel",
    on_cluster(ALTER),
    denied=[CLUSTER_DENIED],
    allowed=OK,
)
def alter_partition_reassignments(client: ActingClient, world: World, version: int) -> Any:
    part = AlterPartitionReassignmentsRequest.Topic.Partition(partition_index=0, replicas=None)
    topic = AlterPartitionReassignmentsRequest.Topic(name=world.topic, partitions=[part])
    return client(AlterPartitionReassignmentsRequest(topics=[topic]), version).error_code


@case(ApiKeys.LIST_PARTITION_REASSIGNMENTS, "all", on_cluster(DESCRIBE), denied=[CLUSTER_DENIED], allowed=OK)
def list_partition_reassignments(client: ActingClient, world: World, version: int) -> Any:
    return client(ListPartitionReassignmentsRequest(topics=None), version).error_code


@case(
    ApiKeys.UPDATE_FEATURES,
    "an unknown one",
    on_cluster(ALTER),
    denied=[CLUSTER_DENIED],
    allowed="another",
)
def update_features(client: ActingClient, world: World, version: int) -> Any:
    update = UpdateFeaturesRequest.FeatureUpdate(feature="nothing", max_version_level=1)
    response = client(UpdateFeaturesRequest(feature_updates=[update]), version)
    return CLUSTER_DENIED if response.error_code == CLUSTER_DENIED else "another"


@case(ApiKeys.DESCRIBE_QUORUM, "of the metadata", on_cluster(DESCRIBE), denied=[CLUSTER_DENIED], allowed="another")
def describe_quorum(client: ActingClient, world: World, version: int) -> Any:
    part = DescribeQuorumRequest.Topic.Partition(partition_index=0)
    topic = DescribeQuorumRequest.Topic(topic_name="__cluster_metadata", partitions=[part])
    response = client(DescribeQuorumRequest(topics=[topic]), version)
    return CLUSTER_DENIED if response.error_code == CLUSTER_DENIED else "another"


@case(ApiKeys.UNREGISTER_BROKER, "an unknown one", on_cluster(ALTER), denied=[CLUSTER_DENIED], allowed="another")
def unregister_broker(client: ActingClient, world: World, version: int) -> Any:
    response = client(UnregisterBrokerRequest(broker_id=77), version)
    return CLUSTER_DENIED if response.error_code == CLUSTER_DENIED else "another"


@case(
    ApiKeys.DESCRIBE_USER_SCRAM_CREDENTIALS, "all", on_cluster(DESCRIBE), denied=[(CLUSTER_DENIED, 0)], allowed=(OK, 0)
)
def describe_user_scram_credentials(client: ActingClient, world: World, version: int) -> Any:
    response = client(DescribeUserScramCredentialsRequest(users=None), version)
    return response.error_code, len(response.results) if response.error_code else 0


@case(
    ApiKeys.ALTER_USER_SCRAM_CREDENTIALS,
    "a new user",
    on_cluster(ALTER),
    denied=[[CLUSTER_DENIED]],
    allowed=[OK],
    changes=True,
)
def alter_user_scram_credentials(client: ActingClient, world: World, version: int) -> Any:
    user = AlterUserScramCredentialsRequest.Upsertion(
        name=world.topic, mechanism=1, iterations=4096, salt=b"salt", salted_password=b"p" * 32
    )
    response = client(AlterUserScramCredentialsRequest(deletions=[], upsertions=[user]), version)
    return [each.error_code for each in response.results]


# --- delegation tokens --------------------------------------------------------------------------------------------


@case(
    ApiKeys.CREATE_DELEGATION_TOKEN,
    "of another user",
    need((USER, "owner", AclOperation.CREATE_TOKENS)),
    denied=[65],
    allowed=OK,
    versions=[3],
)
def create_delegation_token(client: ActingClient, world: World, version: int) -> Any:
    request = CreateDelegationTokenRequest(
        owner_principal_type="User", owner_principal_name=world.owner.partition(":")[2], renewers=[], max_lifetime_ms=-1
    )
    response = client(request, version)
    assert bool(response.hmac) == (response.error_code == OK)
    return response.error_code


@case(
    ApiKeys.DESCRIBE_DELEGATION_TOKEN,
    "of another user",
    need(
        (ResourceType.USER, "owner", AclOperation.DESCRIBE_TOKENS), (ResourceType.DELEGATION_TOKEN, "token", DESCRIBE)
    ),
    denied=[(OK, False)],
    allowed=(OK, True),
)
def describe_delegation_token(client: ActingClient, world: World, version: int) -> Any:
    response = client(DescribeDelegationTokenRequest(owners=None), version)
    return response.error_code, world.token in {each.token_id for each in response.tokens}


NEED_NOTHING = {
    ApiKeys.API_VERSIONS: "asked before authentication",
    ApiKeys.SASL_HANDSHAKE: "authentication itself",
    ApiKeys.SASL_AUTHENTICATE: "authentication itself",
    ApiKeys.RENEW_DELEGATION_TOKEN: "the token decides: its owner and its renewers renew it",
    ApiKeys.EXPIRE_DELEGATION_TOKEN: "the token decides: its owner and its renewers let it expire",
}
"""Served without a permission, and why."""
