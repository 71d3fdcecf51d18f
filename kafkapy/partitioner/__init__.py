"""kafka-python's `kafka.partitioner`: partitioners for `KafkaProducer(partitioner=...)`, and their base class."""

from kafkapy._speedups.base.murmur2 import murmur2
from kafkapy.clients.producer.kafka_python_partitioners import DefaultPartitioner, Partitioner, StickyPartitioner

__all__ = ["DefaultPartitioner", "Partitioner", "StickyPartitioner", "murmur2"]
