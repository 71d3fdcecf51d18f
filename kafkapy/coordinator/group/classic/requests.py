"""The requests of classic members: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

Source: GroupMetadataManager (its classic part); KIP-345 (static membership), KIP-394 (two-step join), KIP-814 (static
leaders skip the assignment).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from kafkapy.coordinator.group.classic.group import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    NO_MEMBER,
    PREPARING_REBALANCE,
    STABLE,
    ClassicGroup,
    ClassicGroupMember,
    Protocols,
    join_error,
)
from kafkapy.coordinator.group.classic.rebalance import NOTHING, ClassicRebalance, Records
from kafkapy.coordinator.group.classic.records import group_metadata
from kafkapy.coordinator.group.config import GroupConfig
from kafkapy.coordinator.result import TOO_LARGE, Later, Result
from kafkapy.errors import ErrorCode, KafkaError, code_of, error_for
from kafkapy.protocol.messages.heartbeat import HeartbeatRequest
from kafkapy.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kafkapy.protocol.messages.leave_group import LeaveGroupRequest
from kafkapy.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

logger = logging.getLogger("kafka.coordinator.group.GroupCoordinator")

KNOWN_MEMBER_ID_REQUIRED: Final = 4
"""JoinGroup version from which a new dynamic member first gets an id and joins again with it."""
SKIP_ASSIGNMENT: Final = 9
"""JoinGroup version that has skip_assignment."""

JoinResult = Result[JoinGroupResponse]
SyncResult = Result[SyncGroupResponse]


class ClientInfo(NamedTuple):
    """The client of a request: client id and host.

    `host` is written as Kafka does: "/127.0.0.1".
    """

    client_id: str
    host: str
    api_version: int


class ClassicRequests:
    """The requests of classic groups as operations of the runtime.

    Owned by a GroupShard; used on the control loop's thread.
    """

    def __init__(
        self,
        find: Callable[[str], ClassicGroup | None],
        create: Callable[[str], ClassicGroup],
        rebalance: ClassicRebalance,
        config: GroupConfig,
    ) -> None:
        self._find = find
        self._create = create
        self._rebalance = rebalance
        self._config = config

    # --- JoinGroup --------------------------------------------------------------------------------------------------

    def join(self, client: ClientInfo, request: JoinGroupRequest) -> JoinResult:
        """Join the next generation; the reply waits until it is formed."""
        group = self._find(request.group_id)
        if group is None:
            if request.member_id != NO_MEMBER:
                return Result(join_error(request.member_id, ErrorCode.UNKNOWN_MEMBER_ID))
            if not request.protocol_type or not request.protocols:
                return Result(join_error(NO_MEMBER, ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
            group = self._create(request.group_id)
        if not self._has_room(group, request.member_id):
            stale = group.members.get(request.member_id)
            if stale is not None:
                self._rebalance.remove_member(group, stale)
            group.remove(request.member_id)
            refusal = join_error(NO_MEMBER, ErrorCode.GROUP_MAX_SIZE_REACHED)
            return Result(refusal, self._rebalance.complete_join_if_ready(group))
        if not group.supports_protocols(request.protocol_type, (each.name for each in request.protocols)):
            return Result(join_error(request.member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        if request.member_id == NO_MEMBER:
            return self._join_new(client, request, group)
        return self._join_known(client, request, group)

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        member = group.members.get(member_id)
        if group.state is EMPTY:
            return True
        if group.state is PREPARING_REBALANCE:
            # Waiting members count, not all members: after group.max.size was lowered the last ones to join again have
            # to leave.
            waits = member is not None and member.awaiting_join is not None
            return waits or group.awaiting_join_count < self._config.max_size
        return member is not None or len(group.members) < self._config.max_size

    def _join_new(self, client: ClientInfo, request: JoinGroupRequest, group: ClassicGroup) -> JoinResult:
        member_id = group.new_member_id(client.client_id, request.group_instance_id)
        if request.group_instance_id is not None:
            if request.group_instance_id in group.static_members:
                return self._replace_static(client, request, group, member_id)
            return self._add(client, request, group, member_id)
        if client.api_version >= KNOWN_MEMBER_ID_REQUIRED:
            group.pending_join.add(member_id)
            self._rebalance.schedule_expiry(group.group_id, member_id, request.session_timeout_ms)
            return Result(join_error(member_id, ErrorCode.MEMBER_ID_REQUIRED))
        return self._add(client, request, group, member_id)

    def _add(self, client: ClientInfo, request: JoinGroupRequest, group: ClassicGroup, member_id: str) -> JoinResult:
        member = ClassicGroupMember(
            member_id,
            request.group_instance_id,
            client.client_id,
            client.host,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            request.protocol_type,
            _protocols(request),
            is_new=True,
        )
        if group.state is PREPARING_REBALANCE and group.previous_state is EMPTY:
            group.new_member_added = True
        later: Later[JoinGroupResponse] = Later()
        group.add(member, later)
        # The member has no id to send heartbeats with yet; but it may be gone, and a new try would be a second member.
        self._rebalance.schedule_heartbeat(group, member, self._config.new_member_join_timeout_ms)
        reason = f"adding new member {member_id}; client reason: {_reason(request.reason)}"
        return Result(later, self._rebalance.prepare_or_complete(group, reason))

    def _join_known(self, client: ClientInfo, request: JoinGroupRequest, group: ClassicGroup) -> JoinResult:
        member_id = request.member_id
        if member_id in group.pending_join:
            if request.group_instance_id is not None:
                # Only dynamic members get an id in advance, so this is another member's id.
                return Result(join_error(member_id, ErrorCode.UNKNOWN_SERVER_ERROR))
            return self._add(client, request, group, member_id)
        try:
            member = group.validate_member(member_id, request.group_instance_id)
        except KafkaError as error:
            return Result(join_error(member_id, error.code))
        if group.state is PREPARING_REBALANCE:
            return self._rejoin(request, group, member, "joining")
        same = member.protocols == _protocols(request)
        if group.state is COMPLETING_REBALANCE:
            # With the same metadata: most likely its first answer was lost.
            return Result(group.joined(member_id)) if same else self._rejoin(request, group, member, "new metadata of")
        if group.state is STABLE:
            if group.is_leader(member_id):
                # A leader signals a change of topics this way, which its metadata do not show.
                return self._rejoin(request, group, member, "re-joining leader")
            return Result(group.joined(member_id)) if same else self._rejoin(request, group, member, "new metadata of")
        return Result(join_error(member_id, ErrorCode.UNKNOWN_MEMBER_ID))

    def _rejoin(
        self, request: JoinGroupRequest, group: ClassicGroup, member: ClassicGroupMember, why: str
    ) -> JoinResult:
        later: Later[JoinGroupResponse] = Later()
        self._update(request, group, member, later)
        reason = f"{why} member {member.member_id}; client reason: {_reason(request.reason)}"
        return Result(later, self._rebalance.prepare_or_complete(group, reason))

    def _update(
        self,
        request: JoinGroupRequest,
        group: ClassicGroup,
        member: ClassicGroupMember,
        later: Later[JoinGroupResponse],
    ) -> None:
        group.update(member, _protocols(request), request.rebalance_timeout_ms, request.session_timeout_ms, later)

    def _replace_static(
        self, client: ClientInfo, request: JoinGroupRequest, group: ClassicGroup, member_id: str
    ) -> JoinResult:
        instance_id = request.group_instance_id or ""
        old_leader = group.leader_id
        old_id = group.static_members[instance_id]
        logger.info("Static member %s of group %s gets the new member id %s", instance_id, group.group_id, member_id)
        member = group.replace_static_member(instance_id, member_id)
        self._rebalance.cancel_heartbeat(group, old_id)
        self._rebalance.schedule_heartbeat(group, member)
        later: Later[JoinGroupResponse] = Later()
        self._update(request, group, member, later)
        if group.state is STABLE:
            if group.select_protocol() == group.protocol_name:
                return self._keep_generation(client, group, member, later, old_leader)
            return Result(later, self._rebalance.prepare(group, f"static member {member_id} changes the protocol"))
        if group.state is COMPLETING_REBALANCE:
            # The leader may be assigning to the old id at this moment.
            return Result(later, self._rebalance.prepare(group, f"static member {member_id} is back under a new id"))
        return Result(later, self._rebalance.complete_join_if_ready(group))

    def _keep_generation(
        self,
        client: ClientInfo,
        group: ClassicGroup,
        member: ClassicGroupMember,
        later: Later[JoinGroupResponse],
        old_leader: str | None,
    ) -> JoinResult:
        """Keep the generation; write only the new id of the static member."""

        def after(error: BaseException | None) -> None:
            if error is not None:
                # The log still has the old id: joining again replaces it once more.
                group.answer_join(member, join_error(NO_MEMBER, _append_error(error)))
            elif client.api_version >= SKIP_ASSIGNMENT:
                is_leader = group.is_leader(member.member_id)
                group.answer_join(member, group.joined(member.member_id, skip_assignment=is_leader))
            else:
                # Clients without skip_assignment would assign if they were told that they lead.
                response = group.joined(member.member_id)
                response.leader = old_leader or ""
                response.members = []
                group.answer_join(member, response)

        return Result(later, [group_metadata(group, group.assignments())], after)

    # --- SyncGroup --------------------------------------------------------------------------------------------------

    def sync(self, request: SyncGroupRequest) -> SyncResult:
        """The member's assignment in the generation.

        The leader brings the assignments of all members.
        """
        group = self._find(request.group_id)
        if group is None or group.is_empty:
            return Result(_sync_error(ErrorCode.UNKNOWN_MEMBER_ID))
        error = _sync_refusal(group, request)
        if error is not ErrorCode.NONE:
            return Result(_sync_error(error))
        member = group.members[request.member_id]
        if group.state is PREPARING_REBALANCE:
            return Result(_sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
        self._rebalance.sync_received(group, member.member_id)
        if group.state is STABLE:
            return Result(
                SyncGroupResponse(
                    protocol_type=group.protocol_type,
                    protocol_name=group.protocol_name,
                    assignment=member.assignment,
                )
            )
        later: Later[SyncGroupResponse] = Later()
        before, member.awaiting_sync = member.awaiting_sync, later
        if before is not None:
            before.set(_sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
        if not group.is_leader(member.member_id):
            return Result(later)
        return self._assigned(group, request, later)

    def _assigned(self, group: ClassicGroup, request: SyncGroupRequest, later: Later[SyncGroupResponse]) -> SyncResult:
        logger.info(
            "Leader %s of group %s sent the assignment of generation %d",
            request.member_id,
            group.group_id,
            group.generation_id,
        )
        given = {each.member_id: each.assignment for each in request.assignments}
        generation = group.generation_id

        def after(error: BaseException | None) -> None:
            # A member may have joined while the records were replicated: then this generation is over.
            if group.state is not COMPLETING_REBALANCE or group.generation_id != generation:
                return
            if error is None:
                self._rebalance.become_stable(group)
            else:
                self._rebalance.reset_assignments(group, _append_error(error))
                self._rebalance.prepare(group, f"the assignment could not be stored: {error}")

        return Result(later, [group_metadata(group, given)], after)

    # --- Heartbeat --------------------------------------------------------------------------------------------------

    def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        """Restart a member's session; returns NONE or REBALANCE_IN_PROGRESS.

        With REBALANCE_IN_PROGRESS it has to join again. Raises the error of a member that is not valid.
        """
        group = self._find(request.group_id)
        if group is None:
            raise error_for(ErrorCode.UNKNOWN_MEMBER_ID)
        member = group.validate_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation_id:
            raise error_for(ErrorCode.ILLEGAL_GENERATION)
        if group.state in (EMPTY, DEAD):
            raise error_for(ErrorCode.UNKNOWN_MEMBER_ID)
        self._rebalance.schedule_heartbeat(group, member)
        return ErrorCode.REBALANCE_IN_PROGRESS if group.state is PREPARING_REBALANCE else ErrorCode.NONE

    # --- LeaveGroup -------------------------------------------------------------------------------------------------

    def leave(self, request: LeaveGroupRequest) -> Result[list[ErrorCode]]:
        """Remove members that leave, or that group.instance.id names; one outcome each."""
        group = self._find(request.group_id)
        if group is None:
            return Result([ErrorCode.UNKNOWN_MEMBER_ID] * len(request.members))
        # A client may name many that the group does not know.
        known, pending, static = group.members, group.pending_join, group.static_members
        outcomes = [
            self._leave(group, each)
            if each.member_id in known or each.group_instance_id in static or each.member_id in pending
            else ErrorCode.UNKNOWN_MEMBER_ID
            for each in request.members
        ]
        left = [
            each.member_id or each.group_instance_id or ""
            for each, outcome in zip(request.members, outcomes, strict=True)
            if outcome is ErrorCode.NONE
        ]
        records: Records = NOTHING
        if left:
            if group.state in (STABLE, COMPLETING_REBALANCE):
                records = self._rebalance.prepare(group, f"explicit `LeaveGroup` request for ({', '.join(left)})")
            elif group.state is PREPARING_REBALANCE:
                records = self._rebalance.complete_join_if_ready(group)
        return Result(outcomes, records)

    def _leave(self, group: ClassicGroup, each: LeaveGroupRequest.Member) -> ErrorCode:
        member_id = each.member_id
        if member_id == NO_MEMBER:
            # An administrator removes a static member.
            found = group.static_members.get(each.group_instance_id or "")
            if each.group_instance_id is None or found is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = found
        elif member_id in group.pending_join:
            group.remove(member_id)
            self._rebalance.cancel_heartbeat(group, member_id)
            return ErrorCode.NONE
        refusal = group.refusal(member_id, each.group_instance_id)
        if refusal is ErrorCode.NONE:
            logger.info("Member %s left group %s; client reason: %s", member_id, group.group_id, _reason(each.reason))
            self._rebalance.remove_member(group, group.members[member_id])
        return refusal


def _protocols(request: JoinGroupRequest) -> Protocols:
    return tuple([(each.name, each.metadata) for each in request.protocols])


def _reason(reason: str | None) -> str:
    return reason or "not provided"


def _sync_error(error: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error, assignment=b"")


def _sync_refusal(group: ClassicGroup, request: SyncGroupRequest) -> ErrorCode:
    try:
        group.validate_member(request.member_id, request.group_instance_id)
    except KafkaError as error:
        return error.code
    if request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    for asked, known in (
        (request.protocol_type, group.protocol_type),
        (request.protocol_name, group.protocol_name),
    ):
        if asked is not None and known is not None and asked != known:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE


def _append_error(error: BaseException) -> ErrorCode:
    """The member's error when its group's record could not be written."""
    code = code_of(error)
    return ErrorCode.UNKNOWN_SERVER_ERROR if code in TOO_LARGE else code
