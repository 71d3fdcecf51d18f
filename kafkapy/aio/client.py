"""aiokafka's `aiokafka.client`."""

from kafkapy.clients.aio.client import AIOKafkaClient

__all__ = ["AIOKafkaClient"]
