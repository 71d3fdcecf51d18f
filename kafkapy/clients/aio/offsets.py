"""Partitions and offsets as arguments, in all forms of aiokafka."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kafkapy.types import OffsetAndMetadata, TopicPartition

__all__ = ["CommitOffsets", "OffsetAndTimestamp", "commit_offsets", "topic_partition"]


class OffsetAndTimestamp(NamedTuple):
    """The result of a search by timestamp.

    An offset, and its record's timestamp in ms since the epoch.
    """

    offset: int
    timestamp: int


CommitOffsets = Mapping[TopicPartition, int | tuple[int, str] | OffsetAndMetadata]
"""The offset of the next record to read per partition, with or without metadata."""


def topic_partition(partition: TopicPartition) -> TopicPartition:
    """The argument as a TopicPartition.

    TypeError unless it is a pair of topic and number.
    """
    if not isinstance(partition, tuple) or len(partition) != 2:
        raise TypeError(f"{partition!r} is not a TopicPartition")
    return partition if isinstance(partition, TopicPartition) else TopicPartition(*partition)


def commit_offsets(offsets: CommitOffsets) -> dict[TopicPartition, OffsetAndMetadata]:
    """Offsets in the form of a commit. TypeError; ValueError, also for none."""
    if not isinstance(offsets, Mapping) or not offsets:
        raise ValueError(f"{offsets!r} is not a dict of partitions and offsets")
    return {topic_partition(partition): _offset(partition, each) for partition, each in offsets.items()}


def _offset(partition: TopicPartition, offset: Any) -> OffsetAndMetadata:
    if isinstance(offset, int) and not isinstance(offset, bool):
        offset = (offset, "")
    if isinstance(offset, OffsetAndMetadata) or (isinstance(offset, tuple) and len(offset) == 2):
        number, metadata = offset[:2]
        if not isinstance(metadata, str):
            raise TypeError(f"the metadata of {partition} must be a str, not {type(metadata).__name__}")
        if isinstance(number, int) and not isinstance(number, bool) and number >= 0:
            return OffsetAndMetadata(*offset)
    raise ValueError(f"{offset!r} of {partition} is neither an offset nor a pair of an offset and metadata")
