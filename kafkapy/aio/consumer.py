"""aiokafka's `aiokafka.consumer`."""

from kafkapy.clients.aio.consumer import AIOKafkaConsumer

__all__ = ["AIOKafkaConsumer"]
