"""kafka-python's `kafka.coordinator.assignors.sticky.sticky_assignor`, for partition_assignment_strategy."""

from kafkapy.clients.consumer.membership.assignors.sticky import StickyAssignor as StickyPartitionAssignor

__all__ = ["StickyPartitionAssignor"]
