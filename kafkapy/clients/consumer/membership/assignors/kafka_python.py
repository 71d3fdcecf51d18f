"""Assignors written for kafka-python, with ``metadata``, ``assign`` and ``on_assignment``.

Classes and objects with these methods are recognized; kafka-python itself is not needed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafkapy.clients.cluster_view import ClusterView
from kafkapy.clients.consumer.membership.assignors.api import RebalanceProtocol
from kafkapy.clients.consumer.membership.protocol import (
    NO_GENERATION_ID,
    Assignment,
    ConsumerGroupMetadata,
    Subscription,
    group_by_topic,
)
from kafkapy.types import TopicPartition

if TYPE_CHECKING:
    from kafkapy.clients.cluster import ClusterMetadata

__all__ = [
    "AbstractPartitionAssignor",
    "ConsumerProtocolAssignment",
    "ConsumerProtocolSubscription",
    "KafkaPythonAssignor",
    "is_of_kafka_python",
]


@dataclass(frozen=True, slots=True)
class OwnedPartitions:
    """A member's owned partitions of a topic."""

    topic: str
    partitions: list[int]


@dataclass(frozen=True, slots=True)
class ConsumerProtocolSubscription:
    """A subscription with the attributes of kafka-python's class of this name.

    `version` has no meaning.
    """

    version: int
    topics: list[str]
    user_data: Any = b""
    owned_partitions: list[OwnedPartitions] = field(default_factory=list)
    generation_id: int = NO_GENERATION_ID
    rack_id: str | None = None


@dataclass(frozen=True, slots=True)
class MemberView:
    """A member with the attributes of kafka-python's JoinGroupResponseMember."""

    member_id: str
    group_instance_id: str | None
    metadata: ConsumerProtocolSubscription


@dataclass(frozen=True, slots=True)
class ConsumerProtocolAssignment:
    """An assignment with the attributes of kafka-python's class of this name.

    `version` has no meaning.
    """

    version: int
    assigned_partitions: list[tuple[str, list[int]]]
    user_data: Any = b""

    @property
    def assignment(self) -> list[tuple[str, list[int]]]:
        """The older name of assigned_partitions."""
        return self.assigned_partitions

    def partitions(self) -> list[TopicPartition]:
        """The assigned partitions as a flat list."""
        return [TopicPartition(topic, number) for topic, numbers in self.assigned_partitions for number in numbers]


class AbstractPartitionAssignor(ABC):
    """Base of assignors with kafka-python's methods.

    The methods are called on the consumer's loop.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """The name on which the members of a group agree."""

    def supported_protocols(self) -> Sequence[int]:
        """The RebalanceProtocol values of its assignments, the preferred one first."""
        return (RebalanceProtocol.EAGER,)

    @abstractmethod
    def assign(self, cluster: Any, members: Sequence[Any]) -> Mapping[str, Any]:
        """The assignments of all members: {member id: ConsumerProtocolAssignment}.

        `members` have member_id, group_instance_id and metadata (a ConsumerProtocolSubscription).
        """

    @abstractmethod
    def metadata(self, topics: Iterable[str]) -> Any:
        """A ConsumerProtocolSubscription; the leader's assignor gets its user_data."""

    @abstractmethod
    def on_assignment(self, assignment: Any, generation: int) -> None:
        """Called for every member with its assignment."""


def is_of_kafka_python(assignor: object) -> bool:
    """Whether an assignor, or the class of one, has kafka-python's methods."""
    return all(callable(getattr(assignor, name, None)) for name in ("metadata", "assign", "on_assignment"))


class KafkaPythonAssignor:
    """A ConsumerPartitionAssignor over an assignor of kafka-python."""

    def __init__(self, assignor: Any) -> None:
        self._assignor = assignor
        self.name: str = assignor.name

    def supported_protocols(self) -> Sequence[RebalanceProtocol]:
        """See ConsumerPartitionAssignor. Old assignors without this method are eager."""
        supported = getattr(self._assignor, "supported_protocols", None)
        if supported is None:
            return (RebalanceProtocol.EAGER,)
        return [RebalanceProtocol(int(each)) for each in supported()]

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
        """See ConsumerPartitionAssignor."""
        return _bytes(self._assignor.metadata(set(topics)).user_data)

    def assign(self, cluster: ClusterMetadata, subscriptions: Mapping[str, Subscription]) -> Mapping[str, Assignment]:
        """See ConsumerPartitionAssignor."""
        members = [
            MemberView(member_id, each.group_instance_id, _view(each)) for member_id, each in subscriptions.items()
        ]
        return {
            member_id: Assignment(tuple(_partitions(each.assigned_partitions)), _bytes(each.user_data))
            for member_id, each in self._assignor.assign(ClusterView(cluster), members).items()
        }

    def on_assignment(self, assignment: Assignment, metadata: ConsumerGroupMetadata) -> None:
        """See ConsumerPartitionAssignor."""
        grouped = list(group_by_topic(assignment.partitions).items())
        shown = ConsumerProtocolAssignment(0, grouped, assignment.user_data or b"")
        self._assignor.on_assignment(shown, metadata.generation_id)


def _view(subscription: Subscription) -> ConsumerProtocolSubscription:
    owned = [
        OwnedPartitions(topic, numbers) for topic, numbers in group_by_topic(subscription.owned_partitions).items()
    ]
    return ConsumerProtocolSubscription(
        0,
        list(subscription.topics),
        subscription.user_data or b"",
        owned,
        subscription.generation_id,
        subscription.rack_id,
    )


def _partitions(assigned: Iterable[Any]) -> Iterable[TopicPartition]:
    for each in assigned:
        topic, numbers = each if isinstance(each, tuple) else (each.topic, each.partitions)
        yield from (TopicPartition(topic, number) for number in numbers)


def _bytes(user_data: Any) -> bytes | None:
    """User data as bytes; it may be a message of kafka-python's."""
    return user_data if user_data is None or isinstance(user_data, bytes) else bytes(user_data.encode())
