"""kafka-python's `kafka.coordinator.assignors.cooperative_sticky`, for partition_assignment_strategy."""

from kafkapy.clients.consumer.membership.assignors.cooperative_sticky import CooperativeStickyAssignor

__all__ = ["CooperativeStickyAssignor"]
