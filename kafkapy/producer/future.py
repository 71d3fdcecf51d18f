"""kafka-python's `kafka.producer.future`: the future of `send()`, and its result."""

from kafkapy._speedups.clients.producer.record_future import FutureRecordMetadata
from kafkapy.types import RecordMetadata

__all__ = ["FutureRecordMetadata", "RecordMetadata"]
