"""Selectors of the replica that a consumer should read from (KIP-392), for `replica.selector.class`.

The leader asks the selector, and tells the consumer. `LeaderSelector` and `RackAwareReplicaSelector` are built in; the
data plane knows their rules, so it asks Python only for others. Source: org.apache.kafka.common.replica.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kafkapy.types import TopicPartition

__all__ = ["ConsumerView", "LeaderSelector", "RackAwareReplicaSelector", "ReplicaSelector", "ReplicaView"]


class ConsumerView(NamedTuple):
    """A consumer that fetches."""

    client_id: str
    rack: str
    """The consumer's `client.rack`; empty without one."""
    principal: str
    host: str
    listener_name: str


class ReplicaView(NamedTuple):
    """A replica that has the offset that the consumer fetches."""

    broker_id: int
    rack: str | None
    log_end_offset: int
    since_caught_up_ms: int
    """Ms since the replica last had all records; 0 for the leader."""


class ReplicaSelector(ABC):
    """Selects replicas for consumers.

    One for the broker; called on the control loop for each Fetch that a follower could serve, so it must be quick.
    """

    @abstractmethod
    def select(
        self, partition: TopicPartition, consumer: ConsumerView, replicas: Sequence[ReplicaView], leader: ReplicaView
    ) -> int | None:
        """The id of the broker to read from; None: the leader.

        `replicas`: the leader and the followers in the ISR that have the offset.
        """

    @abstractmethod
    def close(self) -> None:
        """Release what the selector holds."""


class LeaderSelector(ReplicaSelector):
    """Lets every consumer read from the leader."""

    def select(
        self, partition: TopicPartition, consumer: ConsumerView, replicas: Sequence[ReplicaView], leader: ReplicaView
    ) -> int | None:
        """See ReplicaSelector."""
        return None

    def close(self) -> None:
        """See ReplicaSelector."""


class RackAwareReplicaSelector(LeaderSelector):
    """Selects the most caught up replica in the consumer's rack.

    The leader, when it is in that rack, or when no replica is.
    """

    def select(
        self, partition: TopicPartition, consumer: ConsumerView, replicas: Sequence[ReplicaView], leader: ReplicaView
    ) -> int | None:
        """See ReplicaSelector."""
        near = [each for each in replicas if consumer.rack and each.rack == consumer.rack]
        if not near or leader in near:
            return None
        return max(near, key=lambda each: (each.log_end_offset, -each.since_caught_up_ms, each.broker_id)).broker_id
