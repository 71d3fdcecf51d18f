"""kafka-python's `kafka.partitioner.sticky`."""

from kafkapy.clients.producer.kafka_python_partitioners import StickyPartitioner

__all__ = ["StickyPartitioner"]
