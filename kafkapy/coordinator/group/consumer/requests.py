"""The requests of consumer groups: ConsumerGroupHeartbeat and ConsumerGroupDescribe.

Source: GroupMetadataManager and GroupCoordinatorService (their consumer part); KIP-848, KIP-1082 (member ids made by
clients).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkapy.coordinator.group.assignors.api import Partitions
from kafkapy.coordinator.group.consumer import records as records_of
from kafkapy.coordinator.group.consumer.group import ConsumerGroup
from kafkapy.coordinator.group.consumer.member import (
    LEAVE_GROUP_STATIC_EPOCH,
    ConsumerGroupMember,
    is_subset,
)
from kafkapy.coordinator.group.consumer.patterns import ConsumerPatterns, Visible
from kafkapy.coordinator.group.consumer.rebalance import LARGE_GROUP, ConsumerRebalance
from kafkapy.coordinator.group.modern.partitions import NO_PARTITIONS, described_as, listed_as
from kafkapy.coordinator.group.modern.rebalance import Records
from kafkapy.coordinator.group.modern.requests import JOIN_EPOCH, LEAVE_GROUP_EPOCH, is_blank, require
from kafkapy.coordinator.result import Result
from kafkapy.errors import ErrorCode, KafkaError, error_for
from kafkapy.metadata.cache import MetadataSnapshot
from kafkapy.protocol.messages.consumer_group_describe import Assignment, ConsumerGroupDescribeResponse
from kafkapy.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kafkapy.types import random_uuid, uuid_to_string

if TYPE_CHECKING:
    from kafkapy.coordinator.group.config import GroupOverrides

logger = logging.getLogger("kafka.coordinator.group.GroupCoordinator")

MEMBER_ID_BY_CLIENT: Final = 1
"""ConsumerGroupHeartbeat version from which a new member brings its own id (KIP-1082)."""
CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1

HeartbeatResult = Result[ConsumerGroupHeartbeatResponse]
Group = ConsumerGroupDescribeResponse.Group


class ConsumerClient(NamedTuple):
    """The client of a heartbeat.

    `host` is written as Kafka does: "/127.0.0.1"; `visible` returns the topics, out of some, that the client may
    describe.
    """

    client_id: str
    host: str
    visible: Visible = set


def check_heartbeat(request: ConsumerGroupHeartbeatRequest, api_version: int, assignors: Collection[str]) -> None:
    """Refuse a request that contradicts itself: INVALID_REQUEST, UNSUPPORTED_ASSIGNOR."""
    epoch = request.member_epoch
    if api_version >= MEMBER_ID_BY_CLIENT or epoch > 0 or epoch == LEAVE_GROUP_EPOCH:
        require(not is_blank(request.member_id), "MemberId can't be empty.")
    require(not is_blank(request.group_id), "GroupId can't be empty.")
    if request.instance_id is not None:
        require(not is_blank(request.instance_id), "InstanceId can't be empty.")
    if request.rack_id is not None:
        require(not is_blank(request.rack_id), "RackId can't be empty.")
    if epoch == JOIN_EPOCH:
        require(request.rebalance_timeout_ms != -1, "RebalanceTimeoutMs must be provided in first request.")
        require(request.topic_partitions == [], "TopicPartitions must be empty when (re-)joining.")
        require(
            request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        )
    elif epoch == LEAVE_GROUP_STATIC_EPOCH:
        require(request.instance_id is not None, "InstanceId can't be null.")
    elif epoch < JOIN_EPOCH:
        require(epoch > LEAVE_GROUP_STATIC_EPOCH, "MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise error_for(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


class ConsumerRequests:
    """The requests of consumer groups as operations of the runtime.

    Owned by a GroupShard; used on the control loop's thread.
    """

    def __init__(self, rebalance: ConsumerRebalance, patterns: ConsumerPatterns, overrides: GroupOverrides) -> None:
        self._rebalance = rebalance
        self._patterns = patterns
        self._overrides = overrides

    # --- ConsumerGroupHeartbeat -------------------------------------------------------------------------------------

    def heartbeat(self, client: ConsumerClient, request: ConsumerGroupHeartbeatRequest) -> HeartbeatResult:
        """Handle a member's heartbeat: it joins, lives, changes or leaves.

        The request has passed `check_heartbeat`.

        Raises GROUP_ID_NOT_FOUND, GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, FENCED_INSTANCE_ID,
        UNRELEASED_INSTANCE_ID, INVALID_REGULAR_EXPRESSION.
        """
        result = self._leave(request) if request.member_epoch < 0 else self._live(client, request)
        return self._rebalance.announced(request.group_id, result)

    def _live(self, client: ConsumerClient, request: ConsumerGroupHeartbeatRequest) -> HeartbeatResult:
        records: Records = []
        joins = request.member_epoch == JOIN_EPOCH
        if joins:
            group = self._rebalance.get_to_join(request.group_id, records)
        else:
            group = self._rebalance.get(request.group_id, "Consumer group")
        self._rebalance.check_room(group, request.member_id)
        member = self._member(group, request, joins, records)
        said = self._said(client, request, member)
        # A new group leaves epoch 0 with its first member, and a converted one that of the classic group, in which a
        # rebalance may have been under way, whatever the member subscribes to.
        bump = group.epoch == 0 or (joins and group is not self._rebalance.find(request.group_id))
        bump |= self._rebalance.describe_change(group, member, said, records)
        bump |= self._patterns.changed(group, member, said, client.visible, records)
        owned = request.topic_partitions
        moved = self._rebalance.advance(group, member, said, bump=bump, owned=owned, records=records)
        self._rebalance.schedule_session(group, moved)
        response = ConsumerGroupHeartbeatResponse(
            member_id=moved.member_id,
            member_epoch=moved.member_epoch,
            heartbeat_interval_ms=self._overrides.heartbeat_interval_ms(group.group_id),
        )
        if joins or _is_full(request) or moved.assigned != member.assigned:
            response.assignment = _assignment(moved.assigned)
        return Result(response, records)

    def _member(
        self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, joins: bool, records: Records
    ) -> ConsumerGroupMember:
        member_id = request.member_id or uuid_to_string(random_uuid())
        if request.instance_id is not None:
            if joins:
                return self._rebalance.static_member_to_join(
                    group, member_id, request.instance_id, records, classic=False
                )
            member = self._rebalance.static_member(group, member_id, request.instance_id)
        elif joins:
            member = group.members.get(member_id) or ConsumerGroupMember(member_id)
            if member.member_epoch == JOIN_EPOCH:
                # A thousand members that join at once would spend a tenth of their time on lines that are suppressed.
                level = logging.INFO if len(group.members) < LARGE_GROUP else logging.DEBUG
                logger.log(level, "Member %s joins consumer group %s", member_id, group.group_id)
        else:
            member = group.member(member_id)
        _check_epoch(member, request)
        return member

    def _said(
        self, client: ConsumerClient, request: ConsumerGroupHeartbeatRequest, member: ConsumerGroupMember
    ) -> ConsumerGroupMember:
        """The member with the request's changes; missing fields stay unchanged."""
        names, timeout = request.subscribed_topic_names, request.rebalance_timeout_ms
        # Most heartbeats say nothing.
        if (
            timeout == -1
            and names is None
            and request.subscribed_topic_regex is None
            and request.instance_id in (None, member.instance_id)
            and request.rack_id is None
            and request.server_assignor is None
            and client.client_id == member.client_id
            and client.host == member.client_host
            and member.classic is None
        ):
            return member
        said: dict[str, Any] = {
            "instance_id": request.instance_id,
            "rack_id": request.rack_id,
            "rebalance_timeout_ms": None if timeout == -1 else timeout,
            "server_assignor": request.server_assignor,
            "topic_names": None if names is None else frozenset(names),
            "topic_regex": request.subscribed_topic_regex,
            "client_id": client.client_id,
            "client_host": client.host,
        }
        changes = {name: value for name, value in said.items() if value is not None and value != getattr(member, name)}
        if member.classic is not None:
            changes["classic"] = None
        return member._replace(**changes) if changes else member

    def _leave(self, request: ConsumerGroupHeartbeatRequest) -> HeartbeatResult:
        group = self._rebalance.get(request.group_id)
        response = ConsumerGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=request.member_epoch, heartbeat_interval_ms=0
        )
        if request.instance_id is None:
            member = group.member(request.member_id)
        else:
            member = self._rebalance.static_member(group, request.member_id, request.instance_id)
            if request.member_epoch == LEAVE_GROUP_STATIC_EPOCH:
                logger.info("Static member %s left group %s temporarily", member.member_id, group.group_id)
                left = member._replace(member_epoch=LEAVE_GROUP_STATIC_EPOCH, pending_revocation=NO_PARTITIONS)
                return Result(response, [records_of.current_assignment(group.group_id, left)])
        logger.info("Member %s left consumer group %s", member.member_id, group.group_id)
        return Result(response, self._rebalance.fence(group, [member]))

    # --- ConsumerGroupDescribe --------------------------------------------------------------------------------------

    def describe(self, group_ids: Iterable[str], snapshot: MetadataSnapshot) -> list[Group]:
        """The consumer groups with their members, in the order asked.

        An unknown group has the error GROUP_ID_NOT_FOUND.
        """
        described = []
        for group_id in group_ids:
            try:
                described.append(self._described(self._rebalance.get(group_id), snapshot))
            except KafkaError as error:
                described.append(describe_error(group_id, error.code, error.message))
        return described

    def _described(self, group: ConsumerGroup, snapshot: MetadataSnapshot) -> Group:
        return Group(
            group_id=group.group_id,
            group_state=group.state_name,
            group_epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=group.preferred_assignor() or self._rebalance.default_assignor,
            members=[
                Group.Member(
                    member_id=member.member_id,
                    instance_id=member.instance_id,
                    rack_id=member.rack_id,
                    member_epoch=member.member_epoch,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    subscribed_topic_names=sorted(member.topic_names),
                    subscribed_topic_regex=member.topic_regex,
                    assignment=_described_partitions(member.assigned, snapshot),
                    target_assignment=_described_partitions(
                        group.target.get(member.member_id, NO_PARTITIONS), snapshot
                    ),
                    member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
                )
                for member in group.members.values()
            ],
        )


def describe_error(group_id: str, error: ErrorCode, message: str | None) -> Group:
    """The description of a group with an error."""
    return Group(
        error_code=error,
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the request has all fields, as a join has."""
    return (
        request.rebalance_timeout_ms != -1
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and request.topic_partitions is not None
    )


def _check_epoch(member: ConsumerGroupMember, request: ConsumerGroupHeartbeatRequest) -> None:
    """Check the epoch of a heartbeat: FENCED_MEMBER_EPOCH.

    The previous epoch is valid from a member that has only partitions assigned to it: it most likely has not got the
    answer with its new epoch. So is 0: the member joins again.
    """
    received, known = request.member_epoch, member.member_epoch
    if received == JOIN_EPOCH:
        return
    if received > known:
        than = "greater"
    elif received < known and not (
        received == member.previous_member_epoch and is_subset(request.topic_partitions, member.assigned)
    ):
        than = "smaller"
    else:
        return
    raise error_for(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {than} member epoch ({received}) than the one known by the group coordinator "
        f"({known}). The member must abandon all its partitions and rejoin.",
    )


def _assignment(partitions: Partitions) -> ConsumerGroupHeartbeatResponse.Assignment:
    made = ConsumerGroupHeartbeatResponse.Assignment
    return made(topic_partitions=listed_as(made.TopicPartitions, partitions))


def _described_partitions(partitions: Partitions, snapshot: MetadataSnapshot) -> Assignment:
    return Assignment(topic_partitions=described_as(Assignment.TopicPartitions, partitions, snapshot))
