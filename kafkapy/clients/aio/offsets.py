"""Arguments about partitions and offsets, in all the forms that aiokafka takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kafkapy.types import OffsetAndMetadata, TopicPartition

__all__ = ["CommitOffsets", "OffsetAndTimestamp", "commit_offsets", "topic_partition"]



class OffsetAndTimestamp(NamedTuple):
    """What a search by timestamp found: an offset and the timestamp of its record, in ms since the epoch."""

    offset: int
    timestamp: int


CommitOffsets = Mapping[TopicPartition, int | tuple[int, str] | OffsetAndMetadata]
"""The next offset to read of each partition, with or without metadata."""


def topic_partition(partition: TopicPartition) -> TopicPartition:
    """TypeError for what is no pair of a topic and a number."""
    if not isinstance(partition, tuple) or len(partition) != 2:
        raise TypeError(f"{partition!r} is not a TopicPartition")
    return partition if isinstance(partition, TopicPartition) else TopicPartition(*partition)


def commit_offsets(offsets: CommitOffsets) -> dict[TopicPartition, OffsetAndMetadata]:
    """Offsets as a commit takes them. TypeError, ValueError: also where there are none."""
    if not isinstance(offsets, Mapping) or not offsets:
        raise ValueError(f"{offsets!r} is no dict of partitions and offsets")
    return {topic_partition(partition): _offset(partition, each) for partition, each in offsets.items()}


def _offset(partition: TopicPartition, offset: Any) -> OffsetAndMetadata:
    if isinstance(offset, int) and not isinstance(offset, bool):
        offset = (offset, "")
    if isinstance(offset, OffsetAndMetadata) or (isinstance(offset, tuple) and len(offset) == 2):
        number, metadata = offset[:2]
        if not isinstance(metadata, str):
            raise TypeError(f"the metadata of {partition} is a {type(metadata).__name__}, and has to be a str")
        if isinstance(number, int) and not isinstance(number, bool) and number >= 0:
            return OffsetAndMetadata(*offset)
    raise ValueError(f"{offset!r} of {partition} is neither an offset nor a pair of an offset and metadata")
