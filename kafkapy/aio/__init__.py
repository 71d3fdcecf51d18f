"""The asyncio clients, with aiokafka's names: change the import, and little else.

    from kafkapy.aio import AIOKafkaConsumer, AIOKafkaProducer

They run on the user's event loop, asyncio's or uvloop. docs/clients.md lists the differences.
"""

from kafkapy._speedups.clients.consumer.consumer_record import ConsumerRecord
from kafkapy.clients.admin.configs import ConfigResource
from kafkapy.clients.admin.topics import NewPartitions, NewTopic
from kafkapy.clients.aio.admin import AIOKafkaAdminClient, RecordsToDelete
from kafkapy.clients.aio.batch_builder import BatchBuilder
from kafkapy.clients.aio.client import AIOKafkaClient
from kafkapy.clients.aio.consumer import AIOKafkaConsumer
from kafkapy.clients.aio.errors import ConsumerStoppedError, IllegalOperation, ProducerClosed
from kafkapy.clients.aio.offsets import OffsetAndTimestamp
from kafkapy.clients.aio.producer import AIOKafkaProducer, TransactionContext
from kafkapy.clients.aio.share_consumer import AIOKafkaShareConsumer
from kafkapy.clients.consumer.subscription import ConsumerRebalanceListener, SubscriptionPattern
from kafkapy.clients.share.acknowledgements import AcknowledgeType
from kafkapy.types import OffsetAndMetadata, RecordMetadata, TopicPartition

__all__ = [
    "AIOKafkaAdminClient",
    "AIOKafkaClient",
    "AIOKafkaConsumer",
    "AIOKafkaProducer",
    "AIOKafkaShareConsumer",
    "AcknowledgeType",
    "BatchBuilder",
    "ConfigResource",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "ConsumerStoppedError",
    "IllegalOperation",
    "NewPartitions",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "ProducerClosed",
    "RecordMetadata",
    "RecordsToDelete",
    "SubscriptionPattern",
    "TopicPartition",
    "TransactionContext",
]
