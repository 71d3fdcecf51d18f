"""The ACL matrix: groups and transactions (see acl_matrix.py)."""

from __future__ import annotations

from typing import Any

from broker.acl_case import (
    ALTER,
    CLUSTER,
    CLUSTER_ACTION,
    CLUSTER_DENIED,
    DELETE,
    DESCRIBE,
    DESCRIBE_GROUP,
    DESCRIBE_TOPIC,
    DESCRIBE_TXN,
    GROUP,
    GROUP_DENIED,
    IDEMPOTENT_WRITE,
    OK,
    READ_GROUP,
    READ_TOPIC,
    TOPIC,
    TOPIC_DENIED,
    TXN_DENIED,
    UNKNOWN_MEMBER,
    WRITE,
    WRITE_TOPIC,
    WRITE_TXN,
    World,
    case,
    need,
    on_cluster,
)
from broker.acting import ActingClient

from kafkapy.coordinator.share.state import ShareKey
from kafkapy.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kafkapy.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kafkapy.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kafkapy.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kafkapy.protocol.messages.delete_groups import DeleteGroupsRequest
from kafkapy.protocol.messages.describe_groups import DescribeGroupsRequest
from kafkapy.protocol.messages.describe_transactions import DescribeTransactionsRequest
from kafkapy.protocol.messages.end_txn import EndTxnRequest
from kafkapy.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkapy.protocol.messages.heartbeat import HeartbeatRequest
from kafkapy.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkapy.protocol.messages.join_group import JoinGroupRequest
from kafkapy.protocol.messages.leave_group import LeaveGroupRequest
from kafkapy.protocol.messages.list_groups import ListGroupsRequest
from kafkapy.protocol.messages.list_transactions import ListTransactionsRequest
from kafkapy.protocol.messages.offset_commit import OffsetCommitRequest
from kafkapy.protocol.messages.offset_delete import OffsetDeleteRequest
from kafkapy.protocol.messages.offset_fetch import OffsetFetchRequest
from kafkapy.protocol.messages.sync_group import SyncGroupRequest
from kafkapy.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from kafkapy.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from kafkapy.protocol.registry import ApiKeys

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
    allowed=[OK],
    versions=[6],
)
def find_share_coordinator(client: ActingClient, world: World, version: int) -> Any:
    return coordinator(client, version, ShareKey(world.group, world.topic_id, 0).text, 2)


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
