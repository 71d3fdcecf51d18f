"""aiokafka's `aiokafka.structs`: named tuples of the asyncio clients."""

from kafkapy._speedups.clients.consumer.consumer_record import ConsumerRecord
from kafkapy.clients.aio.offsets import OffsetAndTimestamp
from kafkapy.types import OffsetAndMetadata, RecordMetadata, TopicPartition

__all__ = ["ConsumerRecord", "OffsetAndMetadata", "OffsetAndTimestamp", "RecordMetadata", "TopicPartition"]
