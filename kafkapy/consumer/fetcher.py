"""kafka-python's `kafka.consumer.fetcher`: the consumers' record type."""

from kafkapy._speedups.clients.consumer.consumer_record import ConsumerRecord

__all__ = ["ConsumerRecord"]
