"""The controller's memory: brokers, topics, replicas, leaders, and their states.

Source: kafka.controller.ControllerContext.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from itertools import chain
from typing import NamedTuple
from uuid import UUID

from kafkapy import errors
from kafkapy.metadata.topic_names import TopicNames
from kafkapy.metadata.znodes import BrokerRegistration, PartitionState, ReplicaAssignment, TopicAssignment
from kafkapy.slices import in_slices
from kafkapy.types import ZERO_UUID, TopicPartition


class Replica(NamedTuple):
    """A partition on one broker."""

    partition: TopicPartition
    broker: int


class PartitionStatus(Enum):
    """The state of a partition in the partition state machine."""

    NON_EXISTENT = "NonExistentPartition"
    NEW = "NewPartition"
    """The partition has replicas but never had a leader."""
    ONLINE = "OnlinePartition"
    OFFLINE = "OfflinePartition"
    """The partition had a leader, and the leader is gone."""


class ReplicaStatus(Enum):
    """The state of a replica in the replica state machine."""

    NON_EXISTENT = "NonExistentReplica"
    NEW = "NewReplica"
    ONLINE = "OnlineReplica"
    OFFLINE = "OfflineReplica"
    DELETION_STARTED = "ReplicaDeletionStarted"
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"


class ControllerContext:
    """The controller's memory of the cluster.

    Only KafkaController's events change it, on the control loop.
    """

    def __init__(self) -> None:
        self.epoch = 0
        self.epoch_version = 0
        """Version of /controller_epoch, which fences a controller that was replaced."""
        self.live_brokers: dict[int, BrokerRegistration] = {}
        self.shutting_down_brokers: set[int] = set()
        self.topic_ids: dict[str, UUID] = {}
        self.topics_by_id: dict[UUID, str] = {}
        self.assignments: dict[str, dict[int, ReplicaAssignment]] = {}
        """Only put_topic, put_assignment and remove_topic change it."""
        self.topic_names = TopicNames()
        """The topic names of `assignments`."""
        self._partitions: dict[str, list[TopicPartition]] = {}
        self.leadership: dict[TopicPartition, PartitionState] = {}
        self.partition_status: dict[TopicPartition, PartitionStatus] = {}
        """Only put_partition_state and remove_topic change it."""
        self.leaderless: dict[TopicPartition, None] = {}
        """The New and Offline partitions of `partition_status`, which an election may bring online."""
        self.replica_status: dict[str, dict[Replica, ReplicaStatus]] = {}
        """Only put_replica_state, drop_replica and remove_topic change it."""
        self.new_replicas: dict[Replica, None] = {}
        """The New replicas of `replica_status`."""
        self.offline_dir_partitions: dict[int, set[TopicPartition]] = {}
        """Broker to the partitions on its failed log directories."""
        self.topics_to_delete: set[str] = set()
        self.topics_deletion_started: set[str] = set()
        self.topics_deletion_ineligible: set[str] = set()
        self.reassigning: dict[TopicPartition, None] = {}
        """Partitions that move to other replicas, in the order in which that began."""

    # --- brokers ------------------------------------------------------------------------------------------------------

    def is_replica_online(self, broker: int, partition: TopicPartition, with_shutting_down: bool = False) -> bool:
        """Whether the broker is alive and its log directory for the partition works."""
        alive = broker in self.live_brokers and (with_shutting_down or broker not in self.shutting_down_brokers)
        return alive and partition not in self.offline_dir_partitions.get(broker, ())

    # --- topics -------------------------------------------------------------------------------------------------------

    def put_topic(self, topic: str, topic_id: UUID, assignment: TopicAssignment) -> None:
        """Add a topic, or partitions of a topic."""
        self.topic_ids[topic] = topic_id
        self.topics_by_id[topic_id] = topic
        self.assignments[topic] = dict(assignment.partitions)
        self.topic_names.add(topic)
        self._partitions[topic] = [TopicPartition(topic, number) for number in assignment.partitions]

    def remove_topic(self, topic: str) -> None:
        """Remove a topic and its partitions from the context."""
        self.assignments.pop(topic, None)
        self.topics_by_id.pop(self.topic_ids.get(topic, ZERO_UUID), None)
        self.topic_names.discard(topic)
        for partition in self._partitions.pop(topic, ()):
            self.leadership.pop(partition, None)
            self.partition_status.pop(partition, None)
            self.leaderless.pop(partition, None)
            self.reassigning.pop(partition, None)
            for partitions in self.offline_dir_partitions.values():
                partitions.discard(partition)
        self.topic_ids.pop(topic, None)
        for replica in self.replica_status.pop(topic, ()):
            self.new_replicas.pop(replica, None)
        self.topics_to_delete.discard(topic)
        self.topics_deletion_started.discard(topic)
        self.topics_deletion_ineligible.discard(topic)

    def put_assignment(self, partition: TopicPartition, assignment: ReplicaAssignment) -> None:
        """Change the replicas of a known partition."""
        self.assignments[partition.topic][partition.partition] = assignment

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        """All partitions of a topic."""
        return list(self._partitions.get(topic, ()))

    def all_partitions(self) -> Iterator[TopicPartition]:
        """Every partition of the cluster."""
        return chain.from_iterable(self._partitions.values())

    def put_partition_state(self, partition: TopicPartition, status: PartitionStatus) -> None:
        """Change the state of a partition."""
        self.partition_status[partition] = status
        if status is PartitionStatus.NEW or status is PartitionStatus.OFFLINE:
            self.leaderless[partition] = None
        else:
            self.leaderless.pop(partition, None)

    def replicas_of(self, partition: TopicPartition) -> tuple[int, ...]:
        """The brokers assigned to a partition, the preferred leader first."""
        assignment = self.assignments.get(partition.topic, {}).get(partition.partition)
        return () if assignment is None else assignment.replicas

    def assignment_of(self, partition: TopicPartition) -> ReplicaAssignment:
        """The full assignment of a partition."""
        return self.assignments[partition.topic][partition.partition]

    def is_topic_being_reassigned(self, topic: str) -> bool:
        """Whether a partition of the topic moves to other replicas."""
        return any(partition.topic == topic for partition in self.reassigning)

    def is_topic_being_deleted(self, topic: str) -> bool:
        """Whether the topic is marked for deletion."""
        return topic in self.topics_to_delete

    # --- replicas -----------------------------------------------------------------------------------------------------

    def replicas_for(self, partitions: Iterable[TopicPartition]) -> Iterator[Replica]:
        """Every replica of the partitions."""
        return (Replica(partition, broker) for partition in partitions for broker in self.replicas_of(partition))

    async def replicas_on(self, brokers: set[int]) -> list[Replica]:
        """Every replica on the brokers."""
        return [
            Replica(partition, broker)
            async for partition in in_slices(self.all_partitions())
            for broker in self.replicas_of(partition)
            if broker in brokers
        ]

    async def replicas_without_broker(self) -> list[Replica]:
        """Online replicas whose broker is not alive."""
        every = chain.from_iterable(statuses.items() for statuses in self.replica_status.values())
        return [
            replica
            async for replica, status in in_slices(every)
            if status is ReplicaStatus.ONLINE and replica.broker not in self.live_brokers
        ]

    async def partitions_with_offline_leader(self) -> list[TopicPartition]:
        """Partitions whose leader is gone, without those of topics to delete."""
        return [
            partition
            async for partition, state in in_slices(self.leadership.items())
            if not self.is_replica_online(state.leader, partition) and partition.topic not in self.topics_to_delete
        ]

    def preferred_replica_imbalance(self) -> int:
        """The number of partitions that another replica than the preferred one leads."""
        return sum(
            partition.topic not in self.topics_to_delete and self.replicas_of(partition)[:1] != (state.leader,)
            for partition, state in self.leadership.items()
        )

    def replica_state(self, replica: Replica) -> ReplicaStatus:
        """The state of the replica."""
        statuses = self.replica_status.get(replica.partition.topic, {})
        return statuses.get(replica, ReplicaStatus.NON_EXISTENT)

    def put_replica_state(self, replica: Replica, status: ReplicaStatus) -> None:
        """Change the state of a replica."""
        statuses = self.replica_status.get(replica.partition.topic)
        if statuses is None:
            statuses = self.replica_status[replica.partition.topic] = {}
        statuses[replica] = status
        if status is ReplicaStatus.NEW:
            self.new_replicas[replica] = None
        elif self.new_replicas:
            self.new_replicas.pop(replica, None)

    def drop_replica(self, replica: Replica) -> None:
        """Forget the state of a replica."""
        self.replica_status.get(replica.partition.topic, {}).pop(replica, None)
        self.new_replicas.pop(replica, None)

    def replicas_in_state(self, topic: str, status: ReplicaStatus) -> list[Replica]:
        """Replicas of a topic in that state."""
        return [replica for replica, each in self.replica_status.get(topic, {}).items() if each is status]

    def has_replica_in_state(self, topic: str, status: ReplicaStatus) -> bool:
        """Whether a replica of a topic is in that state."""
        return status in self.replica_status.get(topic, {}).values()

    def all_replicas_in_state(self, topic: str, status: ReplicaStatus) -> bool:
        """Whether every replica of the topic is in that state.

        True for a topic without replicas.
        """
        return all(self.replica_state(replica) is status for replica in self.replicas_for(self.partitions_of(topic)))

    def offline_replicas(self, partition: TopicPartition) -> tuple[int, ...]:
        """Assigned brokers that are dead, or whose log directory for the partition failed."""
        return tuple(
            broker
            for broker in self.replicas_of(partition)
            if not self.is_replica_online(broker, partition, with_shutting_down=True)
        )

    def is_eligible(self, broker: int) -> bool:
        """Whether the broker is alive and not about to stop."""
        return broker in self.live_brokers and broker not in self.shutting_down_brokers

    def broker_racks(self) -> Mapping[int, str | None]:
        """Live brokers that are not cordoned, and their racks, for the placement of replicas."""
        return {broker.id: broker.rack for broker in self.live_brokers.values() if not broker.cordoned}

    def check_not_cordoned(self, brokers: Iterable[int]) -> None:
        """INVALID_REPLICA_ASSIGNMENT when one of the brokers gets no new partitions (KIP-1066)."""
        cordoned = sorted({each for each in brokers if each in self.live_brokers and self.live_brokers[each].cordoned})
        if cordoned:
            raise errors.InvalidReplicaAssignmentError(
                f"All log directories are cordoned on broker(s) {', '.join(map(str, cordoned))}."
            )
