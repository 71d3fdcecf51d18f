"""The durable state of a share-partition: its start offset and state batches.

A share-partition is one partition of a topic as one share group reads it. Its leader keeps what is in flight; the share
coordinator keeps what must survive. Source: SharePartitionKey, PersisterStateBatch and PartitionAllData of Kafka.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Final, NamedTuple, Protocol, Self, TypeVar
from uuid import UUID

from kafkapy.coordinator.partitioning import REMEMBERED_KEY
from kafkapy.types import uuid_from_string, uuid_to_string

UNINITIALIZED_START_OFFSET: Final = -1
"""A start offset that is not known yet: the leader of the share-partition decides it by share.auto.offset.reset."""
UNKNOWN_DELIVERY_COMPLETE: Final = -1
"""A delivery-complete count that nobody has told: of a Write before version 1, or of a state that an operator set."""
NO_EPOCH: Final = -1
"""The leader epoch of a caller that leads nothing, such as a group coordinator that asks for a summary."""

_NUMBER = re.compile("[+-]?[0-9]{1,10}")


class DeliveryState(IntEnum):
    """The state of a delivered record; RecordState of Kafka.

    Leaders never store ACQUIRED: a record that a member holds is AVAILABLE after a restart.
    """

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4


class ShareKey(NamedTuple):
    """A share-partition: a group, and a partition of a topic."""

    group_id: str
    topic_id: UUID
    partition: int

    @property
    def text(self) -> str:
        """Kafka's text of the key, which the coordinator is found by."""
        return (_remembered_text if len(self.group_id) <= REMEMBERED_KEY else _text_of)(self)

    @classmethod
    def parse(cls, text: str) -> Self:
        """The key of a text.

        Group ids may have colons. ValueError for a text that is no key.
        """
        parts = text.rstrip(":").rsplit(":", 2)
        if len(parts) < 3 or not parts[0].strip() or _NUMBER.fullmatch(parts[2]) is None:
            raise ValueError(f"{text[:100]!r} is not a group, a topic id and a partition with colons between them")
        partition = int(parts[2])
        if not -(2**31) <= partition < 2**31:
            raise ValueError(f"{partition} is no number of a partition")
        return cls(parts[0], uuid_from_string(parts[1]), partition)


def _text_of(key: ShareKey) -> str:
    return f"{key.group_id}:{uuid_to_string(key.topic_id)}:{key.partition}"


_remembered_text = lru_cache(10_000)(_text_of)


def share_key(group_id: str, topic_id: bytes, partition: int) -> ShareKey:
    """The key of a share-partition whose topic id comes as bytes."""
    return (_remembered_key if len(group_id) <= REMEMBERED_KEY else _key_of)(group_id, topic_id, partition)


def _key_of(group_id: str, topic_id: bytes, partition: int) -> ShareKey:
    return ShareKey(group_id, UUID(bytes=topic_id), partition)


_remembered_key = lru_cache(10_000)(_key_of)


class StateBatch(NamedTuple):
    """Records of one state and delivery count; both offsets are included."""

    first: int
    last: int
    state: int
    """A DeliveryState."""
    delivery_count: int


class ShareState(NamedTuple):
    """The state of a share-partition, as its new leader reads it."""

    state_epoch: int
    start_offset: int
    """The first offset that is not delivered for good; UNINITIALIZED_START_OFFSET before a leader has decided it."""
    delivery_complete: int
    """Records of `batches` that are delivered no more; see delivery_complete_in."""
    batches: Sequence[StateBatch]
    """In the order of offsets, without overlaps; records between them were never delivered."""


class ShareSummary(NamedTuple):
    """The state of a share-partition without its batches, for offsets and lag."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete: int
    """Records from the start offset on that are delivered no more; UNKNOWN_DELIVERY_COMPLETE where nobody counted."""


def delivery_complete_in(batches: Iterable[StateBatch]) -> int:
    """The number of records in batches of a terminal state."""
    return sum(each.last - each.first + 1 for each in batches if each.state >= DeliveryState.ACKNOWLEDGED)


class WireBatch(Protocol):
    """A state batch of a request, a response or a record."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int

    def __init__(self, *, first_offset: int, last_offset: int, delivery_state: int, delivery_count: int) -> None: ...


W = TypeVar("W", bound=WireBatch)


def to_wire(kind: type[W], batches: Iterable[StateBatch]) -> list[W]:
    """State batches as those of a message."""
    return [
        kind(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
        for first, last, state, count in batches
    ]


def from_wire(batches: Iterable[WireBatch]) -> list[StateBatch]:
    """The state batches of a message."""
    return [
        StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count) for each in batches
    ]
