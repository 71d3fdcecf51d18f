"""The ACL matrix: share groups, and the state of their partitions (see acl_matrix.py)."""

from __future__ import annotations

from typing import Any

from broker.acl_case import (
    CLUSTER_ACTION,
    CLUSTER_DENIED,
    DELETE,
    DESCRIBE_GROUP,
    DESCRIBE_TOPIC,
    GROUP,
    GROUP_DENIED,
    OK,
    READ,
    READ_GROUP,
    READ_TOPIC,
    TOPIC_DENIED,
    World,
    case,
    need,
    on_cluster,
)
from broker.acting import ActingClient

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from kafkapy.protocol.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from kafkapy.protocol.messages.delete_share_group_state import DeleteShareGroupStateRequest
from kafkapy.protocol.messages.describe_share_group_offsets import DescribeShareGroupOffsetsRequest
from kafkapy.protocol.messages.initialize_share_group_state import InitializeShareGroupStateRequest
from kafkapy.protocol.messages.read_share_group_state import ReadShareGroupStateRequest
from kafkapy.protocol.messages.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
from kafkapy.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from kafkapy.protocol.messages.share_fetch import ShareFetchRequest
from kafkapy.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from kafkapy.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from kafkapy.protocol.messages.write_share_group_state import WriteShareGroupStateRequest
from kafkapy.protocol.registry import ApiKeys

NOT_FOUND = 69

# --- members and offsets ----------------------------------------------------------------------------------------------


@case(
    ApiKeys.SHARE_GROUP_HEARTBEAT,
    "a member",
    READ_GROUP,
    DESCRIBE_TOPIC,
    denied=[GROUP_DENIED, TOPIC_DENIED],
    allowed=NOT_FOUND,  # it is a classic group
)
def share_group_heartbeat(client: ActingClient, world: World, version: int) -> Any:
    request = ShareGroupHeartbeatRequest(
        group_id=world.group, member_id="nobody", member_epoch=7, subscribed_topic_names=[world.topic]
    )
    return client(request, version).error_code


@case(
    ApiKeys.SHARE_GROUP_DESCRIBE,
    "one",
    DESCRIBE_GROUP,
    denied=[[GROUP_DENIED]],
    allowed=[NOT_FOUND],  # it is a classic group
)
def share_group_describe(client: ActingClient, world: World, version: int) -> Any:
    request = ShareGroupDescribeRequest(group_ids=[world.group], include_authorized_operations=False)
    return [each.error_code for each in client(request, version).groups]


@case(
    ApiKeys.DESCRIBE_SHARE_GROUP_OFFSETS,
    "one",
    DESCRIBE_GROUP,
    DESCRIBE_TOPIC,
    denied=[(GROUP_DENIED, []), (OK, [TOPIC_DENIED])],
    allowed=(OK, [OK]),
)
def describe_share_group_offsets(client: ActingClient, world: World, version: int) -> Any:
    asked = DescribeShareGroupOffsetsRequest.Group
    group = asked(group_id=world.group, topics=[asked.Topic(topic_name=world.topic, partitions=[0])])
    [found] = client(DescribeShareGroupOffsetsRequest(groups=[group]), version).groups
    return found.error_code, [each.error_code for topic in found.topics for each in topic.partitions]


@case(
    ApiKeys.ALTER_SHARE_GROUP_OFFSETS,
    "of a new group",
    need((GROUP, "new_group", READ)),
    READ_TOPIC,
    denied=[(GROUP_DENIED, []), (OK, [TOPIC_DENIED])],
    allowed=(OK, [OK]),
    changes=True,
)
def alter_share_group_offsets(client: ActingClient, world: World, version: int) -> Any:
    made = AlterShareGroupOffsetsRequest.Topic
    topic = made(topic_name=world.topic, partitions=[made.Partition(partition_index=0, start_offset=0)])
    response = client(AlterShareGroupOffsetsRequest(group_id=world.new_group, topics=[topic]), version)
    errors = [each.error_code for topic in response.responses for each in topic.partitions]
    # Once the state is loaded, the offset is acquired or below the start.
    return response.error_code, [OK if error == ErrorCode.INVALID_RECORD_STATE else error for error in errors]


@case(
    ApiKeys.DELETE_SHARE_GROUP_OFFSETS,
    "one",
    need((GROUP, "group", DELETE)),
    READ_TOPIC,
    denied=[(GROUP_DENIED, []), (OK, [TOPIC_DENIED])],
    allowed=(NOT_FOUND, []),  # it is a classic group
)
def delete_share_group_offsets(client: ActingClient, world: World, version: int) -> Any:
    topic = DeleteShareGroupOffsetsRequest.Topic(topic_name=world.topic)
    response = client(DeleteShareGroupOffsetsRequest(group_id=world.group, topics=[topic]), version)
    return response.error_code, [each.error_code for each in response.responses]


# --- the state of share-partitions, which only brokers read and write -------------------------------------------------


def outcome(client: ActingClient, world: World, version: int, kind: Any, **fields: Any) -> list[int]:
    topic = kind.Topic(topic_id=world.topic_id, partitions=[kind.Topic.Partition(partition=0, **fields)])
    response = client(kind(group_id=world.group, topics=[topic]), version)
    return [each.error_code for result in response.results for each in result.partitions]


def state_case(key: ApiKeys, *, changes: bool = False) -> Any:
    return case(key, "one", on_cluster(CLUSTER_ACTION), denied=[[CLUSTER_DENIED]], allowed=[OK], changes=changes)


@state_case(ApiKeys.INITIALIZE_SHARE_GROUP_STATE)
def initialize_share_group_state(client: ActingClient, world: World, version: int) -> Any:
    return outcome(client, world, version, InitializeShareGroupStateRequest, state_epoch=0, start_offset=0)


@state_case(ApiKeys.READ_SHARE_GROUP_STATE)
def read_share_group_state(client: ActingClient, world: World, version: int) -> Any:
    return outcome(client, world, version, ReadShareGroupStateRequest, leader_epoch=0)


@state_case(ApiKeys.WRITE_SHARE_GROUP_STATE)
def write_share_group_state(client: ActingClient, world: World, version: int) -> Any:
    return outcome(client, world, version, WriteShareGroupStateRequest, state_epoch=0, leader_epoch=0, start_offset=0)


@state_case(ApiKeys.DELETE_SHARE_GROUP_STATE, changes=True)
def delete_share_group_state(client: ActingClient, world: World, version: int) -> Any:
    return outcome(client, world, version, DeleteShareGroupStateRequest)


@state_case(ApiKeys.READ_SHARE_GROUP_STATE_SUMMARY)
def read_share_group_state_summary(client: ActingClient, world: World, version: int) -> Any:
    return outcome(client, world, version, ReadShareGroupStateSummaryRequest, leader_epoch=-1)


# --- records of share-partitions --------------------------------------------------------------------------------------


def share_fetch_response(client: ActingClient, world: World, version: int) -> Any:
    """The answer to a first ShareFetch, which waits for nothing."""
    topic = ShareFetchRequest.Topic(
        topic_id=world.topic_id,
        partitions=[ShareFetchRequest.Topic.Partition(partition_index=0, acknowledgement_batches=[])],
    )
    request = ShareFetchRequest(
        group_id=world.group,
        member_id="a-member",
        share_session_epoch=0,
        max_wait_ms=0,
        min_bytes=1,
        max_records=1,
        batch_size=1,
        topics=[topic],
        forgotten_topics_data=[],
    )
    return client(request, version)


@case(
    ApiKeys.SHARE_FETCH,
    "one",
    READ_GROUP,
    READ_TOPIC,
    denied=[(GROUP_DENIED, []), (OK, [TOPIC_DENIED])],
    allowed=(OK, []),
)
def share_fetch(client: ActingClient, world: World, version: int) -> Any:
    response = share_fetch_response(client, world, version)
    errors = [each.error_code for topic in response.responses for each in topic.partitions]
    return response.error_code, [error for error in errors if error]  # it has records once the state is loaded


@case(
    ApiKeys.SHARE_ACKNOWLEDGE,
    "one record",
    READ_GROUP,
    READ_TOPIC,
    denied=[(GROUP_DENIED, []), (OK, [TOPIC_DENIED])],
    allowed=(OK, [OK]),
)
def share_acknowledge(client: ActingClient, world: World, version: int) -> Any:
    share_fetch_response(client, world, version)
    made = ShareAcknowledgeRequest.Topic.Partition
    accepted = made.AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=[1])
    entry = made(partition_index=0, acknowledgement_batches=[accepted])
    topic = ShareAcknowledgeRequest.Topic(topic_id=world.topic_id, partitions=[entry])
    request = ShareAcknowledgeRequest(group_id=world.group, member_id="a-member", share_session_epoch=1, topics=[topic])
    response = client(request, version)
    errors = [each.error_code for topic in response.responses for each in topic.partitions]
    # Once the state is loaded, the offset is acquired or below the start.
    return response.error_code, [OK if error == ErrorCode.INVALID_RECORD_STATE else error for error in errors]
