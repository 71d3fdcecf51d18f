"""kafka-python's `kafka.producer.future`: what `send()` returns, and what that gives."""

from kafkapy._speedups.clients.producer.record_future import FutureRecordMetadata
from kafkapy.types import RecordMetadata

__all__ = ["FutureRecordMetadata", "RecordMetadata"]
