"""The partition state machine: NonExistent -> New -> Online <-> Offline -> NonExistent.

A partition is New when it has replicas and no leader yet, Online when it has a leader, Offline when the leader is gone
and no other could be elected. Becoming Online is the step that writes to the store: the first leader and ISR, or the
outcome of an election. Source: kafka.controller.ZkPartitionStateMachine.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Final

from kafkapy.controller.broker_channel import BrokerRequestBatch
from kafkapy.controller.context import ControllerContext, PartitionStatus
from kafkapy.controller.controller_stats import ControllerStats
from kafkapy.controller.controller_store import ControllerStore
from kafkapy.controller.elections import (
    Elected,
    elect_for_offline_partition,
    elect_for_reassignment,
    elect_for_shutdown,
    elect_preferred,
)
from kafkapy.metadata.store import NodeExistsError
from kafkapy.metadata.znodes import PartitionState
from kafkapy.slices import in_slices
from kafkapy.types import TopicPartition

logger = logging.getLogger("state.change.logger")

_NEW, _ONLINE = PartitionStatus.NEW, PartitionStatus.ONLINE
_OFFLINE, _NON_EXISTENT = PartitionStatus.OFFLINE, PartitionStatus.NON_EXISTENT
VALID_PREVIOUS: Final[Mapping[PartitionStatus, frozenset[PartitionStatus]]] = {
    _NEW: frozenset({_NON_EXISTENT}),
    _ONLINE: frozenset({_NEW, _ONLINE, _OFFLINE}),
    _OFFLINE: frozenset({_NEW, _ONLINE, _OFFLINE}),
    _NON_EXISTENT: frozenset({_OFFLINE}),
}


class ElectionStrategy(Enum):
    """The reason of an election."""

    OFFLINE_PARTITION = "offline partition"
    OFFLINE_PARTITION_UNCLEAN = "offline partition, unclean allowed"
    PREFERRED_REPLICA = "preferred replica"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    REASSIGNMENT = "reassignment"


_NEEDED: Final = (ElectionStrategy.OFFLINE_PARTITION, ElectionStrategy.OFFLINE_PARTITION_UNCLEAN)
"""Reasons of elections without which a partition stays offline."""
NAMED: Final = 10
"""So many partitions without a leader are named in a line of the log."""


class PartitionStateMachine:
    """Moves partitions between states.

    Owned by KafkaController; called within its events on the control loop. `unclean_allowed` says of a topic whether a
    replica out of sync may be elected; `tells_recovery`: whether brokers know a recovering leader (IBP 3.2).
    """

    def __init__(
        self,
        context: ControllerContext,
        store: ControllerStore,
        batch: BrokerRequestBatch,
        unclean_allowed: Callable[[str], bool],
        stats: ControllerStats,
        tells_recovery: bool = True,
    ) -> None:
        self._context = context
        self._store = store
        self._batch = batch
        self._unclean_allowed = unclean_allowed
        self._stats = stats
        self._tells_recovery = tells_recovery

    async def initialize(self) -> None:
        """Derive every partition's state from the store and the live brokers."""
        context = self._context
        async for partition in in_slices(context.all_partitions()):
            state = context.leadership.get(partition)
            if state is None:
                status = _NEW
            elif context.is_replica_online(state.leader, partition):
                status = _ONLINE
            else:
                status = _OFFLINE
            context.put_partition_state(partition, status)

    async def elect_where_needed(self, topic: str | None = None) -> None:
        """Try to bring all New and Offline partitions Online.

        Topics that are being deleted are left out.
        """
        waiting = [
            partition
            async for partition in in_slices(self._context.leaderless)
            if (topic is None or partition.topic == topic) and not self._context.is_topic_being_deleted(partition.topic)
        ]
        await self.handle_state_changes(waiting, _ONLINE, ElectionStrategy.OFFLINE_PARTITION)

    async def handle_state_changes(
        self,
        partitions: Sequence[TopicPartition],
        target: PartitionStatus,
        strategy: ElectionStrategy = ElectionStrategy.OFFLINE_PARTITION,
    ) -> set[TopicPartition]:
        """Move partitions and tell brokers; returns the partitions that reached the state."""
        if not partitions:
            return set()
        moved = await self._move(partitions, target, strategy)
        await self._batch.send()
        return moved

    async def _move(
        self, partitions: Sequence[TopicPartition], target: PartitionStatus, strategy: ElectionStrategy
    ) -> set[TopicPartition]:
        context, status = self._context, self._context.partition_status
        valid = []
        async for partition in in_slices(partitions):
            current = status.get(partition, _NON_EXISTENT)
            if current in VALID_PREVIOUS[target]:
                valid.append(partition)
            else:
                logger.error("Partition %s cannot become %s from %s", partition, target.value, current.value)
        if target is _ONLINE:
            new = [p async for p in in_slices(valid) if status.get(p) is _NEW]
            led = [p async for p in in_slices(valid) if status.get(p) is not _NEW]
            moved = await self._initialize_leaders(new)
            moved |= await self._elect_leaders(led, strategy)
        else:
            moved = set(valid)
        async for partition in in_slices(moved):
            logger.debug("Partition %s changed from %s to %s", partition, status.get(partition), target.value)
            context.put_partition_state(partition, target)
        return moved

    # --- first leaders ------------------------------------------------------------------------------------------------

    async def _initialize_leaders(self, partitions: Sequence[TopicPartition]) -> set[TopicPartition]:
        context = self._context
        states: dict[TopicPartition, PartitionState] = {}
        async for partition in in_slices(partitions):
            replicas = context.replicas_of(partition)
            online = tuple(each for each in replicas if context.is_replica_online(each, partition))
            if online:
                states[partition] = PartitionState(online[0], 0, online, context.epoch)
            else:
                logger.error("Partition %s has no leader: no broker of %s is alive", partition, list(replicas))
        if not states:
            return set()
        try:
            created = await self._store.create_partition_states(states)
        except NodeExistsError as error:
            # An earlier controller wrote it after this one had read: adopt it rather than overwrite it.
            logger.warning("Partitions already have a state (%s); the controller adopts it", error)
            existing = await self._store.partition_states(list(states))
            context.leadership.update(existing)
            created = await self._store.create_partition_states({p: s for p, s in states.items() if p not in existing})
            created |= existing
        async for partition, state in in_slices(created.items()):
            context.leadership[partition] = state
            self._batch.add_leader_and_isr(state.isr, partition, state, is_new=True)
        return set(created)

    # --- elections ----------------------------------------------------------------------------------------------------

    async def _elect_leaders(
        self, partitions: Sequence[TopicPartition], strategy: ElectionStrategy
    ) -> set[TopicPartition]:
        elected: set[TopicPartition] = set()
        remaining = list(partitions)
        # Only this controller writes states, below IBP 2.7 leaders too; a state that is not the latest is refused.
        current = await states_known(self._context, self._store, remaining)
        while remaining:
            done, remaining = await self._elect_once(remaining, current, strategy)
            elected |= done
            current = await self._store.partition_states(remaining)
        return elected

    async def _elect_once(
        self,
        partitions: Sequence[TopicPartition],
        current: Mapping[TopicPartition, PartitionState],
        strategy: ElectionStrategy,
    ) -> tuple[set[TopicPartition], list[TopicPartition]]:
        """The elected partitions, and the partitions to be tried again.

        A leader has changed the state of the latter meanwhile.
        """
        context = self._context
        changed: dict[TopicPartition, PartitionState] = {}
        without_state: list[TopicPartition] = []
        of_later_controller: list[TopicPartition] = []
        without_candidate: list[TopicPartition] = []
        async for partition in in_slices(partitions):
            state = current.get(partition)
            if state is None:
                without_state.append(partition)
                continue
            if state.controller_epoch > context.epoch:
                of_later_controller.append(partition)
                continue
            elected = self._elect(partition, state, strategy)
            if elected is None:
                without_candidate.append(partition)
                continue
            if elected.unclean:
                logger.warning(
                    "Partition %s gets the unclean leader %d and may lose records", partition, elected.leader
                )
            changed[partition] = state._replace(
                leader=elected.leader,
                isr=elected.isr,
                leader_epoch=state.leader_epoch + 1,
                controller_epoch=context.epoch,
                recovering=state.recovering or (elected.unclean and self._tells_recovery),
            )
        _tell_without_leader(logging.ERROR, without_state, "have no state in the metadata store")
        _tell_without_leader(
            logging.WARNING, of_later_controller, f"have the epoch of a later controller, above {context.epoch}"
        )
        # The broker that stops, or whoever wants another leader, asks again or hears of it.
        level = logging.WARNING if strategy in _NEEDED else logging.INFO
        _tell_without_leader(level, without_candidate, f"have no replica that can be elected ({strategy.value})")
        written, refused = await self._store.update_partition_states(changed)
        async for partition, state in in_slices(written.items()):
            self._stats.unclean_elections += state.leader not in current[partition].isr
            context.leadership[partition] = state
            self._batch.add_leader_and_isr(self._recipients(partition, strategy), partition, state)
        return set(written), refused

    def _elect(self, partition: TopicPartition, state: PartitionState, strategy: ElectionStrategy) -> Elected | None:
        replicas = self._context.replicas_of(partition)
        online = self._online(partition, strategy is ElectionStrategy.CONTROLLED_SHUTDOWN)
        if strategy is ElectionStrategy.PREFERRED_REPLICA:
            return elect_preferred(replicas, state.isr, online)
        if strategy is ElectionStrategy.REASSIGNMENT:
            return elect_for_reassignment(self._context.assignment_of(partition).target, state.isr, online)
        if strategy is ElectionStrategy.CONTROLLED_SHUTDOWN:
            return elect_for_shutdown(replicas, state.isr, online, self._context.shutting_down_brokers)
        unclean = strategy is ElectionStrategy.OFFLINE_PARTITION_UNCLEAN or self._unclean_allowed(partition.topic)
        return elect_for_offline_partition(replicas, state.isr, online, unclean)

    def _recipients(self, partition: TopicPartition, strategy: ElectionStrategy) -> Sequence[int]:
        """The brokers that hear of a new leader."""
        if strategy is ElectionStrategy.PREFERRED_REPLICA:
            return self._context.replicas_of(partition)
        if strategy is ElectionStrategy.REASSIGNMENT:
            return self._context.assignment_of(partition).target
        return self._online(partition, strategy is ElectionStrategy.CONTROLLED_SHUTDOWN)

    def _online(self, partition: TopicPartition, with_shutting_down: bool) -> list[int]:
        context = self._context
        replicas: Iterable[int] = context.replicas_of(partition)
        return [each for each in replicas if context.is_replica_online(each, partition, with_shutting_down)]


async def states_known(
    context: ControllerContext, store: ControllerStore, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, PartitionState]:
    """The states in the context, and those of the store where it has none.

    A conditional write shows whether another writer was faster.
    """
    known: dict[TopicPartition, PartitionState] = {}
    unknown: list[TopicPartition] = []
    async for partition in in_slices(partitions):
        state = context.leadership.get(partition)
        if state is None:
            unknown.append(partition)
        else:
            known[partition] = state
    return known | await store.partition_states(unknown)


def _tell_without_leader(level: int, partitions: Sequence[TopicPartition], why: str) -> None:
    """Log in one line that no leader was elected."""
    if partitions:
        some = ", ".join(map(str, partitions[:NAMED]))
        more = f" and {len(partitions) - NAMED} more" if len(partitions) > NAMED else ""
        logger.log(level, "Partitions get no leader because they %s: %s%s", why, some, more)
