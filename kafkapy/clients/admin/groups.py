"""Groups: list, describe (classic, consumer and share protocol), delete, remove members.

Served by: ListGroups (every broker for the groups it coordinates), DescribeGroups, ConsumerGroupDescribe,
ShareGroupDescribe, DeleteGroups, LeaveGroup (the group's coordinator). Source: the *GroupsHandlers of
org.apache.kafka.clients.admin.internals.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from kafkapy.clients.admin.routing import WRONG_COORDINATOR, AdminRouting, Deadline, raise_first
from kafkapy.clients.admin.shapes import (
    OK,
    as_dict,
    checked,
    error_of,
    error_text,
    error_type,
    member_of,
    operation_names,
)
from kafkapy.errors import ErrorCode, GroupIdNotFoundError, KafkaError, UnsupportedVersionError, error_for
from kafkapy.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kafkapy.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kafkapy.protocol.messages.delete_groups import DeleteGroupsRequest
from kafkapy.protocol.messages.describe_groups import DescribeGroupsRequest
from kafkapy.protocol.messages.leave_group import LeaveGroupRequest
from kafkapy.protocol.messages.list_groups import ListGroupsRequest
from kafkapy.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from kafkapy.protocol.schema import DecodeError, Record
from kafkapy.types import TopicPartition

__all__ = [
    "ConsumerGroupDescription",
    "GroupAdmin",
    "GroupState",
    "GroupType",
    "MemberDescription",
    "MemberToRemove",
]

CONSUMER = "consumer"
"""The protocol type of classic groups whose members are consumers."""
REMOVED = "member was removed by an administrator"
OLDEST_BATCHED_LEAVE = 3
OLDEST_WITH_REASON = 5


class GroupState(StrEnum):
    """The states of groups of all protocols (KIP-518, KIP-848)."""

    UNKNOWN = "Unknown"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    NOT_READY = "NotReady"


class GroupType(StrEnum):
    """The protocols of groups (KIP-848)."""

    UNKNOWN = "Unknown"
    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


@dataclass(frozen=True)
class MemberToRemove:
    """A member to remove from its group.

    By member id, or by group instance id (static members, Kafka 2.3). `reason` goes to the broker's log.
    """

    member_id: str | None = None
    group_instance_id: str | None = None
    reason: str | None = None


class MemberDescription(NamedTuple):
    """A member of a group of consumers.

    Fields that only the consumer protocol has are None (or an empty tuple) in classic groups.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    rack_id: str | None
    assignment: tuple[TopicPartition, ...]
    target_assignment: tuple[TopicPartition, ...] | None
    subscribed_topics: tuple[str, ...]
    subscribed_topic_regex: str | None
    member_epoch: int | None


class ConsumerGroupDescription(NamedTuple):
    """A group of consumers, of either protocol."""

    group_id: str
    group_type: GroupType
    state: str
    coordinator: int
    assignor: str
    members: tuple[MemberDescription, ...]
    group_epoch: int | None
    assignment_epoch: int | None
    authorized_operations: list[str] | None


class GroupAdmin(AdminRouting):
    """The admin client's calls for groups and their members."""

    async def list_groups(
        self,
        broker_ids: Iterable[int] | None = None,
        states_filter: Iterable[GroupState | str] | None = None,
        types_filter: Iterable[GroupType | str] | None = None,
    ) -> list[dict[str, Any]]:
        """[{group_id, protocol_type, group_state, group_type}] of all brokers, or of these.

        `states_filter` needs Kafka 2.6, `types_filter` 3.8 (UnsupportedVersionError). Raises the first error.
        """
        states = [member_of(GroupState, each).value for each in states_filter or ()]
        types = [member_of(GroupType, each).value for each in types_filter or ()]
        deadline = self.deadline()
        request = ListGroupsRequest(states_filter=states, types_filter=types)
        low = 5 if types else 4 if states else 0

        async def ask(node: int) -> list[dict[str, Any]]:
            response = checked(await self.send(node, request, deadline, low=low))
            return [as_dict(group) for group in response.groups]

        wanted = sorted(await self.brokers()) if broker_ids is None else list(broker_ids)
        found = await asyncio.gather(*(self.one(self.at_node(node), ask, deadline) for node in wanted))
        # A group whose partition moves between two responses is in both.
        return list({group["group_id"]: group for groups in found for group in groups}.values())

    async def describe_groups(
        self,
        group_ids: Iterable[str],
        group_coordinator_id: int | None = None,
        include_authorized_operations: bool = True,
    ) -> dict[str, dict[str, Any]]:
        """Classic groups, by DescribeGroups. `describe_consumer_groups` handles both protocols.

        {group: {error, group_id, group_state, protocol_type, protocol_data, members, authorized_operations}}. Metadata
        and assignments of consumers are decoded to dicts. `error` is text or None; errors that do not belong to one
        group are raised.
        """
        deadline = self.deadline()

        async def ask(node: int, groups: list[str]) -> dict[str, Any]:
            response = await self._classic(node, groups, include_authorized_operations, deadline)
            return {group.group_id: _retried_error(group) or group for group in response.groups}

        outcomes = raise_first(
            await self.drive(group_ids, self.at_group(group_coordinator_id, deadline), ask, deadline)
        )
        return {name: _group_dict(group) for name, group in outcomes.items()}

    async def describe_consumer_groups(
        self, group_ids: Iterable[str], include_authorized_operations: bool = False
    ) -> dict[str, ConsumerGroupDescription | KafkaError]:
        """A description of each group, of either protocol, or its error.

        GroupIdNotFoundError for a group that does not exist.
        """
        deadline = self.deadline()
        located = self.at_group(None, deadline)

        async def ask_new(node: int, groups: list[str]) -> dict[str, Any]:
            request = ConsumerGroupDescribeRequest(
                group_ids=groups, include_authorized_operations=include_authorized_operations
            )
            response = await self.send(node, request, deadline)
            return {
                each.group_id: error_of(each.error_code, each.error_message) or _described(each, node)
                for each in response.groups
            }

        async def ask_classic(node: int, groups: list[str]) -> dict[str, Any]:
            response = await self._classic(node, groups, include_authorized_operations, deadline)
            return {each.group_id: _classic_described(each, node) for each in response.groups}

        wanted = list(group_ids)
        outcomes: dict[str, Any] = await self.drive(wanted, located, ask_new, deadline)
        classic = [
            group
            for group, outcome in outcomes.items()
            if isinstance(outcome, (GroupIdNotFoundError, UnsupportedVersionError))
        ]
        return outcomes | await self.drive(classic, located, ask_classic, deadline)

    async def describe_share_groups(
        self, group_ids: Iterable[str], include_authorized_operations: bool = False
    ) -> dict[str, dict[str, Any]]:
        """{group: fields of ShareGroupDescribe} of share groups (Kafka 4.1).

        `error` is as in describe_groups.
        """
        deadline = self.deadline()

        async def ask(node: int, groups: list[str]) -> dict[str, Any]:
            request = ShareGroupDescribeRequest(
                group_ids=groups, include_authorized_operations=include_authorized_operations
            )
            response = await self.send(node, request, deadline, low=1)
            return {group.group_id: _retried_error(group) or group for group in response.groups}

        located = self.at_group(None, deadline)
        outcomes = raise_first(await self.drive(group_ids, located, ask, deadline))
        return {name: _with_error(group) for name, group in outcomes.items()}

    async def delete_groups(self, group_ids: Iterable[str], group_coordinator_id: int | None = None) -> dict[str, str]:
        """Deletes groups without members, with their offsets: {group: 'OK' or error name}."""
        deadline = self.deadline()

        async def ask(node: int, groups: list[str]) -> dict[str, Any]:
            response = await self.send(node, DeleteGroupsRequest(groups_names=groups), deadline)
            return {each.group_id: error_of(each.error_code) or OK for each in response.results}

        outcomes = await self.drive(group_ids, self.at_group(group_coordinator_id, deadline), ask, deadline)
        return {name: each if isinstance(each, str) else type(each).__name__ for name, each in outcomes.items()}

    async def remove_group_members(
        self, group_id: str, members: Iterable[MemberToRemove], group_coordinator_id: int | None = None
    ) -> dict[str, type[KafkaError]]:
        """Removes members: {member id or group instance id: NoError or error class}.

        Group instance ids need Kafka 2.3 (UnsupportedVersionError). Raises an error of the whole group.
        """
        wanted = list(members)
        if not wanted:
            return {}
        deadline = self.deadline()
        static = any(member.group_instance_id is not None for member in wanted)

        async def ask(node: int, _: list[str]) -> dict[str, Any]:
            api = LeaveGroupRequest
            low = OLDEST_BATCHED_LEAVE if static else 0
            version = await self.network.version(node, api.API_KEY, low, api.VERSIONS.high)
            if version < OLDEST_BATCHED_LEAVE:
                return {group_id: await self._remove_singly(node, group_id, wanted, deadline)}
            response = await self.send_built(node, api, lambda each: _leave(group_id, wanted, each), deadline, low=low)
            if error := error_of(response.error_code):
                return {group_id: error}
            return {
                group_id: {
                    each.member_id or each.group_instance_id: error_type(each.error_code) for each in response.members
                }
            }

        found: dict[str, type[KafkaError]] = raise_first(
            await self.drive([group_id], self.at_group(group_coordinator_id, deadline), ask, deadline)
        )[group_id]
        return found

    async def _remove_singly(
        self, node: int, group_id: str, members: list[MemberToRemove], deadline: Deadline
    ) -> dict[str, type[KafkaError]]:
        results = {}
        for member in members:
            member_id = member.member_id or ""
            request = LeaveGroupRequest(group_id=group_id, member_id=member_id, members=[])
            response = await self.send(node, request, deadline, high=OLDEST_BATCHED_LEAVE - 1)
            results[member_id] = error_type(response.error_code)
        return results

    async def _classic(self, node: int, groups: list[str], operations: bool, deadline: Deadline) -> Any:
        """Sends DescribeGroups. Authorized operations need Kafka 2.3."""

        def build(version: int) -> DescribeGroupsRequest:
            return DescribeGroupsRequest(groups=groups, include_authorized_operations=operations and version >= 3)

        return await self.send_built(node, DescribeGroupsRequest, build, deadline)


def _leave(group_id: str, members: list[MemberToRemove], version: int) -> LeaveGroupRequest:
    return LeaveGroupRequest(
        group_id=group_id,
        members=[
            LeaveGroupRequest.Member(
                member_id=member.member_id or "",
                group_instance_id=member.group_instance_id,
                reason=(member.reason or REMOVED) if version >= OLDEST_WITH_REASON else None,
            )
            for member in members
        ],
    )


def _retried_error(group: Any) -> KafkaError | None:
    """The group's error if it requires another coordinator lookup, or None."""
    return error_of(group.error_code) if group.error_code in WRONG_COORDINATOR else None


def _with_error(group: Any) -> dict[str, Any]:
    shown = as_dict(group, "error_code", "error_message", "authorized_operations")
    shown["error"] = error_text(group.error_code, group.error_message)
    shown["authorized_operations"] = operation_names(group.authorized_operations)
    return shown


def _group_dict(group: Any) -> dict[str, Any]:
    shown = _with_error(group)
    for row, member in zip(shown["members"], group.members, strict=True):
        for name, record in (
            ("member_metadata", ConsumerProtocolSubscription),
            ("member_assignment", ConsumerProtocolAssignment),
        ):
            decoded = _decoded(record, getattr(member, name), group.protocol_type)
            if decoded is not None:
                row[name] = as_dict(decoded)
    return shown


def _decoded(record: type[Record], data: bytes, protocol_type: str) -> Any:
    """A consumer's metadata or assignment as a record, None for other bytes."""
    if not data or protocol_type != CONSUMER:
        return None
    try:
        return record.decode_versioned(data, newer_as_newest=True)[1]
    except DecodeError:
        return None


def _classic_described(group: Any, node: int) -> ConsumerGroupDescription | KafkaError:
    if error := error_of(group.error_code, group.error_message):
        return error
    if group.group_state == GroupState.DEAD.value:
        # Before version 6 a group that does not exist looks like this.
        return error_for(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.group_id} does not exist.")
    members = []
    for member in group.members:
        subscription = _decoded(ConsumerProtocolSubscription, member.member_metadata, group.protocol_type)
        assignment = _decoded(ConsumerProtocolAssignment, member.member_assignment, group.protocol_type)
        members.append(
            MemberDescription(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                host=member.client_host,
                rack_id=subscription.rack_id if subscription else None,
                assignment=_partitions(assignment.assigned_partitions, "topic") if assignment else (),
                target_assignment=None,
                subscribed_topics=tuple(subscription.topics) if subscription else (),
                subscribed_topic_regex=None,
                member_epoch=None,
            )
        )
    return ConsumerGroupDescription(
        group_id=group.group_id,
        group_type=GroupType.CLASSIC,
        state=group.group_state,
        coordinator=node,
        assignor=group.protocol_data,
        members=tuple(members),
        group_epoch=None,
        assignment_epoch=None,
        authorized_operations=operation_names(group.authorized_operations),
    )


def _described(group: Any, node: int) -> ConsumerGroupDescription:
    members = tuple(
        MemberDescription(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            host=member.client_host,
            rack_id=member.rack_id,
            assignment=_partitions(member.assignment.topic_partitions, "topic_name"),
            target_assignment=_partitions(member.target_assignment.topic_partitions, "topic_name"),
            subscribed_topics=tuple(member.subscribed_topic_names),
            subscribed_topic_regex=member.subscribed_topic_regex or None,
            member_epoch=member.member_epoch,
        )
        for member in group.members
    )
    return ConsumerGroupDescription(
        group_id=group.group_id,
        group_type=GroupType.CONSUMER,
        state=group.group_state,
        coordinator=node,
        assignor=group.assignor_name,
        members=members,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        authorized_operations=operation_names(group.authorized_operations),
    )


def _partitions(topics: Iterable[Any], name: str) -> tuple[TopicPartition, ...]:
    return tuple(sorted(TopicPartition(getattr(topic, name), each) for topic in topics for each in topic.partitions))
