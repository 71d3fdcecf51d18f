"""kafka-python's `kafka.producer`."""

from kafkapy.clients.producer.producer import KafkaProducer

__all__ = ["KafkaProducer"]
