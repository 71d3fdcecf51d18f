"""kafka-python's `kafka.partitioner.default`."""

from kafkapy._speedups.base.murmur2 import murmur2
from kafkapy.clients.producer.kafka_python_partitioners import DefaultPartitioner

__all__ = ["DefaultPartitioner", "murmur2"]
