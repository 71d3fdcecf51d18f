"""kafka-python's `kafka.coordinator.assignors.range`, for partition_assignment_strategy."""

from kafkapy.clients.consumer.membership.assignors.range import RangeAssignor as RangePartitionAssignor

__all__ = ["RangePartitionAssignor"]
