"""kafka-python's `kafka.coordinator.assignors.roundrobin`, to be named in partition_assignment_strategy."""

from kafkapy.clients.consumer.membership.assignors.roundrobin import RoundRobinAssignor as RoundRobinPartitionAssignor

__all__ = ["RoundRobinPartitionAssignor"]
