"""kafkapy: an Apache-Kafka-compatible event broker with its Python clients.

The clients' names are here, as in kafka-python; each is imported on first use, so that `import kafkapy` stays cheap:

    from kafkapy import KafkaConsumer, KafkaProducer, TopicPartition
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kafkapy.version import __version__

if TYPE_CHECKING:
    from kafkapy._speedups.clients.consumer.consumer_record import ConsumerRecord
    from kafkapy.admin import OffsetSpec
    from kafkapy.clients.admin.kafka_admin_client import KafkaAdminClient
    from kafkapy.clients.consumer.consumer import KafkaConsumer
    from kafkapy.clients.consumer.membership.protocol import ConsumerGroupMetadata
    from kafkapy.clients.consumer.subscription import AsyncConsumerRebalanceListener, ConsumerRebalanceListener
    from kafkapy.clients.producer.producer import KafkaProducer
    from kafkapy.clients.share.acknowledgements import AcknowledgeType
    from kafkapy.clients.share.consumer import KafkaShareConsumer
    from kafkapy.errors import KafkaError
    from kafkapy.serializer import DefaultSerializer, Deserializer, JsonSerializer, Serializer
    from kafkapy.types import IsolationLevel, OffsetAndMetadata, TopicPartition, TopicPartitionReplica

_MODULES = {
    "AcknowledgeType": "kafkapy.clients.share.acknowledgements",
    "AsyncConsumerRebalanceListener": "kafkapy.clients.consumer.subscription",
    "ConsumerGroupMetadata": "kafkapy.clients.consumer.membership.protocol",
    "ConsumerRebalanceListener": "kafkapy.clients.consumer.subscription",
    "ConsumerRecord": "kafkapy._speedups.clients.consumer.consumer_record",
    "DefaultSerializer": "kafkapy.serializer",
    "Deserializer": "kafkapy.serializer",
    "IsolationLevel": "kafkapy.types",
    "JsonSerializer": "kafkapy.serializer",
    "KafkaAdminClient": "kafkapy.clients.admin.kafka_admin_client",
    "KafkaConsumer": "kafkapy.clients.consumer.consumer",
    "KafkaError": "kafkapy.errors",
    "KafkaProducer": "kafkapy.clients.producer.producer",
    "KafkaShareConsumer": "kafkapy.clients.share.consumer",
    "OffsetAndMetadata": "kafkapy.types",
    "OffsetSpec": "kafkapy.admin",
    "Serializer": "kafkapy.serializer",
    "TopicPartition": "kafkapy.types",
    "TopicPartitionReplica": "kafkapy.types",
}

__all__ = [
    "AcknowledgeType",
    "AsyncConsumerRebalanceListener",
    "ConsumerGroupMetadata",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "DefaultSerializer",
    "Deserializer",
    "IsolationLevel",
    "JsonSerializer",
    "KafkaAdminClient",
    "KafkaConsumer",
    "KafkaError",
    "KafkaProducer",
    "KafkaShareConsumer",
    "OffsetAndMetadata",
    "OffsetSpec",
    "Serializer",
    "TopicPartition",
    "TopicPartitionReplica",
    "__version__",
]


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
