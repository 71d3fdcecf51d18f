"""The consumer of the fixture kafka_consumer: without a record, its test fails."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kafkapy._speedups.clients.consumer.consumer_record import ConsumerRecord
from kafkapy.clients.consumer.consumer import KafkaConsumer
from kafkapy.types import TopicPartition

__all__ = ["ImpatientConsumer"]


class ImpatientConsumer(KafkaConsumer):
    """Reads one topic from its beginning, without a group.

    Its iteration fails the test after `timeout_s` seconds without a record, instead of waiting forever.
    """

    def __init__(self, topic: str, config: Mapping[str, str], timeout_s: float) -> None:
        self._topic = topic
        self._timeout_s = timeout_s
        keywords: dict[str, Any] = {name.replace(".", "_"): value for name, value in config.items()}
        super().__init__(topic, **keywords, auto_offset_reset="earliest", consumer_timeout_ms=timeout_s * 1000)

    def next_slowly(self) -> ConsumerRecord:
        """The next record, as in KafkaConsumer; pytest.fail() without one."""
        try:
            return super().next_slowly()
        except StopIteration:
            if self._closed:
                raise
        ends = self.end_offsets([TopicPartition(self._topic, each) for each in self.partitions_for_topic(self._topic)])
        read = {partition: self.position(partition) for partition in self.assignment()}
        where = ", ".join(f"{each} read up to {read.get(each, 0)} of {end}" for each, end in sorted(ends.items()))
        pytest.fail(
            f"kafka_consumer got no record of topic {self._topic} within {self._timeout_s:g} s ({where}). Was it sent, "
            "and flushed, to this topic? poll(timeout_ms=...) returns {} instead. The time is kafkapy_record_timeout "
            "in pytest's configuration."
        )
