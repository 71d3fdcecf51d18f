"""The controller's numbers for metrics: what its events take, elections, and work that waits.

Source: kafka.controller.ControllerStats, ControllerState, KafkaController.updateMetrics.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from kafkapy.controller.context import ControllerContext, ReplicaStatus
from kafkapy.metadata.cache import MetadataSnapshot

__all__ = ["STATES", "ControllerNumbers", "ControllerState", "ControllerStats", "numbers_of"]


class ControllerState(NamedTuple):
    """The kind of an event."""

    value: int
    """As the metric ControllerState shows it."""
    name: str
    """The metric of its events' times, without RateAndTimeMs."""


IDLE: Final = 0
STATES: Final[Mapping[str, ControllerState]] = {
    "Startup": ControllerState(1, "ControllerChange"),
    "ControllerChange": ControllerState(1, "ControllerChange"),
    "RegisterBrokerAndReelect": ControllerState(1, "ControllerChange"),
    "Expire": ControllerState(1, "ControllerChange"),
    "BrokerChange": ControllerState(2, "LeaderElection"),
    "BrokerModifications": ControllerState(2, "LeaderElection"),
    "RetryElection": ControllerState(2, "LeaderElection"),
    "TopicChange": ControllerState(3, "TopicChange"),
    "CreateTopics": ControllerState(3, "TopicChange"),
    "CreatePartitions": ControllerState(3, "TopicChange"),
    "PartitionModifications": ControllerState(3, "TopicChange"),
    "TopicDeletion": ControllerState(4, "TopicDeletion"),
    "DeleteTopics": ControllerState(4, "TopicDeletion"),
    "TopicDeletionResume": ControllerState(4, "TopicDeletion"),
    "StopReplicaResponseReceived": ControllerState(4, "TopicDeletion"),
    "ZkPartitionReassignment": ControllerState(5, "PartitionReassignment"),
    "ApiPartitionReassignment": ControllerState(5, "PartitionReassignment"),
    "PartitionReassignmentIsrChange": ControllerState(5, "PartitionReassignment"),
    "AutoPreferredReplicaLeaderElection": ControllerState(6, "AutoLeaderBalance"),
    "ReplicaLeaderElection": ControllerState(7, "ManualLeaderBalance"),
    "PreferredReplicaElection": ControllerState(7, "ManualLeaderBalance"),
    "ControlledShutdown": ControllerState(8, "ControlledShutdown"),
    "IsrChangeNotification": ControllerState(9, "IsrChange"),
    "AlterPartition": ControllerState(9, "IsrChange"),
    "LeaderAndIsrResponseReceived": ControllerState(10, "LeaderAndIsrResponseReceived"),
    "LogDirEventNotification": ControllerState(11, "LogDirChange"),
    "UncleanLeaderElectionEnable": ControllerState(13, "UncleanLeaderElectionEnable"),
    "TopicUncleanLeaderElectionEnable": ControllerState(14, "TopicUncleanLeaderElectionEnable"),
    "ListPartitionReassignments": ControllerState(15, "ListPartitionReassignment"),
}
"""The state of each event."""


class ControllerStats:
    """Owned by KafkaController, which counts on the control loop; any thread reads."""

    def __init__(self) -> None:
        self.state = IDLE
        self.counts: dict[str, int] = {each.name: 0 for each in STATES.values()}
        """Number of events by the name of their state."""
        self.seconds: dict[str, float] = dict.fromkeys(self.counts, 0.0)
        """Time that these events took, in total."""
        self.unclean_elections = 0
        """Leaders that were elected out of sync."""

    def begun(self, event: str) -> None:
        """An event begins to run."""
        state = STATES.get(event.partition(" ")[0])
        self.state = IDLE if state is None else state.value

    def ended(self, event: str, seconds: float) -> None:
        """An event has run."""
        self.state = IDLE
        state = STATES.get(event.partition(" ")[0])
        if state is not None:
            self.counts[state.name] += 1
            self.seconds[state.name] += seconds


class ControllerNumbers(NamedTuple):
    """Gauges of the active controller, all 0 elsewhere."""

    active_brokers: int = 0
    preferred_replica_imbalance: int = 0
    topics_to_delete: int = 0
    replicas_to_delete: int = 0
    ineligible_topics_to_delete: int = 0
    ineligible_replicas_to_delete: int = 0
    queued_requests: int = 0
    """Requests that wait for brokers."""


def numbers_of(context: ControllerContext, metadata: MetadataSnapshot, queued_requests: int) -> ControllerNumbers:
    """The gauges of the active controller; any thread may ask.

    `metadata` is this broker's: it shows what the controller has told, and never changes under a reader.
    """
    deleting = list(context.topics_to_delete)
    left = ineligible = 0
    for topic in deleting:
        statuses = list(context.replica_status.get(topic, {}).values())
        left += sum(status is not ReplicaStatus.DELETION_SUCCESSFUL for status in statuses)
        ineligible += statuses.count(ReplicaStatus.DELETION_INELIGIBLE)
    elsewhere = sum(
        bool(partition.replicas) and partition.leader != partition.replicas[0]
        for topic_metadata in metadata.topics.values()
        for partition in topic_metadata.partitions.values()
    )
    return ControllerNumbers(
        len(context.live_brokers),
        elsewhere,
        len(deleting),
        left,
        len(context.topics_deletion_ineligible),
        ineligible,
        queued_requests,
    )
