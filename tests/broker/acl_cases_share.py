"""The ACL matrix: the state of share-partitions, which only brokers read and write (see acl_matrix.py)."""

from __future__ import annotations

from typing import Any

from broker.acl_case import CLUSTER_ACTION, CLUSTER_DENIED, OK, World, case, on_cluster
from broker.acting import ActingClient

from kafkapy.protocol.messages.delete_share_group_state import DeleteShareGroupStateRequest
from kafkapy.protocol.messages.initialize_share_group_state import InitializeShareGroupStateRequest
from kafkapy.protocol.messages.read_share_group_state import ReadShareGroupStateRequest
from kafkapy.protocol.messages.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
from kafkapy.protocol.messages.write_share_group_state import WriteShareGroupStateRequest
from kafkapy.protocol.registry import ApiKeys


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
