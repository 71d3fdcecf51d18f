"""Rebalances of consumer groups: epochs, target assignments, members and their timeouts.

A change of subscriptions or topics raises the group's epoch, which gets a target assignment. Each member moves there by
its own heartbeats: it first gives up the partitions that other members get. Source: GroupMetadataManager (its consumer
part), TargetAssignmentBuilder; KIP-848.

Timeouts of a member, each under (name, group, member): "consumer-session" ends a silent member's session,
"consumer-rebalance" fences a member that does not give up partitions; "consumer-join" and "consumer-sync" fence a
classic member that does not join or sync after it was told to.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from kafkapy.coordinator.group.assignors.api import GroupAssignor, GroupSpec, MemberSubscription, Partitions
from kafkapy.coordinator.group.classic.group import ClassicGroup
from kafkapy.coordinator.group.consumer import records as records_of
from kafkapy.coordinator.group.consumer.group import ConsumerGroup, has_left_for_a_while
from kafkapy.coordinator.group.consumer.member import ConsumerGroupMember, MemberState, Owned, reconciled
from kafkapy.coordinator.group.consumer.migration import ConsumerMigration, replacement_of
from kafkapy.coordinator.group.counters import GroupCounters
from kafkapy.coordinator.group.group import Group
from kafkapy.coordinator.group.modern.partitions import NO_PARTITIONS
from kafkapy.coordinator.group.modern.rebalance import ModernRebalance, Records
from kafkapy.coordinator.group.modern.requests import JOIN_EPOCH
from kafkapy.coordinator.group.modern.topics import GroupTopics
from kafkapy.coordinator.records import CoordinatorRecord
from kafkapy.coordinator.result import Result
from kafkapy.errors import ErrorCode, error_for
from kafkapy.metadata.cache import MetadataSnapshot

if TYPE_CHECKING:
    from kafkapy.coordinator.clock import Clock
    from kafkapy.coordinator.group.config import GroupConfig, GroupOverrides
    from kafkapy.coordinator.shard_timer import ShardTimer

logger = logging.getLogger("kafka.coordinator.group.GroupCoordinator")

LARGE_GROUP: Final = 100
"""Members from which one target assignment serves several close changes, where no interval is configured.

Each assignment costs time for every member, so that a thousand members that join at once would cost a million times as
much as one. Kafka 4.1 computes one for each change, and Kafka 4.4 one a second.
"""
MEMBERS_PER_MS: Final = 5
"""A large group's assignments are at least one ms apart for each of so many members."""
MEMBERS_PER_CHANGE: Final = 4
"""A member of a large group waits no longer once one in so many members has changed."""
CLOSE_JOINS_MS: Final = 1_000
"""Joins within so many ms of an assignment are close: the interval of Kafka 4.4."""
JOIN_WAIT_MS: Final = 50
"""Delay in ms of an assignment after the last close join that it gives nothing.

A heartbeat of another member ends it.
"""


class ConsumerRebalance(ModernRebalance[ConsumerGroup, ConsumerGroupMember]):
    """The engine under the requests of consumer groups.

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
        assignors: Mapping[str, GroupAssignor],
        metadata: Callable[[], MetadataSnapshot],
        migration: ConsumerMigration,
        counters: GroupCounters,
        rebalanced: Callable[[ConsumerGroup], None],
    ) -> None:
        """Create the engine.

        `assignors` by name, the default one first; `rebalanced` is called with a settled group.
        """
        super().__init__(ConsumerGroup, groups, timer, clock, metadata, rebalanced)
        self._config = config
        self._overrides = overrides
        self._assignors = assignors
        self.migration = migration
        self._counters = counters

    # --- groups and members -----------------------------------------------------------------------------------------

    @property
    def default_assignor(self) -> str:
        """The name of the default assignor, for groups whose members choose none."""
        return next(iter(self._assignors), "")

    def get_to_join(self, group_id: str, records: Records) -> ConsumerGroup:
        """The group that a consumer member joins.

        It is a new group, one in the place of an empty classic group, or a converted classic group. GROUP_ID_NOT_FOUND
        when the conversion is not possible.
        """
        group = self._groups.get(group_id)
        if group is None:
            return ConsumerGroup(group_id)
        if isinstance(group, ClassicGroup):
            if group.is_empty:
                records += group.tombstones()
                logger.info("Empty classic group %s becomes a consumer group", group_id)
                return ConsumerGroup(group_id)
            return self.migration.upgrade(group, records)
        return self.get(group_id)

    def check_room(self, group: ConsumerGroup, member_id: str) -> None:
        """Check that a new member fits into the group: GROUP_MAX_SIZE_REACHED."""
        if member_id not in group.members and len(group.members) >= self._config.consumer_max_size:
            raise error_for(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {self._config.consumer_max_size} members.",
            )

    def static_member_to_join(
        self, group: ConsumerGroup, member_id: str, instance_id: str, records: Records, *, classic: bool
    ) -> ConsumerGroupMember:
        """The joining static member: new, or in its predecessor's place.

        The predecessor has the same instance id. UNRELEASED_INSTANCE_ID when both use the consumer protocol and the
        predecessor has not left.
        """
        existing = group.static_member(instance_id)
        if existing is None:
            return group.members.get(member_id) or ConsumerGroupMember(member_id)
        if not classic and existing.classic is None and not has_left_for_a_while(existing):
            raise error_for(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance "
                f"id is owned by {existing.member_id} member.",
            )
        logger.info(
            "Static member %s of group %s replaces member id %s with %s",
            instance_id,
            group.group_id,
            existing.member_id,
            member_id,
        )
        replacement = replacement_of(existing, member_id)
        records += records_of.member_tombstones(group.group_id, existing.member_id)
        records.append(records_of.member(group.group_id, replacement))
        target = group.target.get(existing.member_id, NO_PARTITIONS)
        records.append(records_of.target(group.group_id, member_id, target))
        records.append(records_of.current_assignment(group.group_id, replacement))
        return replacement

    def static_member(self, group: ConsumerGroup, member_id: str, instance_id: str) -> ConsumerGroupMember:
        """The static member of that instance id. UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
        member = group.static_member(instance_id)
        if member is None:
            raise error_for(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if member.member_id != member_id:
            raise error_for(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
            )
        return member

    # --- epochs and assignments -------------------------------------------------------------------------------------

    def describe_change(
        self, group: ConsumerGroup, before: ConsumerGroupMember, after: ConsumerGroupMember, records: Records
    ) -> bool:
        """Write a changed member; returns whether it subscribes to other topics now."""
        if before is after or before == after:
            return False
        records.append(records_of.member(group.group_id, after))
        return before.topic_names != after.topic_names

    def advance(
        self,
        group: ConsumerGroup,
        before: ConsumerGroupMember,
        after: ConsumerGroupMember,
        *,
        bump: bool,
        owned: Owned,
        records: Records,
    ) -> ConsumerGroupMember:
        """Advance a member after its request; returns the member.

        The group gets a new epoch with `bump` or when topics have changed, the epoch its target assignment, and the
        member its next step.
        """
        topics = GroupTopics(self._metadata())
        epoch = self.refresh(group, before, after, topics, bump=bump, records=records)
        target, target_epoch = group.target_of(after), group.assignment_epoch
        if epoch > target_epoch:
            wait_ms, puts_off = self._assignment_wait(group, after, epoch, topics)
            if wait_ms > 0:
                self._assign_later(group.group_id, wait_ms, puts_off=puts_off)
            else:
                target = self._assign(group, before, after, epoch, topics, records)
                target_epoch = epoch
        return self.reconcile(group, after, target_epoch, target, owned, records)

    def refresh(
        self,
        group: ConsumerGroup,
        before: ConsumerGroupMember,
        after: ConsumerGroupMember,
        topics: GroupTopics,
        *,
        bump: bool,
        records: Records,
    ) -> int:
        """See ModernRebalance. The topic metadata of a version before 4.1 is written off."""
        epoch = super().refresh(group, before, after, topics, bump=bump, records=records)
        if group.has_subscription_metadata:
            records.append(records_of.subscription_metadata_tombstone(group.group_id))
        return epoch

    def _epoch_begun(self, group: ConsumerGroup, epoch: int, metadata_hash: int) -> CoordinatorRecord:
        self._counters.consumer_rebalances += 1
        return records_of.epoch(group.group_id, epoch, metadata_hash)

    def _target(self, group: ConsumerGroup, member_id: str, partitions: Partitions) -> CoordinatorRecord:
        return records_of.target(group.group_id, member_id, partitions)

    def _target_epoch(self, group: ConsumerGroup, epoch: int) -> CoordinatorRecord:
        return records_of.target_epoch(group.group_id, epoch)

    def _assignment_wait(
        self, group: ConsumerGroup, member: ConsumerGroupMember, epoch: int, topics: GroupTopics
    ) -> tuple[int, bool]:
        """Delay of a new target assignment in ms, and whether it puts off a pending one.

        Assignments of a group keep an interval (KIP-1263). Classic members never wait: they would join again and again
        until the assignment exists.
        """
        if group.assigned_ms is None or group.classic_count or member.classic is not None:
            return 0, False
        interval = self._overrides.assignment_interval_ms(group.group_id)
        since = self._clock.monotonic_ms() - group.assigned_ms
        if interval is not None:
            return max(0, interval - since), False
        # Members that join at once share an assignment, unless the joining member gets a partition at once.
        in_vain = since < CLOSE_JOINS_MS and self._joins_in_vain(group, member, topics)
        least = JOIN_WAIT_MS if in_vain else 0
        size = len(group.members)
        if size < LARGE_GROUP or (not in_vain and (epoch - group.assignment_epoch) * MEMBERS_PER_CHANGE >= size):
            return least, in_vain
        return max(least, size // MEMBERS_PER_MS - since), in_vain

    @staticmethod
    def _joins_in_vain(group: ConsumerGroup, member: ConsumerGroupMember, topics: GroupTopics) -> bool:
        """Whether a member joins, and other members have all partitions of its topics."""
        if member.member_epoch != JOIN_EPOCH or group.target_of(member):
            return False
        subscribed = topics.snapshot.topics
        for name in group.topics_of(member):
            topic = subscribed.get(name)
            if topic is not None and len(group.owners(topic.topic_id)) < topic.partition_count:
                return False
        return True

    def _assign(
        self,
        group: ConsumerGroup,
        before: ConsumerGroupMember | None,
        after: ConsumerGroupMember | None,
        epoch: int,
        topics: GroupTopics,
        records: Records,
    ) -> Partitions:
        """Compute and write the target assignment of an epoch.

        Returns the target of the changed member, if one has changed.
        """
        members = group.members
        if after is not None:
            members = {**members, after.member_id: after}
            replaced = None if after.instance_id is None else group.static_members.get(after.instance_id)
            if replaced is not None and replaced != after.member_id:
                members.pop(replaced, None)
        preferred = group.preferred_assignor(before, after) or self.default_assignor
        assignor = self._assignors.get(preferred) or self._assignors[self.default_assignor]
        subscriptions = group.subscriptions([] if before is None else [before], after)
        spec = GroupSpec(self._specs(group, members, after, topics), subscriptions.is_homogeneous(len(members)))
        assignment = self._compute(group, assignor, spec, epoch, topics, records)
        return NO_PARTITIONS if after is None else assignment.get(after.member_id, NO_PARTITIONS)

    def _specs(
        self,
        group: ConsumerGroup,
        members: Mapping[str, ConsumerGroupMember],
        after: ConsumerGroupMember | None,
        topics: GroupTopics,
    ) -> dict[str, MemberSubscription]:
        ids: dict[tuple[frozenset[str], str], Any] = {}
        specs: dict[str, MemberSubscription] = {}
        for member_id, member in members.items():
            key = member.topic_names, member.topic_regex
            topic_ids = ids.get(key)
            if topic_ids is None:
                topic_ids = ids[key] = topics.ids_of(group.topics_of(member))
            target = group.target_of(member) if member is after else group.target.get(member_id, NO_PARTITIONS)
            specs[member_id] = MemberSubscription(member.instance_id, member.rack_id, topic_ids, target)
        return specs

    def reconcile(
        self,
        group: ConsumerGroup,
        member: ConsumerGroupMember,
        target_epoch: int,
        target: Partitions,
        owned: Owned,
        records: Records,
    ) -> ConsumerGroupMember:
        """The member's next step to its target assignment."""
        if member.is_reconciled_to(target_epoch):
            return member
        moved = reconciled(member, target_epoch, target, group.owners, owned)
        if moved == member:
            return member
        records.append(records_of.current_assignment(group.group_id, moved))
        if moved.classic is None:
            if moved.state is MemberState.UNREVOKED_PARTITIONS:
                self.schedule_rebalance(group.group_id, moved)
            elif member.state is MemberState.UNREVOKED_PARTITIONS:
                self._timer.cancel(("consumer-rebalance", group.group_id, moved.member_id))
        return moved

    # --- members who go ---------------------------------------------------------------------------------------------

    def fence(self, group: ConsumerGroup, members: Collection[ConsumerGroupMember]) -> Records:
        """Remove members.

        The group becomes classic when only classic members are left.
        """
        records: Records = []
        if not members:
            return records
        if self.migration.may_downgrade_without(group, members):
            self.migration.downgrade(group, members, None, rebalance=True, records=records)
        else:
            self._remove(group, members, records)
        return records

    def _remove(self, group: ConsumerGroup, members: Collection[ConsumerGroupMember], records: Records) -> None:
        for member in members:
            records += records_of.member_tombstones(group.group_id, member.member_id)
        left = group.subscriptions(members)
        for regex in group.resolved:
            if regex not in left.regexes:
                records.append(records_of.regular_expression_tombstone(group.group_id, regex))
        self.next_epoch(group, GroupTopics(self._metadata()).hash_of(left.topics), records)

    # --- timeouts ---------------------------------------------------------------------------------------------------

    def schedule_session(self, group: ConsumerGroup, member: ConsumerGroupMember) -> None:
        """Restart the session of a live member."""
        if member.classic is not None:
            timeout = member.classic.session_timeout_ms
        else:
            timeout = self._overrides.session_timeout_ms(group.group_id)
        if not self._timer.restart(("consumer-session", group.group_id, member.member_id), timeout):
            self._fence_after("consumer-session", group.group_id, member.member_id, timeout, "its session expired")

    def schedule_rebalance(self, group_id: str, member: ConsumerGroupMember) -> None:
        """Fence a member that does not give up partitions in time."""
        epoch = member.member_epoch
        reason = f"it has not left epoch {epoch} within its rebalance timeout"
        timeout = member.rebalance_timeout_ms
        self._fence_after("consumer-rebalance", group_id, member.member_id, timeout, reason, epoch)

    def schedule_join(self, group_id: str, member: ConsumerGroupMember) -> None:
        """Fence a classic member that does not join in time.

        The time begins when the broker first tells it to join.
        """
        if ("consumer-join", group_id, member.member_id) not in self._timer:
            reason = "it has not joined within the rebalance timeout"
            self._fence_after("consumer-join", group_id, member.member_id, member.rebalance_timeout_ms, reason)

    def target_applied(self, group_id: str) -> None:
        """Take the time of a group's target assignment, whose record was applied.

        The first one was computed for a group that was not there yet.
        """
        group = self.find(group_id)
        if group is not None:
            group.assigned_ms = self._clock.monotonic_ms()

    def member_applied(self, group_id: str, member_id: str) -> None:
        """Update a member's timeouts after its record was applied.

        A new member gets a session; a removed one loses its timeouts.
        """
        group = self.find(group_id)
        member = None if group is None else group.members.get(member_id)
        if group is None or member is None:
            for name in ("consumer-session", "consumer-rebalance", "consumer-join", "consumer-sync"):
                self._timer.cancel((name, group_id, member_id))
        elif ("consumer-session", group_id, member_id) not in self._timer:
            self.schedule_session(group, member)

    def joined(self, group_id: str, member_id: str, sync_timeout_ms: int) -> None:
        """Wait for the member's SyncGroup after its JoinGroup."""
        self._timer.cancel(("consumer-join", group_id, member_id))
        self._fence_after("consumer-sync", group_id, member_id, sync_timeout_ms, "it has not synced within its timeout")

    def synced(self, group_id: str, member_id: str) -> None:
        """End the wait for the member's SyncGroup."""
        self._timer.cancel(("consumer-sync", group_id, member_id))

    def _fence_after(
        self, name: str, group_id: str, member_id: str, timeout_ms: int, reason: str, epoch: int | None = None
    ) -> None:
        """Fence a member after a time, unless it has left `epoch`."""
        may_convert = True

        def due(shard: object, now_ms: int) -> Result[None]:
            nonlocal may_convert
            del shard, now_ms
            group = self.find(group_id)
            member = None if group is None else group.members.get(member_id)
            if group is None or member is None or (epoch is not None and member.member_epoch != epoch):
                return Result(None)
            logger.info("Member %s is fenced from group %s because %s", member_id, group_id, reason)
            records: Records = []
            if may_convert and self.migration.may_downgrade_without(group, [member]):
                # The timer runs this again when the downgrade fails: a member's data cannot be read, or the group is
                # too large for one batch. The member is then removed from the consumer group.
                may_convert = False
                self.migration.downgrade(group, [member], None, rebalance=True, records=records)
            else:
                self._remove(group, [member], records)
            return self.announced(group_id, Result(None, records))

        self._timer.schedule((name, group_id, member_id), timeout_ms, due)

    # --- loading ----------------------------------------------------------------------------------------------------

    def loaded(self, group: ConsumerGroup) -> None:
        """Start the sessions of all members of a loaded group.

        They begin as if each member had just sent a heartbeat.
        """
        self._is_news(group)
        for member in group.members.values():
            self.schedule_session(group, member)
            revokes = member.state is MemberState.UNREVOKED_PARTITIONS and not has_left_for_a_while(member)
            if revokes and member.classic is None:
                self.schedule_rebalance(group.group_id, member)
