"""GroupShard: the groups and offsets of one partition of __consumer_offsets.

It connects the parts: ClassicRequests over ClassicRebalance, ConsumerRequests and ClassicMembers over
ConsumerRebalance, ShareRequests over ShareRebalance, OffsetRequests over an OffsetStore, and the requests about groups
of every type. Source:
org.apache.kafka.coordinator.group.GroupCoordinatorShard.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from kafkapy.coordinator.group.classic.group import NO_MEMBER, STABLE, ClassicGroup, join_error
from kafkapy.coordinator.group.classic.rebalance import ClassicRebalance
from kafkapy.coordinator.group.classic.requests import ClassicRequests, ClientInfo
from kafkapy.coordinator.group.config import GroupConfig, GroupOverrides
from kafkapy.coordinator.group.consumer.classic import ClassicMembers
from kafkapy.coordinator.group.consumer.group import ConsumerGroup
from kafkapy.coordinator.group.consumer.migration import ConsumerMigration
from kafkapy.coordinator.group.consumer.patterns import ConsumerPatterns
from kafkapy.coordinator.group.consumer.rebalance import ConsumerRebalance
from kafkapy.coordinator.group.consumer.records import (
    CONSUMER_GROUP_KEYS,
    EPOCH_KEY,
    MEMBER_KEY,
    TARGET_EPOCH_KEY,
)
from kafkapy.coordinator.group.consumer.replay import ConsumerReplay
from kafkapy.coordinator.group.consumer.requests import ConsumerRequests
from kafkapy.coordinator.group.counters import GroupCounters
from kafkapy.coordinator.group.group import Group, GroupType
from kafkapy.coordinator.group.leases import LeaseBusyError, OffsetLeases
from kafkapy.coordinator.group.modern.group import ModernGroup
from kafkapy.coordinator.group.offset_requests import OffsetRequests
from kafkapy.coordinator.group.offsets import OffsetStore
from kafkapy.coordinator.group.records import GROUP_METADATA_KEY, OFFSET_COMMIT_KEY
from kafkapy.coordinator.group.share import records as share_records
from kafkapy.coordinator.group.share.group import ShareGroup
from kafkapy.coordinator.group.share.initialization import ShareInitialization
from kafkapy.coordinator.group.share.listeners import ShareGroupListeners
from kafkapy.coordinator.group.share.offsets import ShareOffsetOperations
from kafkapy.coordinator.group.share.rebalance import ShareRebalance
from kafkapy.coordinator.group.share.records import SHARE_GROUP_KEYS
from kafkapy.coordinator.group.share.replay import ShareReplay
from kafkapy.coordinator.group.share.requests import ShareRequests
from kafkapy.coordinator.records import CoordinatorRecord
from kafkapy.coordinator.result import Result
from kafkapy.errors import ErrorCode, KafkaError, error_for
from kafkapy.metadata.cache import MetadataSnapshot
from kafkapy.protocol.messages.consumer_group_records import (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
)
from kafkapy.protocol.messages.describe_groups import DescribeGroupsResponse
from kafkapy.protocol.messages.group_metadata_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from kafkapy.protocol.messages.heartbeat import HeartbeatRequest
from kafkapy.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kafkapy.protocol.messages.leave_group import LeaveGroupRequest
from kafkapy.protocol.messages.list_groups import ListGroupsResponse
from kafkapy.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from kafkapy._speedups.requests.offset_commit.lease import CommitLease, CommitTable
    from kafkapy.coordinator.group.assignors.api import GroupAssignor
    from kafkapy.coordinator.hosted import ShardContext
    from kafkapy.coordinator.share.persister import Persister

logger = logging.getLogger("kafka.coordinator.group.GroupCoordinator")

RECORDS_PER_EXPIRY: Final = 2000
"""Tombstones of one operation: they go into one batch."""


class GroupEvent(NamedTuple):
    """A group became stable in a new generation, or empty."""

    group_id: str
    generation_id: int
    members: tuple[str, ...]


class GroupShard:
    """The groups of one partition that this broker leads.

    The runtime makes it; it is used on the control loop's thread.
    """

    def __init__(
        self,
        context: ShardContext[Any],
        config: GroupConfig,
        rebalanced: Callable[[GroupEvent], None] = lambda _: None,
        *,
        assignors: Mapping[str, GroupAssignor],
        metadata: Callable[[], MetadataSnapshot],
        overrides: GroupOverrides,
        counters: GroupCounters,
        share_assignor: GroupAssignor,
        persister: Callable[[], Persister],
        share_listeners: ShareGroupListeners,
        commit_table: CommitTable | None = None,
        abandon: Callable[[CommitLease], object] = lambda lease: lease.abandon(),
    ) -> None:
        """Create the shard's parts.

        `assignors` by name, the default one first. `commit_table` lends groups to network threads; `abandon` ends a
        lease when the shard is unloaded.
        """
        self.config = config
        self._counters = counters
        self._announce = rebalanced
        self.timer = context.timer
        self.clock = context.clock
        self.groups: dict[str, Group] = {}
        self.store = OffsetStore()
        self.leases = OffsetLeases(
            commit_table,
            self.store,
            self.groups.get,
            metadata,
            abandon,
            most_metadata=config.offset_metadata_max_bytes,
            monotonic_ms=context.clock.monotonic_ms,
        )
        self.timer.before = self.leases.recall_for
        self.offsets = OffsetRequests(
            self.store, self.groups.get, self._heartbeat_by_commit, config, counters, metadata, self.leases.hear
        )
        self._rebalance = ClassicRebalance(self.find_classic, context.timer, context.clock, config, self._rebalanced)
        self.classic = ClassicRequests(self.find_classic, self._create_classic, self._rebalance, config)
        self._migration = ConsumerMigration(self._rebalance, context.clock, config, metadata)
        self.consumer_rebalance = ConsumerRebalance(
            self.groups,
            context.timer,
            context.clock,
            config,
            overrides,
            assignors,
            metadata,
            self._migration,
            counters,
            self._settled,
        )
        patterns = ConsumerPatterns(self.consumer_rebalance, context.timer, context.clock, config, metadata)
        self.consumer = ConsumerRequests(self.consumer_rebalance, patterns, overrides)
        self._classic_members = ClassicMembers(self.consumer_rebalance, metadata)
        self.share_rebalance = ShareRebalance(
            self.groups,
            context.timer,
            context.clock,
            config,
            overrides,
            share_assignor,
            metadata,
            counters,
            share_listeners,
            self._settled,
        )
        self._initialization = initialization = ShareInitialization(
            self.share_rebalance.find, context.timer, context.clock, config, metadata, persister
        )
        self.share = ShareRequests(self.share_rebalance, initialization, overrides)
        self.share_offsets = ShareOffsetOperations(self.share_rebalance, initialization, metadata)
        self._share_listeners = share_listeners
        self._share_replay = ShareReplay(self.groups)
        self._replay = ConsumerReplay(self.groups)
        self._loading = True

    # --- state ------------------------------------------------------------------------------------------------------

    def apply(self, record: CoordinatorRecord, producer_id: int = -1, producer_epoch: int = -1) -> None:
        """Apply a record: only this method changes durable state; see Shard."""
        del producer_epoch
        if record.key_version <= OFFSET_COMMIT_KEY:
            key = cast(OffsetCommitKey, record.key)
            if record.value is not None:
                # A consumer that assigns its own partitions has a group only for its offsets.
                group = self.groups.get(key.group) or self._create_classic(key.group)
                if isinstance(group, ClassicGroup):
                    group.is_recorded = True
            self.store.apply(key, cast("OffsetCommitValue | None", record.value), producer_id)
        elif record.key_version == GROUP_METADATA_KEY:
            group_id = cast(GroupMetadataKey, record.key).group
            self._apply_classic(group_id, cast("GroupMetadataValue | None", record.value))
        elif record.key_version in CONSUMER_GROUP_KEYS:
            self._replay.apply(record)
            if record.key_version == EPOCH_KEY and record.value is None:
                group_id = cast(ConsumerGroupMetadataKey, record.key).group_id
                if group_id not in self.groups:
                    self._keep_offsets(group_id)
            if self._loading:
                return
            if record.key_version == MEMBER_KEY:
                key_of_member = cast(ConsumerGroupMemberMetadataKey, record.key)
                self.consumer_rebalance.member_applied(key_of_member.group_id, key_of_member.member_id)
            elif record.key_version == TARGET_EPOCH_KEY:
                self.consumer_rebalance.target_applied(cast(Any, record.key).group_id)
        elif record.key_version in SHARE_GROUP_KEYS:
            self._apply_share(record)

    def _apply_share(self, record: CoordinatorRecord) -> None:
        self._share_replay.apply(record)
        key = cast(Any, record.key)
        if record.key_version == share_records.EPOCH_KEY and record.value is None:
            if key.group_id not in self.groups:
                self._keep_offsets(key.group_id)
            self._initialization.forget(key.group_id)
            if not self._loading:
                self._share_listeners.group_deleted(key.group_id)
        elif record.key_version == share_records.MEMBER_KEY and not self._loading:
            self.share_rebalance.member_applied(key.group_id, key.member_id)

    def _apply_classic(self, group_id: str, value: GroupMetadataValue | None) -> None:
        group = self.groups.get(group_id)
        if value is None:
            if isinstance(group, ClassicGroup):
                del self.groups[group_id]
                self._keep_offsets(group_id)
                if not self._loading:
                    # It is deleted, and no member waits in it, or it is a consumer group from the next record on.
                    self._rebalance.converted(group, ErrorCode.REBALANCE_IN_PROGRESS)
            return
        converted = self._migration.take_converted(value)
        if converted is not None:
            converted.is_recorded = True
            self.groups[group_id] = converted
        elif self._loading or not isinstance(group, ClassicGroup):
            self.groups[group_id] = ClassicGroup.from_record(group_id, value)
        else:
            group.take_over(value)

    def _keep_offsets(self, group_id: str) -> None:
        """Keep a group's offsets when its protocol changes.

        The record of the next group may never have been written.
        """
        if self.store.of_group(group_id) or self.store.has_open_transactions(group_id):
            self._create_classic(group_id).is_recorded = True

    def apply_end_transaction_marker(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        """See Shard."""
        del producer_epoch
        self.store.apply_end_transaction_marker(producer_id, committed)

    def on_loaded(self, now_ms: int) -> None:
        """See Shard."""
        del now_ms
        self._loading = False
        waiting: list[CoordinatorRecord] = []
        for group in list(self.groups.values()):
            if isinstance(group, ClassicGroup):
                waiting += self._rebalance.loaded(group)
            elif isinstance(group, ConsumerGroup):
                self.consumer_rebalance.loaded(group)
            elif isinstance(group, ShareGroup):
                self.share_rebalance.loaded(group)
        if waiting:
            self.timer.schedule("after-load", 0, lambda _shard, _now: Result(None, waiting))
        self._schedule_expiry()

    def on_unloaded(self) -> None:
        """See Shard."""
        self.leases.abandon()
        error = error_for(ErrorCode.NOT_COORDINATOR)
        for group in self.groups.values():
            group.unloaded(error)

    def find_classic(self, group_id: str) -> ClassicGroup | None:
        """The classic group of that id, or None."""
        group = self.groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def _create_classic(self, group_id: str) -> ClassicGroup:
        group = ClassicGroup(group_id, self.clock.time_ms())
        self.groups[group_id] = group
        return group

    def _rebalanced(self, group: ClassicGroup) -> None:
        self._counters.completed_rebalances += group.state is STABLE
        self._announce(GroupEvent(group.group_id, group.generation_id, tuple(group.members)))

    def _settled(self, group: ModernGroup[Any]) -> None:
        self._announce(GroupEvent(group.group_id, group.epoch, tuple(group.members)))

    def _heartbeat_by_commit(self, group: Group, member_id: str) -> None:
        if isinstance(group, ClassicGroup):
            self._rebalance.schedule_heartbeat(group, group.members[member_id])

    # --- the classic protocol, in groups of either type -------------------------------------------------------------

    def join(self, client: ClientInfo, request: JoinGroupRequest) -> Result[JoinGroupResponse]:
        """JoinGroup. An empty consumer group becomes a classic one; a share group is INCONSISTENT_GROUP_PROTOCOL."""
        group = self.groups.get(request.group_id)
        if not isinstance(group, ConsumerGroup):
            if isinstance(group, ShareGroup):
                return Result(join_error(NO_MEMBER, ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
            return self.classic.join(client, request)
        if not group.is_empty:
            return self._classic_members.join(client, request, group)
        tombstones = group.tombstones()
        result = self.classic.join(client, request)
        if self.find_classic(request.group_id) is not None:
            result.records = [*tombstones, *result.records]
        return result

    def sync(self, request: SyncGroupRequest) -> Result[SyncGroupResponse]:
        """SyncGroup."""
        group = self.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return self._classic_members.sync(request, group)
        return self.classic.sync(request)

    def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        """Heartbeat."""
        group = self.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return self._classic_members.heartbeat(request, group)
        return self.classic.heartbeat(request)

    def leave(self, request: LeaveGroupRequest) -> Result[list[ErrorCode]]:
        """LeaveGroup: one outcome for each of its members."""
        group = self.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return self._classic_members.leave(request, group)
        return self.classic.leave(request)

    # --- groups of every type ---------------------------------------------------------------------------------------

    def list_groups(self, states: AbstractSet[str], types: AbstractSet[str]) -> list[ListGroupsResponse.Group]:
        """The groups with one of the states and one of the types.

        Filters are in lower case; an empty filter matches all.
        """
        return [
            ListGroupsResponse.Group(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state_name,
                group_type=group.type.value,
            )
            for group in self.groups.values()
            if (not states or group.state_name.lower() in states) and (not types or group.type.value in types)
        ]

    def describe_classic(self, group_id: str) -> DescribeGroupsResponse.Group | None:
        """A classic group with its members, or None."""
        group = self.find_classic(group_id)
        if group is None:
            return None
        stable = group.state is STABLE
        name = group.protocol_name or ""
        return DescribeGroupsResponse.Group(
            group_id=group_id,
            group_state=group.state_name,
            protocol_type=group.protocol_type or "",
            protocol_data=name if stable else "",
            members=[
                DescribeGroupsResponse.Group.Member(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=member.metadata(name) if stable else b"",
                    member_assignment=member.assignment if stable else b"",
                )
                for member in group.members.values()
            ],
        )

    def delete_groups(self, group_ids: Iterable[str]) -> Result[dict[str, ErrorCode]]:
        """Delete groups without members, and their offsets; an error for each."""
        errors: dict[str, ErrorCode] = {}
        records: list[CoordinatorRecord] = []
        for group_id in group_ids:
            group = self.groups.get(group_id)
            if group is None:
                errors[group_id] = ErrorCode.GROUP_ID_NOT_FOUND
                continue
            try:
                self.leases.recall(group_id)
                group.validate_delete()
            except KafkaError as error:
                errors[group_id] = error.code
                continue
            errors[group_id] = ErrorCode.NONE
            records += self.offsets.tombstones_of_group(group_id)
            records += self._forget(group)
        return Result(errors, records)

    def _forget(self, group: Group) -> list[CoordinatorRecord]:
        """The tombstones that delete a group.

        A group without records is deleted at once.
        """
        if isinstance(group, ClassicGroup):
            for member_id in group.pending_join:
                self._rebalance.cancel_heartbeat(group, member_id)
            if not group.is_recorded:
                del self.groups[group.group_id]
                return []
        return group.tombstones()

    def count_states(self) -> dict[tuple[GroupType, str], int]:
        """Groups by type and state, for metrics. Any thread."""
        counts: dict[tuple[GroupType, str], int] = {}
        for group in list(self.groups.values()):
            key = group.type, group.state_name
            counts[key] = counts.get(key, 0) + 1
        return counts

    # --- expiry -----------------------------------------------------------------------------------------------------

    def _schedule_expiry(self) -> None:
        wait = self.config.offsets_retention_check_interval_ms
        self.timer.schedule("expire-offsets", wait, lambda _shard, now_ms: self.expire(now_ms))

    def expire(self, now_ms: int, left: deque[Group] | None = None) -> Result[None]:
        """Forget expired offsets, and groups without members and offsets (KIP-211).

        Tombstones beyond one batch go into the next ones; `left` are the groups that were not checked yet.
        """
        groups = deque(self.groups.values()) if left is None else left
        records: list[CoordinatorRecord] = []
        while groups and len(records) < RECORDS_PER_EXPIRY:
            group = groups.popleft()
            if self.groups.get(group.group_id) is not group:
                continue
            try:
                records += self._expired(group, now_ms, RECORDS_PER_EXPIRY - len(records))
            except Exception:
                # One group must not block the expiry of all others.
                logger.exception("The expiry of the offsets of group %s failed", group.group_id)
            if len(records) >= RECORDS_PER_EXPIRY:
                groups.appendleft(group)

        def go_on(error: BaseException | None) -> None:
            # At once when there may be more; unwritten tombstones wait for the next time.
            if error is None and groups:
                self.timer.schedule("expire-offsets", 0, lambda _shard, now_ms: self.expire(now_ms, groups))
            else:
                self._schedule_expiry()

        return Result(None, records, go_on)

    def _expired(self, group: Group, now_ms: int, most: int) -> list[CoordinatorRecord]:
        try:
            self.leases.recall(group.group_id)
        except LeaseBusyError:
            return []  # offsets are committed now: its turn comes with the next check
        records, none_left = self.offsets.expired(group, now_ms, most)
        waits = isinstance(group, ClassicGroup) and bool(group.pending_join)
        if none_left and group.is_empty and group.may_expire and not waits:
            records += self._forget(group)
        return records
