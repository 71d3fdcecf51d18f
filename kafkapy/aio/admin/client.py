"""aiokafka's `aiokafka.admin.client`."""

from kafkapy.clients.aio.admin import AIOKafkaAdminClient

__all__ = ["AIOKafkaAdminClient"]
