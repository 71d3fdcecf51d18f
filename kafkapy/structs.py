"""kafka-python's `kafka.structs`: named tuples of the clients."""

from kafkapy.clients.consumer.membership.protocol import ConsumerGroupMetadata
from kafkapy.types import MemberState, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition, TopicPartitionReplica

__all__ = [
    "ConsumerGroupMetadata",
    "MemberState",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "TopicPartition",
    "TopicPartitionReplica",
]
