"""Rebalances of classic groups: generations, waits for members, and expired members.

Empty -> PreparingRebalance (members join) -> CompletingRebalance (the leader assigns) -> Stable, and back to
PreparingRebalance whenever membership or metadata change. Source: GroupMetadataManager (its classic part).

Timeouts of a group: ("join", group) ends PreparingRebalance, ("sync", group) ends CompletingRebalance, and
("heartbeat", group, member) ends a session, or the wait for a member that was given an id and told to come back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kafkapy.coordinator.group.classic.group import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    NO_MEMBER,
    PREPARING_REBALANCE,
    STABLE,
    ClassicGroup,
    ClassicGroupMember,
    join_error,
)
from kafkapy.coordinator.group.classic.records import group_metadata
from kafkapy.coordinator.records import CoordinatorRecord
from kafkapy.coordinator.result import Result
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from kafkapy.coordinator.clock import Clock
    from kafkapy.coordinator.group.config import GroupConfig
    from kafkapy.coordinator.shard_timer import ShardTimer

logger = logging.getLogger("kafka.coordinator.group.GroupCoordinator")

Records = list[CoordinatorRecord]
NOTHING: Final[Records] = []

RETRY_MS: Final = 1000
"""Least pause in ms between checks of a rebalance that no member has joined."""


class ClassicRebalance:
    """The engine under the classic requests.

    Owned by a GroupShard; used on the control loop's thread. Methods that may end a rebalance return the records to
    write for it.
    """

    def __init__(
        self,
        find: Callable[[str], ClassicGroup | None],
        timer: ShardTimer[Any],
        clock: Clock,
        config: GroupConfig,
        rebalanced: Callable[[ClassicGroup], None],
    ) -> None:
        self._find = find
        self._timer = timer
        self._clock = clock
        self._config = config
        self._rebalanced = rebalanced

    # --- PreparingRebalance -----------------------------------------------------------------------------------------

    def prepare_or_complete(self, group: ClassicGroup, reason: str) -> Records:
        """Begin a rebalance, or try to complete the running one."""
        return self.prepare(group, reason) if group.can_rebalance else self.complete_join_if_ready(group)

    def prepare(self, group: ClassicGroup, reason: str) -> Records:
        """Begin a rebalance: every member has to join again."""
        if group.state is COMPLETING_REBALANCE:
            self.reset_assignments(group, ErrorCode.REBALANCE_IN_PROGRESS)
        group.pending_sync.clear()
        self._timer.cancel(("sync", group.group_id))
        is_initial = group.state is EMPTY
        group.transition_to(PREPARING_REBALANCE, self._clock.time_ms())
        logger.info(
            "Group %s prepares a rebalance of generation %d (reason: %s)",
            group.group_id,
            group.generation_id,
            reason,
        )
        if is_initial:
            # The group is new: its members start one after the other, so it waits a little for all of them.
            delay = self._config.initial_rebalance_delay_ms
            group.new_member_added = False
            self._delay_initial(group.group_id, delay, max(group.rebalance_timeout_ms - delay, 0))
            return NOTHING
        if group.has_all_members_joined:
            return self.complete_join(group)
        self._await_joins(group)
        return NOTHING

    def _await_joins(self, group: ClassicGroup, at_least_ms: int = 0) -> None:
        group_id = group.group_id
        wait = max(group.rebalance_timeout_ms, at_least_ms)
        self._timer.schedule(("join", group_id), wait, lambda _shard, _now: self._due(group_id))

    def _due(self, group_id: str) -> Result[None]:
        group = self._find(group_id)
        return Result(None, NOTHING if group is None else self.complete_join(group))

    def _delay_initial(self, group_id: str, delay_ms: int, remaining_ms: int) -> None:
        self._timer.schedule(
            ("join", group_id),
            delay_ms,
            lambda _shard, _now: self._initial_delay_over(group_id, delay_ms, remaining_ms),
        )

    def _initial_delay_over(self, group_id: str, delay_ms: int, remaining_ms: int) -> Result[None]:
        group = self._find(group_id)
        if group is None:
            return Result(None)
        if group.new_member_added and remaining_ms > 0:
            group.new_member_added = False
            next_delay = min(self._config.initial_rebalance_delay_ms, remaining_ms)
            self._delay_initial(group_id, next_delay, max(remaining_ms - delay_ms, 0))
            return Result(None)
        return Result(None, self.complete_join(group))

    def complete_join_if_ready(self, group: ClassicGroup) -> Records:
        """End PreparingRebalance if all members have joined.

        The first rebalance of a group waits its full delay.
        """
        if group.state is not PREPARING_REBALANCE or group.previous_state is EMPTY or not group.has_all_members_joined:
            return NOTHING
        return self.complete_join(group)

    def complete_join(self, group: ClassicGroup) -> Records:
        """End PreparingRebalance and begin a generation.

        Dynamic members that have not joined again are removed.
        """
        if group.state is not PREPARING_REBALANCE:
            return NOTHING
        self._timer.cancel(("join", group.group_id))
        absent = [m for m in group.members.values() if m.awaiting_join is None and not m.is_static]
        for member in absent:
            group.remove(member.member_id)
            self.cancel_heartbeat(group, member.member_id)
        if absent:
            logger.info(
                "Group %s removed dynamic members that did not join in time: %s",
                group.group_id,
                ", ".join(member.member_id for member in absent),
            )
        if group.members and not group.elect_joined_leader():
            # Only static members are left and none has joined again: their sessions decide.
            self._await_joins(group, at_least_ms=RETRY_MS)
            return NOTHING
        group.next_generation(self._clock.time_ms())
        if group.state is EMPTY:
            logger.info("Group %s is empty in generation %d", group.group_id, group.generation_id)
            self._rebalanced(group)
            return [group_metadata(group, {})]
        logger.info(
            "Group %s begins generation %d with %d members",
            group.group_id,
            group.generation_id,
            len(group.members),
        )
        for member in list(group.members.values()):
            group.answer_join(member, group.joined(member.member_id))
            self.schedule_heartbeat(group, member)
            member.is_new = False
            group.pending_sync.add(member.member_id)
        self._await_syncs(group)
        return NOTHING

    # --- CompletingRebalance ----------------------------------------------------------------------------------------

    def _await_syncs(self, group: ClassicGroup) -> None:
        group_id, generation = group.group_id, group.generation_id
        self._timer.schedule(
            ("sync", group_id), group.rebalance_timeout_ms, lambda _shard, _now: self._syncs_due(group_id, generation)
        )

    def _syncs_due(self, group_id: str, generation: int) -> Result[None]:
        group = self._find(group_id)
        if group is None or group.generation_id != generation or group.state not in (COMPLETING_REBALANCE, STABLE):
            return Result(None)
        late = [member_id for member_id in group.members if member_id in group.pending_sync]
        if not late:
            return Result(None)
        for member_id in late:
            self.remove_member(group, group.members[member_id])
        names = ", ".join(late)
        return Result(None, self.prepare(group, f"removing {names} on pending sync request expiration"))

    def sync_received(self, group: ClassicGroup, member_id: str) -> None:
        """Note a member's SyncGroup."""
        group.pending_sync.discard(member_id)
        if not group.pending_sync:
            self._timer.cancel(("sync", group.group_id))

    def become_stable(self, group: ClassicGroup) -> None:
        """Hand out the leader's committed assignments."""
        group.transition_to(STABLE, self._clock.time_ms())
        self._answer_syncs(group, ErrorCode.NONE)
        self._rebalanced(group)

    def reset_assignments(self, group: ClassicGroup, error: ErrorCode) -> None:
        """Fail the rebalance: revoke all assignments.

        Waiting members get the error.
        """
        for member in group.members.values():
            member.assignment = b""
        self._answer_syncs(group, error)

    def _answer_syncs(self, group: ClassicGroup, error: ErrorCode) -> None:
        good = error is ErrorCode.NONE
        for member in list(group.members.values()):
            response = SyncGroupResponse(
                error_code=error,
                protocol_type=group.protocol_type if good else None,
                protocol_name=group.protocol_name if good else None,
                assignment=member.assignment,
            )
            if group.answer_sync(member, response):
                # The session does not run while the member waits, so it starts again here.
                self.schedule_heartbeat(group, member)

    # --- sessions ---------------------------------------------------------------------------------------------------

    def schedule_heartbeat(
        self, group: ClassicGroup, member: ClassicGroupMember, timeout_ms: int | None = None
    ) -> None:
        """Restart the session of a live member."""
        wait = member.session_timeout_ms if timeout_ms is None else timeout_ms
        self.schedule_expiry(group.group_id, member.member_id, wait)

    def schedule_expiry(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        """Remove a member, or a pending member id, after a silence."""
        key = ("heartbeat", group_id, member_id)
        if not self._timer.restart(key, timeout_ms):
            self._timer.schedule(key, timeout_ms, lambda _shard, _now: self._expire(group_id, member_id))

    def cancel_heartbeat(self, group: ClassicGroup, member_id: str) -> None:
        """Cancel the session of a removed member."""
        self._timer.cancel(("heartbeat", group.group_id, member_id))

    def _expire(self, group_id: str, member_id: str) -> Result[None]:
        group = self._find(group_id)
        if group is None or group.state is DEAD:
            return Result(None)
        if member_id in group.pending_join:
            group.remove(member_id)
            return Result(None, self.complete_join_if_all_joined(group))
        member = group.members.get(member_id)
        if member is None or member.is_alive_by_waiting:
            return Result(None)
        if member.committed_at_ms is not None:
            left = member.committed_at_ms + member.session_timeout_ms - self._clock.monotonic_ms()
            if left > 0:
                self.schedule_heartbeat(group, member, left)
                return Result(None)
        logger.info("Member %s of group %s sent no heartbeat in time and is removed", member_id, group_id)
        return Result(None, self._remove_and_rebalance(group, member))

    def _remove_and_rebalance(self, group: ClassicGroup, member: ClassicGroupMember) -> Records:
        self.remove_member(group, member)
        if group.state in (STABLE, COMPLETING_REBALANCE):
            return self.prepare(group, f"removing member {member.member_id} on heartbeat expiration")
        return self.complete_join_if_all_joined(group)

    def complete_join_if_all_joined(self, group: ClassicGroup) -> Records:
        """End PreparingRebalance if all members have joined, after a member was removed.

        The first rebalance too.
        """
        if group.state is PREPARING_REBALANCE and group.has_all_members_joined:
            return self.complete_join(group)
        return NOTHING

    def remove_member(self, group: ClassicGroup, member: ClassicGroupMember) -> None:
        """Remove a member.

        If it waits for a JoinGroup it is told to join again, because it may still be alive.
        """
        group.answer_join(member, join_error(NO_MEMBER, ErrorCode.UNKNOWN_MEMBER_ID))
        group.answer_sync(member, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID, assignment=b""))
        group.remove(member.member_id)
        self.cancel_heartbeat(group, member.member_id)

    # --- migration --------------------------------------------------------------------------------------------------

    def converted(self, group: ClassicGroup, error: ErrorCode) -> None:
        """End the classic group's requests and timeouts after a migration.

        Waiting members get the error.
        """
        for member in group.members.values():
            group.answer_join(member, join_error(member.member_id, error))
            group.answer_sync(member, SyncGroupResponse(error_code=error, assignment=b""))
        for member_id in [*group.members, *group.pending_join]:
            self.cancel_heartbeat(group, member_id)
        self._timer.cancel(("join", group.group_id))
        self._timer.cancel(("sync", group.group_id))

    # --- loading ----------------------------------------------------------------------------------------------------

    def loaded(self, group: ClassicGroup) -> Records:
        """Start the sessions of all members of a loaded group.

        They begin as if each member had just sent a heartbeat.
        """
        for member in group.members.values():
            self.schedule_heartbeat(group, member)
        if len(group.members) > self._config.max_size:
            return self.prepare(group, f"loaded with {len(group.members)} members, more than group.max.size")
        return NOTHING
