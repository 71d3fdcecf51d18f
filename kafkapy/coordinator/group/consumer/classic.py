"""Classic members of a consumer group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

REBALANCE_IN_PROGRESS tells such a member to join again. Its next step becomes its assignment, and the group has no
leader: the coordinator assigns. The member epoch is the generation it sees. Source: GroupMetadataManager
(classicGroup...ToConsumerGroup); KIP-848, online migration.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from kafkapy.coordinator.group.classic.group import CONSUMER_PROTOCOL_TYPE, NO_MEMBER, Protocols, join_error
from kafkapy.coordinator.group.classic.requests import (
    KNOWN_MEMBER_ID_REQUIRED,
    ClientInfo,
    JoinResult,
    SyncResult,
)
from kafkapy.coordinator.group.consumer import records as records_of
from kafkapy.coordinator.group.consumer.group import ConsumerGroup
from kafkapy.coordinator.group.consumer.member import ClassicMetadata, ConsumerGroupMember, MemberState
from kafkapy.coordinator.group.consumer.protocol import (
    DecodeError,
    decode_subscription,
    encode_assignment,
    owned_partitions,
    version_of,
)
from kafkapy.coordinator.group.consumer.rebalance import ConsumerRebalance
from kafkapy.coordinator.group.modern.rebalance import Records
from kafkapy.coordinator.group.modern.topics import GroupTopics
from kafkapy.coordinator.result import Result
from kafkapy.errors import ErrorCode, KafkaError, error_for
from kafkapy.metadata.cache import MetadataSnapshot
from kafkapy.protocol.messages.consumer_group_records import TopicPartitions
from kafkapy.protocol.messages.heartbeat import HeartbeatRequest
from kafkapy.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kafkapy.protocol.messages.leave_group import LeaveGroupRequest
from kafkapy.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kafkapy.types import random_uuid, uuid_to_string

logger = logging.getLogger("kafka.coordinator.group.GroupCoordinator")


class ClassicMembers:
    """The requests of classic members as operations of the runtime.

    Owned by a GroupShard; used on the control loop's thread.
    """

    def __init__(self, rebalance: ConsumerRebalance, metadata: Callable[[], MetadataSnapshot]) -> None:
        self._rebalance = rebalance
        self._metadata = metadata

    # --- JoinGroup --------------------------------------------------------------------------------------------------

    def join(self, client: ClientInfo, request: JoinGroupRequest, group: ConsumerGroup) -> JoinResult:
        """Let a classic member join, or rejoin, a non-empty consumer group."""
        try:
            return self._rebalance.announced(group.group_id, self._join(client, request, group))
        except KafkaError as error:
            return Result(join_error(request.member_id, error.code))

    def _join(self, client: ClientInfo, request: JoinGroupRequest, group: ConsumerGroup) -> JoinResult:
        is_new = request.member_id == NO_MEMBER
        member_id = request.member_id or uuid_to_string(random_uuid())
        instance_id = request.group_instance_id
        protocols: Protocols = tuple((each.name, each.metadata) for each in request.protocols)
        self._rebalance.check_room(group, member_id)
        if not group.supports_classic_protocols(request.protocol_type, [name for name, _ in protocols]):
            message = f"Member {member_id}'s protocols are not supported."
            raise error_for(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, message)
        if is_new and instance_id is None and client.api_version >= KNOWN_MEMBER_ID_REQUIRED:
            return Result(join_error(member_id, ErrorCode.MEMBER_ID_REQUIRED))
        try:
            subscription = decode_subscription(protocols[0][1])
        except DecodeError as error:
            raise error_for(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from error
        owned = owned_partitions(subscription, self._metadata())

        records: Records = []
        replaced = group.static_member(instance_id)
        downgrade = replaced is not None and self._rebalance.migration.may_downgrade_by_replacing(group, replaced)
        member = self._member(group, member_id, instance_id, is_new, records)
        said = member._replace(
            instance_id=member.instance_id if instance_id is None else instance_id,
            rack_id=subscription.rack_id or member.rack_id,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            topic_names=frozenset(subscription.topics),
            topic_regex="",
            client_id=client.client_id,
            client_host=client.host,
            classic=ClassicMetadata(request.session_timeout_ms, protocols),
        )
        bump = self._rebalance.describe_change(group, member, said, records)
        if member.topic_regex:
            # Kafka leaves it the expression of the consumer member that it was, and topics it does not subscribe to.
            bump = True
            if member.topic_regex in group.resolved and group.subscribed_regexes.get(member.topic_regex) == 1:
                records.append(records_of.regular_expression_tombstone(group.group_id, member.topic_regex))
        if downgrade:
            moved = self._downgrade(group, member, said, bump, owned, records)
        else:
            moved = self._rebalance.advance(group, member, said, bump=bump, owned=owned, records=records)

        response = JoinGroupResponse(
            member_id=moved.member_id,
            generation_id=moved.member_epoch,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=protocols[0][0],
            leader="",
            members=[],
        )

        def after(error: BaseException | None) -> None:
            if error is None and not downgrade:
                self._rebalance.joined(group.group_id, moved.member_id, request.rebalance_timeout_ms)
                self._rebalance.schedule_session(group, moved)

        return Result(response, records, after)

    def _member(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None, is_new: bool, records: Records
    ) -> ConsumerGroupMember:
        if instance_id is None:
            return group.members.get(member_id) or ConsumerGroupMember(member_id)
        if is_new:
            return self._rebalance.static_member_to_join(group, member_id, instance_id, records, classic=True)
        return self._rebalance.static_member(group, member_id, instance_id)

    def _downgrade(
        self,
        group: ConsumerGroup,
        before: ConsumerGroupMember,
        after: ConsumerGroupMember,
        bump: bool,
        owned: list[TopicPartitions],
        records: Records,
    ) -> ConsumerGroupMember:
        topics = GroupTopics(self._metadata())
        self._rebalance.refresh(group, before, after, topics, bump=bump, records=records)
        moved = after
        if not bump:
            moved = self._rebalance.reconcile(
                group, after, group.assignment_epoch, group.target_of(after), owned, records
            )
        self._rebalance.migration.downgrade(group, (), moved, rebalance=bump, records=records)
        return moved

    # --- SyncGroup --------------------------------------------------------------------------------------------------

    def sync(self, request: SyncGroupRequest, group: ConsumerGroup) -> SyncResult:
        """The member's present assignment."""
        try:
            member = self._find(group, request.member_id, request.group_instance_id)
            assignment = self._assignment(group, member, request)
        except KafkaError as error:
            return Result(SyncGroupResponse(error_code=error.code, assignment=b""))
        response = SyncGroupResponse(
            protocol_type=request.protocol_type, protocol_name=request.protocol_name, assignment=assignment
        )
        self._rebalance.synced(group.group_id, member.member_id)
        self._rebalance.schedule_session(group, member)
        return Result(response)

    def _assignment(self, group: ConsumerGroup, member: ConsumerGroupMember, request: SyncGroupRequest) -> bytes:
        classic = _classic(member)
        _check_generation(member, request.generation_id)
        name = classic.protocols[0][0] if classic.protocols else ""
        for asked, known in ((request.protocol_type, CONSUMER_PROTOCOL_TYPE), (request.protocol_name, name)):
            if asked is not None and asked != known:
                raise error_for(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"{asked} is not the group's {known}.")
        # A member that has to give up partitions has joined for this epoch already: it continues when it has given them
        # up.
        if group.epoch > member.member_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._rebalance.schedule_join(group.group_id, member)
            raise error_for(
                ErrorCode.REBALANCE_IN_PROGRESS,
                f"A new rebalance is triggered in group {group.group_id} and member {member.member_id} should rejoin "
                "to catch up.",
            )
        try:
            version = version_of(classic.protocols)
        except DecodeError as error:
            raise error_for(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
        return encode_assignment(member.assigned, self._metadata(), version)

    # --- Heartbeat --------------------------------------------------------------------------------------------------

    def heartbeat(self, request: HeartbeatRequest, group: ConsumerGroup) -> ErrorCode:
        """Restart a member's session; returns NONE or REBALANCE_IN_PROGRESS.

        With REBALANCE_IN_PROGRESS it has to join again. Raises the error of a member that is not valid.
        """
        member = self._find(group, request.member_id, request.group_instance_id)
        _classic(member)
        _check_generation(member, request.generation_id)
        self._rebalance.schedule_session(group, member)
        can_go_on = member.state is MemberState.UNREVOKED_PARTITIONS or (
            member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_others(member)
        )
        if member.member_epoch < group.epoch or can_go_on:
            self._rebalance.schedule_join(group.group_id, member)
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    # --- LeaveGroup -------------------------------------------------------------------------------------------------

    def leave(self, request: LeaveGroupRequest, group: ConsumerGroup) -> Result[list[ErrorCode]]:
        """Remove members that leave, or that group.instance.id names; one outcome each."""
        found = [_leaving(group, each) for each in request.members]
        left = {each.member_id: each for each in found if not isinstance(each, ErrorCode)}
        outcomes = [each if isinstance(each, ErrorCode) else ErrorCode.NONE for each in found]
        logger.info("Members %s left group %s", ", ".join(left), group.group_id)
        records = self._rebalance.fence(group, list(left.values()))
        return self._rebalance.announced(group.group_id, Result(outcomes, records))

    def _find(self, group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerGroupMember:
        if instance_id is None:
            return group.member(member_id)
        return self._rebalance.static_member(group, member_id, instance_id)


def _leaving(group: ConsumerGroup, each: LeaveGroupRequest.Member) -> ConsumerGroupMember | ErrorCode:
    """The member that leaves, or why there is none."""
    if each.group_instance_id is None:
        return group.members.get(each.member_id, ErrorCode.UNKNOWN_MEMBER_ID)
    found = group.static_member(each.group_instance_id)
    if found is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    # An administrator removes a static member without naming its member id.
    return found if each.member_id in (NO_MEMBER, found.member_id) else ErrorCode.FENCED_INSTANCE_ID


def _classic(member: ConsumerGroupMember) -> ClassicMetadata:
    if member.classic is None:
        message = f"Member {member.member_id} does not use the classic protocol."
        raise error_for(ErrorCode.UNKNOWN_MEMBER_ID, message)
    return member.classic


def _check_generation(member: ConsumerGroupMember, generation_id: int) -> None:
    if member.member_epoch != generation_id:
        raise error_for(
            ErrorCode.ILLEGAL_GENERATION,
            f"The request generation id {generation_id} is not equal to the member epoch {member.member_epoch} of "
            f"member {member.member_id}.",
        )
