"""kafka-python's `kafka.coordinator.assignors.abstract`: the base of its assignors."""

from kafkapy.clients.consumer.membership.assignors.api import RebalanceProtocol
from kafkapy.clients.consumer.membership.assignors.kafka_python import (
    AbstractPartitionAssignor,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)

__all__ = [
    "AbstractPartitionAssignor",
    "ConsumerProtocolAssignment",
    "ConsumerProtocolSubscription",
    "RebalanceProtocol",
]
