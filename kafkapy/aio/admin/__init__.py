"""aiokafka's `aiokafka.admin`."""

from kafkapy.clients.admin.configs import ConfigResource
from kafkapy.clients.admin.topics import NewPartitions, NewTopic
from kafkapy.clients.aio.admin import AIOKafkaAdminClient, RecordsToDelete
from kafkapy.types import ConfigResourceType

__all__ = [
    "AIOKafkaAdminClient",
    "ConfigResource",
    "ConfigResourceType",
    "NewPartitions",
    "NewTopic",
    "RecordsToDelete",
]
