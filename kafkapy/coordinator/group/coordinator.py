"""GroupCoordinator: the handlers' interface to groups and offsets.

It finds the shard of a group, runs the operation there, and waits. Errors of the runtime (NOT_COORDINATOR,
COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE) are raised like those of the operation; handlers put them into
the response. Source: org.apache.kafka.coordinator.group.GroupCoordinatorService.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from kafkapy.coordinator.abandoned_leases import AbandonedLeases
from kafkapy.coordinator.clock import Clock
from kafkapy.coordinator.group.assignors.api import GroupAssignor
from kafkapy.coordinator.group.classic.requests import ClientInfo
from kafkapy.coordinator.group.config import GroupConfig, GroupOverrides
from kafkapy.coordinator.group.consumer.requests import ConsumerClient, check_heartbeat, describe_error
from kafkapy.coordinator.group.counters import GroupCounters
from kafkapy.coordinator.group.deleted_topics import DeletedTopics
from kafkapy.coordinator.group.group import GroupType
from kafkapy.coordinator.group.leases import LeaseBusyError
from kafkapy.coordinator.group.offset_requests import CommitErrors, FetchedOffset, OffsetCommit
from kafkapy.coordinator.group.records import GROUP_METADATA_KEY, GROUP_RECORDS, OFFSET_COMMIT_KEY, OFFSET_COMMIT_VALUE
from kafkapy.coordinator.group.replies import check_group_id, writable
from kafkapy.coordinator.group.shard import GroupEvent, GroupShard
from kafkapy.coordinator.group.share.config import ShareGroupConfigs
from kafkapy.coordinator.group.share.coordinator import ShareGroups
from kafkapy.coordinator.group.share.listeners import ShareGroupListeners
from kafkapy.coordinator.group.share.offsets import LatestOffsets
from kafkapy.coordinator.hosted import MarkerGuard, Operation, ShardContext
from kafkapy.coordinator.result import Later, Result, hand_over
from kafkapy.coordinator.runtime import CoordinatorRuntime
from kafkapy.coordinator.share.persister import Persister
from kafkapy.coordinator.writer import PartitionWriter
from kafkapy.errors import ErrorCode, KafkaError, code_of, error_for
from kafkapy.metadata.cache import MetadataSnapshot
from kafkapy.metadata.topic_names import GROUP_METADATA_TOPIC
from kafkapy.protocol.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from kafkapy.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kafkapy.protocol.messages.describe_groups import DescribeGroupsResponse
from kafkapy.protocol.messages.heartbeat import HeartbeatRequest
from kafkapy.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kafkapy.protocol.messages.leave_group import LeaveGroupRequest
from kafkapy.protocol.messages.list_groups import ListGroupsResponse
from kafkapy.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kafkapy.slices import in_slices
from kafkapy.types import TopicPartition

if TYPE_CHECKING:
    from kafkapy._speedups.requests.offset_commit.lease import CommitTable

T = TypeVar("T")

BUSY_PAUSE_MS: Final = 10
"""First pause before an operation is tried again, whose group a network thread writes to."""
LONGEST_BUSY_PAUSE_MS: Final = 100
"""Longest of these pauses: many operations may wait for one group on a disk that hangs."""


class GroupCoordinator:
    """Owns the runtime of __consumer_offsets.

    KafkaServer makes it; handlers call it on the control loop.
    """

    def __init__(
        self,
        config: GroupConfig,
        writer: PartitionWriter,
        clock: Clock,
        *,
        partition_count: Callable[[], int],
        compression: int = 0,
        rebalanced: Callable[[GroupEvent], None] = lambda _: None,
        assignors: Iterable[GroupAssignor],
        metadata: Callable[[], MetadataSnapshot],
        led_elsewhere: Callable[[int], bool] = lambda _: False,
        consumer_protocol_finalized: Callable[[], bool] = lambda: True,
        share_assignor: GroupAssignor,
        persister: Callable[[], Persister],
        latest_offsets: LatestOffsets,
        share_version: Callable[[], int] = lambda: 0,
        commit_table: CommitTable | None = None,
    ) -> None:
        """Create the coordinator with its runtime.

        `partition_count` returns how many partitions __consumer_offsets has, or will have. `assignors` are the choices
        of consumer groups, the default one first, and `share_assignor` the one of share groups. `metadata` returns the
        cluster's present topics. `led_elsewhere` returns whether another broker may write the partition of
        __consumer_offsets with that number. `consumer_protocol_finalized` returns whether the cluster's group.version
        allows the consumer protocol, `share_version` the level of its share.version. `persister` returns the share
        coordinators, and `latest_offsets` the ends of partitions in the whole cluster. `commit_table` lets network
        threads append offsets.
        """
        self.config = config
        self._consumer_protocol_finalized = consumer_protocol_finalized
        self.overrides = GroupOverrides(config)
        self.counters = GroupCounters()
        self.share_listeners = ShareGroupListeners()
        self.assignors = {assignor.name: assignor for assignor in assignors}
        self._metadata = metadata
        self._writer = writer
        self._commit_table = commit_table if _is_lent(config, compression) else None
        self._lendable: set[str] = set()
        """Groups that have committed offsets in this turn of the loop."""
        self._pauses: set[Later[None]] = set()
        """Of operations that wait for a lease."""
        self._stopped = False
        abandoned = AbandonedLeases()

        def make(context: ShardContext[GroupShard]) -> GroupShard:
            return GroupShard(
                context,
                self.config,
                rebalanced,
                assignors=self.assignors,
                metadata=metadata,
                overrides=self.overrides,
                counters=self.counters,
                share_assignor=share_assignor,
                persister=persister,
                share_listeners=self.share_listeners,
                commit_table=self._commit_table,
                abandon=partial(abandoned.abandon, context.partition),
            )

        self.runtime: CoordinatorRuntime[GroupShard] = CoordinatorRuntime(
            "group.GroupCoordinator",
            GROUP_METADATA_TOPIC,
            make,
            GROUP_RECORDS,
            writer,
            clock,
            partition_count=partition_count,
            write_timeout_ms=lambda: self.config.offset_commit_timeout_ms,
            compression=compression,
            value_versions={
                OFFSET_COMMIT_KEY: config.offset_commit_version,
                GROUP_METADATA_KEY: config.group_metadata_version,
            },
            is_settled=abandoned.is_settled,
        )
        self.deleted_topics = DeletedTopics(self.runtime, writer, clock, led_elsewhere)
        self.share = ShareGroups(self.runtime, self.share_listeners, persister, latest_offsets, metadata, share_version)
        """The requests of share groups."""

    def partition_for(self, group_id: str) -> int:
        """The partition of __consumer_offsets that a group belongs to."""
        return self.runtime.partition_for(group_id)

    def stop(self) -> None:
        """Write the unwritten records; waiting requests get NOT_COORDINATOR."""
        self._stopped = True
        self.deleted_topics.close()
        self.runtime.stop()
        for pause in list(self._pauses):
            pause.fail(error_for(ErrorCode.NOT_COORDINATOR))
        self._pauses.clear()

    def write(self, group_id: str, operation: Operation[GroupShard, T]) -> Later[T]:
        """Run a writing operation on the shard of a group; the group's lease ends."""

        def alone(shard: GroupShard, now_ms: int) -> Result[T]:
            shard.leases.recall(group_id)
            return operation(shard, now_ms)

        return self._patiently(group_id, alone)

    def write_if_needed(self, group_id: str, operation: Operation[GroupShard, T]) -> Later[T]:
        """The same for an operation that changes nothing without records.

        The lease goes on then.
        """

        def alone(shard: GroupShard, now_ms: int) -> Result[T]:
            result = operation(shard, now_ms)
            if result.records:
                shard.leases.recall(group_id)
            return result

        return self._patiently(group_id, alone)

    def _patiently(self, group_id: str, operation: Operation[GroupShard, T]) -> Later[T]:
        """Run an operation, again while a network thread appends the group's offsets."""

        def patient(shard: GroupShard, now_ms: int) -> Result[T]:
            try:
                return operation(shard, now_ms)
            except LeaseBusyError:
                later: Later[T] = Later()
                self._again(group_id, operation, later)
                return Result(later)

        return self.runtime.write(self.partition_for(group_id), patient)

    def _again(self, group_id: str, operation: Operation[GroupShard, T], later: Later[T], waited_ms: int = 0) -> None:
        pause_ms = _busy_pause_ms(waited_ms)
        waited_ms += pause_ms

        def over(pause: Later[None]) -> None:
            if pause.error is not None:
                later.fail(pause.error)
                return
            done = self.runtime.write(self.partition_for(group_id), operation)
            if isinstance(done.error, LeaseBusyError) and waited_ms < self.config.offset_commit_timeout_ms:
                self._again(group_id, operation, later, waited_ms)
            else:
                done.then(partial(hand_over, later=later))

        self._pause(pause_ms).then(over)

    def _pause(self, pause_ms: int) -> Later[None]:
        """A pause until a lease may be free. NOT_COORDINATOR at the stop."""
        pause: Later[None] = Later()
        self._pauses.add(pause)

        def over() -> None:
            self._pauses.discard(pause)
            pause.set(None)

        self.runtime.timer.schedule(pause, pause_ms, over)
        return pause

    def read(self, group_id: str, operation: Callable[[GroupShard, int], T | Later[T]]) -> Later[T]:
        """Run a reading operation on the shard of a group."""
        return self.runtime.read(self.partition_for(group_id), operation)

    def guard(self, group_id: str, producer_id: int) -> MarkerGuard:
        """A guard of the group's partition; see CoordinatorRuntime.guard."""
        return self.runtime.guard(self.partition_for(group_id), producer_id)

    # --- classic protocol -------------------------------------------------------------------------------------------

    def join(self, client: ClientInfo, request: JoinGroupRequest) -> Later[JoinGroupResponse]:
        """JoinGroup. INVALID_GROUP_ID, INVALID_SESSION_TIMEOUT; other errors are in the response."""
        check_group_id(request.group_id)
        if not self.config.min_session_timeout_ms <= request.session_timeout_ms <= self.config.max_session_timeout_ms:
            raise error_for(ErrorCode.INVALID_SESSION_TIMEOUT)
        return writable(self.write(request.group_id, lambda shard, _: shard.join(client, request)))

    def sync(self, request: SyncGroupRequest) -> Later[SyncGroupResponse]:
        """SyncGroup."""
        check_group_id(request.group_id)
        return writable(self.write(request.group_id, lambda shard, _: shard.sync(request)))

    def heartbeat(self, request: HeartbeatRequest) -> Later[ErrorCode]:
        """Heartbeat. While a group loads, every member counts as alive."""
        check_group_id(request.group_id)
        return self.read(request.group_id, lambda shard, _: shard.heartbeat(request)).map(_alive)

    def leave(self, request: LeaveGroupRequest) -> Later[list[ErrorCode]]:
        """LeaveGroup: one outcome for each of its members."""
        check_group_id(request.group_id)
        return writable(self.write(request.group_id, lambda shard, _: shard.leave(request)))

    # --- consumer protocol ------------------------------------------------------------------------------------------

    @property
    def serves_consumer_protocol(self) -> bool:
        """Whether members may use the consumer protocol."""
        return self.config.consumer_protocol and self._consumer_protocol_finalized()

    def consumer_heartbeat(
        self, client: ConsumerClient, request: ConsumerGroupHeartbeatRequest, api_version: int
    ) -> Later[ConsumerGroupHeartbeatResponse]:
        """ConsumerGroupHeartbeat.

        See `check_heartbeat` and ConsumerRequests.heartbeat for the errors.
        """
        check_heartbeat(request, api_version, self.assignors)
        return writable(
            self.write_if_needed(request.group_id, lambda shard, _: shard.consumer.heartbeat(client, request))
        )

    async def describe_consumer(self, group_id: str) -> ConsumerGroupDescribeResponse.Group:
        """A consumer group with its members, or the error of its id."""
        try:
            (described,) = await self.read(group_id, self._describe(group_id)).wait()
        except KafkaError as error:
            return describe_error(group_id, code_of(error), error.message)
        return described

    def _describe(self, group_id: str) -> Callable[[GroupShard, int], list[ConsumerGroupDescribeResponse.Group]]:
        return lambda shard, _: shard.consumer.describe([group_id], self._metadata())

    # --- offsets ----------------------------------------------------------------------------------------------------

    def commit_offsets(self, client: ClientInfo, request: OffsetCommit) -> Later[CommitErrors]:
        """OffsetCommit; an error for each partition.

        One of TOO_LARGE when the offsets do not fit into a batch.
        """
        later = self.write_if_needed(
            request.group_id, lambda shard, now_ms: shard.offsets.commit(client, request, now_ms)
        )
        if self._commit_table is not None and request.producer is None:
            later.then(partial(self._committed, request.group_id))
        return later

    def _committed(self, group_id: str, later: Later[CommitErrors]) -> None:
        """Let network threads serve what follows, once this turn's replies are out."""
        if later.error is None:
            if not self._lendable:
                self.runtime.clock.call_soon(self._lend)
            self._lendable.add(group_id)

    def _lend(self) -> None:
        groups, self._lendable = self._lendable, set()
        for group_id in () if self._stopped else groups:
            partition = self.partition_for(group_id)
            found = self.runtime.at_rest(partition)
            log = None if found is None else self._writer.lendable(TopicPartition(GROUP_METADATA_TOPIC, partition))
            if found is not None and log is not None:
                shard, leader_epoch = found
                shard.leases.lend(group_id, log, leader_epoch)

    @property
    def leased_commits(self) -> int:
        """The offsets that network threads have stored, for metrics. Any thread."""
        return 0 if self._commit_table is None else self._commit_table.committed

    async def fetch_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None,
        *,
        require_stable: bool = False,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> dict[TopicPartition, FetchedOffset]:
        """OffsetFetch for one group; see OffsetRequests.fetch."""
        waited_ms = 0
        while True:
            try:
                return await self.read(
                    group_id,
                    lambda shard, _: shard.offsets.fetch(
                        group_id,
                        partitions,
                        require_stable=require_stable,
                        member_id=member_id,
                        member_epoch=member_epoch,
                    ),
                ).wait()
            except LeaseBusyError:
                if waited_ms >= self.config.offset_commit_timeout_ms:
                    raise
            pause_ms = _busy_pause_ms(waited_ms)
            await self._pause(pause_ms)
            waited_ms += pause_ms

    async def delete_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> CommitErrors:
        """OffsetDelete; an error for each partition."""
        check_group_id(group_id)
        return await self.write(group_id, lambda shard, _: shard.offsets.delete(group_id, partitions)).wait()

    def topics_deleted(self, topics: Iterable[str], partitions: Iterable[int] | None = None) -> Later[None]:
        """Forget the offsets of deleted topics; see DeletedTopics.forget.

        `partitions` are partitions of __consumer_offsets; None: those coordinated here.
        """
        return self.deleted_topics.forget(topics, self.runtime.states() if partitions is None else partitions)

    # --- groups -----------------------------------------------------------------------------------------------------

    async def list_groups(self, states: Iterable[str], types: Iterable[str]) -> list[ListGroupsResponse.Group]:
        """The groups that this broker coordinates.

        COORDINATOR_LOAD_IN_PROGRESS while it does not know all of them.
        """
        wanted_states = {state.lower() async for state in in_slices(states)}
        wanted_types = {each.lower() async for each in in_slices(types)}

        def operation(shard: GroupShard, now_ms: int) -> list[ListGroupsResponse.Group]:
            del now_ms
            return shard.list_groups(wanted_states, wanted_types)

        listed: list[ListGroupsResponse.Group] = []
        async for partition in in_slices(self.runtime.states()):
            try:
                listed += await self.runtime.read(partition, operation).wait()
            except KafkaError as error:
                if error.code is not ErrorCode.NOT_COORDINATOR:
                    raise
        return listed

    def share_group_configs(self, group_id: str) -> ShareGroupConfigs:
        """The effective keys of a share group for the leaders of its partitions."""
        return self.overrides.share_group(group_id)

    async def describe_classic(self, group_id: str) -> DescribeGroupsResponse.Group | None:
        """One classic group, or None for an unknown id."""
        return await self.read(group_id, lambda shard, _: shard.describe_classic(group_id)).wait()

    async def delete_groups(self, group_ids: Iterable[str]) -> dict[str, ErrorCode]:
        """DeleteGroups; an error for each group.

        The share coordinators delete the states of a share group first.
        """
        errors: dict[str, ErrorCode] = {}
        by_partition: dict[int, list[str]] = {}
        async for group_id in in_slices(dict.fromkeys(group_ids)):
            by_partition.setdefault(self.partition_for(group_id), []).append(group_id)
        async for partition, ids in in_slices(by_partition.items()):
            try:
                refused = await self.share.delete_states(partition, ids)
                errors |= refused
                left = [group_id for group_id in ids if group_id not in refused]
                errors |= await self.runtime.write(partition, _delete(left)).wait()
            except KafkaError as error:
                errors |= {group_id: code_of(error) for group_id in ids if group_id not in errors}
        return errors

    def count_states(self) -> dict[tuple[GroupType, str], int]:
        """Groups by type and state over all shards, for metrics. Any thread."""
        counts: dict[tuple[GroupType, str], int] = {}
        for shard in self.runtime.shards().values():
            for key, count in shard.count_states().items():
                counts[key] = counts.get(key, 0) + count
        return counts

    def count_offsets(self) -> int:
        """Committed offsets over all shards, for metrics. Any thread."""
        return sum(len(shard.store) for shard in self.runtime.shards().values())


def _busy_pause_ms(waited_ms: int) -> int:
    """The next pause of an operation that has waited so long for a group."""
    return min(max(waited_ms, BUSY_PAUSE_MS), LONGEST_BUSY_PAUSE_MS)


def _is_lent(config: GroupConfig, compression: int) -> bool:
    """Whether network threads may write what this coordinator would write."""
    return not compression and config.offset_commit_version >= OFFSET_COMMIT_VALUE


def _alive(done: Later[ErrorCode]) -> ErrorCode:
    error = done.error
    if isinstance(error, KafkaError) and error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        return ErrorCode.NONE
    return done.result()


def _delete(ids: list[str]) -> Operation[GroupShard, dict[str, ErrorCode]]:
    def operation(shard: GroupShard, now_ms: int) -> Result[dict[str, ErrorCode]]:
        del now_ms
        return shard.delete_groups(ids)

    return operation
