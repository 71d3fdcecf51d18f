"""kafka-python's `kafka.producer.kafka`."""

from kafkapy.clients.producer.producer import KafkaProducer

__all__ = ["KafkaProducer"]
