"""The reassignment of partitions to other replicas (KIP-455), which outlives requests, brokers and controllers.

    U  the topic's node holds target and origin together; replicas that a newer reassignment leaves out are stopped
    A  the leader and all replicas hear of it with a new leader epoch; the added replicas begin to follow
    B  once the target is in sync: the leader moves into it, the removed replicas leave the ISR and are deleted, and
       the topic's node holds the target alone

The topic's node changes last, because it alone remembers the origin: the next controller resumes from it. A cancelled
reassignment is one to the origin. Source: kafka.controller.KafkaController.onPartitionReassignment.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from kafkapy import errors
from kafkapy.controller.broker_channel import BrokerRequestBatch
from kafkapy.controller.context import ControllerContext, PartitionStatus, Replica, ReplicaStatus
from kafkapy.controller.controller_store import ControllerMovedError, ControllerStore
from kafkapy.controller.partition_state_machine import ElectionStrategy, PartitionStateMachine, states_known
from kafkapy.controller.replica_state_machine import ReplicaStateMachine
from kafkapy.controller.topic_deletion import TopicDeletionManager
from kafkapy.errors import KafkaError
from kafkapy.metadata.znodes import PartitionState, ReplicaAssignment
from kafkapy.slices import in_slices
from kafkapy.types import TopicPartition

logger = logging.getLogger("kafka.controller.KafkaController")

Reassignments = Mapping[TopicPartition, Sequence[int] | None]
"""Partition to its target replicas, None to cancel."""


class PartitionReassignments:
    """Drives reassignments.

    Owned by the Controllership; called within the controller's events on the control loop.
    """

    def __init__(
        self,
        context: ControllerContext,
        store: ControllerStore,
        batch: BrokerRequestBatch,
        partitions: PartitionStateMachine,
        replicas: ReplicaStateMachine,
        deletion: TopicDeletionManager,
    ) -> None:
        self._context = context
        self._store = store
        self._batch = batch
        self._partitions = partitions
        self._replicas = replicas
        self._deletion = deletion

    # --- begin and cancel ---------------------------------------------------------------------------------------------

    async def alter(
        self, wanted: Reassignments, allow_replication_factor_change: bool = True
    ) -> dict[TopicPartition, KafkaError | None]:
        """Begin, replace or cancel reassignments; the error of each partition, or None.

        INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR, NO_REASSIGNMENT_IN_PROGRESS,
        UNKNOWN_TOPIC_OR_PARTITION.
        """
        results: dict[TopicPartition, KafkaError | None] = {}
        begun: dict[TopicPartition, ReplicaAssignment] = {}
        async for partition, target in in_slices(wanted.items()):
            try:
                begun[partition] = self._plan(partition, target, allow_replication_factor_change)
            except KafkaError as error:
                results[partition] = error.with_traceback(None)
        if begun:
            # The latest reassignment counts, so an older one that a tool has written is over.
            await self._store.remove_reassignments(lambda partition, _: partition in begun)
        return results | await self._begin(begun)

    async def adopt_written(self) -> set[TopicPartition]:
        """Begin the reassignments that a tool has written into the store.

        The result are the partitions that move now. Reassignments that cannot begin leave the node.
        """
        results: dict[TopicPartition, KafkaError | None] = {}
        begun: dict[TopicPartition, ReplicaAssignment] = {}
        for partition, target in (await self._store.reassignments()).items():
            assignment = self._assignment(partition)
            if assignment is None or not target:
                results[partition] = errors.UnknownTopicOrPartitionError("The partition does not exist.")
            else:
                begun[partition] = assignment.reassigned_to(target)
        results |= await self._begin(begun)
        failed = {partition: error for partition, error in results.items() if error is not None}
        if failed:
            logger.warning(
                "Reassignments in the metadata store are dropped: %s",
                ", ".join(f"{partition} ({error})" for partition, error in failed.items()),
            )
            await self._store.remove_reassignments(lambda partition, _: partition in failed)
        return results.keys() - failed.keys()

    async def in_progress(self, partitions: Iterable[TopicPartition] | None) -> dict[TopicPartition, ReplicaAssignment]:
        """The running reassignments among the partitions, None for all."""
        result = {}
        async for partition in in_slices(self._context.reassigning if partitions is None else partitions):
            assignment = self._assignment(partition)
            if assignment is not None and assignment.is_being_reassigned:
                result[partition] = assignment
        return result

    def _assignment(self, partition: TopicPartition) -> ReplicaAssignment | None:
        return self._context.assignments.get(partition.topic, {}).get(partition.partition)

    def _plan(self, partition: TopicPartition, target: Sequence[int] | None, any_factor: bool) -> ReplicaAssignment:
        assignment = self._assignment(partition)
        if assignment is None or self._context.is_topic_being_deleted(partition.topic):
            raise errors.UnknownTopicOrPartitionError("The partition does not exist.")
        if target is None:
            if not assignment.is_being_reassigned:
                raise errors.NoReassignmentInProgressError
            return assignment.reassigned_to(assignment.origin)
        self._check_target(target, assignment)
        factor = len(assignment.origin)
        if not any_factor and len(target) != factor:
            raise errors.InvalidReplicationFactorError(
                f"The partition has {factor} replicas and would have {len(target)}."
            )
        return assignment.reassigned_to(target)

    def _check_target(self, target: Sequence[int], assignment: ReplicaAssignment) -> None:
        """INVALID_REPLICA_ASSIGNMENT unless these are live brokers, or replicas of the partition already.

        New ones must not be cordoned.
        """
        if not target:
            raise errors.InvalidReplicaAssignmentError("The assignment has no replicas.")
        seen: set[int] = set()
        for broker in target:
            if not self._context.is_eligible(broker) and broker not in assignment.origin:
                live = sorted(filter(self._context.is_eligible, self._context.live_brokers))
                raise errors.InvalidReplicaAssignmentError(
                    f"The assignment has broker {broker}, which is not alive. Live brokers: {live}"
                )
            if broker in seen:
                raise errors.InvalidReplicaAssignmentError(f"The assignment has broker {broker} twice.")
            seen.add(broker)
        self._context.check_not_cordoned(seen.difference(assignment.origin))

    async def _begin(
        self, begun: Mapping[TopicPartition, ReplicaAssignment]
    ) -> dict[TopicPartition, KafkaError | None]:
        context = self._context
        results: dict[TopicPartition, KafkaError | None] = {}
        moves: dict[TopicPartition, ReplicaAssignment] = {}
        async for partition, assignment in in_slices(begun.items()):
            results[partition] = None
            if context.is_topic_being_deleted(partition.topic):
                results[partition] = errors.UnknownTopicOrPartitionError("The partition does not exist.")
            elif assignment != self._assignment(partition) or partition in context.reassigning:
                moves[partition] = assignment
        for topic, of_topic in (await _by_topic(moves)).items():
            self._deletion.wait_for_reassignment(topic)
            await self._update_assignments(topic, of_topic)
        await self._advance(moves)
        return results

    # --- progress -----------------------------------------------------------------------------------------------------

    async def resume(self, which: Callable[[TopicPartition, ReplicaAssignment], bool]) -> None:
        """Continue the running reassignments of which that is true."""
        moves: dict[TopicPartition, ReplicaAssignment] = {}
        async for partition in in_slices(self._context.reassigning):
            assignment = self._assignment(partition)
            if assignment is not None and which(partition, assignment):
                moves[partition] = assignment
        for topic in {partition.topic for partition in moves}:
            self._deletion.wait_for_reassignment(topic)
        await self._advance(moves)

    async def isr_changed(self, partitions: Collection[TopicPartition]) -> None:
        """Complete the reassignments whose targets are in sync now."""
        context = self._context
        moves = {each: context.assignment_of(each) for each in partitions if each in context.reassigning}
        await self._complete(await self._complete_ones(moves))

    async def _advance(self, moves: Mapping[TopicPartition, ReplicaAssignment]) -> None:
        """Complete what is in sync; the leaders of the rest take the new replicas on."""
        context = self._context
        complete = await self._complete_ones(moves)
        await self._complete(complete)
        waiting = {partition: each for partition, each in moves.items() if partition not in complete}
        await self._raise_epochs(waiting)
        async for partition, assignment in in_slices(waiting.items()):
            for broker in assignment.adding:
                replica = Replica(partition, broker)
                if context.replica_state(replica) is ReplicaStatus.NON_EXISTENT:
                    # The broker has just been told, as the one of a new replica.
                    context.put_replica_state(replica, ReplicaStatus.NEW)

    async def _update_assignments(self, topic: str, moves: Mapping[TopicPartition, ReplicaAssignment]) -> None:
        """Phase U: the store comes first, so that the next controller can resume.

        One write for all partitions of a topic: its node has them all.
        """
        context = self._context
        before = {partition: context.assignment_of(partition) for partition in moves}
        changed = {partition: each for partition, each in moves.items() if before[partition] != each}
        if changed:
            await self._store.update_assignments(topic, {p.partition: each for p, each in changed.items()})
        superseded: list[Replica] = []
        async for partition, assignment in in_slices(changed.items()):
            logger.info("Assignment of partition %s changes from %s to %s", partition, before[partition], assignment)
            context.put_assignment(partition, assignment)
            gone = [each for each in before[partition].replicas if each not in assignment.replicas]
            superseded += [Replica(partition, broker) for broker in gone]
        await self._remove(superseded)
        context.reassigning.update(dict.fromkeys(moves))

    async def _complete_ones(
        self, moves: Mapping[TopicPartition, ReplicaAssignment]
    ) -> dict[TopicPartition, ReplicaAssignment]:
        """The reassignments whose target replicas are in sync."""
        running = [each for each in moves if moves[each].is_being_reassigned]
        # The store knows them best: below IBP 2.7 leaders write ISRs themselves, and replicas that leave are deleted.
        states = await self._store.partition_states(running)
        self._context.leadership.update(states)
        complete: dict[TopicPartition, ReplicaAssignment] = {}
        async for partition, assignment in in_slices(moves.items()):
            state = states.get(partition)
            if not assignment.is_being_reassigned or (state is not None and set(assignment.target) <= set(state.isr)):
                complete[partition] = assignment
        return complete

    async def _raise_epochs(self, moves: Mapping[TopicPartition, ReplicaAssignment]) -> None:
        """Raise the leader epochs and tell all replicas, so that the leaders take over the assignments."""
        if not moves:
            return
        states = await self._next_epochs(list(moves))
        async for partition, assignment in in_slices(moves.items()):
            state = states.get(partition)
            if state is None:
                logger.error("Partition %s cannot be reassigned now: it has no usable state", partition)
                continue
            self._batch.add_leader_and_isr(assignment.origin, partition, state)
            self._batch.add_leader_and_isr(assignment.adding, partition, state, is_new=True)
        await self._batch.send()

    async def _next_epochs(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, PartitionState]:
        context = self._context
        raised: dict[TopicPartition, PartitionState] = {}
        remaining = partitions
        found = await states_known(context, self._store, remaining)
        while remaining:
            changed: dict[TopicPartition, PartitionState] = {}
            async for partition, state in in_slices(found.items()):
                if state.controller_epoch > context.epoch:
                    raise ControllerMovedError("another broker has become controller")
                changed[partition] = state._replace(leader_epoch=state.leader_epoch + 1, controller_epoch=context.epoch)
            written, remaining = await self._store.update_partition_states(changed)
            context.leadership.update(written)
            raised |= written
            found = await self._store.partition_states(remaining)
        return raised

    # --- completion ---------------------------------------------------------------------------------------------------

    async def _complete(self, moves: Mapping[TopicPartition, ReplicaAssignment]) -> None:
        """Phase B, for all of them together: each of its steps is a request to every broker."""
        if not moves:
            return
        context = self._context
        new: list[Replica] = []
        completed: dict[TopicPartition, ReplicaAssignment] = {}
        async for partition, each in in_slices(moves.items()):
            added = [Replica(partition, broker) for broker in each.adding]
            new += [one for one in added if context.replica_state(one) is not ReplicaStatus.ONLINE]
            completed[partition] = ReplicaAssignment(each.target)
        await self._replicas.handle_state_changes(new, ReplicaStatus.ONLINE)
        for partition, assignment in completed.items():
            context.put_assignment(partition, assignment)
        await self._move_leaders(completed)
        await self._remove([Replica(p, broker) for p, each in moves.items() for broker in each.removing])
        by_topic = await _by_topic(completed)
        for topic, of_topic in by_topic.items():
            await self._store.update_assignments(topic, {p.partition: each for p, each in of_topic.items()})
        await self._store.remove_reassignments(lambda each, to: each in completed and to == completed[each].replicas)
        async for partition, assignment in in_slices(completed.items()):
            context.reassigning.pop(partition, None)
            self._batch.add_to_all(partition)
            logger.info("Reassignment of partition %s to brokers %s is complete", partition, list(assignment.replicas))
        await self._batch.send()
        await self._deletion.retry(by_topic)

    async def _move_leaders(self, completed: Mapping[TopicPartition, ReplicaAssignment]) -> None:
        context = self._context
        staying: dict[TopicPartition, ReplicaAssignment] = {}
        moving: list[TopicPartition] = []
        for partition, assignment in completed.items():
            state = context.leadership.get(partition)
            if state and state.leader in assignment.replicas and context.is_replica_online(state.leader, partition):
                staying[partition] = assignment
            elif partition in context.partition_status:
                moving.append(partition)
        await self._raise_epochs(staying)
        await self._partitions.handle_state_changes(moving, PartitionStatus.ONLINE, ElectionStrategy.REASSIGNMENT)

    async def _remove(self, replicas: Iterable[Replica]) -> None:
        """Take replicas out of the ISR, and let their brokers delete them."""
        known = [each for each in replicas if self._context.replica_state(each) is not ReplicaStatus.NON_EXISTENT]
        for status in (
            ReplicaStatus.OFFLINE,
            ReplicaStatus.DELETION_STARTED,
            ReplicaStatus.DELETION_SUCCESSFUL,
            ReplicaStatus.NON_EXISTENT,
        ):
            await self._replicas.handle_state_changes(known, status)


async def _by_topic(
    moves: Mapping[TopicPartition, ReplicaAssignment],
) -> dict[str, dict[TopicPartition, ReplicaAssignment]]:
    result: dict[str, dict[TopicPartition, ReplicaAssignment]] = {}
    async for partition, assignment in in_slices(moves.items()):
        result.setdefault(partition.topic, {})[partition] = assignment
    return result
