"""Offsets of partitions in the JSON that Spark keeps them in, and the limits that a range of offsets is asked for by.

{"topic": {"0": 23, "1": -1}}: the same JSON as that of Spark's own Kafka source, so that a checkpoint fits both. The
texts differ: a Python source gives PySpark a dict, which it writes with json.dumps, with blanks; Spark's source writes
none, and has the topics in no order. Spark takes a different text for new data, so the first batch after a change from
that source may be empty.
Source: org.apache.spark.sql.kafka010.JsonUtils, KafkaOffsetRangeLimit.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kafkapy.errors import IllegalArgumentError
from kafkapy.types import TopicPartition

EARLIEST: Final = -2
"""In place of an offset: the first one of the partition."""
LATEST: Final = -1
"""In place of an offset: the one behind the partition's last record."""

PartitionOffsets = dict[TopicPartition, int]
OffsetJson = dict[str, dict[str, int]]
"""What Spark carries: by topic and by partition, whose number is a string."""


# --- limits -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EarliestOffsets:
    """The first offset of every partition."""


@dataclass(frozen=True)
class LatestOffsets:
    """The end of every partition."""


@dataclass(frozen=True)
class SpecificOffsets:
    """An offset, EARLIEST or LATEST for each partition."""

    offsets: PartitionOffsets


@dataclass(frozen=True)
class OffsetsByTimestamp:
    """The first record at or after a time in ms, by partition. `latest_without_match`: where there is none, a start is
    the partition's end instead of an error."""

    timestamps: PartitionOffsets
    latest_without_match: bool


@dataclass(frozen=True)
class OffsetsAtTimestamp:
    """The same with one time for all partitions."""

    timestamp: int
    latest_without_match: bool


OffsetLimit = EarliestOffsets | LatestOffsets | SpecificOffsets | OffsetsByTimestamp | OffsetsAtTimestamp


# --- JSON -------------------------------------------------------------------------------------------------------------


def to_json(offsets: Mapping[TopicPartition, int]) -> OffsetJson:
    """As Spark carries them, by topic and partition in order: equal offsets make equal texts."""
    out: OffsetJson = {}
    for partition in sorted(offsets):
        out.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return out


def from_json(offsets: Mapping[str, Mapping[str, int]]) -> PartitionOffsets:
    """The offsets of an object that Spark carried."""
    return {
        TopicPartition(topic, int(number)): int(offset)
        for topic, numbers in offsets.items()
        for number, offset in numbers.items()
    }


def parse_partitions(text: str) -> list[TopicPartition]:
    """Partitions in the form {"topicA":[0,1],"topicB":[0,1]}. IllegalArgumentError for another."""
    try:
        return [
            TopicPartition(topic, _number(number))
            for topic, numbers in _object(text).items()
            for number in _list(numbers)
        ]
    except (ValueError, TypeError) as error:
        raise IllegalArgumentError(f'Expected e.g. {{"topicA":[0,1],"topicB":[0,1]}}, got {text}') from error


def parse_offsets(text: str) -> PartitionOffsets:
    """Offsets in the form {"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}. IllegalArgumentError for another."""
    try:
        return _by_partition(text)
    except (ValueError, TypeError) as error:
        raise IllegalArgumentError(
            f'Expected e.g. {{"topicA":{{"0":23,"1":-1}},"topicB":{{"0":-2}}}}, got {text}'
        ) from error


def parse_timestamps(text: str) -> PartitionOffsets:
    """Times in ms, in the form of offsets. IllegalArgumentError."""
    try:
        return _by_partition(text)
    except (ValueError, TypeError) as error:
        raise IllegalArgumentError(
            'Expected e.g. {"topicA": {"0": 123456789, "1": 123456789}, "topicB": {"0": 123456789, "1": 123456789}}, '
            f"got {text}"
        ) from error


def names(partitions: Iterable[TopicPartition]) -> str:
    """Partitions in order, for a message."""
    return ", ".join(str(partition) for partition in sorted(partitions))


def _by_partition(text: str) -> PartitionOffsets:
    return {
        TopicPartition(topic, int(number)): _number(value)
        for topic, numbers in _object(text).items()
        for number, value in _dict(numbers).items()
    }


def _object(text: str) -> dict[str, Any]:
    return _dict(json.loads(text))


def _dict(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError("an object is expected")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError("a list is expected")
    return value


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError("a whole number is expected")
    return value
