"""Arguments about partitions and offsets, in all the forms that aiokafka takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafkapy.types import OffsetAndMetadata, TopicPartition

__all__ = ["CommitOffsets", "commit_offsets", "topic_partition"]

CommitOffsets = Mapping[TopicPartition, int | tuple[int, str] | OffsetAndMetadata]
"""The next offset to read of each partition, with or without metadata."""


def topic_partition(partition: TopicPartition) -> TopicPartition:
    """TypeError for what is no pair of a topic and a number."""
    if not isinstance(partition, tuple) or len(partition) != 2:
        raise TypeError(f"{partition!r} is not a TopicPartition")
    return partition if isinstance(partition, TopicPartition) else TopicPartition(*partition)


def commit_offsets(offsets: CommitOffsets) -> dict[TopicPartition, OffsetAndMetadata]:
    """Offsets as a commit takes them. TypeError, ValueError."""
    return {topic_partition(partition): _offset(partition, each) for partition, each in offsets.items()}


def _offset(partition: TopicPartition, offset: Any) -> OffsetAndMetadata:
    if isinstance(offset, int) and not isinstance(offset, bool):
        offset = (offset, "")
    if isinstance(offset, tuple) and len(offset) in (2, 3):
        number, metadata = offset[:2]
        if isinstance(number, int) and not isinstance(number, bool) and number >= 0 and isinstance(metadata, str):
            return OffsetAndMetadata(*offset)
    raise ValueError(f"{offset!r} of {partition} is neither an offset nor a pair of an offset and metadata")
