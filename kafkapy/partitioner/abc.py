"""kafka-python's `kafka.partitioner.abc`."""

from kafkapy.clients.producer.kafka_python_partitioners import Partitioner

__all__ = ["Partitioner"]
