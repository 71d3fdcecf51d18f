"""kafka-python's `kafka.structs`: named tuples that clients take and return."""

from kafkapy.clients.consumer.membership.protocol import ConsumerGroupMetadata
from kafkapy.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition, TopicPartitionReplica

__all__ = [
    "ConsumerGroupMetadata",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "TopicPartition",
    "TopicPartitionReplica",
]
