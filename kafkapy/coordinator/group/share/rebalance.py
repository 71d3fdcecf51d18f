"""Rebalances of share groups: epochs, target assignments, members and their sessions.

A partition may have several members, so that nobody has to give it up first: each member takes its target assignment
with its next heartbeat. Only partitions whose state was initialized are assigned. Source: GroupMetadataManager (its
share part), ShareTargetAssignmentBuilder; KIP-932.

"share-session" under (name, group, member) is the timeout that ends a silent member's session.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kafkapy.coordinator.group.assignors.api import GroupAssignor, GroupSpec, MemberSubscription, Partitions
from kafkapy.coordinator.group.counters import GroupCounters
from kafkapy.coordinator.group.group import Group
from kafkapy.coordinator.group.modern.partitions import NO_PARTITIONS
from kafkapy.coordinator.group.modern.rebalance import ModernRebalance, Records
from kafkapy.coordinator.group.modern.topics import GroupTopics
from kafkapy.coordinator.group.share import records as records_of
from kafkapy.coordinator.group.share.group import ShareGroup
from kafkapy.coordinator.group.share.listeners import ShareGroupListeners
from kafkapy.coordinator.group.share.member import ShareGroupMember
from kafkapy.coordinator.records import CoordinatorRecord
from kafkapy.coordinator.result import Result
from kafkapy.errors import ErrorCode, error_for
from kafkapy.metadata.cache import MetadataSnapshot

if TYPE_CHECKING:
    from kafkapy.coordinator.clock import Clock
    from kafkapy.coordinator.group.config import GroupConfig, GroupOverrides
    from kafkapy.coordinator.shard_timer import ShardTimer

logger = logging.getLogger("kafka.coordinator.group.GroupCoordinator")


class ShareRebalance(ModernRebalance[ShareGroup, ShareGroupMember]):
    """The engine under the requests of share groups.

    Owned by a GroupShard; used on the control loop's thread. It changes only group state that is not in the log: all
    other changes go into the given `records`.
    """

    def __init__(
        self,
        groups: Mapping[str, Group],
        timer: ShardTimer[Any],
        clock: Clock,
        config: GroupConfig,
        overrides: GroupOverrides,
        assignor: GroupAssignor,
        metadata: Callable[[], MetadataSnapshot],
        counters: GroupCounters,
        listeners: ShareGroupListeners,
        rebalanced: Callable[[ShareGroup], None],
    ) -> None:
        """`rebalanced` is called with a settled group."""
        super().__init__(ShareGroup, groups, timer, clock, metadata, rebalanced)
        self._config = config
        self._overrides = overrides
        self._assignor = assignor
        self._counters = counters
        self._listeners = listeners

    # --- groups and members -----------------------------------------------------------------------------------------

    @property
    def assignor_name(self) -> str:
        """The name of the assignor of all share groups."""
        return self._assignor.name

    def share_groups(self) -> Iterable[ShareGroup]:
        """All share groups of the shard."""
        return (group for group in self._groups.values() if isinstance(group, ShareGroup))

    def get_to_join(self, group_id: str) -> ShareGroup:
        """The group that a member joins: a share group, or a new one.

        GROUP_ID_NOT_FOUND for a group of another protocol: no group becomes a share group.
        """
        return self.get(group_id) if group_id in self._groups else ShareGroup(group_id)

    def check_room(self, group: ShareGroup, member_id: str) -> None:
        """Check that a new member fits into the group: GROUP_MAX_SIZE_REACHED."""
        if len(group.members) >= self._config.share_max_size and member_id not in group.members:
            raise error_for(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The share group has reached its maximum capacity of {self._config.share_max_size} members.",
            )

    # --- epochs and assignments -------------------------------------------------------------------------------------

    def advance(
        self, group: ShareGroup, before: ShareGroupMember, after: ShareGroupMember, records: Records
    ) -> tuple[ShareGroupMember, int, bool]:
        """Advance a member after its request.

        Returns the member, the group's epoch, and whether its target assignment is still to come. The group gets a new
        epoch when subscriptions or topics have changed, or partitions have been initialized.
        """
        bump = before.topic_names != after.topic_names
        if before != after:
            records.append(records_of.member(group.group_id, after))
        bump = bump or group.waits_for_assignment
        topics = GroupTopics(self._metadata())
        epoch = self.refresh(group, before, after, topics, bump=bump, records=records)
        target, target_epoch = group.target.get(after.member_id, NO_PARTITIONS), group.assignment_epoch
        if epoch > target_epoch:
            wait_ms = self._assignment_wait_ms(group)
            if wait_ms > 0:
                self._assign_later(group.group_id, wait_ms)
            else:
                target = self._assign(group, before, after, epoch, topics, records)
                target_epoch = epoch
        moved = after
        if bump or after.member_epoch != target_epoch:
            moved = after.moved_to(target_epoch, target, topics.ids_of(after.topic_names))
            if moved is not after:
                records.append(records_of.current_assignment(group.group_id, moved))
        return moved, epoch, epoch > target_epoch

    def _assignment_wait_ms(self, group: ShareGroup) -> int:
        """Delay of a new target assignment in ms: assignments of a group keep an interval (KIP-1263)."""
        if group.assigned_ms is None:
            return 0
        interval = self._overrides.share_assignment_interval_ms(group.group_id)
        return max(0, group.assigned_ms + interval - self._clock.monotonic_ms())

    def _epoch_begun(self, group: ShareGroup, epoch: int, metadata_hash: int) -> CoordinatorRecord:
        self._counters.share_rebalances += 1
        return records_of.epoch(group.group_id, epoch, metadata_hash)

    def _target(self, group: ShareGroup, member_id: str, partitions: Partitions) -> CoordinatorRecord:
        return records_of.target(group.group_id, member_id, partitions)

    def _target_epoch(self, group: ShareGroup, epoch: int) -> CoordinatorRecord:
        return records_of.target_epoch(group.group_id, epoch, self._clock.time_ms())

    def _assign(
        self,
        group: ShareGroup,
        before: ShareGroupMember | None,
        after: ShareGroupMember | None,
        epoch: int,
        topics: GroupTopics,
        records: Records,
    ) -> Partitions:
        """See ModernRebalance."""
        members = group.members if after is None else {**group.members, after.member_id: after}
        initialized = group.state_partitions.initialized
        assignable = {topic_id: topic.partitions for topic_id, topic in initialized.items()}
        ids: dict[frozenset[str], frozenset[Any]] = {}
        specs = {}
        for member_id, member in members.items():
            topic_ids = ids.get(member.topic_names)
            if topic_ids is None:
                topic_ids = ids[member.topic_names] = topics.ids_of(member.topic_names)
            target = group.target.get(member_id, NO_PARTITIONS)
            specs[member_id] = MemberSubscription(None, member.rack_id, topic_ids, target)
        subscriptions = group.subscriptions([] if before is None else [before], after)
        spec = GroupSpec(specs, subscriptions.is_homogeneous(len(members)), assignable)
        assignment = self._compute(group, self._assignor, spec, epoch, topics, records)
        group.assigned_from = initialized
        if not initialized:
            # The next assignment, with the first partitions, need not wait.
            group.assigned_ms = None
        return NO_PARTITIONS if after is None else assignment.get(after.member_id, NO_PARTITIONS)

    # --- members who go ---------------------------------------------------------------------------------------------

    def fence(self, group: ShareGroup, member: ShareGroupMember) -> Records:
        """Remove a member."""
        records: Records = [*records_of.member_tombstones(group.group_id, member.member_id)]
        topics = group.subscriptions([member]).topics
        epoch = self.next_epoch(group, GroupTopics(self._metadata()).hash_of(topics), records)
        if group.members.keys() == {member.member_id}:
            # Nobody is left whom an assignment could reach.
            records.append(records_of.target_epoch(group.group_id, epoch, 0))
        return records

    def schedule_session(self, group_id: str, member_id: str) -> None:
        """Restart the session of a live member."""

        def due(shard: object, now_ms: int) -> Result[None]:
            del shard, now_ms
            group = self.find(group_id)
            member = None if group is None else group.members.get(member_id)
            if group is None or member is None:
                return Result(None)
            logger.info("Member %s is fenced from share group %s because its session expired", member_id, group_id)
            return self.announced(group_id, Result(None, self.fence(group, member)))

        timeout_ms = self._overrides.share_session_timeout_ms(group_id)
        self._timer.schedule(("share-session", group_id, member_id), timeout_ms, due)

    def member_applied(self, group_id: str, member_id: str) -> None:
        """Update a member's session after its record was applied.

        A new member gets one; a removed one loses it, and the listeners hear of it.
        """
        group = self.find(group_id)
        key = ("share-session", group_id, member_id)
        if group is None or member_id not in group.members:
            self._timer.cancel(key)
            self._listeners.member_gone(group_id, member_id)
        elif key not in self._timer:
            self.schedule_session(group_id, member_id)

    def loaded(self, group: ShareGroup) -> None:
        """Start the sessions of all members of a loaded group.

        They begin as if each member had just sent a heartbeat.
        """
        self._is_news(group)
        for member_id in group.members:
            self.schedule_session(group.group_id, member_id)
