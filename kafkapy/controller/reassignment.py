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
from kafkapy.controller.partition_state_machine import ElectionStrategy, PartitionStateMachine
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
        """INVALID_REPLICA_ASSIGNMENT unless these are live brokers, or replicas of the partition already."""
        if not target:
            raise errors.InvalidReplicaAssignmentError("The assignment has no replicas.")
        live = self._context.eligible_brokers
        seen: set[int] = set()
        for broker in target:
            if broker not in live and broker not in assignment.origin:
                raise errors.InvalidReplicaAssignmentError(
                    f"The assignment has broker {broker}, which is not alive. Live brokers: {sorted(live)}"
                )
            if broker in seen:
                raise errors.InvalidReplicaAssignmentError(f"The assignment has broker {broker} twice.")
            seen.add(broker)

    async def _begin(
        self, begun: Mapping[TopicPartition, ReplicaAssignment]
    ) -> dict[TopicPartition, KafkaError | None]:
        results: dict[TopicPartition, KafkaError | None] = {}
        moving: dict[TopicPartition, ReplicaAssignment] = {}
        async for partition, assignment in in_slices(begun.items()):
            results[partition] = None
            if self._context.is_topic_being_deleted(partition.topic):
                results[partition] = errors.UnknownTopicOrPartitionError("The partition does not exist.")
            elif assignment != self._assignment(partition) or partition in self._context.reassigning:
                moving[partition] = assignment
        await self._reassign(moving)
        return results

    # --- progress -----------------------------------------------------------------------------------------------------

    async def resume(self, which: Callable[[TopicPartition, ReplicaAssignment], bool]) -> None:
        """Continue the running reassignments of which that is true."""
        known = {each: self._assignment(each) for each in self._context.reassigning}
        await self._reassign({each: to for each, to in known.items() if to is not None and which(each, to)})

    async def isr_changed(self, partitions: Collection[TopicPartition]) -> None:
        """Complete the reassignments whose targets are in sync now."""
        complete = {}
        for partition in partitions:
            if partition in self._context.reassigning:
                assignment = self._context.assignment_of(partition)
                if await self._is_complete(partition, assignment):
                    complete[partition] = assignment
        await self._reassign(complete)

    async def _reassign(self, moving: Mapping[TopicPartition, ReplicaAssignment]) -> None:
        """Bring partitions to the next phase.

        The node of a topic is written once for all its partitions, because it holds all of them.
        """
        await self._update_assignments(moving)
        complete = {}
        for partition, assignment in moving.items():
            if await self._is_complete(partition, assignment):
                complete[partition] = assignment
                continue
            await self._raise_epoch(partition, assignment)
            for broker in assignment.adding:
                replica = Replica(partition, broker)
                if self._context.replica_state(replica) is ReplicaStatus.NON_EXISTENT:
                    # The broker has just been told, as the one of a new replica.
                    self._context.put_replica_state(replica, ReplicaStatus.NEW)
        if complete:
            await self._complete(complete)

    async def _update_assignments(self, moving: Mapping[TopicPartition, ReplicaAssignment]) -> None:
        """Phase U: the store comes first, so that the next controller can resume."""
        context = self._context
        before = {each: context.assignment_of(each) for each in moving}
        changed = {each: to for each, to in moving.items() if to != before[each]}
        for topic in dict.fromkeys(each.topic for each in moving):
            self._deletion.wait_for_reassignment(topic)
        await self._write(changed)
        for partition, assignment in moving.items():
            if partition in changed:
                current = before[partition]
                logger.info("Assignment of partition %s changes from %s to %s", partition, current, assignment)
                context.put_assignment(partition, assignment)
                await self._remove(partition, [each for each in current.replicas if each not in assignment.replicas])
            context.reassigning[partition] = None

    async def _write(self, changed: Mapping[TopicPartition, ReplicaAssignment]) -> None:
        by_topic: dict[str, dict[int, ReplicaAssignment]] = {}
        for partition, assignment in changed.items():
            by_topic.setdefault(partition.topic, {})[partition.partition] = assignment
        for topic, assignments in by_topic.items():
            await self._store.update_assignments(topic, assignments)

    async def _is_complete(self, partition: TopicPartition, assignment: ReplicaAssignment) -> bool:
        if not assignment.is_being_reassigned:
            return True
        state = (await self._store.partition_states([partition])).get(partition)
        return state is not None and set(assignment.target) <= set(state.isr)

    async def _raise_epoch(self, partition: TopicPartition, assignment: ReplicaAssignment) -> None:
        """Raise the leader epoch and tell all replicas, so that the leader takes over the assignment."""
        state = await self._next_epoch(partition)
        if state is None:
            logger.error("Partition %s cannot be reassigned now: it has no usable state", partition)
            return
        self._batch.add_leader_and_isr(assignment.origin, partition, state)
        self._batch.add_leader_and_isr(assignment.adding, partition, state, is_new=True)
        self._batch.send()

    async def _next_epoch(self, partition: TopicPartition) -> PartitionState | None:
        context = self._context
        while True:
            state = (await self._store.partition_states([partition])).get(partition)
            if state is None:
                return None
            if state.controller_epoch > context.epoch:
                raise ControllerMovedError("another broker has become controller")
            raised = state._replace(leader_epoch=state.leader_epoch + 1, controller_epoch=context.epoch)
            written, _ = await self._store.update_partition_states({partition: raised})
            if partition in written:
                context.leadership[partition] = written[partition]
                return written[partition]

    # --- completion ---------------------------------------------------------------------------------------------------

    async def _complete(self, moved: Mapping[TopicPartition, ReplicaAssignment]) -> None:
        """Phase B."""
        context = self._context
        completed = {each: ReplicaAssignment(assignment.target) for each, assignment in moved.items()}
        for partition, assignment in moved.items():
            added = [Replica(partition, broker) for broker in assignment.adding]
            new = [each for each in added if context.replica_state(each) is not ReplicaStatus.ONLINE]
            await self._replicas.handle_state_changes(new, ReplicaStatus.ONLINE)
            context.put_assignment(partition, completed[partition])
            await self._move_leader(partition, completed[partition])
            await self._remove(partition, assignment.removing)
        await self._write(completed)
        await self._store.remove_reassignments(lambda each, to: each in completed and to == completed[each].replicas)
        for partition, assignment in completed.items():
            context.reassigning.pop(partition, None)
            logger.info("Reassignment of partition %s to brokers %s is complete", partition, list(assignment.replicas))
        self._batch.add_update_metadata(context.live_brokers, list(completed))
        self._batch.send()
        await self._deletion.retry(dict.fromkeys(each.topic for each in completed))

    async def _move_leader(self, partition: TopicPartition, completed: ReplicaAssignment) -> None:
        leader = self._context.leadership[partition].leader if partition in self._context.leadership else -1
        if leader in completed.replicas and self._context.is_replica_online(leader, partition):
            await self._raise_epoch(partition, completed)
        elif partition in self._context.partition_status:
            await self._partitions.handle_state_changes(
                [partition], PartitionStatus.ONLINE, ElectionStrategy.REASSIGNMENT
            )

    async def _remove(self, partition: TopicPartition, brokers: Iterable[int]) -> None:
        """Take replicas out of the ISR, and let their brokers delete them."""
        replicas = [Replica(partition, broker) for broker in brokers]
        known = [each for each in replicas if self._context.replica_state(each) is not ReplicaStatus.NON_EXISTENT]
        for status in (
            ReplicaStatus.OFFLINE,
            ReplicaStatus.DELETION_STARTED,
            ReplicaStatus.DELETION_SUCCESSFUL,
            ReplicaStatus.NON_EXISTENT,
        ):
            await self._replicas.handle_state_changes(known, status)
