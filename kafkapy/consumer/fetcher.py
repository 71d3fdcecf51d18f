"""kafka-python's `kafka.consumer.fetcher`: the record that consumers return."""

from kafkapy._speedups.clients.consumer.consumer_record import ConsumerRecord

__all__ = ["ConsumerRecord"]
