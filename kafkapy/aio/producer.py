"""aiokafka's `aiokafka.producer`."""

from kafkapy.clients.aio.producer import AIOKafkaProducer

__all__ = ["AIOKafkaProducer"]
