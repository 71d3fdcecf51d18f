"""The requests of share groups: ShareGroupHeartbeat and ShareGroupDescribe.

Source: GroupMetadataManager and GroupCoordinatorService (their share part); KIP-932.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkapy.coordinator.group.modern.partitions import described_as, listed_as
from kafkapy.coordinator.group.modern.rebalance import Records
from kafkapy.coordinator.group.modern.requests import JOIN_EPOCH, LEAVE_GROUP_EPOCH, is_blank, require
from kafkapy.coordinator.group.share.group import ShareGroup
from kafkapy.coordinator.group.share.initialization import ShareInitialization
from kafkapy.coordinator.group.share.member import ShareGroupMember
from kafkapy.coordinator.group.share.rebalance import ShareRebalance
from kafkapy.coordinator.result import Result
from kafkapy.errors import ErrorCode
from kafkapy.metadata.cache import MetadataSnapshot
from kafkapy.protocol.messages.share_group_describe import ShareGroupDescribeResponse
from kafkapy.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

if TYPE_CHECKING:
    from kafkapy.coordinator.group.config import GroupOverrides

logger = logging.getLogger("kafka.coordinator.group.GroupCoordinator")

SOON_MS: Final = 250
"""Heartbeat interval in ms of a member whose assignment is under way.

Apache Kafka lets it wait for the configured interval, so that the first record comes seconds later.
"""

HeartbeatResult = Result[ShareGroupHeartbeatResponse]
Group = ShareGroupDescribeResponse.Group


class ShareClient(NamedTuple):
    """The client of a heartbeat. `host` is written as Kafka does: "/127.0.0.1"."""

    client_id: str
    host: str


def check_share_heartbeat(request: ShareGroupHeartbeatRequest) -> None:
    """Refuse a request that contradicts itself: INVALID_REQUEST."""
    require(not is_blank(request.member_id), "MemberId can't be empty.")
    require(not is_blank(request.group_id), "GroupId can't be empty.")
    require(not is_blank(request.rack_id), "RackId can't be empty.")
    if request.member_epoch == JOIN_EPOCH:
        require(bool(request.subscribed_topic_names), "SubscribedTopicNames must be set in first request.")
    else:
        require(request.member_epoch >= LEAVE_GROUP_EPOCH, "MemberEpoch is invalid.")


class ShareRequests:
    """The requests of share groups as operations of the runtime.

    Owned by a GroupShard; used on the control loop's thread.
    """

    def __init__(
        self, rebalance: ShareRebalance, initialization: ShareInitialization, overrides: GroupOverrides
    ) -> None:
        self._rebalance = rebalance
        self._initialization = initialization
        self._overrides = overrides

    # --- ShareGroupHeartbeat ----------------------------------------------------------------------------------------

    def heartbeat(self, client: ShareClient, request: ShareGroupHeartbeatRequest) -> HeartbeatResult:
        """Handle a member's heartbeat: it joins, lives, changes or leaves.

        The request has passed `check_share_heartbeat`.

        Raises GROUP_ID_NOT_FOUND, GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH.
        """
        leaves = request.member_epoch == LEAVE_GROUP_EPOCH
        result = self._leave(request) if leaves else self._live(client, request)
        return self._rebalance.announced(request.group_id, result)

    def _live(self, client: ShareClient, request: ShareGroupHeartbeatRequest) -> HeartbeatResult:
        records: Records = []
        joins = request.member_epoch == JOIN_EPOCH
        group_id, names = request.group_id, request.subscribed_topic_names
        group = self._rebalance.get_to_join(group_id) if joins else self._rebalance.get(group_id, "Share group")
        self._rebalance.check_room(group, request.member_id)
        member = self._member(group, request, joins)
        said = _said(client, request, member)
        moved, epoch, is_late = self._rebalance.advance(group, member, said, records)
        self._rebalance.schedule_session(group_id, moved.member_id)
        topics = group.subscriptions([member], moved).topics
        begin = self._initialization.begin(group, topics, epoch, records)
        soon = is_late or begin is not None or self._initialization.is_under_way(group_id)
        interval = self._overrides.share_heartbeat_interval_ms(group_id)
        response = ShareGroupHeartbeatResponse(
            member_id=moved.member_id,
            member_epoch=moved.member_epoch,
            heartbeat_interval_ms=min(interval, SOON_MS) if soon else interval,
        )
        if joins or names is not None or moved.assigned != member.assigned:
            made = ShareGroupHeartbeatResponse.Assignment
            response.assignment = made(topic_partitions=listed_as(made.TopicPartitions, moved.assigned))
        return Result(response, records, begin)

    @staticmethod
    def _member(group: ShareGroup, request: ShareGroupHeartbeatRequest, joins: bool) -> ShareGroupMember:
        if joins:
            member = group.members.get(request.member_id) or ShareGroupMember(request.member_id)
            if member.member_epoch == JOIN_EPOCH:
                logger.info("Member %s joins share group %s", request.member_id, group.group_id)
        else:
            member = group.member(request.member_id)
        member.check_epoch(request.member_epoch)
        return member

    def _leave(self, request: ShareGroupHeartbeatRequest) -> HeartbeatResult:
        group = self._rebalance.get(request.group_id)
        member = group.member(request.member_id)
        logger.info("Member %s left share group %s", member.member_id, group.group_id)
        response = ShareGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=request.member_epoch, heartbeat_interval_ms=0
        )
        return Result(response, self._rebalance.fence(group, member))

    # --- ShareGroupDescribe -----------------------------------------------------------------------------------------

    def describe(self, group_id: str, snapshot: MetadataSnapshot) -> Group:
        """The share group with its members. GROUP_ID_NOT_FOUND."""
        group = self._rebalance.get(group_id)
        made = Group.Member
        return Group(
            group_id=group.group_id,
            group_state=group.state_name,
            group_epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=self._rebalance.assignor_name,
            members=[
                made(
                    member_id=member.member_id,
                    rack_id=member.rack_id,
                    member_epoch=member.member_epoch,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    subscribed_topic_names=sorted(member.topic_names),
                    assignment=made.Assignment(
                        topic_partitions=described_as(made.Assignment.TopicPartitions, member.assigned, snapshot)
                    ),
                )
                for member in group.members.values()
            ],
        )


def describe_share_error(group_id: str, error: ErrorCode, message: str | None) -> Group:
    """The description of a share group with an error."""
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


def _said(client: ShareClient, request: ShareGroupHeartbeatRequest, member: ShareGroupMember) -> ShareGroupMember:
    """The member with the request's changes; missing fields stay unchanged."""
    names = request.subscribed_topic_names
    topic_names = member.topic_names if names is None else frozenset(names)
    rack_id = member.rack_id if request.rack_id is None else request.rack_id
    now = (topic_names, rack_id, client.client_id, client.host)
    if now == (member.topic_names, member.rack_id, member.client_id, member.client_host):
        return member
    return replace(
        member, topic_names=topic_names, rack_id=rack_id, client_id=client.client_id, client_host=client.host
    )
