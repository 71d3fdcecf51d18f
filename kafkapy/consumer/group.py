"""kafka-python's `kafka.consumer.group`."""

from kafkapy.clients.consumer.consumer import KafkaConsumer

__all__ = ["KafkaConsumer"]
