"""kafka-python's `kafka.consumer`."""

from kafkapy.clients.consumer.consumer import KafkaConsumer

__all__ = ["KafkaConsumer"]
