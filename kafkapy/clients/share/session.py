"""The share session with one broker (KIP-932): its epoch and its partitions.

    NEW (0) --first response--> 1 --> 2 --> ...        each request has the next epoch
      ^                          |
      +-- not found, wrong epoch, or a lost request         -1 closes the session, and releases all acquired records

Acknowledgements need a session: they belong to the records that it has acquired. Source:
org.apache.kafka.clients.consumer.internals.ShareSessionHandler (4.4).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkapy.errors import ErrorCode
from kafkapy.types import TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

__all__ = ["SharePlan", "ShareSession"]

logger = logging.getLogger("kafka.consumer.share")

NEW: Final = 0
CLOSING: Final = -1
MAX_EPOCH: Final = 2**31 - 1

LOST: Final = frozenset(
    {
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)
"""Errors of a session that the broker does not have."""


class SharePlan(NamedTuple):
    """The session's part of one request."""

    epoch: int
    added: Mapping[TopicPartition, UUID]
    forgotten: Mapping[TopicPartition, UUID]


class ShareSession:
    """A share session. On the loop's thread, one request at a time."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self._epoch = NEW
        self._partitions: dict[TopicPartition, UUID] = {}
        self.names: dict[UUID, str] = {}
        """The topics of the session, by id; also of forgotten ones, whose acknowledgements may be running."""

    @property
    def is_new(self) -> bool:
        """Whether the broker has no session yet."""
        return self._epoch == NEW

    @property
    def epoch(self) -> int:
        """The epoch of the next request."""
        return self._epoch

    def plan(self, wanted: Mapping[TopicPartition, UUID]) -> SharePlan:
        """The next ShareFetch, for these partitions."""
        before = {} if self.is_new else self._partitions
        added = {partition: topic_id for partition, topic_id in wanted.items() if before.get(partition) != topic_id}
        # A topic that was created again is forgotten under its old id.
        forgotten = {partition: topic_id for partition, topic_id in before.items() if wanted.get(partition) != topic_id}
        self._partitions = dict(wanted)
        if self.is_new:
            self.names = {}
        self.names.update((topic_id, partition.topic) for partition, topic_id in wanted.items())
        return SharePlan(self._epoch, added, forgotten)

    def answered(self, code: ErrorCode) -> bool:
        """Handles the error code of a response; whether the session continues."""
        if code:
            logger.info("Node %d could not process a request of the share session: %s", self.node_id, code.name)
            self.lost()
            return False
        self._epoch = 1 if self._epoch == MAX_EPOCH else self._epoch + 1
        return True

    def lost(self) -> None:
        """Ends the session here: the next ShareFetch opens another."""
        self._epoch = NEW
        self._partitions = {}
