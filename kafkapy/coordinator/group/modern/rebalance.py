"""Epochs and target assignments of groups whose assignment the coordinator computes.

A change of subscriptions or topics raises the group's epoch, which gets a target assignment. Source:
GroupMetadataManager, TargetAssignmentBuilder; KIP-848.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kafkapy.coordinator.group.assignors.api import AssignorError, GroupAssignor, GroupSpec, Partitions
from kafkapy.coordinator.group.group import Group
from kafkapy.coordinator.group.modern.group import G, M, Refresh
from kafkapy.coordinator.group.modern.partitions import NO_PARTITIONS
from kafkapy.coordinator.group.modern.topics import GroupTopics
from kafkapy.coordinator.records import CoordinatorRecord
from kafkapy.coordinator.result import Result
from kafkapy.errors import ErrorCode, KafkaError, error_for
from kafkapy.metadata.cache import MetadataSnapshot

if TYPE_CHECKING:
    from kafkapy.coordinator.clock import Clock
    from kafkapy.coordinator.shard_timer import ShardTimer

logger = logging.getLogger("kafka.coordinator.group.GroupCoordinator")

Records = list[CoordinatorRecord]
T = TypeVar("T")


class ModernRebalance(ABC, Generic[G, M]):
    """The part of a protocol's engine that all protocols with server-side assignment share.

    Owned by a GroupShard; used on the control loop's thread. It changes only group state that is not in the log: all
    other changes go into the given `records`.
    """

    def __init__(
        self,
        kind: type[G],
        groups: Mapping[str, Group],
        timer: ShardTimer[Any],
        clock: Clock,
        metadata: Callable[[], MetadataSnapshot],
        rebalanced: Callable[[G], None],
    ) -> None:
        """`kind` is the class of the protocol's groups; `rebalanced` is called with a settled group."""
        self._kind = kind
        self._groups = groups
        self._timer = timer
        self._clock = clock
        self._metadata = metadata
        self._rebalanced = rebalanced

    # --- of each protocol -------------------------------------------------------------------------------------------

    @abstractmethod
    def _epoch_begun(self, group: G, epoch: int, metadata_hash: int) -> CoordinatorRecord:
        """Count a new epoch, and return its record."""

    @abstractmethod
    def _target(self, group: G, member_id: str, partitions: Partitions) -> CoordinatorRecord:
        """The record of a member's target assignment."""

    @abstractmethod
    def _target_epoch(self, group: G, epoch: int) -> CoordinatorRecord:
        """The record of the target assignment's epoch."""

    @abstractmethod
    def _assign(
        self, group: G, before: M | None, after: M | None, epoch: int, topics: GroupTopics, records: Records
    ) -> Partitions:
        """Compute and write the target assignment of an epoch.

        Returns the target of the changed member, if one has changed.
        """

    # --- groups -----------------------------------------------------------------------------------------------------

    def find(self, group_id: str) -> G | None:
        """The group of that id and of this protocol, or None."""
        group = self._groups.get(group_id)
        return group if isinstance(group, self._kind) else None

    def get(self, group_id: str, kind: str = "Group") -> G:
        """The group of that id and of this protocol.

        GROUP_ID_NOT_FOUND, whose message has `kind`, Kafka's name for the group.
        """
        group = self._groups.get(group_id)
        if group is None:
            raise error_for(ErrorCode.GROUP_ID_NOT_FOUND, f"{kind} {group_id} not found.")
        if not isinstance(group, self._kind):
            raise error_for(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a {self._kind.type.value} group.")
        return group

    # --- epochs and assignments -------------------------------------------------------------------------------------

    def refresh(self, group: G, before: M, after: M, topics: GroupTopics, *, bump: bool, records: Records) -> int:
        """The group's epoch.

        It is a new one with `bump`, or when the subscribed topics have changed since the last check.
        """
        snapshot = topics.snapshot
        seen = group.refreshed
        if seen is not None and (
            seen.topics is not snapshot.topics or seen.brokers_version != snapshot.brokers_version
        ):
            seen = None
        if seen is not None and not bump and group.epoch >= seen.group_epoch:
            return group.epoch
        names = group.subscriptions([before], after).topics
        metadata_hash = seen.metadata_hash if seen is not None and seen.names == names else topics.hash_of(names)
        epoch = group.epoch
        if bump or metadata_hash != group.metadata_hash:
            epoch = self.next_epoch(group, metadata_hash, records)
        group.refreshed = Refresh(snapshot.topics, snapshot.brokers_version, epoch, names, metadata_hash)
        return epoch

    def next_epoch(self, group: G, metadata_hash: int, records: Records) -> int:
        """Begin the group's next epoch, with the hash of its topics."""
        epoch = group.epoch + 1
        records.append(self._epoch_begun(group, epoch, metadata_hash))
        # Its target assignment is logged: a line costs as much as a third of a join.
        logger.debug("Group %s enters epoch %d", group.group_id, epoch)
        return epoch

    def _assign_later(self, group_id: str, wait_ms: int, *, puts_off: bool = False) -> None:
        key = ("assignment", group_id)
        if puts_off and self._timer.restart(key, wait_ms):
            return

        def due(shard: object, now_ms: int) -> Result[None]:
            del shard, now_ms
            group = self.find(group_id)
            records: Records = []
            if group is not None and group.members and group.epoch > group.assignment_epoch:
                try:
                    self._assign(group, None, None, group.epoch, GroupTopics(self._metadata()), records)
                except KafkaError:
                    # The error is logged, and the next heartbeat tries it again.
                    return Result(None)
            return self.announced(group_id, Result(None, records))

        if key not in self._timer:
            self._timer.schedule(key, wait_ms, due)

    def _compute(
        self,
        group: G,
        assignor: GroupAssignor,
        spec: GroupSpec,
        epoch: int,
        topics: GroupTopics,
        records: Records,
    ) -> Mapping[str, Partitions]:
        """Have an assignor compute the target assignment of an epoch, and write the differences.

        UNKNOWN_SERVER_ERROR when the assignor finds none.
        """
        group.assigned_ms = self._clock.monotonic_ms()
        try:
            assignment = assignor.assign(spec, topics)
            if not isinstance(assignment, Mapping):
                raise AssignorError(
                    f"assign of the assignor {assignor.name} gave {assignment!r}, not members with partitions"
                )
        except AssignorError as error:
            message = f"Failed to compute a new target assignment for epoch {epoch}: {error}"
            logger.error("Group %s: %s", group.group_id, message)
            raise error_for(ErrorCode.UNKNOWN_SERVER_ERROR, message) from error
        for member_id in spec.members:
            target, known = assignment.get(member_id, NO_PARTITIONS), group.target.get(member_id)
            if target is not known and target != known:
                records.append(self._target(group, member_id, target))
        records.append(self._target_epoch(group, epoch))
        logger.info("Group %s has a new target assignment for epoch %d", group.group_id, epoch)
        return assignment

    def announced(self, group_id: str, result: Result[T]) -> Result[T]:
        """The result, with an announcement of a newly settled epoch, if any.

        The announcement follows when the records are committed.
        """
        if not result.records:
            return result
        first = result.after

        def after(error: BaseException | None) -> None:
            if first is not None:
                first(error)
            group = self.find(group_id)
            if error is None and group is not None and self._is_news(group):
                self._rebalanced(group)

        result.after = after
        return result

    @staticmethod
    def _is_news(group: G) -> bool:
        if group.announced_epoch == group.epoch or not group.is_settled:
            return False
        group.announced_epoch = group.epoch
        return True
